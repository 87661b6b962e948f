"""A headless Chromium, driven over its debugging pipe by the Chrome DevTools Protocol; messages end with zeros."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, final

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# No window, no sandbox (tests run as root in containers), and no call home.
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb",
    "--disable-dev-shm-usage",
)  # fmt: skip
# A browser that does not answer ends a test by pytest's timeout; a page that fails says so.
Message = dict[str, Any]


def browser_program() -> str | None:
    """Returns the path of a Chromium; None if this machine has none."""
    return next((found for name in _PROGRAMS if (found := shutil.which(name))), None)


class PageFailed(Exception):
    """A script in the page raised an error, or the browser refused a command."""


@final
class Page:
    """One tab. Everything that the page's scripts raised or logged as an error is in `problems`."""

    def __init__(self, to_browser: IO[bytes], from_browser: IO[bytes]) -> None:
        self._to, self._from = to_browser, from_browser
        self._asked = 0
        self._session = ""
        self.problems: list[str] = []
        # The addresses that the page asked for, its own file included.
        self.requests: list[str] = []

    def open(self, width: int, height: int, *, dark: bool = False) -> None:
        """Open the tab; `open_file` loads a page into it."""
        target = self._ask("Target.createTarget", {"url": "about:blank"})
        attached = self._ask("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable")
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open_file(self, path: Path) -> None:
        self._ask("Page.navigate", {"url": path.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """Returns the value of an expression in the page; a promise is awaited. Raises PageFailed."""
        options = {"expression": script, "awaitPromise": True, "returnByValue": True}
        answer = self._ask("Runtime.evaluate", options)
        if "exceptionDetails" in answer:
            raise PageFailed(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key that writes itself, or one such as Escape or Enter."""
        options: Message = {"key": key, **({"text": key} if len(key) == 1 else {})}
        self._ask("Input.dispatchKeyEvent", {"type": "keyDown", **options})
        self._ask("Input.dispatchKeyEvent", {"type": "keyUp", "key": key})

    def mouse(self, kind: str, x: float, y: float, **more: object) -> None:
        """Send a mouse event: mouseMoved, mousePressed, mouseReleased or mouseWheel."""
        self._ask("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    def click(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", buttons=1, clickCount=1)

    def screenshot(self) -> bytes:
        """Returns the page as PNG."""
        return base64.b64decode(self._ask("Page.captureScreenshot", {"format": "png"})["data"])

    def _ask(self, method: str, parameters: Message | None = None) -> Message:
        self._asked += 1
        message: Message = {"id": self._asked, "method": method, "params": parameters or {}}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while (answer := self._read()).get("id") != message["id"]:
            self._note(answer)
        if "error" in answer:
            raise PageFailed(f"{method}: {answer['error']}")
        result: Message = answer["result"]
        return result

    def _note(self, message: Message) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(parameters["exceptionDetails"])[:2000])
        elif message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(parameters["entry"]["text"])

    def _read(self) -> Message:
        parts = bytearray()
        while not parts.endswith(b"\0"):
            byte = self._from.read(1)
            assert byte, "the browser has ended"
            parts += byte
        message: Message = json.loads(bytes(parts[:-1]))
        return message


@contextlib.contextmanager
def browser_page(
    profile: Path, *, width: int = 1400, height: int = 900, dark: bool = False
) -> Iterator[Page]:
    """Run a browser with one tab until the end of the block; `profile` is an empty folder for its files."""
    program = browser_program()
    assert program is not None, "no Chromium: look with browser_program() first"
    read_end, to_browser = os.pipe()
    from_browser, write_end = os.pipe()
    # The browser reads its commands from descriptor 3 and answers on 4.
    shell = f'exec "$0" "$@" 3<&{read_end} 4>&{write_end}'
    command = ["bash", "-c", shell, program, *_OPTIONS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(command, pass_fds=(read_end, write_end), stderr=subprocess.DEVNULL)
    os.close(read_end)
    os.close(write_end)
    with open(to_browser, "wb") as commands, open(from_browser, "rb", buffering=1 << 16) as answers:
        try:
            page = Page(commands, answers)
            page.open(width, height, dark=dark)
            yield page
        finally:
            process.kill()
            process.wait()
