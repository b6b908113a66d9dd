"""Listings: what the engine knows of vjobs, VMs, nodes and events, as tables."""

from __future__ import annotations

import argparse
import json
import pwd
import sys
import time
import urllib.parse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rmsplugin.cli import arguments as options
from rmsplugin.cli.connection import connect, read_settings
from rmsplugin.cli.cycles import cycle_sentence
from rmsplugin.cli.pages import read_older, read_pages, rows_of
from rmsplugin.cli.pausing import pause_sentence
from rmsplugin.cli.table import (
    Field,
    Row,
    Table,
    add_table_options,
    bytes_of,
    bytes_progress,
    columns_of,
    duration,
    local_time,
    mebibytes_of,
    print_rows,
    printable,
    text_of,
    time_of,
)
from rmsplugin.errors import NotFoundError, UnavailableError
from rmsplugin.model.job_names import parse

if TYPE_CHECKING:
    from rmsplugin.client import EngineClient

#: Pause between two looks for new events, and how many of them one look takes: more do not happen in a pause.
_FOLLOW_S = 1.0
_FOLLOW_LIMIT = 10000


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


VJOB_FIELDS = (
    Field("jobid", "job id, or ARRAYID_INDEX for an element of a job array", text_of("display_id"), right=True),
    Field("rawjobid", "the job id that Slurm uses inside", text_of("job_id"), right=True),
    Field("user", "who submitted it", text_of("user")),
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
    Field("resumes", "yes: it sleeps because the engine suspended it, and resumes when its turn comes", _resumes),
    Field("losses", "how often its state was lost and the script began anew", text_of("losses"), right=True),
    Field("checkpoint", "age of its newest checkpoint, to which it goes back when its VMs are lost", _age, right=True),
    Field("returns", "how often it went back to a checkpoint", text_of("returns"), right=True),
    Field("repeated", "how much of its run was repeated by that, at most", _repeated, right=True),
    Field("operation", "what is being done to it now, and how far that is", bytes_progress),
    Field("reason", "why it is in this state", text_of("reason")),
)

VM_FIELDS = (
    Field("name", "name, also its host name", text_of("name")),
    Field("vjob", "its vjob", text_of("vjob"), right=True),
    Field("state", "state of the VM", text_of("state")),
    Field("node", "where it runs", text_of("node")),
    Field("address", "its IP address", text_of("address")),
    Field("image", "node that holds its saved state", text_of("image_node")),
    Field("imagesize", "size of its saved state", bytes_of("image_bytes"), right=True),
    Field("cpus", "its CPUs", text_of("cpus"), right=True),
    Field("memory", "its memory", mebibytes_of("memory_mib"), right=True),
    Field("cpudemand", "CPUs that it demands, by observation", text_of("cpus_demand"), right=True),
    Field("memdemand", "memory that it needs, by what its guest says", mebibytes_of("memory_demand_mib"), right=True),
)

NODE_FIELDS = (
    Field("node", "name, as in Slurm", text_of("name")),
    Field(
        "state",
        "Slurm's word for its state; `unreachable` when its libvirt does not answer; `gone` when somebody said so",
        text_of("state"),
    ),
    Field("gonesince", "since when it is gone, by an operator's word or by fencing", time_of("gone_since")),
    Field("goneby", "who said that it is gone", text_of("gone_by")),
    Field("vms", "number of VMs on it", text_of("vms"), right=True),
    Field("cpus", "CPUs that VMs may take", text_of("cpus"), right=True),
    Field("cpusused", "CPUs that VMs have taken", text_of("cpus_used"), right=True),
    Field("memory", "memory that VMs may take", mebibytes_of("memory_mib"), right=True),
    Field("memoryused", "memory that VMs have taken", mebibytes_of("memory_used_mib"), right=True),
    Field(
        "room",
        "the engine's room there: held; leaving, when it has to be given back; requested or starting, when Slurm has "
        "not given the node yet; or none",
        text_of("room"),
    ),
    Field("roomjob", "the room's job in Slurm", text_of("room_job"), right=True),
    Field("since", "since when the engine has the node", time_of("since")),
    Field("until", "when Slurm takes the node back; a room's time limit is extended long before", time_of("until")),
    Field("features", "its active features, for `sbatch -C`", text_of("features")),
    Field("reservedfor", "the VM that it is reserved for, which has outgrown its node", text_of("reserved_for")),
    Field("reservedsince", "since when it is reserved", time_of("reserved_since")),
    Field("guests", "the VMs that have moved there since; it is reserved until they have ended", text_of("guests")),
    Field(
        "reason",
        "why no VM may come now: drained, unreachable, no room, or what its room waits for; or the kind of action that "
        "the engine begins there no more for a while, because several in a row failed; or for whom it is reserved",
        text_of("reason"),
    ),
)

EVENT_FIELDS = (
    Field("id", "number of the event, for --since", text_of("id"), right=True),
    Field("time", "when it happened", time_of("time")),
    Field("vjob", "the vjob that it concerns", text_of("vjob"), right=True),
    Field("vm", "the VM that it concerns", text_of("vm")),
    Field("node", "the node that it concerns", text_of("node")),
    Field("kind", "its kind, one word", text_of("kind")),
    Field("message", "what happened, in a sentence", text_of("message")),
)


def add_commands(commands: options.Commands) -> None:
    """Add vjobs, vms, nodes, events and status to the command line."""
    _add_vjobs(commands)
    _add_vms(commands)
    _add_nodes(commands)
    _add_events(commands)
    _add_status(commands)


def _add_vjobs(commands: options.Commands) -> None:
    vjobs = options.add_command(
        commands,
        "vjobs",
        "list vjobs and say why each is in its state",
        _vjobs,
        """
        examples:
          rmsplugin vjobs
          rmsplugin vjobs -a -u alice
          rmsplugin vjobs --noheader --format=jobid,state,reason%60
        """,
    )
    vjobs.add_argument("jobs", metavar="JOBID", nargs="*", type=options.job_id, help="only these, ended ones too")
    vjobs.add_argument("-a", "--all", action="store_true", help="ended vjobs too")
    vjobs.add_argument(
        "-n",
        "--limit",
        metavar="N",
        type=int,
        default=1000,
        help="with --all: the newest N ended vjobs (default: 1000, at most 10000)",
    )
    vjobs.add_argument("-u", "--user", metavar="USER,...", type=options.names, default=(), help="only these users'")
    add_table_options(
        vjobs, VJOB_FIELDS, "jobid,partition,user,state,time,vms,cpus,memory,nodes,checkpoint,operation,reason"
    )


def _add_vms(commands: options.Commands) -> None:
    vms = options.add_command(
        commands,
        "vms",
        "list the VMs of all vjobs",
        _vms,
        """
        examples:
          rmsplugin vms
          rmsplugin vms --parsable2 --format=name,node,address
        """,
    )
    add_table_options(vms, VM_FIELDS, "name,vjob,state,node,address,image,imagesize,cpus,memory")


def _add_nodes(commands: options.Commands) -> None:
    nodes = options.add_command(
        commands,
        "nodes",
        "list the nodes that may host VMs: whether the engine has them, what of them is taken",
        _nodes,
        """
        A node hosts VMs while the engine has a room there: a job of its own by which Slurm gives it the whole node.

        examples:
          rmsplugin nodes
          rmsplugin nodes --format=node,room,roomjob,until,features,reason
          rmsplugin nodes --json
        """,
    )
    add_table_options(nodes, NODE_FIELDS, "node,state,room,since,until,vms,cpusused,cpus,memoryused,memory,reason")


def _add_events(commands: options.Commands) -> None:
    events = options.add_command(
        commands,
        "events",
        "show what happened, oldest first",
        _events,
        """
        With --follow and --json, one JSON object a line.

        examples:
          rmsplugin events
          rmsplugin events -n 5 --format=time,message
          rmsplugin events --since 0 --json
        """,
    )
    events.add_argument("-f", "--follow", action="store_true", help="go on showing events as they happen")
    events.add_argument("--vjob", metavar="JOBID", type=options.job_id, help="only those of this vjob")
    events.add_argument("--since", metavar="N", type=options.whole_number, default=0, help="only those after event N")
    events.add_argument(
        "-n",
        "--limit",
        metavar="LIMIT",
        type=options.positive_number,
        default=100,
        help="at most so many, the newest (default: %(default)s)",
    )
    add_table_options(events, EVENT_FIELDS, "id,time,vjob,vm,node,kind,message")


def _add_status(commands: options.Commands) -> None:
    status = options.add_command(
        commands,
        "status",
        "say whether the engine runs, what its last cycle did, and how far the last context switch is",
        _status,
        """
        examples:
          rmsplugin status
          rmsplugin status --json
        """,
    )
    status.add_argument("--json", action="store_true", help="what the engine answered, as JSON")


def _vjobs(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, VJOB_FIELDS)
    client = connect(read_settings(arguments.config))
    rows: list[dict[str, Any]] = []
    if not arguments.jobs or arguments.user:
        path = f"/v1/vjobs?ended=1&limit={arguments.limit}" if arguments.all else "/v1/vjobs"
        rows, answer = read_pages(client, path, "vjobs")
        older, more = read_older(client, answer, arguments.limit)
        rows += older
        rows.sort(key=lambda row: (row.get("submitted") or 0, row.get("job_id") or 0))
        if more and arguments.all:
            print(f"only the newest {arguments.limit} ended vjobs are shown; see --limit", file=sys.stderr)
    unknown = [] if arguments.user == () else _unknown_users(arguments.user, rows)
    if arguments.jobs:
        rows, faults = _named(client, arguments.jobs)
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
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _named(client: EngineClient, jobs: Iterable[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """The vjobs that are called so, and a sentence for each name that none has.

    The list has those that the engine's cycle has met; for any other it asks Slurm.
    """
    found: list[dict[str, Any]] = []
    faults = []
    for wanted in dict.fromkeys(jobs):
        name = parse(wanted)
        path = f"/v1/vjobs?ended=1&vjob={urllib.parse.quote(wanted, safe='')}"
        rows, _ = read_pages(client, path, "vjobs")
        own = [row for row in rows if name.means(str(row.get("display_id")), int(row.get("job_id") or 0))]
        own.sort(key=lambda row: int(str(row.get("display_id")).partition("_")[2] or 0))
        missing = name.missing(str(row.get("display_id")) for row in own)
        try:
            found += own or [client.request("GET", options.job_path(wanted))["vjob"]]
        except NotFoundError as error:
            faults.append(str(error))
        else:
            if own and missing:
                faults.append(f"no vjob {name.job}_[{missing}]")
    return found, faults


def _vms(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, VM_FIELDS)
    rows, _ = read_pages(connect(read_settings(arguments.config)), "/v1/vms", "vms")
    print_rows(arguments, columns, "vms", rows)
    return 0


def _nodes(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, NODE_FIELDS)
    answer = connect(read_settings(arguments.config)).request("GET", "/v1/nodes")
    print_rows(arguments, columns, "nodes", rows_of(answer, "nodes"))
    return 0


def _events(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, EVENT_FIELDS)
    client = connect(read_settings(arguments.config))
    rows = _read_events(client, arguments.vjob, arguments.since, arguments.limit)
    if not arguments.follow:
        print_rows(arguments, columns, "events", rows)
        return 0
    table = Table(columns, header=not arguments.noheader, parsable=arguments.parsable2)
    last = arguments.since
    while True:
        _print_batch(arguments, table, rows)
        last = max([last, *(int(row["id"]) for row in rows)])
        time.sleep(_FOLLOW_S)
        rows = _await_events(client, arguments.vjob, last)


def _print_batch(arguments: argparse.Namespace, table: Table, rows: list[dict[str, Any]]) -> None:
    lines: Iterable[str] = (json.dumps(row) for row in rows) if arguments.json else table.lines(rows)
    for line in lines:
        print(line)
    sys.stdout.flush()


def _read_events(client: EngineClient, vjob: str | None, since: int, limit: int) -> list[dict[str, Any]]:
    query = {"since": str(since), "limit": str(limit)} | ({"vjob": vjob} if vjob else {})
    return rows_of(client.request("GET", f"/v1/events?{urllib.parse.urlencode(query)}"), "events")


def _await_events(client: EngineClient, vjob: str | None, since: int) -> list[dict[str, Any]]:
    """Read on; an engine that is being restarted is waited for, as `tail -F` waits for a file."""
    complained = False
    while True:
        try:
            return _read_events(client, vjob, since, _FOLLOW_LIMIT)
        except UnavailableError as error:
            if not complained:
                print(f"rmsplugin events: {error}; waiting for it", file=sys.stderr)
            complained = True
            time.sleep(_FOLLOW_S)


def _status(arguments: argparse.Namespace) -> int:
    answer = connect(read_settings(arguments.config)).request("GET", "/v1/status")
    if arguments.json:
        print(json.dumps(answer, indent=1))
        return 0
    started = answer.get("started")
    since = f", started {local_time(started)}" if isinstance(started, int | float) else ""
    print(printable(f"engine {answer.get('version', '?')}{since}"))
    cycle = answer.get("last_cycle")
    if cycle and cycle["time"]:
        took = f"{local_time(cycle['time'])} ({cycle['seconds']:.1f} s)"
        print(printable(f"last cycle {took}: {cycle['sentence']}"))
    else:
        print("no cycle yet")
    if last := answer.get("last_plan"):
        print(printable(cycle_sentence(last)))
    if pause := answer.get("paused"):
        print(printable(f"{pause_sentence(pause)}; `rmsplugin unpause` has it decide again"))
    if quiet := answer.get("quiet"):
        print(printable(quiet))
    for problem in answer.get("problems", []):
        print(printable(f"problem: {problem}"))
    return 0
