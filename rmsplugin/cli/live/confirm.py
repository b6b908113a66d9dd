"""Confirming: what the engine holds back because something is not seen, and an operator's word that it is so."""

from __future__ import annotations

import argparse

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.document import tell
from rmsplugin.cli.shared.table import Field, Row, add_table_options, columns_of, print_rows, text_of
from rmsplugin.errors import NotFoundError
from rmsplugin.model.job_names import parse


def _proof(row: Row) -> str:
    return "many at once" if row.get("proved") else "no proof"


FIELDS = (
    Field("vjob", "the vjob", text_of("vjob"), right=True),
    Field(
        "what",
        "the act held back: stop, restart, requeue, forget; or suspend: the vjob sleeps in saved "
        "states that were found",
        text_of("what"),
    ),
    Field("why", "why the act is held back: there is no proof, or there are too many at once", _proof),
    Field("reason", "what is not seen", text_of("reason")),
)


def add_command(commands: options.Commands) -> None:
    """Add confirm to the command line."""
    parser = options.add_command(
        commands,
        "confirm",
        "list the acts that the engine holds back because something is not seen, or confirm them",
        _confirm,
        """
        The engine ends no vjob whose job slurmctld does not know, unless accounting says that the job has ended. And
        when more vjobs than 3, or 5 % of all, seem to have lost their VMs or their wrappers at once, the engine does
        nothing to them: a fault of what was seen is more likely. The acts held back are listed here, in `rmsplugin
        status` and by `rmsplugin check`. When the missing thing is seen again, the act is forgotten.

        Nothing else touches these vjobs meanwhile: no context switch, no suspend, resume or migrate by hand. A ledger
        that was restored from a backup may not know whole saved states that are found. These are offered: `suspend` has
        the vjob sleep in them, and go on from there.

        With --yes, for operators, the engine acts: on the vjobs that are named, or on all that are listed.

        A store of saved states is known by a marker file. Where the marker is missing, nothing is saved, and nothing is
        concluded about the states that should be there: mount the store. If the store is a new one (a new disk), and
        the states are lost, say so with --new-store and the name of the node, or `shared` for nodes.shared_store.

        examples:
          rmsplugin confirm
          rmsplugin confirm --yes 12 13
          rmsplugin confirm --yes
          rmsplugin confirm --new-store n1 --yes
          rmsplugin confirm --json
        """,
    )
    parser.add_argument("jobs", metavar="JOBID", nargs="*", type=options.job_id, help="only these")
    parser.add_argument(
        "--new-store",
        metavar="NODE",
        type=options.node_name,
        help="confirm that the store of this node (or the one called `shared`) is new, and the states "
        "in the old one are lost",
    )
    parser.add_argument("--yes", action="store_true", help="confirm: do what is held back")
    add_table_options(parser, FIELDS, "vjob,what,why,reason")
    parser.set_defaults(misused=parser.error)


def _confirm(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, FIELDS)
    if arguments.new_store:
        return _new_store(arguments)
    engine = find_engine(arguments)
    rows = engine.status().get("held", [])
    names = [parse(wanted) for wanted in arguments.jobs]
    for name in names:
        if not any(name.means(str(row.get("vjob"))) for row in rows):
            raise NotFoundError(f"nothing is held back of vjob {name.text}")
    if names:
        rows = [row for row in rows if any(name.means(str(row.get("vjob"))) for name in names)]
    if arguments.yes:
        # By name: what is held back only now has not been shown to anybody.
        confirmed = engine.confirm([row["vjob"] for row in rows])
        rows = [row for row in rows if row["vjob"] in confirmed]
    print_rows(arguments, columns, "confirmed" if arguments.yes else "held", rows)
    return 0


def _new_store(arguments: argparse.Namespace) -> int:
    if arguments.jobs:
        arguments.misused("--new-store is about a store, not about vjobs: leave out the JOBIDs")
    if not arguments.yes:
        arguments.misused(
            "--new-store: saved states that are missing there will count as lost; add --yes if that is so"
        )
    answer = find_engine(arguments).new_store(arguments.new_store)
    tell(arguments, answer, f"the store {arguments.new_store} counts as a new one")
    return 0
