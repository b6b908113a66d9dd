"""Cases judged: run in both partitions, compared, and told to a person."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.cluster import Cluster
from e2e.native.case import Case
from e2e.native.outcome import Verdict, compare
from e2e.native.running import NATIVE, VJOB, run_all


def judge(cluster: Cluster, cases: Sequence[Case]) -> list[Verdict]:
    """Run the cases in both partitions and compare."""
    native = run_all(cluster, cases, NATIVE)
    vjob = run_all(cluster, cases, VJOB)
    return [compare(case, native[case.name], vjob[case.name]) for case in cases]


def told(verdict: Verdict) -> str:
    """What a person reads of a case."""
    lines = []
    for each in verdict.differences:
        kind = "DIFFERS" if each.allowed is None else "gap" if each.allowed.mendable else "differs"
        lines += [f"  {kind} in {each.part}", *(f"    {line}" for line in each.lines)]
    lines += [f"  STALE: no difference any more in {each.part}: {each.reason}" for each in verdict.stale]
    return "\n".join([f"{verdict.case.name}: {verdict.case.title}", *lines])


def summary(verdicts: Sequence[Verdict]) -> str:
    """One line for all."""
    same = sum(not each.differences for each in verdicts)
    gaps = sum(bool(each.mendable) for each in verdicts)
    bad = sum(not each.good for each in verdicts)
    return (
        f"{len(verdicts)} cases: {same} the same in both, {len(verdicts) - same} differ, {gaps} of them in what a VM "
        f"could help, {bad} not as their files say"
    )
