"""Slurm priority: reads the factors of priority/multifactor from the output of Slurm's commands. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rmsplugin.adapters.rms.slurm_records import limit_s, words
from rmsplugin.model.priority import Parts, Weights

#: Format of sprio: job id and priority, age and fair share, then all other factors; each already weighted.
PARTS_FORMAT = "%i|%Y|%A|%F|%N|%J|%P|%Q|%B|%S|%T"
SHARE_FORMAT = "Account,User,Partition,FairShare"


def weights(configuration: Mapping[str, str]) -> Weights | None:
    """The weights in ``scontrol show config``; None if another plugin computes priorities."""
    if configuration.get("PriorityType") != "priority/multifactor":
        return None
    return Weights(
        age=_number(configuration.get("PriorityWeightAge", "")),
        max_age_s=limit_s(configuration.get("PriorityMaxAge", "")),
        share=_number(configuration.get("PriorityWeightFairShare", "")),
        only_rises="INCR_ONLY" in words(configuration.get("PriorityFlags", "")),
    )


def parts(text: str) -> dict[int, Parts]:
    """Read the output of ``sprio -h`` with ``PARTS_FORMAT``, by job id.

    For a job whose priority was set by hand sprio prints no factor. A job in several partitions has a line for each;
    the first line is for the partition that squeue names.
    """
    found: dict[int, Parts] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != PARTS_FORMAT.count("|") + 1 or not fields[0].isdecimal():
            continue
        job_id, priority, age, share, *others = fields
        none = not any(_number(each) for each in (age, share, *others[:-1])) and not others[-1]
        found.setdefault(int(job_id), Parts(_number(age), _number(share), fixed=none and _number(priority) > 1))
    return found


def shares(text: str) -> dict[tuple[str, str, str], float]:
    """Read the output of ``sshare -P`` with ``SHARE_FORMAT``: the fair shares of associations of users."""
    found = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) == 4 and fields[1]:
            try:
                found[fields[0], fields[1], fields[2]] = float(fields[3])
            except ValueError:
                continue
    return found


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0
