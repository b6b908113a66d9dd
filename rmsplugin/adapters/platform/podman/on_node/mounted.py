"""Mounted: what `rmsplugin check` is told of the directories that containers have of this node. Nothing is changed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from rmsplugin.adapters.platform.podman.on_node.directories import open_to_others
from rmsplugin.adapters.platform.podman.on_node.program import environment

#: A file server that is gone answers never.
_ANSWER_S = 5.0


def seen(targets: Iterable[str], mountinfo: Path = Path("/proc/self/mountinfo")) -> dict[str, dict[str, str]]:
    """By target of the settings: the directory there is, why no container may have it, and its kind of file system.

    Args:
        targets: of [[guest.mounts]] in this node's settings. Of one with {user} or {home} only the directory above is
            looked at; there is none, and nothing is told, where it begins so: homes are where accounts say.
        mountinfo: the kernel's table of mounts.
    """
    return {target: _seen(_directory(target), mountinfo) for target in sorted(set(targets))}


def _directory(target: str) -> str:
    """The part of a target that is the same for all users; "" if there is none."""
    return target if "{" not in target else target.partition("{")[0].rpartition("/")[0]


def _seen(directory: str, mountinfo: Path) -> dict[str, str]:
    if not directory:
        return {"directory": "", "wrong": "", "type": ""}
    wrong = _silence(directory) or _fault(directory)
    return {"directory": directory, "wrong": wrong, "type": "" if wrong else _type(directory, mountinfo)}


def _silence(directory: str) -> str:
    """Why its file system does not answer; asked by a process that can be given up."""
    try:
        done = subprocess.run(
            ["stat", "--file-system", "--", f"{directory}/."],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            env=environment(),
        )
    except subprocess.TimeoutExpired:
        return f"its file system has not answered for {_ANSWER_S:g} s"
    except OSError as error:
        return f"`stat` cannot be started: {error.strerror}"
    return "" if done.returncode == 0 else done.stderr.strip().rpartition(": ")[2] or "cannot be read"


def _fault(directory: str) -> str:
    try:
        above = open_to_others(directory)
    except OSError as error:
        return str(error.strerror)
    return f"{above} is not root's alone, so others could put another directory there" if above else ""


def _type(directory: str, mountinfo: Path) -> str:
    """The kind of the file system on which it lies; "" if the table does not say."""
    place, found = os.path.realpath(directory), ("", "")
    for line in mountinfo.read_text().splitlines():
        before, _, after = line.partition(" - ")
        mounted = before.split()[4].encode().decode("unicode_escape")  # blanks are written as \040
        inside = place == mounted or place.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(found[0]):  # of several at one place the last one is seen
            found = mounted, after.split()[0]
    return found[1]
