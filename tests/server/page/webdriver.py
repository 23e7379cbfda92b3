"""Drives Chromium through its driver, as the WebDriver standard says: JSON over HTTP, with nothing but Python's
standard library.
"""

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Shift": "\ue008", "Control": "\ue009", "Alt": "\ue00a",
        "ArrowUp": "\ue013", "ArrowDown": "\ue015", "ArrowLeft": "\ue012", "ArrowRight": "\ue014", "Backspace": "\ue003", "Delete": "\ue017"}
# Nothing but the page may use the network; as root, Chromium has no sandbox.
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--disable-features=Translate,MediaRouter,OptimizationHints", "--force-color-profile=srgb"]


class WebDriverError(Exception):
    pass


def programs():
    """Chromium and its driver, or None where one is missing."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Browser:
    def __init__(self, width=1280, height=800, downloads=None):
        browser, driver = programs()
        self.profile = tempfile.mkdtemp(prefix="moeflux-chromium-")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.driver = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.session = None
        try:
            self._wait_for_driver()
            options = {"binary": browser, "args": ARGUMENTS + [f"--user-data-dir={self.profile}", f"--window-size={width},{height}"]}
            if downloads:
                options["prefs"] = {"download.default_directory": str(downloads), "download.prompt_for_download": False}
            made = self._send("POST", "/session", {"capabilities": {"alwaysMatch": {
                "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
                "timeouts": {"script": 30000, "pageLoad": 30000, "implicit": 0}}}})
            self.session = made["sessionId"]
        except Exception:
            self.close()
            raise

    def _wait_for_driver(self):
        for _ in range(200):
            try:
                if self._send("GET", "/status")["ready"]:
                    return
            except (OSError, WebDriverError):
                pass
            if self.driver.poll() is not None:
                break
            time.sleep(0.1)
        raise WebDriverError("the driver of Chromium does not start")

    def close(self):
        try:
            if self.session:
                self._send("DELETE", f"/session/{self.session}")
        except (OSError, WebDriverError):
            pass
        self.driver.terminate()
        try:
            self.driver.wait(10)
        except subprocess.TimeoutExpired:
            self.driver.kill()
        shutil.rmtree(self.profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise WebDriverError(f"{value['error']}: {value['message'].splitlines()[0]}") from None

    def command(self, method, path, body=None):
        return self._send(method, f"/session/{self.session}{path}", {} if body is None and method == "POST" else body)

    def devtools(self, name, **parameters):
        return self.command("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    # What a user does.

    def open(self, url):
        self.command("POST", "/url", {"url": url})

    def reload(self):
        self.command("POST", "/refresh")

    def find_all(self, css):
        return [each[ELEMENT] for each in self.command("POST", "/elements", {"using": "css selector", "value": css})]

    def find(self, css, seconds=10):
        """The first element, waiting for it."""
        return self.wait(lambda: next(iter(self.find_all(css)), None), f"{css} to be there", seconds)

    def click(self, css, seconds=10):
        """As soon as it can be clicked."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self.command("POST", f"/element/{self.find(css, seconds)}/click")
            except WebDriverError as error:
                if time.monotonic() > end:
                    raise WebDriverError(f"{css}: {error}") from None
                time.sleep(0.05)

    def type(self, css, text):
        self.command("POST", f"/element/{self.find(css)}/value", {"text": text})

    def press(self, *keys):
        """All at the same time, released in turn: press("Control", "k")."""
        codes = [KEYS.get(key, key) for key in keys]
        actions = [{"type": "keyDown", "value": code} for code in codes] + [{"type": "keyUp", "value": code} for code in reversed(codes)]
        self.command("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def upload(self, css, path):
        self.command("POST", f"/element/{self.find(css)}/value", {"text": str(path)})

    # What a user sees.

    def run(self, script, *arguments):
        return self.command("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script, *arguments):
        """The body of an async function; its result."""
        wrapped = f"const done = arguments[arguments.length - 1]; (async (...args) => {{ {script} }})(...arguments).then((value) => done({{value}}), (error) => done({{error: String(error)}}))"
        answer = self.command("POST", "/execute/async", {"script": wrapped, "args": list(arguments)})
        if "error" in answer:
            raise WebDriverError(answer["error"])
        return answer.get("value")

    def text(self, css):
        return self.run("return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText).join('\\n')", css)

    def count(self, css):
        return len(self.find_all(css))

    def wait(self, condition, what, seconds=15):
        end = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise WebDriverError(f"waited {seconds} s for {what}")
            time.sleep(0.05)

    def wait_for_text(self, css, text, seconds=15):
        try:
            self.wait(lambda: text in self.text(css), f"{text!r} in {css}", seconds)
        except WebDriverError as error:
            raise WebDriverError(f"{error}; there is {self.text(css)[-400:]!r}") from None

    def messages(self):
        """What the console has got since the last call: [{level, message}]."""
        return self.command("POST", "/se/log", {"type": "browser"})

    def screen(self, width, height, scale=1, phone=False):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone)
        self.devtools("Emulation.setTouchEmulationEnabled", enabled=phone)

    def media(self, **features):
        """media(prefers_color_scheme="dark")"""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    def screenshot(self, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.command("GET", "/screenshot")))
