"""Mounted: what `rmsplugin check` is told of the directories that containers have of this node. Nothing is changed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rmsplugin.adapters.platform.podman.on_node.directories import open_to_others
from rmsplugin.adapters.platform.podman.on_node.program import environment
from rmsplugin.adapters.platform.side_by_side import answers

#: A file server that is gone answers never.
_ANSWER_S = 4.0
#: For all directories together.
_ALL_S = 5.0
#: In which a process that is killed ends, unless it hangs in the kernel.
_END_S = 0.5
#: As the kernel writes a blank, a line's end or a backslash.
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


def seen(targets: Iterable[str], mountinfo: Path = Path("/proc/self/mountinfo")) -> dict[str, dict[str, str]]:
    """By target of the settings: the directory there is, why no container may have it, and its kind of file system.

    Args:
        targets: of [[guest.mounts]] in this node's settings. Of one with {user} or {home} only the directory above is
            looked at; there is none, and nothing is told, where it begins so: homes are where accounts say.
        mountinfo: the kernel's table of mounts.

    Ends within 5 s, whatever hangs.
    """
    directories = {target: _directory(target) for target in sorted(set(targets))}
    said = answers(filter(None, directories.values()), lambda directory: _seen(directory, mountinfo), _ALL_S)
    return {target: said.get(directory) or _not_seen(directory) for target, directory in directories.items()}


def _directory(target: str) -> str:
    """The part of a target that is the same for all users; "" if there is none."""
    return target if "{" not in target else target.partition("{")[0].rpartition("/")[0]


def _not_seen(directory: str) -> dict[str, str]:
    """What is told of no directory, and of one that does not answer in time."""
    late = f"its file system has not answered for {_ALL_S:g} s"
    return {"directory": directory, "wrong": late if directory else "", "type": ""}


def _seen(directory: str, mountinfo: Path) -> dict[str, str]:
    wrong = _silence(directory) or _fault(directory)
    return {"directory": directory, "wrong": wrong, "type": "" if wrong else _type(directory, mountinfo)}


def _silence(directory: str) -> str:
    """Why its file system does not answer; asked by a process that can be given up."""
    try:
        process = subprocess.Popen(
            ["stat", "--file-system", "--", f"{directory}/."],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment(),
        )
    except OSError as error:
        return f"`stat` cannot be started: {error.strerror}"
    try:
        _, said = process.communicate(timeout=_ANSWER_S)
    except subprocess.TimeoutExpired:
        _give_up(process)
        return f"its file system has not answered for {_ANSWER_S:g} s"
    return "" if process.returncode == 0 else os.fsdecode(said).strip().rpartition(": ")[2] or "cannot be read"


def _give_up(process: subprocess.Popen[bytes]) -> None:
    """Kill it. One that hangs in the kernel ends later, or never: it is not waited for."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    if process.stderr is not None:
        process.stderr.close()


def _fault(directory: str) -> str:
    try:
        above = open_to_others(directory)
    except OSError as error:
        return str(error.strerror)
    return f"{above} is not root's alone, so others could put another directory there" if above else ""


def _type(directory: str, mountinfo: Path) -> str:
    """The kind of the file system on which it lies; "" if the table does not say."""
    place, found = os.path.realpath(directory), ("", "")
    for line in mountinfo.read_bytes().rstrip(b"\n").split(b"\n"):  # names may be in any encoding
        before, _, after = line.partition(b" - ")
        mounted = _unescaped(before.split(b" ")[4])
        inside = place == mounted or place.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(found[0]):  # of several at one place the last one is seen
            found = mounted, _unescaped(after.split(b" ")[0])
    return found[1]


def _unescaped(word: bytes) -> str:
    return os.fsdecode(_OCTAL.sub(lambda octal: bytes([int(octal[1], 8)]), word))
