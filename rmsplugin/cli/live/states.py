"""States: saved states that a restart put aside; list them, let a vjob go back to them, drop them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.document import print_document, tell
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.table import Field, add_table_options, bytes_of, columns_of, print_rows, text_of, time_of
from rmsplugin.cli.shared.watching import faults_of, refuse_failed, watch

if TYPE_CHECKING:
    from rmsplugin.api.binding import Engine


FIELDS = (
    Field("number", "for --take-back and --drop", text_of("number"), right=True),
    Field("vjob", "the vjob", text_of("vjob"), right=True),
    Field("user", "its user", text_of("user")),
    Field("time", "when they were put aside", time_of("time")),
    Field("vms", "number of VMs of the vjob", text_of("vms"), right=True),
    Field("states", "how many of them had a saved state", text_of("states"), right=True),
    Field("size", "size of the saved states", bytes_of("bytes"), right=True),
    Field("nodes", "nodes that hold them, or `shared`", text_of("nodes")),
    Field("reason", "why the vjob began again", text_of("reason")),
)


def add_command(commands: options.Commands) -> None:
    """Add states to the command line."""
    parser = options.add_command(
        commands,
        "states",
        "list saved states that were put aside, let a vjob go back to them, or drop them",
        _states,
        """
        When one saved state of a vjob is lost, the vjob begins again from the start. Its other states, and damaged
        ones, are not deleted but put aside until the Slurm job ends. Users see their own states, operators all.

        --take-back first reads all states under that number, and refuses if one is missing or damaged. Then the vjob
        loses the work done since then (saved states of that work are put aside in turn), and sleeps in the old states;
        `rmsplugin resume` lets it go on from there. The file of a state that was put aside is
        aside-NUMBER.VM.state in the store: mend a damaged one from a backup before.

        examples:
          rmsplugin states
          rmsplugin states --format=number,vjob,size,reason%60
          rmsplugin states --take-back 7
          rmsplugin states --drop 7
          rmsplugin states --json
        """,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--take-back", metavar="NUMBER", type=options.positive_number, help="let the vjob go back to these states"
    )
    what.add_argument("--drop", metavar="NUMBER", type=options.positive_number, help="delete these")
    add_table_options(parser, FIELDS, "number,vjob,user,time,vms,states,size,nodes,reason")


def _states(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, FIELDS)
    engine = find_engine(arguments)
    if arguments.take_back:
        return _take_back(arguments, engine)
    if arguments.drop:
        answer = engine.drop_states(arguments.drop)
        tell(arguments, answer, f"dropped {arguments.drop}")
        return 0
    print_rows(arguments, columns, "states", engine.states())
    return 0


def _take_back(arguments: argparse.Namespace, engine: Engine) -> int:
    number = engine.take_back(arguments.take_back)
    operation = watch(engine, number, f"take back {arguments.take_back}")
    if arguments.json:
        print_document(arguments, operation, errors=faults_of(operation))
    refuse_failed(operation)
    if not arguments.json:
        vjob = operation.get("vjob", "")
        print(printable(f"vjob {vjob} sleeps in the states {arguments.take_back}; go on with: rmsplugin resume {vjob}"))
    return 0
