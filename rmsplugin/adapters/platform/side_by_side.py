"""Side by side: questions of a node that may never be answered: of dead file servers, of names nobody resolves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def answers(keys: Iterable[K], ask: Callable[[K], T], within_s: float) -> dict[K, T]:
    """Ask about each key in a thread of its own; return the answers that came in time, by key.

    A thread that is late goes on, and does not keep the process from ending.

    Args:
        keys: what is asked about; each once, however often it is there.
        ask: an error in it is raised here, if it came in time.
        within_s: the seconds for all of them together.
    """
    found: dict[K, T] = {}
    errors: list[BaseException] = []

    def ask_about(key: K) -> None:
        try:
            found[key] = ask(key)
        except BaseException as error:  # raised in the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=ask_about, args=(key,), daemon=True) for key in set(keys)]
    end = time.monotonic() + within_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    if errors:
        raise errors[0]
    return dict(found)
