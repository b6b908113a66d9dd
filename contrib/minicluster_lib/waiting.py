"""Waiting: poll until something holds."""

from __future__ import annotations

import time
from collections.abc import Callable

from minicluster_lib.layout import MiniclusterError


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll a condition until it holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise MiniclusterError(f"waited {timeout_s:.0f} s for {what}, in vain")
        time.sleep(0.1)
