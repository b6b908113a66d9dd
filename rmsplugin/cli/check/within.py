"""Within: the time within which a check ends, whatever it looks at hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from rmsplugin.finding import Finding, error

#: Look this often whether the bound has changed.
_TURN_S = 0.5


class Look:
    """How far a check is: what it has found, what it looks at now, and the number of VM hosts once it is known."""

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self.at = "the settings"
        self.hosts = 0
        self.show: Callable[[str], None] = lambda _: None

    def shows(self, what: str) -> None:
        """Remember what is looked at now, and show it."""
        self.at = what
        self.show(what)


def look_within(look: Look, act: Callable[[], None], bound_s: Callable[[], float]) -> bool:
    """Look in a thread of its own, and return whether that has ended within the bound, which may grow meanwhile.

    If it has not, an error about what hangs is added to what was found. Raises what ``act`` raises.
    """
    raised: list[BaseException] = []

    def looks() -> None:
        try:
            act()
        except BaseException as fault:
            raised.append(fault)

    thread = threading.Thread(target=looks, name="check", daemon=True)
    began = time.monotonic()
    thread.start()
    while thread.is_alive() and (left_s := began + bound_s() - time.monotonic()) > 0:
        thread.join(min(left_s, _TURN_S))
    if raised:
        raise raised[0]
    if not thread.is_alive():
        return True
    what = f"did not end within {bound_s():g} s: it was looking at {look.at}, and what comes after was not looked at"
    look.found.append(error("check", what, "find out why that does not answer; --within SECONDS lets it look longer"))
    return False


def leave(status: int) -> NoReturn:
    """End the program now, and the programs that it runs: Python would wait for threads that hang."""
    sys.stdout.flush()
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
    os._exit(status)
