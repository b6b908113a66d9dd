"""Site: what slurm.conf says about context switches, and what in it keeps the engine from acting."""

from __future__ import annotations

from functools import cache

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.settings import Settings


def time_slices(rms: RmsSnapshot) -> str:
    """Why Slurm itself would stop and continue wrappers; empty if it would not. The engine then only observes."""
    if "GANG" in rms.preempt_mode.upper():
        return f"slurm.conf has PreemptMode={rms.preempt_mode}: gang scheduling would time-slice the jobs' wrappers"
    return ""


def may_suspend(rms: RmsSnapshot, partition: str) -> bool:
    """Whether the admin switched context switches on for the partition (PreemptMode=SUSPEND or REQUEUE)."""
    found = rms.partitions.get(partition)
    return found is not None and switches(found.preempt_mode)


@cache
def switches(preempt_mode: str) -> bool:
    """Whether a partition's PreemptMode switches context switches on."""
    return bool({"SUSPEND", "REQUEUE"} & set(preempt_mode.upper().split(",")))


def problems(settings: Settings, rms: RmsSnapshot) -> list[str]:
    """The faults that an administrator has to mend, each in a sentence."""
    named = {name: f"slurm.partitions has {name}" for name in settings.slurm.partitions}
    named |= {each.hosts: f"[partition.{name}] has hosts = {each.hosts}" for name, each in settings.partition.items()}
    found = [f"{where}, which does not exist in Slurm" for name, where in named.items() if name not in rms.partitions]
    slices = time_slices(rms)
    if slices:
        found.append(f"{slices}; the engine only observes. Set a global PreemptMode without GANG")
    return found
