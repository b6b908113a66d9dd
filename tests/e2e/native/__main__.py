"""``contrib/run-campaign native``: each case in both partitions, and what differs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from e2e.campaign import on_minicluster
from e2e.cluster import Cluster
from e2e.native import guide
from e2e.native.case import Case, CaseError, read_cases
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


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="run-campaign native",
        description="Each case of tests/e2e/cases in the native partition and in that of vjobs of a minicluster: "
        "output, exit code, accounting and files are the same, or the case's file says why not.",
    )
    parser.add_argument("-k", metavar="NAME", default="", help="only cases with this in their names")
    parser.add_argument("--write", action="store_true", help="put the table of what differs into docs/user-guide.md")
    arguments = parser.parse_args()
    if arguments.write and arguments.k:
        parser.error("--write needs all cases: leave -k out")
    try:
        cases = [case for case in read_cases() if arguments.k in case.name]
    except CaseError as error:
        parser.error(str(error))
    if not cases:
        parser.error(f"no case has {arguments.k!r} in its name")

    def act(cluster: Cluster) -> None:
        begun = time.monotonic()
        verdicts = judge(cluster, cases)
        for verdict in verdicts:
            if verdict.differences or verdict.stale:
                print(told(verdict))
        print(f"{summary(verdicts)}; {time.monotonic() - begun:.0f} s", flush=True)
        if arguments.write:
            guide.write(verdicts)
        assert all(each.good for each in verdicts), "differences that the cases' files do not explain, or no longer"

    return on_minicluster(act, "hold", "--demand-window-s", "86400")


if __name__ == "__main__":
    sys.exit(main())
