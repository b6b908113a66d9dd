"""Prefer: `rmsplugin prefer` has the engine run a vjob where it can, or keep it from running."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable
from rmsplugin.errors import ForbiddenError, NotFoundError, OperationFailedError, RefusedError, UnavailableError
from rmsplugin.model.job_names import fold
from rmsplugin.model.preferences import PREFERENCES

if TYPE_CHECKING:
    from rmsplugin.api.binding import Engine

_SAID = {
    "running": "is to run, as soon as there is room beside those that must run",
    "sleeping": "is not to run",
    "auto": "is left to the policy",
}
#: Stands for the vjob in a sentence that holds for several.
_NAME = "\0"


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
    names = list(dict.fromkeys(name for named in arguments.jobs for name in named))
    done, refused = _ask(find_engine(arguments.config), names, arguments.state)
    faults = [sentence.replace(_NAME, fold(those)) for sentence, those in refused.items()]
    if arguments.json:
        print_document(arguments, {"state": arguments.state, "vjobs": done}, errors=faults)
    elif done:
        said = f"{fold(done)}: {_SAID[arguments.state]}"
        print(printable(said))
    if faults:
        raise OperationFailedError("\n".join(map(printable, faults)))
    return 0


def _ask(engine: Engine, names: list[str], state: str) -> tuple[list[str], dict[str, list[str]]]:
    """The vjobs for which it is kept; and sentences about the others, with their names."""
    done: list[str] = []
    refused: dict[str, list[str]] = {}
    for name in names:
        try:
            answer = engine.prefer(name, state)
        except (RefusedError, NotFoundError, ForbiddenError, UnavailableError) as error:
            refused.setdefault(str(error).replace(name, _NAME), []).append(name)
            continue
        done += answer["vjobs"]
        for vjob, why in answer["refused"].items():
            refused.setdefault(why.replace(vjob, _NAME), []).append(vjob)
    return done, refused
