"""``contrib/run-campaign upgrade``: see the developer guide."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from e2e import common_templates
from e2e.conftest import PERIODS
from e2e.upgrade import drill, managers
from e2e.upgrade.release import commit_before, make_releases
from e2e.upgrade.site import Site


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="run-campaign upgrade",
        description="A minicluster of an older commit is upgraded to HEAD, host after host, by the steps of "
        "docs/operator/upgrading.md, while vjobs run and sleep. Needs sudo. Takes some minutes and --mixed.",
    )
    parser.add_argument("--from", dest="commit", help="the older commit (default: the newest one a day before HEAD)")
    parser.add_argument(
        "--mixed", type=float, default=5, metavar="MINUTES", help="how long releases are mixed (default: %(default)s)"
    )
    parser.add_argument(
        "--packages",
        nargs=2,
        type=Path,
        metavar=("OLDER", "NEWER"),
        help="directories of the packages of that commit and of HEAD, built by contrib/build-packages for the Debian "
        "that this machine has: they are run instead of the commits",
    )
    parser.add_argument(
        "--managers",
        action="store_true",
        help="managers of two groups on two controllers are upgraded one by one, as docs/operator/groups.md says; the "
        "older commit is one that has `contrib/minicluster up --managers`",
    )
    arguments = parser.parse_args()
    commit = arguments.commit or commit_before(24)
    if not commit:
        parser.error("no commit is a day older than HEAD: name one with --from")
    for directory in arguments.packages or ():
        if len([*directory.glob("rmsplugin-*.deb")]) != 3:
            parser.error(f"{directory} does not have the three packages of one release")
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:6.1f} s] {text}", flush=True)

    place = Path("/var/tmp") / f"rmsplugin-upgrade-{os.getpid()}"
    tree = place / "release"
    made = managers.SiteOfManagers if arguments.managers else Site
    cluster = made(place / "cluster", tree, of_packages=bool(arguments.packages))
    several = ("--controllers", "2", "--managers") if arguments.managers else ("--fronts", "2")
    common_templates.begin_run()
    try:
        place.mkdir()
        older = make_releases(tree, commit, tuple(arguments.packages) if arguments.packages else None)
        say(f"commit {commit} is made, as release {older}{', of packages' * bool(arguments.packages)}")
        told = cluster.manage("up", "--nodes", "3", *several, "--rooms", "hold", *PERIODS)
        assert told.code == 0, told.err
        say("its minicluster is up")
        if isinstance(cluster, managers.SiteOfManagers):
            managers.upgrade(cluster, older, arguments.mixed * 60, say)
        else:
            drill.upgrade(cluster, older, arguments.mixed * 60, say)
    except AssertionError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    finally:
        cluster.manage("down")
        common_templates.end_run()
        shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
