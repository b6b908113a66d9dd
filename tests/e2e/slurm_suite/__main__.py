"""``contrib/run-campaign slurm-suite``: Slurm's own tests in both partitions, and what differs."""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from e2e.campaign import on_minicluster
from e2e.cluster import REPOSITORY, Cluster
from e2e.slurm_suite import page
from e2e.slurm_suite.known import BY_TIME, REASONS
from e2e.slurm_suite.results import Comparison, Kind, compare, complaint, counted, refusals_in
from e2e.slurm_suite.running import run_both
from e2e.slurm_suite.sources import (
    DEFAULT,
    Sources,
    SourcesError,
    check_machine,
    choose,
    installed_version,
    read_sources,
)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="run-campaign slurm-suite",
        description="Tests of Slurm's own suite (testsuite/expect) on a minicluster, with the native partition as the "
        "default one and then with that of vjobs: which pass in both, are refused as documented, or differ. Needs a "
        "checkout of Slurm's sources, of the release that is installed here, and Debian's packages expect and gcc.",
    )
    parser.add_argument("--sources", metavar="DIR", type=Path, required=True, help="the checkout; it is only read")
    parser.add_argument("--tests", metavar="LIST", default=DEFAULT, help="e.g. 1.1,17.* (default: %(default)s)")
    parser.add_argument(
        "--limit-s", metavar="S", type=_seconds, default=300.0, help="a test is ended then (%(default)s)"
    )
    parser.add_argument(
        "--logs",
        metavar="DIR",
        type=Path,
        help="keep what each test printed in DIR/PARTITION/; tests that ended there before are not run again",
    )
    parser.add_argument("--write", action="store_true", help="put the results into the table of docs/slurm-suite.md")
    arguments = parser.parse_args()
    try:
        sources = read_sources(arguments.sources.resolve())
        tests = choose(arguments.tests, sources.tests)
        check_machine(sources, installed_version())
        if arguments.logs:
            arguments.logs.mkdir(parents=True, exist_ok=True)
    except (SourcesError, OSError) as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory() as scratch:
        logs = arguments.logs or Path(scratch)

        def act(cluster: Cluster) -> None:
            _judge(cluster, sources, tests, arguments.limit_s, logs, arguments.write)

        # The suite wants idle nodes, and rooms that are held make them none.
        return on_minicluster(act, "elastic", "--demand-window-s", "86400")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 1 to 86400")
    return value


def _judge(cluster: Cluster, sources: Sources, tests: Sequence[str], limit_s: float, logs: Path, write: bool) -> None:
    begun = time.monotonic()
    native, vjob = run_both(cluster, sources, tests, limit_s, logs)
    patterns = [each for path in sorted((REPOSITORY / "lua").glob("*.lua")) for each in refusals_in(path.read_text())]
    comparisons = [compare(test, native[test], vjob[test], patterns) for test in tests]
    today = datetime.date.today().isoformat()
    rows = [page.row(each, REASONS, sources.version, today) for each in comparisons]
    for each, row in zip(comparisons, rows, strict=True):
        print("\n".join([row, *_told(each)]))
    print(f"{counted(comparisons)}; {time.monotonic() - begun:.0f} s", flush=True)
    if write:
        page.write(rows)
    unexplained = [each.test for each in comparisons if each.kind is Kind.DIFFERS and each.test not in REASONS]
    explained = REASONS.keys() - BY_TIME
    stale = [each.test for each in comparisons if each.kind in (Kind.SAME, Kind.REFUSED) and each.test in explained]
    assert not unexplained, f"tests that differ, and known.py does not say why: {', '.join(unexplained)}"
    assert not stale, f"tests that known.py explains, and that do not differ: {', '.join(stale)}"


def _told(each: Comparison) -> list[str]:
    """What the suite itself complained of, for a person to read."""
    both = (("native", each.native), ("vjob", each.vjob))
    return [f"    {side}: {complaint(run)}" for side, run in both if each.kind is not Kind.SAME and complaint(run)]


if __name__ == "__main__":
    sys.exit(main())
