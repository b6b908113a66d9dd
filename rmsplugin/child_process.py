"""Child process: the first steps of a process that another one of ours starts, which end it with that and bound it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import sys

#: Libraries would start a thread for each CPU, and reserve memory for each thread.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def environment() -> dict[str, str]:
    """The environment for such a process: it finds the modules that this one does."""
    return {**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def end_with(lifeline: int, group: bool = False) -> None:
    """As ``killed_with``; only the process that started this one decides when it ends."""
    killed_with(lifeline, group)
    # A service manager sends these to all processes of a service: but the engine decides when this process ends.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def killed_with(lifeline: int, group: bool = False) -> None:
    """Have the kernel kill this process as soon as no process holds the other end of the lifeline.

    With ``group`` it kills the processes that this one started, too, if this one leads a group of its own.

    Nothing is ever written to the lifeline, so only its end can happen there. PR_SET_PDEATHSIG would act when the
    *thread* that started this process ends, which in an engine of many threads is another event. SIGKILL reaches code
    that holds the interpreter or blocks signals.
    """
    leads = group and _leads()
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpid() if leads else os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        if os.read(lifeline, 1) == b"":  # the engine had ended before
            os._exit(0)


def end_group() -> None:
    """End this process, and those that it started, as ``killed_with`` does.

    The kernel may tell of the end of other pipes first: it closes those of a process that was killed in any order.
    """
    if _leads():
        os.killpg(os.getpid(), signal.SIGKILL)


def _leads() -> bool:
    return os.getpgrp() == os.getpid()


def limit(memory_mib: int, nice: int) -> None:
    """Bound the resources that this process can take from its neighbours, slurmctld among them."""
    # Not RLIMIT_AS: libraries reserve address space that they never use.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)  # the engine's own limit, which no process can raise
    most = memory_mib << 20 if hard == resource.RLIM_INFINITY else min(memory_mib << 20, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(nice)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # the kernel kills this process first where memory runs out
