"""A program with a time limit, which ends with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

_PATIENCE_S = 5.0


def run_limited(argv: Sequence[str], limit_s: float, log: Path) -> int | None:
    """Run a program with its output in a file; its exit code, or None if it was ended because it took too long.

    Expect gives each program that it starts a session of its own, so the groups of all descendants are ended: SIGTERM,
    and SIGKILL for what does not go.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    groups = _groups(process.pid)
    _signal(groups, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_S
    while any(map(_alive, groups)) and time.monotonic() < deadline:
        process.poll()
        time.sleep(0.05)
    _signal(groups | _groups(process.pid), signal.SIGKILL)
    process.wait()


def _groups(root: int) -> set[int]:
    """The process groups of a process and of all its descendants, but not the group of this program."""
    family: dict[int, list[int]] = {}
    group_of: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                _, parent, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                family.setdefault(int(parent), []).append(int(entry.name))
                group_of[int(entry.name)] = int(group)
    found, left = {root}, [root]
    while left:
        children = family.get(left.pop(), [])
        found.update(children)
        left += children
    return {group_of[pid] for pid in found if pid in group_of} - {os.getpgrp(), 0}


def _signal(groups: set[int], number: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
