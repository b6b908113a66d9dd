"""Activity file: the activity of each job's VMs, as JSON: ``{"jobs": {"12": [{"seconds": 600, "cpus": 1}, ...]}}``.

A job is a list of phases: ``seconds`` of work at full speed, and the ``cpus`` that each VM uses meanwhile: one number
for all of them, or a list with one for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rmsplugin.errors import WorkloadError
from rmsplugin.workload.activity import Activity, Phase
from rmsplugin.workload.json_file import an_object, of_jobs

#: No job runs for longer than a hundred years, and none has more phases.
_MOST_S = 3.2e9
_MOST_PHASES = 100_000


def read_activity(text: str) -> dict[int, Activity]:
    """The activity of each job by its id.

    Raises:
        WorkloadError: the fault, with its place in the document.
    """
    found = {}
    for job_id, phases, place in of_jobs(text):
        if not isinstance(phases, list) or not 1 <= len(phases) <= _MOST_PHASES:
            raise WorkloadError(f"{place}: has to be a list of 1 to {_MOST_PHASES} phases")
        found[job_id] = tuple(_phase(phase, f"{place}[{index}]") for index, phase in enumerate(phases))
    return found


def fitted(activity: Mapping[int, Activity], job_id: int, vms: int, cpus_per_vm: int) -> Activity | None:
    """The activity of a job, None if there is none, for so many VMs of so many CPUs.

    Raises:
        WorkloadError: it is for another number of VMs, or uses more CPUs than they have.
    """
    found = activity.get(job_id)
    for index, phase in enumerate(found or ()):
        place = f"jobs.{job_id}[{index}].cpus"
        if len(phase.cpus) not in (1, vms):
            raise WorkloadError(f"{place}: has {len(phase.cpus)} numbers, and the job has {vms} VMs")
        if max(phase.cpus) > cpus_per_vm:
            raise WorkloadError(f"{place}: {max(phase.cpus):g} is more than the {cpus_per_vm} of a VM")
    return found


def _phase(phase: Any, place: str) -> Phase:
    known = an_object(phase, place)
    for key in known.keys() - {"seconds", "cpus"}:
        raise WorkloadError(f"{place}: there is no key {key!r}; a phase has seconds and cpus")
    seconds = _number(known.get("seconds"), f"{place}.seconds", _MOST_S)
    if seconds <= 0:
        raise WorkloadError(f"{place}.seconds: has to be above 0")
    cpus = known.get("cpus")
    if isinstance(cpus, list):
        if not cpus:
            raise WorkloadError(f"{place}.cpus: is empty")
        return Phase(seconds, tuple(_number(each, f"{place}.cpus[{i}]", 1e6) for i, each in enumerate(cpus)))
    return Phase(seconds, (_number(cpus, f"{place}.cpus", 1e6),))


def _number(value: Any, place: str, most: float) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (0 <= value <= most and math.isfinite(value))
    ):
        raise WorkloadError(f"{place}: has to be a number from 0 to {most:g}, not {value!r}")
    return value
