"""A process that campaigns on an ensemble, and prints when it may act: the host's steady clock, and the epoch.

usage: engine_on_zookeeper.py NAME FOLDER SESSION_S ACT_S HOST:PORT...
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time

from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.coordination.zookeeper import ZooKeeperTree
from rmsplugin.adapters.lease.clocked import ClockedLease, steady_s
from rmsplugin.errors import UnavailableError


def main() -> None:
    name, folder, session_s, act_s, *servers = sys.argv[1:]
    tree = ZooKeeperTree(servers, float(session_s), float(session_s) / 8)
    candidate = Candidate(name, "head:/ledger", float(session_s), float(act_s))
    coordination = Elected(tree, folder, candidate, steady_s)
    lease = ClockedLease(coordination)
    threading.Thread(target=campaign, args=(coordination, float(session_s) / 8), daemon=True).start()
    while True:
        now = steady_s()  # before it is asked: what is held then was held now
        with contextlib.suppress(UnavailableError):
            print(f"{now:.4f} {lease.epoch}", flush=True)
        time.sleep(0.01)


def campaign(coordination: Elected, period_s: float) -> None:
    while True:
        try:
            coordination.campaign()
        except UnavailableError as error:
            print(error, file=sys.stderr, flush=True)
        time.sleep(period_s)


main()
