"""Several threads that do something at once, again and again: what may be called by several has to bear it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

#: Python goes on with another thread as often as it can.
_SWITCH_S = 1e-6


def at_once(*acts: Callable[[int], object], times: int = 1000) -> None:
    """Call each of ``acts`` in a thread of its own with 0, 1, ..., ``times`` - 1; raises what the first one raises."""
    usual_s = sys.getswitchinterval()
    ready = threading.Barrier(len(acts))

    def again(act: Callable[[int], object]) -> None:
        ready.wait()
        for number in range(times):
            act(number)

    sys.setswitchinterval(_SWITCH_S)
    try:
        with ThreadPoolExecutor(len(acts)) as pool:
            ended = [pool.submit(again, act) for act in acts]
        for each in ended:
            each.result()
    finally:
        sys.setswitchinterval(usual_s)
