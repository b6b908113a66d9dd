"""``contrib/run-campaign native``: each case in both partitions, and what differs."""

from __future__ import annotations

import argparse
import sys
import time

from e2e.campaign import on_minicluster
from e2e.cluster import Cluster
from e2e.native import guide
from e2e.native.case import CaseError, read_cases
from e2e.native.judging import judge, summary, told


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="run-campaign native",
        description="Each case of tests/e2e/cases in the native partition and in that of vjobs of a minicluster: "
        "output, exit code, accounting and files are the same, or the case's file says why not.",
    )
    parser.add_argument("-k", metavar="NAME", default="", help="only cases with this in their names; names by '|'")
    parser.add_argument("--write", action="store_true", help="put what differs into the table of docs/differences.md")
    arguments = parser.parse_args()
    try:
        everything = read_cases()
    except CaseError as error:
        parser.error(str(error))
    cases = [case for case in everything if any(name in case.name for name in arguments.k.split("|"))]
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
            guide.write(verdicts, everything)
        assert all(each.good for each in verdicts), "differences that the cases' files do not explain, or no longer"

    return on_minicluster(act, "hold", "--demand-window-s", "86400")


if __name__ == "__main__":
    sys.exit(main())
