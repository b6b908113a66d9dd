"""Columns: the part of a ledger's jobs and operations for a report, an array for each value; a year has millions.

Arrays of one kind of rows share their order: those of jobs are sorted by job id, and a job's place there is its *row*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]

#: Kinds of operations that change the state of a vjob, and their outcomes, as the codes in ``Operations``.
KINDS = ("start", "suspend", "resume", "restart", "stop", "pause", "unpause")
START, SUSPEND, RESUME, RESTART, STOP, PAUSE, UNPAUSE = range(len(KINDS))
OUTCOMES = ("running", "done", "failed")
RUNNING, DONE, FAILED = range(len(OUTCOMES))


@dataclass(slots=True)
class Words:
    """Words that many rows share, by their codes."""

    words: list[str] = field(default_factory=list)
    _codes: dict[str, int] = field(default_factory=dict)

    def code(self, word: str) -> int:
        """The code of a word; a new code if it has none."""
        code = self._codes.get(word)
        if code is None:
            code = self._codes[word] = len(self.words)
            self.words.append(word)
        return code

    def codes(self, words: Sequence[str]) -> list[int]:
        """The codes of many words."""
        for word in dict.fromkeys(words):
            self.code(word)
        return list(map(self._codes.__getitem__, words))


@dataclass(frozen=True, slots=True)
class Jobs:
    """The vjobs that were there in the time of the report. Times are seconds since the epoch.

    Attributes:
        job_id: ascending.
        names: by row, the users' names of those jobs whose name is not their job id.
        user, partition: codes of ``users`` and ``partitions``.
        vms: the number of VMs; ``cpus`` and ``memory_mib`` of each, as requested.
        large: the number of VMs, the first ones, that have so much; others have ``small_cpus`` and
            ``small_memory_mib``.
        image: codes of ``images``, from which the jobs' VMs are booted.
        wish: codes of ``wishes``, each the user's about VMs beside each other; switches: the most on which the VMs are;
            both as ``Geometry`` has them.
        terminated: whether it has ended; stopping: whether it is being cleaned up; since: the time of its present
            state.
        sleeps: whether it sleeps now, or is about to.
        repeated: whether it began anew, or went back to a checkpoint, so that it has done some of its work twice.
    """

    job_id: Ints
    names: dict[int, str]
    user: Codes
    partition: Codes
    users: Words
    partitions: Words
    vms: Ints
    cpus: Ints
    memory_mib: Ints
    large: Ints
    small_cpus: Ints
    small_memory_mib: Ints
    image: Ints
    images: Words
    wish: Ints
    wishes: Words
    switches: Ints
    submit: Floats
    terminated: Flags
    stopping: Flags
    since: Floats
    sleeps: Flags
    repeated: Flags

    def __len__(self) -> int:
        return len(self.job_id)

    def name(self, row: int) -> str:
        """The user's name of a job."""
        return self.names.get(row) or str(self.job_id[row])

    @property
    def wishing(self) -> Flags:
        """The jobs whose users wish anything about VMs beside each other."""
        plain = [code for code, word in enumerate(self.wishes.words) if not word]
        return (self.switches > 0) | ~np.isin(self.wish, plain)

    @property
    def booked(self) -> Ints:
        """The CPUs that each job requested."""
        return self.large * self.cpus + (self.vms - self.large) * self.small_cpus

    def begins(self, until: float) -> float:
        """The first submission of these jobs; ``until`` if there is none."""
        return float(self.submit.min(initial=until))

    @property
    def booked_mib(self) -> Ints:
        """The memory that each job requested, of all its VMs together."""
        return self.large * self.memory_mib + (self.vms - self.large) * self.small_memory_mib

    def rows_of(self, job_ids: Ints) -> Ints:
        """The row of each job id; -1 for a job that is none of these."""
        if not len(self):
            return np.full(len(job_ids), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self.job_id, job_ids), len(self) - 1)
        return np.where(self.job_id[places] == job_ids, places, -1)


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations on vjobs, sorted by row and then in the order in which they began; see KINDS and OUTCOMES."""

    row: Ints
    kind: Codes
    outcome: Codes
    created: Floats
    ended: Floats  # 0 while the operation is under way


@dataclass(frozen=True, slots=True)
class Actions:
    """Successful actions on single VMs, sorted by row and then by time."""

    row: Ints
    vm: Codes  # the VM's number in the vjob
    kind: Codes  # a code of ``kinds``
    destination: Codes  # a code of ``nodes``
    created: Floats
    ended: Floats
    bytes: Ints
    kinds: Words
    nodes: Words


def arrays(rows: Iterable[tuple[Any, ...]], kinds: Sequence[str | Words]) -> list[NDArray[Any]]:
    """An array for each column of the rows, without holding all rows at once.

    Args:
        rows: tuples of numbers and words.
        kinds: the type of each column: f, i or c for Floats, Ints or Codes; the Words whose codes a column of words
            becomes.
    """
    types: list[type] = [_TYPES[kind] if isinstance(kind, str) else np.int32 for kind in kinds]
    parts: list[list[NDArray[Any]]] = [[] for _ in kinds]
    remaining = iter(rows)
    while batch := list(islice(remaining, _BATCH)):
        for part, kind, type_, column in zip(parts, kinds, types, zip(*batch, strict=True), strict=True):
            part.append(np.array(column if isinstance(kind, str) else kind.codes(column), dtype=type_))
    return [np.concatenate(part) if part else np.empty(0, type_) for part, type_ in zip(parts, types, strict=True)]


def time_key(number: Ints, seconds: Floats) -> Ints:
    """Sort keys: numbers that sort by another number and then by time, in tenths of a second for a thousand years."""
    return np.asarray((number << 39) + np.clip(seconds * 10, 0, (1 << 39) - 1).astype(np.int64))


def last_of_each(row: Ints) -> Flags:
    """The place of the last of each job's rows, in a sorted column of rows."""
    return np.append(row[1:] != row[:-1], True)[: len(row)]


_TYPES: dict[str, type] = {"f": np.float64, "i": np.int64, "c": np.int32}
#: The number of rows that are Python values at a time: so few stay in a processor's cache until they are columns.
_BATCH = 2000
