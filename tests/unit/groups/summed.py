"""Summaries of groups of equal nodes, without a configuration."""

from __future__ import annotations

from collections.abc import Iterable

from rmsplugin.groups.choosing import Shape
from rmsplugin.groups.giving import Heard, Live
from rmsplugin.groups.summary import GroupState, NodeClass, Summary, hole_of
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import Rules
from rmsplugin.model.vjob import VJobState

#: What VMs may take of each node.
NODE = Resources(4, 4096)
VM = Resources(1, 1024)


def summary(name: str, free_cpus: Iterable[int]) -> Summary:
    """A group with so many CPUs, each with 1 GiB, free on each of its nodes."""
    frees = [Resources(cpus, cpus * 1024) for cpus in free_cpus]
    holes: dict[tuple[int, int], int] = {}
    for free in frees:
        holes[hole_of(free)] = holes.get(hole_of(free), 0) + 1
    classes = (NodeClass(NODE, frozenset(), len(frees), sum(frees, NOTHING), holes),)
    return Summary(name, GroupState.UP, len(frees), len(frees), classes, max(frees, key=lambda each: each.memory_mib))


def heard(
    name: str,
    free_cpus: Iterable[int],
    seen: tuple[int, int] = (1, 0),
    released: Iterable[int] = (),
    **vjobs: str,
) -> Heard:
    """``vjobs``: by "jID", the state."""
    states = {int(job[1:]): VJobState(state) for job, state in vjobs.items()}
    return Heard(seen, frozenset(released), states, summary(name, free_cpus))


def live(job_id: int, vms: int = 1, *, eligible: bool = True, rules: Rules = ()) -> Live:
    """A vjob with so many VMs of a CPU and a GiB."""
    return Live(job_id, Shape.of([VM] * vms, rules), eligible)
