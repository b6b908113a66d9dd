"""Prefer: `rmsplugin prefer` has the engine run a vjob where it can, or keep it from running."""

from __future__ import annotations

import argparse

from rmsplugin.cli.live.keeping import keep_for_each
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.model.preferences import PREFERENCES

_SAID = {
    "running": "is to run, as soon as there is room beside those that must run",
    "sleeping": "is not to run",
    "auto": "is left to the policy",
}


def add_command(commands: options.Commands) -> None:
    """Add prefer to the command line."""
    parser = options.add_command(
        commands,
        "prefer",
        "have the engine run a vjob where it can, or keep it from running",
        _prefer,
        """
        For operators. The engine keeps it until the vjob ends, and obeys in its next cycles, under any policy:
          running   it has its room before all that the policy chooses, and makes way for none; others make way for
                    it. It is resumed, too, if it was suspended by hand. Vjobs that may not be suspended, were started
                    or resumed just now, or have something under way come first.
          sleeping  it does not start; if it runs it is suspended, and sleeps. In a partition with PreemptMode=OFF a
                    running vjob cannot be.
          auto      the policy decides again.
        `rmsplugin vjobs` and `rmsplugin show vjob` say why a vjob runs or waits, and what is preferred. The id of a job
        array means all of its elements that Slurm has split off.

        examples:
          rmsplugin prefer 12 running
          rmsplugin prefer 12 15 '20_[1-3]' sleeping
          rmsplugin prefer 12 auto
        """,
    )
    parser.add_argument("jobs", metavar="JOBID", nargs="+", type=options.job_ids, help=options.JOB_HELP)
    parser.add_argument("state", metavar="|".join(PREFERENCES), choices=PREFERENCES, help="what is preferred")
    parser.add_argument("--json", action="store_true", help="the vjobs for which it is kept, as JSON")


def _prefer(arguments: argparse.Namespace) -> int:
    engine, state = find_engine(arguments), arguments.state
    return keep_for_each(arguments, lambda name: engine.prefer(name, state), {"state": state}, _SAID[state])
