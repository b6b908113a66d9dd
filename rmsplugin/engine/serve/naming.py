"""Naming: the vjobs that a user means by a job id, or by one or several elements of an array; for all requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import NotFoundError, RefusedError
from rmsplugin.model.job_names import JobName, fold, parse
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings


@dataclass(frozen=True, slots=True)
class Named:
    """The vjobs that a name stands for."""

    rows: Sequence[VJobRow]
    waiting: Sequence[str] = ()  # elements of an array that Slurm has not split off yet, without a row

    @property
    def alive(self) -> Named:
        """The same without ended vjobs, unless all have ended."""
        rows = [row for row in self.rows if row.state is not VJobState.TERMINATED]
        return Named(rows, self.waiting) if rows or self.waiting else self

    @property
    def states(self) -> list[dict[str, str]]:
        """The display id and the state of each."""
        waiting = [{"vjob": name, "state": str(VJobState.WAITING)} for name in self.waiting]
        return [*({"vjob": row.display_id, "state": str(row.state)} for row in self.rows), *waiting]

    @property
    def names(self) -> list[str]:
        """Their display ids."""
        return [*(row.display_id for row in self.rows), *self.waiting]


def named(settings: Settings, ledger: Ledger, seen: Observation | None, text: str) -> Named:
    """The vjobs with this name: one, or elements of an array.

    An array's id is also, in Slurm, the job id of its last element; it means the array.

    Args:
        settings: with the partitions.
        ledger: with the vjobs that are known.
        seen: the newest look at the cluster.
        text: a name that ``rmsplugin.model.job_names.parse`` takes.

    Raises:
        NotFoundError: there is no such vjob, or the array lacks an element that is named.
    """
    name = parse(text)
    rows = ledger.named(name)
    waiting = _waiting(settings, seen, name, {row.display_id for row in ledger.named(parse(str(name.job)))})
    missing = name.missing(Named(rows, waiting).names)
    if missing and (rows or waiting):
        raise NotFoundError(f"job array {name.job} has no element {missing}")
    if rows or waiting:
        return Named(rows, waiting)
    if not name.ranges:
        return Named([ledger.find_vjob(text)])
    raise NotFoundError(f"no vjob {text}")


def own_name(ledger: Ledger, text: str) -> str:
    """The name; if it is the id that an element of an array has in Slurm, the display id of the element."""
    if not text.isdecimal() or ledger.named(parse(text)):
        return text
    return next((vjob.display_id for vjob in ledger.vjobs_among([int(text)]).values()), text)


def the_one(settings: Settings, ledger: Ledger, seen: Observation | None, text: str) -> VJobRow:
    """The one vjob with this name that has not ended.

    Raises:
        NotFoundError: there is no such vjob.
        RefusedError: there are several; the error names them.
    """
    found = named(settings, ledger, seen, text).alive
    if len(found.names) > 1:
        raise RefusedError(f"{text} is a job array, and this takes one vjob: name an element of {fold(found.names)}")
    if not found.rows:
        raise RefusedError(f"vjob {found.waiting[0]} is waiting: it has not begun")
    return found.rows[0]


def _waiting(settings: Settings, seen: Observation | None, name: JobName, known: set[str]) -> list[str]:
    jobs = seen.rms.jobs if seen else ()
    return [
        job.display_id
        for job in jobs
        if not job.split
        and name.means(job.display_id)
        and job.state is not JobState.ENDED
        and job.partition in settings.slurm.partitions
        and job.display_id not in known
    ]
