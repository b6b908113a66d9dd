"""Browser: a real headless one, driven over a pipe by the DevTools protocol, which notes what the page must not do."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Of Debian's package of that name (contrib/packages.txt).
PROGRAM = "chromium-headless-shell"

_FLAGS = (
    "--remote-debugging-pipe",
    "--no-sandbox",  # CI is root; the pages are ours
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--force-prefers-reduced-motion",
)
_ANSWER_S = 180.0
_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "Home": 36, "ArrowDown": 40}


class Browser:
    """A running browser with one page.

    ``console``: errors and warnings of the page, uncaught exceptions, and refusals of its content security policy;
    ``requested``: every URL that it asked for.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.console: list[str] = []
        self.requested: list[str] = []
        self._to, self._from = to_browser, from_browser
        self._numbers = itertools.count(1)
        self._read = b""
        self._session: str | None = None
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The browser's answer to a command of the protocol. Raises RuntimeError for a refusal."""
        number = next(self._numbers)
        session = {} if self._session is None else {"sessionId": self._session}
        message = json.dumps({"id": number, "method": method, "params": parameters, **session})
        self._write(message.encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, page: Path | str, width: int = 1400, scheme: str = "light", *, scripts: bool = True) -> None:
        """Show the page in a window of so many pixels, for someone who prefers this colour scheme.

        Args:
            page: a file, or an address.
            width: of the window.
            scheme: light or dark.
            scripts: whether the page's script says when it is ready.
        """
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.prefer(scheme)
        self.console.clear()
        self.requested.clear()
        self._loaded = False
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not self._loaded:
            self._next()
        if scripts:
            self.wait_for("document.documentElement.dataset.ready === 'yes'")

    def prefer(self, scheme: str) -> None:
        """Ask for light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is on the page (a promise is awaited). Raises RuntimeError if it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def wait_for(self, condition: str, *, calm: bool = True) -> None:
        """Wait until the expression holds. Raises TimeoutError after three minutes.

        ``calm``: it does so at once if the page complains.
        """
        end = time.monotonic() + _ANSWER_S
        while not self.value(condition):
            if time.monotonic() > end or (calm and self.console):
                raise TimeoutError(f"{condition}; the console says {self.console}")
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """Press a key, as the focused element gets it."""
        text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 else "")
        code = _CODES.get(key, ord(key[0].upper()))
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, file: Path) -> None:
        """The whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        file.write_bytes(base64.b64decode(data))

    def _write(self, message: bytes) -> None:
        while message:
            message = message[os.write(self._to, message) :]

    def _next(self) -> dict[str, Any]:
        """The next answer or event; events are noted down."""
        while b"\0" not in self._read:
            if not select.select([self._from], [], [], _ANSWER_S)[0]:
                raise TimeoutError(f"the browser is silent; the console says {self.console}")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise RuntimeError("the browser ended")
            self._read += part
        first, self._read = self._read.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, about: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.console.append(details.get("exception", {}).get("description") or details["text"])
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.console.append(" ".join(str(part.get("value", part.get("description"))) for part in about["args"]))
        elif event == "Log.entryAdded":
            self.console.append(about["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requested.append(about["request"]["url"])


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own, which is gone at the end."""
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    # The browser reads descriptor 3 and writes 4, so what leads there is numbered higher.
    theirs = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (commands, answers)]
    with tempfile.TemporaryDirectory(prefix="rmsplugin-browser-") as profile:
        redirected = f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
        command = ["bash", "-c", redirected, "bash", PROGRAM, *_FLAGS, f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            command,
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TZ": "UTC", "LANG": "C.UTF-8"},
        )
        for descriptor in (commands, answers, *theirs):
            os.close(descriptor)
        try:
            yield Browser(to_browser, from_browser)
        finally:
            os.close(to_browser)  # its order to end
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(from_browser)
