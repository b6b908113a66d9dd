"""A process that leads, and does one act at Slurm: for tests in which it is stopped in the middle of it.

usage: engine_at_slurm.py BIN_DIR SESSION_S ACT [LOOK]

LOOK: the number of the look at its lease, from 1 on, right after which it stops itself. Then no thread that looks after
the lease ends the process when that goes on: it may come later than the one that acts.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from types import SimpleNamespace

from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.lease.clocked import ClockedLease, steady_s
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.simulated.ensemble import SimulatedEnsemble
from rmsplugin.engine.context.acts import Acts
from rmsplugin.engine.leadership import Leadership


def main() -> None:
    bin_dir, session_s, act = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    tree = SimulatedEnsemble(steady_s).open(session_s)
    lease = ClockedLease(Elected(tree, "/rmsplugin", Candidate("one", "here", session_s, 0.0), steady_s))
    lease.acquire()
    stops_after, looks = int(sys.argv[4]) if len(sys.argv) > 4 else 0, count(1)
    if stops_after:
        lease.lost = lambda: True  # type: ignore[method-assign]
    else:
        Leadership(lease, session_s / 8, still_s=30.0).keep(end)

    def until() -> float:
        seen = lease.held_until()
        if next(looks) == stops_after:
            os.kill(os.getpid(), signal.SIGSTOP)
        return seen

    acts = Acts(lease.held, end, until=until, lost=lease.lost)
    slurm = SlurmCli(bin_dir, permit=acts.one)

    def row(_: int) -> SimpleNamespace:
        slurm._run("squeue")
        return SimpleNamespace(job=SimpleNamespace(state=JobState.SUSPENDED, detail="SUSPENDED"), target="12")

    slurm._row = row  # type: ignore[method-assign,assignment]
    getattr(slurm, act)(12)
    print("done", flush=True)


def end(why: str) -> None:
    print(why, flush=True)
    os._exit(1)


main()
