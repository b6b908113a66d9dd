"""Wishes file: what users asked for their VMs beside each other, as JSON: ``{"jobs": {"12": {"switches": 1}, ...}}``.

A job is an object with one or more keys: ``switches`` (--switches=N), ``spread`` (--spread-job), and ``exclusive``:
"yes" (--exclusive) or "user" (--exclusive=user).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rmsplugin.errors import WorkloadError
from rmsplugin.model.vjob import MOST_SWITCHES
from rmsplugin.workload.json_file import an_object, of_jobs

#: By the value of ``exclusive``, the wish as ``Geometry`` has it.
_EXCLUSIVE = {"user": "exclusive", "yes": "alone"}
_KEYS = ("switches", "spread", "exclusive")


class JobWishes(NamedTuple):
    """The wishes of one job, as ``Geometry`` has them."""

    wishes: frozenset[str]
    switches: int


def read_wishes(text: str) -> dict[int, JobWishes]:
    """The wishes of each job by its id.

    Raises:
        WorkloadError: the fault, with its place in the document.
    """
    return {job_id: _wishes(an_object(said, place), place) for job_id, said, place in of_jobs(text)}


def _wishes(said: dict[str, Any], place: str) -> JobWishes:
    for key in sorted(said.keys() - set(_KEYS)):
        raise WorkloadError(f"{place}: there is no key {key!r}; a job has {', '.join(_KEYS)}")
    spread, exclusive, switches = (said.get(key) for key in ("spread", "exclusive", "switches"))
    if spread is not None and not isinstance(spread, bool):
        raise WorkloadError(f"{place}.spread: has to be true or false, not {spread!r}")
    if exclusive is not None and (not isinstance(exclusive, str) or exclusive not in _EXCLUSIVE):
        raise WorkloadError(f'{place}.exclusive: has to be "yes" or "user", not {exclusive!r}')
    if switches is not None and (
        isinstance(switches, bool) or not isinstance(switches, int) or not 1 <= switches <= MOST_SWITCHES
    ):
        raise WorkloadError(f"{place}.switches: has to be a whole number from 1 to {MOST_SWITCHES}, not {switches!r}")
    found = {"spread"} if spread else set()
    return JobWishes(frozenset(found | ({_EXCLUSIVE[exclusive]} if exclusive else set())), switches or 0)
