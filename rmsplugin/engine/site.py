"""Site: what slurm.conf says about context switches, and what in it keeps the engine from acting."""

from __future__ import annotations

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.settings import Settings


def slurm_would_preempt(rms: RmsSnapshot) -> str:
    """Why Slurm itself would preempt vjobs, too; empty if it would not. The engine then only observes."""
    if "GANG" in rms.preempt_mode.upper():
        return f"slurm.conf has PreemptMode={rms.preempt_mode}: gang scheduling would time-slice the jobs' wrappers"
    if rms.preempt_type not in ("", "(null)", "preempt/none"):
        return f"slurm.conf has PreemptType={rms.preempt_type}: Slurm would preempt vjobs, too"
    return ""


def may_suspend(rms: RmsSnapshot, partition: str) -> bool:
    """Whether the admin switched context switches on for the partition (PreemptMode=SUSPEND or REQUEUE)."""
    found = rms.partitions.get(partition)
    return found is not None and bool({"SUSPEND", "REQUEUE"} & set(found.preempt_mode.upper().split(",")))


def problems(settings: Settings, rms: RmsSnapshot) -> list[str]:
    """What an administrator has to mend, each in a sentence."""
    found = [
        f"partition {name} of settings slurm.partitions does not exist in Slurm"
        for name in settings.slurm.partitions
        if name not in rms.partitions
    ]
    preempts = slurm_would_preempt(rms)
    if preempts:
        found.append(f"{preempts}; the engine only observes. Set PreemptType=preempt/none and PreemptMode=OFF")
    return found
