"""Priority: the priority that Slurm's priority/multifactor would give to a job that it has stopped to weigh. Pure.

Slurm computes the priority of pending jobs only: it grows with their age, and follows the fair share of their users. A
vjob that runs or sleeps is compared with pending ones. So its priority has to go on by the same rules, or every newer
job of its own user overtakes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rmsplugin.model.made_at_once import made_at_once


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the factors of priority/multifactor that change with time, and the rules of change."""

    age: int = 0
    max_age_s: float = 7 * 86400.0  # a greater age counts as this
    share: int = 0  # of the fair share, which is from 0 to 1
    only_rises: bool = False  # PriorityFlags=INCR_ONLY


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a pending job's priority that came from these factors, as Slurm gives them."""

    age: int
    share: int
    fixed: bool = False  # its priority was set by hand: no factor counts


@made_at_once
@dataclass(frozen=True, slots=True)
class Standing:
    """The remembered priority of a vjob, from Slurm's last computation."""

    value: int  # the priority
    rest: float  # the part of it that is neither of age nor of fair share
    share: float  # the part of it by fair share
    accrues_from: float  # its age counts from then on, seconds since the epoch
    nice: int
    account: str
    fixed: bool = False  # it was set by hand: it stays as it is


def age_part(weights: Weights, accrues_from: float, now: float) -> float:
    """The part of a job's priority by its age."""
    if not weights.age or not accrues_from:
        return 0.0
    age_s = max(0.0, now - accrues_from)
    return weights.age * (age_s / weights.max_age_s if age_s < weights.max_age_s else 1.0)


def standing(
    weights: Weights | None,
    value: int,
    parts: Parts | None,
    *,
    computed: float,
    accrues_from: float,
    nice: int,
    account: str,
    share: float | None,
) -> Standing:
    """Split a priority into its parts.

    Args:
        weights: the weights of the factors; None: another plugin than priority/multifactor computed it.
        value: the priority.
        parts: as Slurm gives them; None: it does not.
        computed: the time of the computation.
        accrues_from: the time from which its age counts.
        nice: the nice value of the job.
        account: the account of the job.
        share: its fair share, from 0 to 1; None: unknown, it is left in the rest.
    """
    if weights is None or (parts is not None and parts.fixed):
        return Standing(value, value, 0.0, accrues_from, nice, account, fixed=parts is not None and parts.fixed)
    if parts is not None:
        return Standing(value, value - parts.age - parts.share, parts.share, accrues_from, nice, account)
    of_share = weights.share * (share or 0.0)
    return Standing(
        value, value - age_part(weights, accrues_from, computed) - of_share, of_share, accrues_from, nice, account
    )


def priority_now(known: Standing, weights: Weights | None, now: float, *, nice: int, share: float | None) -> int:
    """The priority that Slurm would compute now.

    Slurm cuts off fractions when it prints priorities, and prints fair shares with six digits. So this is rounded up:
    of two jobs that Slurm would hold to be equal, the one that was there first stays ahead.

    Args:
        known: the remembered priority, from Slurm's last computation.
        weights: the present weights.
        now: seconds since the epoch.
        nice: the present nice value.
        share: its present fair share, from 0 to 1; None: unknown, it counts as it last did.
    """
    if known.fixed:
        return known.value
    niced = known.nice - nice
    if weights is None:
        return max(1, known.value + niced)
    of_share = known.share if share is None else weights.share * share
    found = known.rest + age_part(weights, known.accrues_from, now) + of_share + niced
    if share is not None:
        found += weights.share * 1e-6
    if weights.only_rises:
        found = max(found, known.value)
    return max(1, math.ceil(found))
