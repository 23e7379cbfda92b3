#!/usr/bin/env python3
"""Drives the chat on a real terminal: under tmux, key by key, looking at the screen.

  chat_tmux_test.py PROGRAM MODEL [NAME...]     runs all scenarios, or those that are named

Exits with 77 (SKIP) where tmux is missing.
"""

import contextlib
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

TIMEOUT = 60  # for anything to appear; sanitizers are slow

CALCULATOR = [{
    "type": "function",
    "command": "test \"$ARG_expression\" = '123 + 456' && echo '{\"result\": 579}'",
    "function": {"name": "calculator", "description": "Evaluate an expression",
                 "parameters": {"type": "object", "properties": {"expression": {"type": "string"}},
                                "required": ["expression"]}}}]

class Terminal:
    """One terminal with one run of the chat in it."""

    def __init__(self, program, home, *arguments, columns=100, variables=None):
        self.socket = tempfile.mktemp(prefix="tmux-", dir=home)
        command = " ".join(shlex.quote(part) for part in (program, "chat", *arguments))
        environment = {"XDG_STATE_HOME": f"{home}/state", "XDG_CACHE_HOME": f"{home}/cache", **(variables or {})}
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", "50",
                  f"env -u NO_COLOR {words} {command}; echo exit code $?; sleep 600")

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-S", self.socket, *arguments], check=True,
                              capture_output=True, text=True).stdout

    def screen(self, *options):
        return self.tmux("capture-pane", "-p", *options)

    def keys(self, *names):
        self.tmux("send-keys", *names)

    def type(self, text, enter=True):
        self.tmux("send-keys", "-l", text)
        if enter:
            self.keys("Enter")

    def paste(self, text):
        self.tmux("set-buffer", text)
        self.tmux("paste-buffer", "-p")

    def wait_until(self, what, condition):
        """Until condition(screen) holds."""
        end = time.monotonic() + TIMEOUT
        while not condition(self.screen()):
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not seen on the screen:\n{self.screen()}")
            time.sleep(0.02)
        return self.screen()

    def wait(self, *texts):
        def is_there(screen):  # perhaps over the end of a line
            return all(text in screen or text in screen.replace("\n", "") for text in texts)
        return self.wait_until(texts, is_there)

    def wait_for_prompt(self, n_prompts):
        """Until the n-th prompt stands there, with nothing typed yet."""
        def is_there(screen):
            lines = [line for line in screen.splitlines() if line.startswith(">>>")]
            return len(lines) == n_prompts and lines[-1].strip() == ">>>"
        self.wait_until(f"prompt {n_prompts}", is_there)

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True)


@contextlib.contextmanager
def running_server(program, model):
    """The URL of a server with the model."""
    server = subprocess.Popen([program, "serve", model, "--port", "0", "-c", "1024", "--prefix-store", "off"],
                              stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            if found := re.search(r"ready: .* at (http\S+)/v1", line):
                break
        else:
            raise AssertionError("the server has ended")
        yield found.group(1)
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


def messages(home):
    """Those of the only session."""
    files = list(pathlib.Path(home, "state/moeflux/sessions").glob("*.jsonl"))
    assert len(files) == 1, files
    return [json.loads(line) for line in files[0].read_text(encoding="utf-8").splitlines()]


def no_end(model):
    """Options with which the model never comes to an end by itself: its end tokens are forbidden."""
    config = json.loads(pathlib.Path(model, "generation_config.json").read_text(encoding="utf-8"))
    return [option for token in config["eos_token_id"] for option in ("--logit-bias", f"{token}=-inf")]


def expect(actual, wanted):
    if actual != wanted:
        raise AssertionError(f"{actual!r}, not {wanted!r}")


def two_turns_and_resume(start, home):
    chat = start()
    chat.wait("/help lists commands", ">>>")
    chat.type("What is 12 + 30?")
    screen = chat.wait("12 + 30 = 42", "tok/s", "experts")
    assert "thought: " in screen and "so 42" not in screen, screen  # folded
    chat.wait_for_prompt(2)
    chat.type("What is the capital of Japan?")
    chat.wait("The capital of Japan is Tokyo.")
    chat.wait_for_prompt(3)
    chat.type("/stats")
    chat.wait("tokens of the prompt were there already, from: checkpoint")
    chat.keys("C-d")
    chat.wait("exit code 0")
    expect([m["role"] for m in messages(home)], ["user", "assistant"] * 2)

    again = start("--resume")
    again.wait("12 + 30 = 42", "The capital of Japan is Tokyo.")
    again.wait_for_prompt(3)  # two of them show the old questions
    again.keys("Up")  # /stats
    again.keys("Up")
    again.wait(">>> What is the capital of Japan?")
    again.keys("Enter")
    again.wait_for_prompt(4)
    again.type("/quit")
    again.wait("exit code 0")
    expect([m["content"] for m in messages(home)][2::2], ["What is the capital of Japan?"] * 2)


def thoughts_are_shown(start, home):
    chat = start("--think", "show", "--no-stats-line")
    chat.wait_for_prompt(1)
    chat.type("What is 46 + 98?")
    screen = chat.wait("so 144.", "46 + 98 = 144")
    chat.wait_for_prompt(2)
    assert "tok/s" not in screen, screen
    colored = chat.screen("-e")
    assert "\033[2m" in colored, colored  # dim


def interrupt_stops_the_answer(start, home):
    chat = start("--no-think", *no_end(start.model))
    chat.wait_for_prompt(1)
    chat.type("Tell me a short story about a frog.")
    chat.wait_until("an answer", lambda screen: len(screen.strip()) > 600)
    chat.keys("C-c")
    chat.wait("[stopped]")
    # The screen is ahead of the drive.
    chat.wait_until("a saved answer", lambda screen: len(messages(home)) > 1)
    said = messages(home)
    expect(said[1]["role"], "assistant")
    expect(said[1]["stopped"], True)
    assert len(said[1]["content"]) > 50, said
    time.sleep(1.6)  # longer than two Ctrl-C that mean to leave are apart
    chat.type("/undo")
    chat.wait("taken back: Tell me a short story about a frog.")


def keys_and_interrupts_leave_no_debris(start, home):
    chat = start("--no-think", *no_end(start.model), columns=60)
    chat.wait_for_prompt(1)
    chat.type("Tell me a short story about a frog.")
    chat.wait_until("an answer", lambda screen: len(screen.strip()) > 400)
    chat.type("@@later@@", enter=False)
    time.sleep(0.3)
    chat.keys("C-c")  # drops what was typed, as everywhere
    screen = chat.wait("[stopped]", "tok/s, first after")
    assert "^C" not in screen and "@@" not in screen, screen
    assert re.search(r"tok/s, first after [0-9.]+ s,\nprompt", screen), screen  # broken between its parts
    chat.wait_for_prompt(2)
    time.sleep(1.6)
    chat.type("/quit")
    chat.wait("exit code 0")
    # A second one ends the program, and the terminal shows keys again.
    chat = start("--no-think", *no_end(start.model))
    chat.wait_for_prompt(1)
    chat.type("Tell me a short story about a frog.")
    chat.wait_until("an answer", lambda screen: len(screen.strip()) > 400)
    chat.keys("C-c")
    time.sleep(0.05)  # two at once are one signal
    chat.keys("C-c")
    chat.wait("exit code 130")
    chat.type("seen again", enter=False)
    chat.wait("seen again")


def files_and_the_editor(start, home):
    note = pathlib.Path(home, "a note.txt")
    note.write_text("What is 12 + 30?\n", encoding="utf-8")
    editor = pathlib.Path(home, "editor.sh")
    editor.write_text("#!/bin/sh\nprintf ' + 6?' >> \"$2\"\n", encoding="utf-8")
    editor.chmod(0o755)
    chat = start("--no-think", variables={"VISUAL": f"{editor} --wait"})
    chat.wait_for_prompt(1)
    chat.type(f"/attach {home}/none.txt")
    chat.wait("error:", "none.txt")
    chat.type(f'/attach "{note}"')
    chat.wait("a note.txt, 17 B, goes with the next message")
    chat.type("Answer it.")
    chat.wait("tok/s")
    expect(messages(home)[0]["content"], "File a note.txt:\n```\nWhat is 12 + 30?\n```\n\nAnswer it.")
    chat.type("/edit What is 5")
    chat.wait(">>> What is 5 + 6?", "5 + 6 = 11")
    expect(messages(home)[2]["content"], "What is 5 + 6?")


def models_change_and_sessions_are_found(start, home):
    other = pathlib.Path(home, "other")
    other.symlink_to(start.model)
    chat = start("--no-think")
    chat.wait_for_prompt(1)
    chat.type("What is 12 + 30?")
    chat.wait("12 + 30 = 42")
    chat.type("/model nothing-here")
    chat.wait("error:", "nothing-here")
    chat.type(f"/model {other}")
    chat.wait(f"{other}, context")
    chat.type("/clear")
    chat.wait("a new conversation")
    chat.type("What is the capital of Japan?")
    chat.wait("The capital of Japan is Tokyo.")
    chat.type("/load 42")
    chat.wait("2 messages")
    chat.type("/sessions tokyo")
    chat.wait("What is the capital of Japan?")
    chat.type("/quit")
    chat.wait("exit code 0")
    again = start("--resume", "japan tokyo")
    again.wait("The capital of Japan is Tokyo.")


def interrupt_at_the_prompt(start, home):
    chat = start()
    chat.wait_for_prompt(1)
    chat.type("not this", enter=False)
    chat.wait(">>> not this")
    chat.keys("C-c")
    chat.wait(">>> not this^C\n(Ctrl-C again")
    time.sleep(1.6)
    chat.type("What is 12 + 30?")
    chat.wait("12 + 30 = 42")
    chat.keys("C-c")
    chat.keys("C-c")
    chat.wait("exit code 130")
    expect([m["content"] for m in messages(home)], ["What is 12 + 30?", "12 + 30 = 42"])


def pastes_wait_for_enter(start, home):
    chat = start("--no-think")
    chat.wait_for_prompt(1)
    chat.paste("What is\n12 + 30?\nTell me.")
    chat.wait(">>> What is", "12 + 30?", "Tell me.")
    time.sleep(0.3)
    assert "tok/s" not in chat.screen(), chat.screen()
    chat.keys("Enter")
    chat.wait("tok/s")
    chat.wait_for_prompt(2)
    chat.type('"""What is')
    chat.wait("...")
    chat.type('5 + 6?"""')
    chat.wait_for_prompt(3)
    expect([m["content"] for m in messages(home)][::2],
           ["What is\n12 + 30?\nTell me.", "What is\n5 + 6?"])
    chat.type("caf\u00e9 \u65e5\u672c", enter=False)
    chat.wait(">>> caf\u00e9 \u65e5\u672c")


def pastes_during_an_answer_are_one_draft(start, home):
    chat = start("--no-think", "-n", "1000", *no_end(start.model))
    chat.wait_for_prompt(1)
    chat.type("Tell me a short story about a frog.")
    chat.wait_until("an answer", lambda screen: len(screen.strip()) > 300)
    chat.paste("What is\n12 + 30?\nTell me.\n")
    chat.wait("the answer ended at 1000 tokens", ">>> What is\n12 + 30?\nTell me.\n")
    time.sleep(0.3)
    expect(len(messages(home)), 2)
    chat.keys("Enter")
    chat.wait_until("the second answer", lambda screen: len(messages(home)) == 4)
    expect(messages(home)[2]["content"], "What is\n12 + 30?\nTell me.\n")


def what_was_typed_before_is_no_consent(start, home):
    tools = pathlib.Path(home, "tools.json")
    tools.write_text(json.dumps(CALCULATOR), encoding="utf-8")
    chat = start("--no-think", "--tool-file", str(tools))
    chat.wait_for_prompt(1)
    chat.keys("Use the calculator: 123 + 456", "Enter", "y", "Enter", "y", "Enter")
    chat.wait("call of calculator", "run it?")
    time.sleep(0.5)
    screen = chat.screen()
    assert screen.rstrip().endswith("(e)dit:"), screen
    chat.type("n")
    chat.wait_for_prompt(2)
    expect([m["content"] for m in messages(home)][2], "The user does not want this to be run.")


def tools_ask_first(start, home):
    tools = pathlib.Path(home, "tools.json")
    tools.write_text(json.dumps(CALCULATOR), encoding="utf-8")
    chat = start("--no-think", "--tool-file", str(tools))
    chat.wait_for_prompt(1)
    chat.type("Use the calculator: 123 + 456")
    chat.wait("call of calculator", "run it?")
    chat.type("y")
    chat.wait('{"result": 579}', "The result is 579.")
    chat.wait_for_prompt(2)
    expect([m["role"] for m in messages(home)], ["user", "assistant", "tool", "assistant"])
    chat.type("Use the calculator: 123 + 456")
    chat.wait_until("the second question", lambda screen: screen.count("run it?") == 2)
    chat.type("n")
    chat.wait_for_prompt(3)
    expect(messages(home)[6]["content"], "The user does not want this to be run.")
    chat.type("Use the calculator: 123 + 456")
    chat.wait_until("the third question", lambda screen: screen.count("run it?") == 3)
    chat.keys("C-c")  # the turn ends, the chat does not
    chat.wait_for_prompt(4)
    expect(messages(home)[-1]["content"], "The user has stopped this.")


def tool_commands_can_be_edited(start, home):
    tools = pathlib.Path(home, "tools.json")
    tools.write_text(json.dumps(CALCULATOR), encoding="utf-8")
    chat = start("--no-think", "--tool-file", str(tools))
    chat.wait_for_prompt(1)
    chat.type("Use the calculator: 123 + 456")
    chat.wait("run it?")
    chat.type("e")
    chat.wait_until("the command again", lambda screen: screen.count('$ test "$ARG') == 2)
    chat.type(" | sed s/9/8/")
    chat.wait_for_prompt(2)
    result = messages(home)[2]["content"]
    assert result.startswith("[the user ran this instead: test ") and "| sed s/9/8/]" in result
    assert result.endswith('{"result": 578}'), result


def completion_and_editing(start, home):
    chat = start("--no-think")
    chat.wait_for_prompt(1)
    chat.type("/sess", enter=False)
    chat.keys("Tab")
    chat.wait(">>> /sessions")
    chat.keys("C-u")
    chat.type("hat is 12 + 30?", enter=False)
    chat.keys("Home")
    chat.type("W", enter=False)
    chat.keys("Enter")
    chat.wait("12 + 30 = 42")
    chat.type("/halp")
    chat.wait("did you mean /help?")


def a_server_answers(start, home):
    tools = pathlib.Path(home, "tools.json")
    tools.write_text(json.dumps(CALCULATOR), encoding="utf-8")
    with running_server(start.program, start.model) as url:
        chat = start("--server", url, "--tool-file", str(tools), local=False)
        chat.wait("demo, context 1024 tokens", "/help lists commands")
        chat.wait_for_prompt(1)
        chat.type("What is 12 + 30?")
        screen = chat.wait("12 + 30 = 42", "tok/s", "experts")
        assert "thought: " in screen and "so 42" not in screen, screen  # folded
        chat.wait_for_prompt(2)
        chat.type("/set thinking off")
        chat.wait_for_prompt(3)
        chat.type("Use the calculator: 123 + 456")
        chat.wait("call of calculator", "run it?")
        chat.type("y")
        chat.wait("The result is 579.")
        chat.wait_for_prompt(4)
        chat.type("/model")
        chat.wait("* demo")
        chat.type("/model dema")
        chat.wait("has no model dema, did you mean demo?")
        chat.type("/model demo")
        chat.wait("demo, context 1024 tokens")
        chat.wait_until("a prompt", lambda screen: screen.rstrip().endswith(">>>"))
        chat.keys("C-d")
        chat.wait("exit code 0")
        expect([m["role"] for m in messages(home)], ["user", "assistant"] * 2 + ["tool", "assistant"])

        endless = start("--server", url, "--no-think", "--resume", *no_end(start.model), local=False)
        endless.wait_for_prompt(3)  # two of them show the old questions
        endless.type("Tell me a short story about a frog.")
        endless.wait_until("an answer", lambda screen: len(screen.strip()) > 900)
        endless.keys("C-c")
        endless.wait("[stopped]")
        endless.wait_for_prompt(4)  # the message is written before it
        expect(messages(home)[-1]["stopped"], True)
    endless.type("What is 1 + 2?")
    endless.wait("error:", "cannot reach", "is `moeflux serve` running?")
    expect(messages(home)[-1]["stopped"], True)  # the question is taken back


SCENARIOS = [two_turns_and_resume, thoughts_are_shown, interrupt_stops_the_answer,
             keys_and_interrupts_leave_no_debris, files_and_the_editor, models_change_and_sessions_are_found,
             interrupt_at_the_prompt, pastes_wait_for_enter, pastes_during_an_answer_are_one_draft,
             what_was_typed_before_is_no_consent, tools_ask_first, tool_commands_can_be_edited,
             completion_and_editing, a_server_answers]


def run(scenario, program, model):
    terminals = []

    def start(*options, local=True, **terminal):
        terminals.append(Terminal(program, home, *([model] if local else []), *options, **terminal))
        return terminals[-1]

    start.program = program
    start.model = model

    with tempfile.TemporaryDirectory() as home:
        try:
            scenario(start, home)
        finally:
            for terminal in terminals:
                terminal.close()


def main():
    if shutil.which("tmux") is None:
        print("SKIP: tmux is not on this machine")
        return 77
    program, model, *names = sys.argv[1:]
    failed = 0
    for scenario in SCENARIOS:
        if names and scenario.__name__ not in names:
            continue
        start = time.monotonic()
        try:
            run(scenario, program, model)
            print(f"ok   {scenario.__name__} ({time.monotonic() - start:.1f} s)")
        except AssertionError as error:
            failed += 1
            print(f"FAIL {scenario.__name__}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
