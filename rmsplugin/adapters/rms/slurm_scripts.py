"""Slurm scripts: slurmctld's files of batch jobs in its state, as SlurmUser beside it sees them.

``StateSaveLocation/hash.N/job.ID/script``, where N is the last digit of ID (22.05 to 24.11). Reading there costs Slurm
nothing. A file that cannot be read there is asked of Slurm: none of these functions raises.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

_DIRECTORIES = 10
_JOB = re.compile(r"job\.([0-9]{1,10})")
_SCRIPT_BYTES = 64 << 20
#: The most bytes of a first line in a script of ours; a longer one without its end is unknown.
_FIRST_BYTES = 512

Changes = tuple[int, ...]


def changes(state_dir: str) -> Changes:
    """The last change of each directory of scripts; empty if they cannot be seen."""
    try:
        return tuple(os.stat(_directory(state_dir, digit)).st_mtime_ns for digit in range(_DIRECTORIES))
    except OSError:
        return ()


def jobs(state_dir: str, digit: int) -> frozenset[int]:
    """The batch jobs in one of the directories."""
    with suppress(OSError):
        names = map(_JOB.fullmatch, os.listdir(_directory(state_dir, digit)))
        return frozenset(int(found[1]) for found in names if found)
    return frozenset()


def first_line(state_dir: str, job_id: int) -> str | None:
    """The first line of a job's script, with its end; None while the script is not written, or cannot be read."""
    with suppress(OSError), open(_path(state_dir, job_id), "rb") as file:
        line, end, _ = file.read(_FIRST_BYTES).partition(b"\n")
        if end or len(line) == _FIRST_BYTES:
            return (line + end).decode("utf-8", "replace")
    return None


def script(state_dir: str, job_id: int) -> str | None:
    """A job's script, as Slurm itself gives it out; None if it cannot be read whole.

    slurmctld writes a byte 0 behind it, and reads only to the first one.
    """
    with suppress(OSError), open(_path(state_dir, job_id), "rb") as file:
        text, end, _ = file.read(_SCRIPT_BYTES).partition(b"\0")
        if end:
            return text.decode("utf-8", "replace")
    return None


def _directory(state_dir: str, digit: int) -> str:
    return os.path.join(state_dir, f"hash.{digit}")


def _path(state_dir: str, job_id: int) -> str:
    return os.path.join(_directory(state_dir, job_id % _DIRECTORIES), f"job.{job_id}", "script")
