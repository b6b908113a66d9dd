"""Faults on a real minicluster of two controllers: see the developer guide.

``contrib/run-campaign live --minutes 120 --seed 1``, and with ``--managers``
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from e2e.campaign import on_minicluster
from e2e.cluster import Cluster
from e2e.live import verdict
from e2e.live.campaign import Campaign
from e2e.live.dice import KINDS, KINDS_OF_MANAGERS
from e2e.live.site import Site


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run-campaign live",
        description="Vjobs on a minicluster of two controllers, with three ZooKeeper servers and two slurmctlds, while "
        "daemons and hosts are killed, stopped and cut off by dice. After each fault all has to be well again: each "
        "script's output is whole, none ran twice, none is lost, the ledger is whole, no two engines acted at once.",
    )
    parser.add_argument("--minutes", type=float, default=120, help="for how long faults come (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (default: %(default)s)")
    parser.add_argument(
        "--managers",
        action="store_true",
        help="managers of two groups in the place of engines",
    )
    kinds = sorted(KINDS_OF_MANAGERS)
    parser.add_argument("--nfs", action="store_true", help="what the controllers share comes by NFS from the last node")
    parser.add_argument("--only", default=[], nargs="+", choices=kinds, help="faults of these kinds only")
    parser.add_argument(
        "--evidence", type=Path, help="directory for logs and listings, where something was wrong or late"
    )
    parser.add_argument("--journal", type=Path, help="file for the journal; python -m journal.check reads it")
    found = parser.parse_args()
    if not found.managers and (without := {*found.only} - KINDS.keys()):
        parser.error(f"there is no {' and no '.join(sorted(without))} without --managers")
    return found


def main() -> int:
    """The command line."""
    arguments, codes = _arguments(), [2]

    def act(cluster: Cluster) -> None:
        campaign = Campaign(Site(cluster.directory), arguments.seed, _say, arguments.evidence, arguments.only)
        try:
            campaign.run(arguments.minutes)
        finally:
            if arguments.journal:
                arguments.journal.write_text("".join(f"{line}\n" for line in campaign.journal))
            told = (campaign.rounds, len(campaign.work.all), campaign.at_the_end)
            print("\n".join(verdict.table(campaign.rounds)))
            print(verdict.sentence(*told), flush=True)
            codes[0] = verdict.code(*told)

    managers = ["--managers"] if arguments.managers else []
    shared = ["--shared", "nfs"] if arguments.nfs else []
    failed = on_minicluster(act, "hold", "--controllers", "2", *managers, *shared)
    return failed or codes[0]


if __name__ == "__main__":
    sys.exit(main())
