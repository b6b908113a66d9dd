"""Vjobs: `rmsplugin vjobs`, each vjob with its state and the reason for it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.table import (
    Field,
    Row,
    add_table_options,
    bytes_progress,
    columns_of,
    duration,
    mebibytes_of,
    print_rows,
    text_of,
    time_of,
)
from rmsplugin.errors import NotFoundError
from rmsplugin.model.job_names import parse

if TYPE_CHECKING:
    from rmsplugin.api.binding import Engine


def _state(row: Row) -> str:
    """Its state; who is paused sleeps, too, and goes on at once where its memory is."""
    where = text_of("nodes")(row)
    return f"sleeping (in memory of {where})" if row.get("state") == "paused" else text_of("state")(row)


def _in_state(row: Row) -> str:
    since = row.get("state_since")
    return duration(time.time() - since) if since else ""


def _ran(row: Row) -> str:
    ran_s = row.get("ran_s")
    return duration(ran_s) if ran_s else ""


def _resumes(row: Row) -> str:
    return "yes" if row.get("resumes") else ""


def _age(row: Row) -> str:
    return duration(row["checkpoint"]["age_s"]) if row.get("checkpoint") else ""


def _repeated(row: Row) -> str:
    repeated_s = row.get("repeated_s")
    return duration(repeated_s) if repeated_s else ""


FIELDS = (
    Field("jobid", "job id, or ARRAYID_INDEX for an element of a job array", text_of("display_id"), right=True),
    Field("rawjobid", "the job id that Slurm uses inside", text_of("job_id"), right=True),
    Field("user", "the user who submitted it", text_of("user")),
    Field("partition", "its partition", text_of("partition")),
    Field(
        "state",
        "waiting, starting, running, pausing, sleeping (in memory of its nodes), unpausing, suspending, sleeping, "
        "resuming, stopping or terminated",
        _state,
    ),
    Field("time", "how long it has been in this state", _in_state, right=True),
    Field("since", "when it came into this state", time_of("state_since")),
    Field("submitted", "first submission; a requeue does not change it", time_of("submitted")),
    Field("vms", "number of its VMs", text_of("vms"), right=True),
    Field("cpus", "CPUs of each VM, or of the larger ones", text_of("cpus"), right=True),
    Field("memory", "memory of each VM, or of the larger ones", mebibytes_of("memory_mib"), right=True),
    Field("nodes", "where its VMs run", text_of("nodes")),
    Field("ran", "how long it has run since its start; sleeps do not count", _ran, right=True),
    Field("resumes", "yes: the engine suspended it, and resumes it when its turn comes", _resumes),
    Field("losses", "how often its state was lost and the script began anew", text_of("losses"), right=True),
    Field(
        "checkpoint", "age of its newest checkpoint; the vjob goes back to it when its VMs are lost", _age, right=True
    ),
    Field("returns", "how often it went back to a checkpoint", text_of("returns"), right=True),
    Field("repeated", "the most of its run that was repeated by going back", _repeated, right=True),
    Field("operation", "the operation on it now, and how far that is", bytes_progress),
    Field("reason", "why it is in this state", text_of("reason")),
)


def add_command(commands: options.Commands) -> None:
    """Add vjobs to the command line."""
    vjobs = options.add_command(
        commands,
        "vjobs",
        "list vjobs, and why each is in its state",
        _vjobs,
        """
        examples:
          rmsplugin vjobs
          rmsplugin vjobs -a -u alice
          rmsplugin vjobs --noheader --format=jobid,state,reason%60
        """,
    )
    vjobs.add_argument("jobs", metavar="JOBID", nargs="*", type=options.job_id, help="only these vjobs, ended ones too")
    vjobs.add_argument("-a", "--all", action="store_true", help="ended vjobs too")
    vjobs.add_argument(
        "-n",
        "--limit",
        metavar="N",
        type=int,
        default=1000,
        help="with --all: the newest N ended vjobs (default: 1000, at most 10000)",
    )
    vjobs.add_argument(
        "-u", "--user", metavar="USER,...", type=options.names, default=(), help="only vjobs of these users"
    )
    add_table_options(
        vjobs, FIELDS, "jobid,partition,user,state,time,vms,cpus,memory,nodes,checkpoint,operation,reason"
    )


def _vjobs(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, FIELDS)
    engine = find_engine(arguments.config)
    rows: list[Row] = []
    if not arguments.jobs or arguments.user:
        told, more = engine.vjobs_and_more(ended=arguments.limit if arguments.all else None)
        rows += told
        if more:
            print(f"only the newest {arguments.limit} ended vjobs are shown; see --limit", file=sys.stderr)
    unknown = [] if arguments.user == () else _unknown_users(arguments.user, rows)
    if arguments.jobs:
        rows, faults = _named(engine, arguments.jobs)
        unknown += faults
    if arguments.user:
        rows = [row for row in rows if row.get("user") in arguments.user]
    print_rows(arguments, columns, "vjobs", rows)
    if unknown:
        raise NotFoundError("\n".join(unknown))
    return 0


def _unknown_users(users: Iterable[str], rows: Iterable[Row]) -> list[str]:
    """A sentence for each name that is no account here and has no vjob."""
    known = {row.get("user") for row in rows}
    return [f"no user {user}" for user in users if user not in known and not _is_account(user)]


def _is_account(user: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _named(engine: Engine, jobs: Iterable[str]) -> tuple[list[Row], list[str]]:
    """The vjobs that are called so, and a sentence for each name that none has.

    The list has those that the engine's cycle has met; for any other it asks Slurm.
    """
    found: list[Row] = []
    faults = []
    for wanted in dict.fromkeys(jobs):
        name = parse(wanted)
        own = [
            row
            for row in engine.vjobs_named(wanted)
            if name.means(str(row.get("display_id")), int(row.get("job_id") or 0))
        ]
        own.sort(key=lambda row: int(str(row.get("display_id")).partition("_")[2] or 0))
        missing = name.missing(str(row.get("display_id")) for row in own)
        try:
            found += own or [engine.vjob(wanted)]
        except NotFoundError as error:
            faults.append(str(error))
        else:
            if own and missing:
                faults.append(f"no vjob {name.job}_[{missing}]")
    return found, faults
