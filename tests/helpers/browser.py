"""A real browser that a test drives: Chromium, over the pipe of its debugging protocol."""

import json
import os
import shutil
import subprocess
from typing import Any

import pytest


class Browser:
    """A browser with one page. Use it as a context manager.

    Args:
        folder: for the browser's files.
    """

    def __init__(self, folder):
        program = next(filter(None, map(
            shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if not program:
            pytest.skip("no Chromium here: apt-get install chromium, or Google Chrome")
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        # It reads from descriptor 3 and writes to 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", program, "--headless",
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self._session = b"", 0, None
        self.messages = []  # errors that the page has logged

    def __enter__(self) -> "Browser":
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *exception) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of a method of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("method") == "Log.entryAdded":
                self.messages.append(answer["params"]["entry"]["text"])
            elif answer.get("method") == "Runtime.exceptionThrown":
                self.messages.append(json.dumps(answer["params"]["exceptionDetails"]))
            elif answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> Any:
        while b"\0" not in self._buffer:
            block = os.read(self._from, 1 << 20)
            assert block, "the browser is gone"
            self._buffer += block
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message.decode())

    def open(self, url: str, width: int = 1000) -> None:
        """Opens a page that is `width` pixels wide."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition: str) -> None:
        """Returns once a JavaScript expression is true; fails after 20 seconds."""
        found = self.evaluate(f"""new Promise(resolve => {{
            const start = Date.now();
            const look = () => {{
              if ({condition}) resolve(true);
              else if (Date.now() - start > 20000) resolve(false);
              else setTimeout(look, 20);
            }};
            look();
        }})""")
        assert found, (condition, self.evaluate("document.body.innerText"))

    def type(self, text: str) -> None:
        """Types into the element that has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, modifiers: int = 0) -> None:
        """Presses a key; modifiers: 2 is Ctrl, 8 is Shift."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key, "") if not modifiers else ""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=modifiers,
                      windowsVirtualKeyCode=codes[key], **({"text": text} if text and kind == "keyDown" else {}))
