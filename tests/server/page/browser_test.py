#!/usr/bin/env python3
"""The web page in a real browser: conversations, the engine at work, keys, phones, and whoever cannot see it.

  browser_test.py MOEFLUX MODEL SCREENSHOTS [NAME ...]

NAME: only these tests. Exits with 77 and says SKIP where Chromium or its driver is missing (Debian: chromium,
chromium-driver). Leaves pictures of what it saw in SCREENSHOTS.
"""

import contextlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import webdriver
from webdriver import Browser

HERE = pathlib.Path(__file__).parent
ACCESSIBILITY = (HERE / "accessibility.js").read_text()
# So little that most experts stay on the drive.
SMALL = ["--ram", "130M", "--threads", "1", "-c", "1024", "--parallel", "1", "--draft", "off"]
WEATHER = json.dumps([{"name": "get_weather", "description": "Get the weather in a city",
                       "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}])
STORY = "Tell me a short story about a frog with a bell."


@contextlib.contextmanager
def server(moeflux, model, *options):
    command = [moeflux, "serve", *model, "--port", "0", "--prefix-store", "off", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        url = None
        for line in process.stderr:
            if match := re.search(r"listening on (http://\S+)", line):
                url = match[1]
            if "ready:" in line or "models:" in line:
                break
            if "error" in line:
                raise AssertionError(line)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError("the server did not stop within 20 seconds of SIGTERM") from None


class Page:
    """What a user does with the page, by what he sees of it."""

    def __init__(self, browser, url, screenshots):
        self.browser, self.url, self.screenshots = browser, url, screenshots

    def open(self):
        self.browser.open(self.url)
        self.browser.find("html[data-ready]")

    def reload(self):
        self.browser.reload()
        self.browser.find("html[data-ready]")

    def picture(self, name):
        self.browser.screenshot(str(self.screenshots / f"{name}.png"))

    def write(self, text):
        self.browser.type("#prompt", text)

    def ask(self, text, wait=True):
        before = self.browser.count(".message.answer")
        self.write(text)
        self.browser.click(".send")
        if wait:
            self.browser.wait(lambda: self.browser.count(".message.answer") > before, "an answer to begin")
            self.wait_for_rest()

    def wait_for_rest(self):
        self.browser.wait(lambda: not self.is_running(), "the answer to end", 60)

    def is_running(self):
        return self.browser.run("return document.querySelector('.send').getAttribute('aria-label') === 'Stop'")

    def answers(self):
        return self.browser.run("return [...document.querySelectorAll('.message.answer > .prose')].map((each) => each.innerText)")

    def questions(self):
        return self.browser.run("return [...document.querySelectorAll('.message.user .bubble')].map((each) => each.innerText)")

    def engine(self, opened):
        if self.browser.run("return document.querySelector('#engine').hidden") == opened:
            self.browser.press("Alt", "e")
        self.browser.wait(lambda: self.browser.run("return document.querySelector('#engine').hidden") != opened, "the engine panel")

    def parameters(self, **values):
        """Fields of the dialog by their labels."""
        self.browser.click("[aria-label^='Parameters of this chat']")
        self.browser.find("dialog[open] .parameters")
        for label, value in values.items():
            self.browser.run("""
                const labels = [...document.querySelectorAll('dialog .field, dialog .number')];
                const box = labels.find((each) => each.innerText.startsWith(arguments[0].replaceAll('_', ' ')));
                const field = box.querySelector('textarea, input[type=number], select');
                field.value = arguments[1];
                field.dispatchEvent(new Event('input', {bubbles: true}));""", label, value)
        self.browser.click("dialog .primary")
        self.browser.wait(lambda: self.browser.count("dialog") == 0, "the dialog to close")

    def choose_file(self, click, path):
        """The page makes its own input for a file: it is caught on its way to the system's dialog."""
        self.browser.run("""
            HTMLInputElement.prototype.click = function () {
              this.id = 'chosen-file';
              document.body.append(this);
            };""")
        click()
        self.browser.upload("#chosen-file", path)
        self.browser.run("document.querySelector('#chosen-file').remove()")

    def paste(self, text):
        self.browser.run("""
            const data = new DataTransfer();
            data.setData('text/plain', arguments[0]);
            document.querySelector('#prompt').dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));""", text)


def equal(seen, wanted):
    assert seen == wanted, f"{seen!r} instead of {wanted!r}"


def contains(text, part):
    assert part in text, f"{part!r} is not in {text!r}"


# ---- Chats

def test_conversation(page):
    browser = page.browser
    page.open()
    contains(browser.text(".intro"), "36.5 million")
    page.picture("empty")
    page.ask("What is 12 + 30?")
    contains(page.answers()[0], "42")
    equal(browser.count(".thought"), 1)
    equal(browser.run("return document.querySelector('.thought').open"), False)
    contains(browser.text(".thought summary"), "Thought for")
    contains(browser.text(".report summary"), "tokens/s")
    browser.click(".thought summary")
    assert len(browser.text(".thought .prose")) > 5
    browser.click(".report summary")
    contains(browser.text(".report dl"), "all 8 of 64 experts")
    equal(browser.text("h1"), "What is 12 + 30?")
    page.picture("conversation")


def test_reload_keeps_the_history(page):
    page.open()
    page.ask("What is 12 + 30?")
    page.ask("What is 46 + 98?")
    before = (page.questions(), page.answers())
    equal(len(before[0]), 2)
    page.reload()
    page.browser.wait(lambda: len(page.answers()) == 2, "two answers")
    equal((page.questions(), page.answers()), before)
    contains(page.browser.text(".chat-list"), "What is 12 + 30?")


def test_edit_makes_a_branch(page):
    browser = page.browser
    page.open()
    page.ask("What is 12 + 30?")
    first = page.answers()
    browser.click(".user [aria-label='Edit and ask again']")
    browser.run("document.querySelector('.edit textarea').value = ''")
    browser.type(".edit textarea", "What is 46 + 98?")
    browser.click(".edit .primary")
    browser.wait(lambda: page.questions() == ["What is 46 + 98?"] and page.answers(), "the other question")
    page.wait_for_rest()
    contains(page.answers()[0], "144")
    equal(browser.text(".user .branches"), "2/2")
    page.picture("branch")
    browser.click(".user [aria-label='Branch before']")
    browser.wait(lambda: page.answers() == first, "the first branch")
    page.reload()
    browser.wait(lambda: page.answers() == first, "the first branch after a reload")
    equal(browser.text(".user .branches"), "1/2")


def test_answer_again(page):
    browser = page.browser
    page.open()
    page.ask(STORY)
    browser.click("[aria-label='Answer again']")
    browser.find(".answer .branches", 30)
    page.wait_for_rest()
    browser.wait(lambda: browser.text(".answer .branches") == "2/2", "two answers")


def test_edit_while_it_answers(page):
    browser = page.browser
    page.open()
    page.ask(STORY, wait=False)
    browser.wait(lambda: any(page.answers()), "the answer to grow")
    browser.click(".user [aria-label='Edit and ask again']")
    browser.run("document.querySelector('.edit textarea').value = ''")
    browser.type(".edit textarea", "What is 46 + 98?")
    browser.click(".edit .primary")
    # Answers may be drawn anew between two looks.
    browser.wait(lambda: any("144" in answer for answer in page.answers()), "the answer to the other question", 30)
    browser.click(".user [aria-label='Branch before']")
    browser.wait(lambda: page.questions() == [STORY], "the first question")


def test_leaving_while_it_answers(page):
    browser = page.browser
    page.open()
    page.parameters(Temperature="2")
    page.ask(STORY, wait=False)
    browser.wait(lambda: page.answers() and len(page.answers()[0]) > 20, "the answer to grow")
    browser.click(".new-chat")  # it goes on in its own chat
    browser.wait(lambda: browser.count(".message") == 0, "an empty chat")
    page.reload()
    browser.click(".chat-open")
    browser.wait(lambda: browser.count(".message.answer") == 1, "what there was of the answer")
    equal(browser.text(".status"), "This answer was interrupted.")
    browser.click("[aria-label='Answer again']")
    browser.wait(lambda: browser.text(".answer .branches") == "2/2" or page.is_running(), "another answer")
    browser.press("Escape")
    page.wait_for_rest()


def test_stop(page):
    browser = page.browser
    page.open()
    page.parameters(Temperature="2")
    for _ in range(5):  # it may come to its end by itself
        page.ask(STORY, wait=False)
        browser.wait(lambda: len(page.answers()) > 0 and len(page.answers()[-1]) > 20, "the answer to grow")
        browser.press("Escape")
        page.wait_for_rest()
        if "Stopped." in browser.text(".status"):
            break
        page.browser.click(".new-chat")
        page.parameters(Temperature="2")
    contains(browser.text(".status"), "Stopped.")
    said = page.answers()[-1]
    time.sleep(0.5)
    equal(page.answers()[-1], said)
    page.reload()
    browser.wait(lambda: page.answers()[-1:] == [said], "what was said before the stop")
    browser.click("[aria-label^='Parameters of this chat']")
    equal(browser.run("return document.querySelector('dialog input[type=number]').value"), "2")


def test_tool_call(page):
    browser = page.browser
    page.open()
    page.parameters(Your_own=WEATHER)
    page.ask("Is it raining in Rabat?")
    contains(browser.text(".call summary"), "get_weather")
    contains(browser.text(".call pre"), '"city": "Rabat"')
    page.picture("tool-call")
    browser.type(".results textarea", '{"weather": "rain", "degrees": 15}')
    browser.click(".results button")
    browser.wait(lambda: browser.count(".message.answer") == 2, "an answer with the result")
    page.wait_for_rest()
    assert page.answers()[1].strip()
    contains(browser.text(".call-state"), "answered")
    page.reload()
    browser.wait(lambda: browser.count(".message.answer") == 2, "both answers")
    equal(browser.count(".results"), 0)


def test_wrong_tools_are_refused(page):
    browser = page.browser
    page.open()
    browser.click("[aria-label^='Parameters of this chat']")
    browser.type("dialog .code-input", "{")
    browser.click("dialog .primary")
    contains(browser.text(".problem"), "not JSON")
    browser.press("Escape")
    browser.wait(lambda: browser.count("dialog") == 0, "the dialog to close")


def test_attachments(page):
    browser = page.browser
    page.open()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "notes.txt"
        file.write_text("Sam is in the garden.\n")
        page.choose_file(lambda: browser.click("[aria-label='Attach text files']"), file)
        browser.wait_for_text(".attachments", "notes.txt")
        binary = pathlib.Path(folder) / "picture.png"
        binary.write_bytes(bytes(range(256)))
        page.choose_file(lambda: browser.click("[aria-label='Attach text files']"), binary)
        browser.wait_for_text(".toast", "picture.png is not a text.")
    page.paste("A short paste.")
    page.paste("line\n" * 100)
    browser.wait_for_text(".attachments", "Pasted text 1")
    browser.wait_for_text(".attachments", "tokens")
    page.picture("attachments")
    browser.click("[aria-label='Remove Pasted text 1']")
    page.ask("Where is Sam?")
    equal(browser.text(".message .chip-name span"), "notes.txt")
    contains(page.answers()[0], "garden")


def test_markup_of_others_is_text(page):
    browser = page.browser
    page.open()
    evil = '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script> **bold** [x](javascript:window.hacked=1) ![p](https://example.org/p.png)'
    shown = browser.run_async("""
        const {Prose} = await import('/page/render/nodes.js');
        const prose = new Prose();
        prose.set(args[0]);
        document.body.append(prose.element);
        const found = [prose.element.querySelectorAll('img, script').length, prose.element.querySelectorAll('strong').length,
          [...prose.element.querySelectorAll('a')].map((each) => each.getAttribute('href')).join(' ')];
        prose.element.remove();
        return found;""", evil)
    equal(shown, [0, 1, "https://example.org/p.png"])
    equal(browser.run("return window.hacked ?? 0"), 0)
    refused = browser.run("try { document.createElement('div').innerHTML = '<b>x</b>'; return ''; } catch (error) { return error.name; }")
    equal(refused, "TypeError")  # no text becomes markup, whatever the page's own code does
    browser.messages()  # the browser has said so


def test_search_rename_delete(page):
    browser = page.browser
    page.open()
    page.ask("What is 12 + 30?")
    browser.click(".new-chat")
    page.ask("Find the box.")
    browser.press("Control", "k")
    browser.type("[type=search]", "12 30")
    browser.wait_for_text(".chat-list", "Found 1 chat")
    equal(browser.text(".chat-title"), "What is 12 + 30?")
    browser.press("Escape")
    browser.wait(lambda: browser.count(".chat-item") == 2, "both chats")
    browser.run("document.querySelector('.chat-item .icon-button').click()")
    browser.press("Enter")
    browser.run("document.querySelector('dialog input').value = ''")
    browser.type("dialog input", "The lost box")
    browser.press("Enter")
    browser.wait(lambda: browser.text("h1") == "The lost box", "the new title")
    browser.run("document.querySelector('.chat-item .icon-button').click()")
    browser.press("ArrowUp")
    browser.press("Enter")
    browser.wait(lambda: browser.count(".chat-item") == 1, "one chat")
    browser.click(".toast .quiet")
    browser.wait(lambda: browser.count(".chat-item") == 2, "the chat to be back")


def test_export_and_import(page):
    browser = page.browser
    with tempfile.TemporaryDirectory() as folder:
        browser.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
        page.open()
        page.ask("What is 12 + 30?")
        answer = page.answers()
        browser.click(".sidebar-foot button")
        browser.run("[...document.querySelectorAll('dialog button')].find((each) => each.innerText === 'Export all').click()")
        file = browser.wait(lambda: next(iter(pathlib.Path(folder).glob("*.json")), None), "the file")
        saved = browser.wait(lambda: json.loads(file.read_text() or "null"), "its content")
        equal((saved["format"], len(saved["chats"]), len(saved["chats"][0]["messages"])), ("moeflux-chats", 1, 2))
        browser.run("[...document.querySelectorAll('dialog .danger')].at(-1).click()")
        browser.click("dialog.narrow .danger")
        browser.wait(lambda: browser.count(".chat-item") == 0, "no chat to be left")
        page.choose_file(lambda: browser.run("[...document.querySelectorAll('dialog button')].find((each) => each.innerText === 'Import').click()"), file)
        browser.wait(lambda: browser.count(".chat-item") == 1, "the chat to be back")
        browser.press("Escape")
        browser.click(".chat-open")
        browser.wait(lambda: page.answers() == answer, "its answer")
        wrong = pathlib.Path(folder) / "wrong.json"
        wrong.write_text("[]")
        browser.click(".sidebar-foot button")
        page.choose_file(lambda: browser.run("[...document.querySelectorAll('dialog button')].find((each) => each.innerText === 'Import').click()"), wrong)
        browser.wait_for_text(".toast", "no chats of moeflux")


# ---- The engine

def legend(browser):
    """{"in memory": 157, ...}"""
    return {name: int(number.replace(",", "")) for number, name in re.findall(r"([\d,]+) ([a-z ]+)", "\n".join(browser.run("return [...document.querySelectorAll('.legend li')].map((each) => each.textContent)")))}


def canvas(browser):
    return browser.run("return document.querySelector('.map-canvas').toDataURL()")


def test_expert_map(page):
    browser = page.browser
    page.open()
    page.engine(True)
    browser.wait_for_text(".engine .subtitle", "9 layers of 64 experts")
    before = legend(browser)
    equal(before["in memory"] + before["on the drive"] + before.get("being read", 0), 576)
    assert before["on the drive"] > 300, before
    at_rest = canvas(browser)
    page.ask(STORY, wait=False)
    browser.wait(lambda: canvas(browser) != at_rest, "the map to light up")
    page.picture("engine")
    page.wait_for_rest()
    contains(browser.text(".measures"), "Tokens per second")
    browser.wait(lambda: "at rest" in browser.text(".measures"), "the engine to rest")
    time.sleep(1.0)  # until nothing glows any more
    assert canvas(browser) != at_rest  # other experts are in memory now
    after = legend(browser)
    equal(after["in memory"] + after["on the drive"], 576)
    label = browser.run("return document.querySelector('.map-canvas').getAttribute('aria-label')")
    contains(label, "9 layers with 576 experts")
    contains(browser.text(".memory"), "under a ceiling of 136 MB")
    contains(browser.text(".governors"), "Lookahead")
    browser.click(".layers summary")
    browser.wait(lambda: browser.count(".layers tbody tr") == 9, "a row for each layer")
    hits = browser.run("return [...document.querySelectorAll('.layers tbody tr')].map((row) => [...row.children].slice(2, 4).map((cell) => Number(cell.innerText.replaceAll(',', ''))))")
    assert all(h + m > 8 * 20 for h, m in hits[:8]), hits  # eight experts for each token and layer
    page.engine(False)


def test_nobody_looks(page):
    """The stream of events is there only while the panel is."""
    browser = page.browser
    page.open()
    streams = "return performance.getEntriesByType('resource').filter((each) => each.name.includes('/engine/events')).length"
    page.ask("What is 12 + 30?")
    equal(browser.run(streams), 0)
    page.engine(True)
    browser.find(".engine[data-status=live]")
    page.engine(False)
    browser.find(".engine[data-status=off]")


def test_record_and_replay(page):
    browser = page.browser
    with tempfile.TemporaryDirectory() as folder:
        browser.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
        page.open()
        page.engine(True)
        browser.find(".engine[data-status=live]")
        browser.wait_for_text(".engine .subtitle", "9 layers")
        browser.click("[aria-label='Record what the engine does']")
        page.ask(STORY)
        browser.click("[aria-label='End the recording and save it']")
        file = browser.wait(lambda: next(iter(pathlib.Path(folder).glob("*.jsonl")), None), "the recording")
        browser.wait(lambda: file.stat().st_size > 0, "its content")
        events = [json.loads(line) for line in file.read_text().splitlines()]
        equal(events[0]["format"], "moeflux-engine-recording")
        equal(events[1]["event"], "state")
        assert sum(len(event["data"]["hits"]) for event in events[2:]) > 1000
        page.choose_file(lambda: browser.click("[aria-label='Show a recording']"), file)
        browser.find(".transport")
        browser.wait(lambda: browser.run("return document.querySelector('.transport input').value") > "0.2", "it to play")
        browser.find(".engine[data-status=off]")
        browser.run("const slider = document.querySelector('.transport input'); slider.value = slider.max; slider.dispatchEvent(new Event('input'));")
        last = legend(browser)
        equal(last["in memory"] + last["on the drive"] + last.get("being read", 0), 576)
        page.picture("replay")
        browser.run("[...document.querySelectorAll('.transport button')].at(-1).click()")
        browser.find(".engine[data-status=live]")
        wrong = pathlib.Path(folder) / "wrong.jsonl"
        wrong.write_text("nothing\n")
        page.choose_file(lambda: browser.click("[aria-label='Show a recording']"), wrong)
        browser.wait_for_text(".toast", "no recording of an engine")
        page.engine(False)


# ---- Everybody

def check_accessibility(page, what):
    found = page.browser.run(ACCESSIBILITY)
    assert not found, f"{what}: " + "; ".join(found)


def test_accessibility(page):
    browser = page.browser
    page.open()
    page.ask("What is 12 + 30?")
    for theme in ("light", "dark"):
        browser.media(prefers_color_scheme=theme, prefers_reduced_motion="reduce")
        time.sleep(0.3)
        check_accessibility(page, f"a chat, {theme}")
        page.engine(True)
        browser.wait_for_text(".engine .subtitle", "9 layers")
        time.sleep(0.5)
        check_accessibility(page, f"the engine, {theme}")
        page.picture(f"engine-{theme}")
        page.engine(False)
        browser.click("[aria-label^='Parameters of this chat']")
        browser.find("dialog[open] .parameters")
        check_accessibility(page, f"parameters, {theme}")
        browser.press("Escape")
        browser.click(".sidebar-foot button")
        check_accessibility(page, f"settings, {theme}")
        browser.press("Escape")
    browser.media(prefers_color_scheme="light", prefers_reduced_motion="reduce")


def test_keyboard(page):
    browser = page.browser
    page.open()
    page.ask("What is 12 + 30?")
    browser.run("document.querySelector('.skip').focus()")
    seen = []
    for _ in range(60):
        name = browser.run("""
            const at = document.activeElement;
            if (at === document.body) return '';
            const box = at.getBoundingClientRect();
            const style = getComputedStyle(at);
            const marked = style.outlineStyle !== 'none' || at.closest('.composer-box:focus-within') !== null;
            return `${at.getAttribute('aria-label') || at.innerText.trim() || at.localName}|${marked ? '' : 'unmarked'}|${box.width > 0 ? '' : 'unseen'}`;""")
        if not name or name in seen:
            break
        seen.append(name)
        browser.press("Tab")
    names = [name.split("|")[0] for name in seen]
    assert not [name for name in seen if name.split("|")[1:] != ["", ""]], seen
    equal(names[0], "Skip to the message box")
    # The list of chats, the bar on top, the conversation, the message box.
    places = [names.index(name) for name in ("New chat", "Search the chats", "Settings", "Model", "Copy the answer", "Message")]
    equal(places, sorted(places))
    # The skip link does what it says; dialogs give the focus back.
    browser.run("document.querySelector('.skip').focus()")
    browser.press("Enter")
    equal(browser.run("return document.activeElement.id"), "prompt")
    browser.run("document.activeElement.blur()")
    browser.press("?")
    browser.wait_for_text("dialog", "Stop the answer")
    browser.press("Escape")
    browser.wait(lambda: browser.count("dialog") == 0, "the dialog to close")
    browser.press("/")
    equal(browser.run("return document.activeElement.id"), "prompt")
    browser.press("Control", "Shift", "o")
    browser.wait(lambda: page.questions() == [], "a new chat")
    browser.wait_for_text("h1", "New chat")
    contains(browser.run("return document.querySelector('#announcer').textContent"), "42")


def test_phone(page):
    browser = page.browser
    browser.screen(390, 844, 2, phone=True)
    try:
        page.open()
        check_accessibility(page, "an empty phone")
        page.ask(STORY)
        check_accessibility(page, "a phone")
        page.picture("phone")
        browser.click("[aria-label='List of chats']")
        browser.wait(lambda: browser.run("return document.querySelector('#app').dataset.sidebar") == "open", "the list of chats")
        check_accessibility(page, "the list on a phone")
        page.picture("phone-list")
        browser.click("[aria-label='Close the list of chats']")
        browser.click(".engine-button")
        browser.wait_for_text(".engine .subtitle", "9 layers")
        time.sleep(0.5)
        check_accessibility(page, "the engine on a phone")
        page.picture("phone-engine")
        browser.click("[aria-label='Close the engine panel']")
        # Enter is for new lines there.
        page.write("one")
        browser.press("Enter")
        page.write("two")
        equal(browser.run("return document.querySelector('#prompt').value"), "one\ntwo")
    finally:
        browser.screen(1280, 800)


def test_nothing_from_elsewhere(page):
    page.open()
    page.ask("What is 12 + 30?")
    hosts = page.browser.run("return [...new Set(performance.getEntriesByType('resource').map((each) => new URL(each.name).origin))]")
    equal(hosts, [page.url.rstrip("/")])


def test_key(page):
    """With --api-key: the page loads without one, asks for it, and keeps it."""
    browser = page.browser
    browser.open(page.url)
    browser.wait_for_text("dialog h2", "A key is needed")
    browser.type("dialog input", "wrong")
    browser.press("Enter")
    browser.wait_for_text("dialog", "The key is not one of this server's")
    browser.run("document.querySelector('dialog input').value = ''")
    browser.type("dialog input", "open sesame")
    browser.press("Enter")
    browser.find("html[data-ready]")
    page.ask("What is 12 + 30?")
    contains(page.answers()[0], "42")
    page.reload()
    equal(browser.count("dialog"), 0)
    page.engine(True)
    browser.wait_for_text(".engine .subtitle", "9 layers")
    page.engine(False)
    # What was refused is said in the console, and is no error of the page.
    left = [each for each in browser.messages() if "401" not in each["message"]]
    equal(left, [])


def test_several_models(page):
    """With --models: a model is loaded when it is asked, and the engine that is shown is that of the chosen one."""
    browser = page.browser
    page.open()
    options = "return [...document.querySelectorAll('.model-picker option')].map((each) => each.textContent)"
    equal(browser.run(options), ["demo (not in memory)", "demo-mla (not in memory)"])
    contains(browser.text(".intro"), "This model is not in memory.")
    page.engine(True)
    browser.wait_for_text(".engine-notice", "demo is not in memory")
    page.ask("What is 12 + 30?")
    contains(page.answers()[0], "42")
    browser.wait(lambda: browser.run(options)[0] == "demo", "the model to be in memory")
    browser.wait_for_text(".engine .subtitle", "demo · 9 layers of 64 experts")
    choose = "const picker = document.querySelector('.model-picker'); picker.value = arguments[0]; picker.dispatchEvent(new Event('change'));"
    browser.run(choose, "demo-mla")
    page.ask("What is 46 + 98?")
    contains(page.answers()[1], "144")
    equal(browser.run("return document.querySelectorAll('.message.answer')[1].getAttribute('aria-label')"), "demo-mla")
    browser.wait(lambda: browser.run(options) == ["demo (not in memory)", "demo-mla"], "the other model to be in memory")
    browser.wait_for_text(".engine .subtitle", "demo-mla · ")
    page.reload()
    equal(browser.run("return document.querySelector('.model-picker').value"), "demo-mla")
    page.engine(False)
    browser.messages()  # what was refused while a model was not there


# The others get a server of one model without a key.
SERVERS = {"test_key": "key", "test_several_models": "models"}


def run(name, browser, url, screenshots):
    browser.screen(1280, 800)
    browser.media(prefers_color_scheme="light", prefers_reduced_motion="reduce")
    browser.messages()
    page = Page(browser, url, screenshots)
    browser.open(url + "/page/icon.svg")  # the same place, without the page's own code
    browser.run_async("localStorage.clear(); await new Promise((resolve) => { const gone = indexedDB.deleteDatabase('moeflux'); gone.onsuccess = gone.onerror = resolve; });")
    try:
        globals()[name](page)
        wrong = [f"{each['level']}: {each['message']}" for each in browser.messages() if each["level"] in ("SEVERE", "WARNING")]
        assert not wrong, "the console says " + "; ".join(wrong)
        return True
    except Exception:
        traceback.print_exc()
        with contextlib.suppress(Exception):
            page.picture(f"failed-{name}")
        return False


def main():
    moeflux, model, screenshots, *only = sys.argv[1:]
    if webdriver.programs() is None:
        print("SKIP: chromium and chromedriver are not on this machine (Debian: chromium, chromium-driver)")
        sys.exit(77)
    screenshots = pathlib.Path(screenshots)
    screenshots.mkdir(parents=True, exist_ok=True)
    names = [name for name in globals() if name.startswith("test_") and (not only or name in only)]
    failed = []
    with Browser(1280, 800) as browser, tempfile.TemporaryDirectory() as models:
        for path in (pathlib.Path(model), pathlib.Path(model + "-mla")):
            (pathlib.Path(models) / path.name).symlink_to(path.resolve())
        for kind, what, options in (("one", [model], SMALL), ("key", [model], [*SMALL, "--api-key", "open sesame"]),
                                    ("models", ["--models", models], ["--ram", "400M", "--threads", "1", "-c", "1024"])):
            wanted = [name for name in names if SERVERS.get(name, "one") == kind]
            if not wanted:
                continue
            with server(moeflux, what, *options) as url:
                for name in wanted:
                    begin = time.monotonic()
                    passed = run(name, browser, url, screenshots)
                    print(f"{'ok  ' if passed else 'FAIL'} {name} ({time.monotonic() - begin:.1f} s)", flush=True)
                    if not passed:
                        failed.append(name)
    print(f"{len(names) - len(failed)} of {len(names)} passed; pictures are in {screenshots}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
