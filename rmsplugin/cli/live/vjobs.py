"""Vjobs: `rmsplugin vjobs`, each vjob with its state and the reason for it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
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
    local_time,
    mebibytes_of,
    print_rows,
    text_of,
    time_of,
)
from rmsplugin.cli.shared.unknown_names import sentences_of_unknown
from rmsplugin.errors import NotFoundError, UnavailableError, WrongOrderError
from rmsplugin.model.job_names import parse

if TYPE_CHECKING:
    from rmsplugin.api.binding import Engine


def _in_state(row: Row) -> str:
    since = row.get("state_since") or row.get("submitted")
    return duration(time.time() - since) if since else ""


def _ran(row: Row) -> str:
    ran_s = row.get("ran_s")
    return duration(ran_s) if ran_s else ""


def _resumes(row: Row) -> str:
    return "yes" if row.get("resumes") else ""


def _age(row: Row) -> str:
    return duration(row["checkpoint"]["age_s"]) if row.get("checkpoint") else ""


def _limit(row: Row) -> str:
    if row.get("state") == "terminated" or "time_limit_s" not in row:
        return ""
    return "UNLIMITED" if row["time_limit_s"] is None else duration(row["time_limit_s"])


def _start(row: Row) -> str:
    if row.get("start") is None:
        return "unknown" if row.get("state") in _WAITS else ""
    return "now" if row["start"] <= time.time() else local_time(row["start"])


def _repeated(row: Row) -> str:
    repeated_s = row.get("repeated_s")
    return duration(repeated_s) if repeated_s else ""


def _resized(row: Row) -> str:
    cpus, memory_mib = row.get("resized_cpus"), row.get("resized_memory_mib")
    return ",".join([*([f"cpus={cpus}"] if cpus else []), *([f"memory={memory_mib}M"] if memory_mib else [])])


FIELDS = (
    Field(
        "jobid",
        "job id, ARRAYID_INDEX for an element of a job array, or ARRAYID_[1-3] for several that wait for the same",
        text_of("display_id"),
        right=True,
    ),
    Field("rawjobid", "the job id that Slurm uses inside", text_of("job_id"), right=True),
    Field("name", "the name of its job", text_of("name")),
    Field("account", "its account in Slurm, while Slurm knows its job", text_of("account")),
    Field("user", "the user who submitted it", text_of("user")),
    Field("partition", "its partition", text_of("partition")),
    Field(
        "state",
        "waiting, starting, running, pausing, paused (it sleeps in the memory of its nodes), unpausing, suspending, "
        "sleeping, resuming, stopping or terminated",
        text_of("state"),
        whole=True,
    ),
    Field("time", "how long it has been in this state", _in_state, right=True),
    Field("since", "when it came into this state", time_of("state_since")),
    Field("submitted", "first submission; a requeue does not change it", time_of("submitted")),
    Field("limit", "its time limit, as `squeue` shows it", _limit, right=True),
    Field("priority", "its priority by Slurm, as it would be now", text_of("priority"), right=True),
    Field("position", "its place among those that wait for their turn, from 1 on", text_of("position"), right=True),
    Field(
        "expansion",
        "its waits and the time that it still needs, as a multiple of that time; ended: its whole time, of its run",
        text_of("expansion"),
        right=True,
    ),
    Field(
        "start",
        "when it is likely to run or to be resumed: now, by the context switch that comes next; or at that time, if "
        "those that run end with their limits, and nobody makes way for it; shown by --start",
        _start,
        whole=True,
    ),
    Field("vms", "number of its VMs", text_of("vms"), right=True),
    Field("cpus", "CPUs of each VM, or of the larger ones", text_of("cpus"), right=True),
    Field("memory", "memory of each VM, or of the larger ones", mebibytes_of("memory_mib"), right=True),
    Field("nodes", "where its VMs run", text_of("nodes")),
    Field("ran", "how long it has run since its start; sleeps do not count", _ran, right=True),
    Field("resumes", "yes: the engine suspended it, and resumes it when its turn comes", _resumes),
    Field("preferred", "what an administrator prefers about it: running or sleeping", text_of("preference")),
    Field("resized", "what each VM has of its CPUs and memory since it was resized by hand", _resized),
    Field("losses", "how often its state was lost and the script began anew", text_of("losses"), right=True),
    Field(
        "checkpoint", "age of its newest checkpoint; the vjob goes back to it when its VMs are lost", _age, right=True
    ),
    Field("returns", "how often it went back to a checkpoint", text_of("returns"), right=True),
    Field("repeated", "the most of its run that was repeated by going back", _repeated, right=True),
    Field("operation", "the operation on it now, and how far that is", bytes_progress),
    Field(
        "why",
        "why it is in this state, in a word: Slurm's own where Slurm keeps the job, such as JobHeldUser",
        text_of("code"),
    ),
    Field("reason", "the same in a sentence", text_of("reason")),
)


#: States of a vjob, in the order of its life.
STATES = (
    *("waiting", "starting", "running", "pausing", "paused", "unpausing", "suspending", "sleeping"),
    *("resuming", "stopping", "terminated"),
)
#: The columns that are shown without --format; ``losses`` only where there are any.
_COLUMNS = "jobid,partition,name,user,state,time,vms,cpus,memory,nodes,checkpoint,operation,why"
#: The same with --start.
_START_COLUMNS = "jobid,partition,name,user,state,start,limit,vms,cpus,memory,position,expansion,why"
#: States of vjobs that do not run.
_WAITS = ("waiting", "sleeping", "paused")
#: A longer list of words is not sent; the answer is chosen from here all the same.
_LONGEST = 1000
#: Slurm's words for states.
_SLURM_STATES = {
    **dict.fromkeys(("pd", "pending"), ("waiting",)),
    **dict.fromkeys(("r",), ("running",)),
    **dict.fromkeys(("cf", "configuring"), ("starting",)),
    **dict.fromkeys(("s", "suspended"), ("sleeping", "paused", "suspending", "pausing", "resuming", "unpausing")),
    **dict.fromkeys(("cg", "completing"), ("stopping",)),
}
#: By the field to sort by, the key of a row where that is not its name.
_KEYS = {
    **{"jobid": "job_id", "rawjobid": "job_id", "since": "state_since", "memory": "memory_mib", "ran": "ran_s"},
    **{"limit": "time_limit_s", "why": "code", "repeated": "repeated_s"},
}


def add_command(commands: options.Commands) -> None:
    """Add vjobs to the command line."""
    vjobs = options.add_command(
        commands,
        "vjobs",
        "list vjobs, and why each is in its state",
        _vjobs,
        """
        Every job that Slurm has in the partitions of vjobs is listed. Pending elements of an array are one row, as in
        squeue. Options that choose take several words with commas between them.

        examples:
          rmsplugin vjobs
          rmsplugin vjobs --reason
          rmsplugin vjobs -a -u alice
          rmsplugin vjobs -t waiting,sleeping --sort position
          rmsplugin vjobs --start
          rmsplugin vjobs -p vjob -w 'n[1-4]' -A physics
          rmsplugin vjobs '12_[0-3]' -i 5
          rmsplugin vjobs --noheader --format=jobid,state,reason%60
        """,
    )
    vjobs.add_argument("jobs", metavar="JOBID", nargs="*", type=options.job_id, help="only these vjobs, ended ones too")
    vjobs.add_argument("-a", "--all", action="store_true", help="ended vjobs too")
    vjobs.add_argument(
        "--limit",
        metavar="N",
        type=options.number_of_rows,
        default=1000,
        help="with --all: the newest N ended vjobs (default: 1000, at most 10000)",
    )
    _add_choice(vjobs)
    vjobs.add_argument(
        "--sort",
        metavar="FIELD,...",
        type=_sorting,
        default=(),
        help="sort by these fields; --sort=-FIELD: the greatest first (default: as they were submitted)",
    )
    vjobs.add_argument(
        "-i",
        "--iterate",
        metavar="SECONDS",
        type=options.positive_seconds,
        help="list them again after so many seconds, and so on until ctrl-C",
    )
    vjobs.add_argument(
        "--start",
        action="store_true",
        help="only vjobs that wait or sleep, and when they are likely to run, by the plan and by time limits",
    )
    vjobs.add_argument("--reason", action="store_true", help="show the reason as a sentence, not as a word")
    add_table_options(vjobs, FIELDS, _COLUMNS)
    vjobs.set_defaults(format=None)


def _add_choice(vjobs: argparse.ArgumentParser) -> None:
    group = vjobs.add_argument_group("choice")
    group.add_argument(
        "-t",
        "--states",
        metavar="STATE,...",
        type=_states,
        default=(),
        help="only vjobs in these states, also in Slurm's words (PD, R, S); `all` is -a",
    )
    for letter, word, what in (
        ("p", "partition", "of these partitions"),
        ("A", "account", "of these accounts of Slurm"),
        ("u", "user", "of these users"),
        ("n", "name", "whose jobs have these names"),
    ):
        group.add_argument(
            f"-{letter}",
            f"--{word}",
            metavar=f"{word.upper()},...",
            type=options.names,
            default=(),
            help=f"only vjobs {what}",
        )
    group.add_argument(
        "-w",
        "--nodelist",
        dest="node",
        metavar="NODE,...",
        type=options.node_names,
        default=(),
        help="only vjobs that have a VM on one of these nodes: n1,n3 or n[1-4]",
    )


def _states(text: str) -> tuple[str, ...]:
    """States by our words or Slurm's; ``all`` for those of vjobs that have ended, too."""
    found: dict[str, None] = {}
    for word in options.names(text.lower()):
        if word not in STATES and word not in _SLURM_STATES and word != "all":
            raise argparse.ArgumentTypeError(f"{word!r} is no state; there are {', '.join(STATES)}")
        found.update(dict.fromkeys(_SLURM_STATES.get(word, (word,))))
    return tuple(found)


def _sorting(text: str) -> tuple[tuple[str, bool], ...]:
    """Keys of rows to sort by, the first one first, and whether the greatest comes first."""
    keys = []
    for word in options.names(text.lower()):
        name = word.lstrip("+-")
        if name not in {field.name for field in FIELDS} - {"operation", "checkpoint", "resumes"}:
            raise argparse.ArgumentTypeError(f"{name!r} is no field to sort by")
        # The time in a state grows as its begin lies back.
        keys.append(("state_since", word[0] != "-") if name == "time" else (_KEYS.get(name, name), word[0] == "-"))
    return tuple(keys)


def _vjobs(arguments: argparse.Namespace) -> int:
    arguments.own_format = arguments.format is not None
    arguments.format = _COLUMNS if arguments.format is None else arguments.format
    columns_of(arguments, FIELDS)  # what is wrong there is said before the engine is asked
    engine = find_engine(arguments)
    if not arguments.iterate:
        return _list(arguments, engine)
    while True:
        if not arguments.json:
            print(time.strftime("%a %b %d %H:%M:%S %Y"))
        try:
            _list(arguments, engine)
        except (NotFoundError, UnavailableError) as error:
            print(f"rmsplugin vjobs: {error}", file=sys.stderr)
        if not arguments.json:
            print()
        sys.stdout.flush()
        time.sleep(arguments.iterate)


def _list(arguments: argparse.Namespace, engine: Engine) -> int:
    wanted = {key: getattr(arguments, key) for key in ("partition", "account", "user", "name", "node")}
    wanted["state"] = () if "all" in arguments.states else arguments.states
    rows: list[Row] = []
    faults: list[str] = []
    notes: list[str] = []
    if arguments.jobs:
        rows, faults = _named(engine, arguments.jobs)
    else:
        ended = arguments.all or not {"all", "terminated"}.isdisjoint(arguments.states)
        sent = {key: values for key, values in wanted.items() if len(",".join(values)) <= _LONGEST}
        told, more = engine.vjobs_and_more(ended=arguments.limit if ended else None, wanted=sent)
        rows = sorted([*told, *_unmet(engine, wanted=sent)], key=_submitted)
        if more:
            notes.append(f"only the newest {arguments.limit} ended vjobs are shown; see --limit")
            print(notes[0], file=sys.stderr)
    unknown = sentences_of_unknown(engine, wanted, rows)
    rows = [row for row in rows if _fits(row, wanted)]
    if arguments.start:
        rows = _with_starts(engine, rows)
    for key, descending in reversed(arguments.sort):
        rows.sort(key=lambda row, key=key: _sort_key(row.get(key)), reverse=descending)  # type: ignore[misc]
    if not arguments.own_format:
        arguments.format = _columns(arguments, rows)
    print_rows(arguments, columns_of(arguments, FIELDS), "vjobs", rows, errors=[*unknown, *faults], warnings=notes)
    if unknown:
        raise WrongOrderError("\n".join([*unknown, *faults]))
    if faults:
        raise NotFoundError("\n".join(faults))
    return 0


def _columns(arguments: argparse.Namespace, rows: Iterable[Row]) -> str:
    """The columns to show where none were asked for."""
    columns = _START_COLUMNS if arguments.start else _COLUMNS
    if any(row.get("losses") for row in rows):
        columns = columns.replace("checkpoint,", "losses,checkpoint,")
    return columns.replace("why", "reason") if arguments.reason else columns


def _with_starts(engine: Engine, rows: Iterable[Row]) -> list[Row]:
    """Those that wait or sleep, with the time at which they are likely to run; null: not known."""
    plan = engine.plan(starts=True)
    at_s = plan.get("starts", {})
    found: list[Row] = []
    for row in rows:
        if row.get("state") in _WAITS:
            left_s = at_s.get(str(row.get("display_id")))
            found.append({**row, "start": None if left_s is None else plan["time"] + left_s})
    return found


def _submitted(row: Row) -> tuple[float, int]:
    return row.get("submitted") or 0, row.get("job_id") or 0


def _sort_key(value: object) -> tuple[bool, float, str]:
    """Numbers by their size, words by their letters; what is not known comes last."""
    if isinstance(value, int | float):
        return False, value, ""
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value or "")
    return not text, 0.0, text


def _fits(row: Row, wanted: Mapping[str, Sequence[str]]) -> bool:
    """Whether a row is wanted: an older engine does not choose, and no engine chooses among those that have ended."""
    return all(
        not values or not set(values).isdisjoint(row.get("nodes") or () if key == "node" else [row.get(key)])
        for key, values in wanted.items()
    )


def _unmet(engine: Engine, *, vjob: str = "", wanted: Mapping[str, Sequence[str]] | None = None) -> Sequence[Row]:
    """Jobs that only Slurm has; an older engine does not tell them."""
    try:
        return engine.unmet(vjob=vjob, wanted=wanted)
    except NotFoundError:
        return []


def _elements(row: Row) -> tuple[tuple[int, int], ...]:
    """The elements of an array that the row is about; none if it is about a job alone."""
    return parse(str(row.get("display_id"))).ranges


def _named(engine: Engine, jobs: Iterable[str]) -> tuple[list[Row], list[str]]:
    """The vjobs that are called so, and a sentence for each name that none has.

    The list has those that the engine's cycle has met; for any other it asks Slurm.
    """
    found: list[Row] = []
    faults = []
    for wanted in dict.fromkeys(jobs):
        name = parse(wanted)
        own: list[Row] = [
            row
            for row in engine.vjobs_named(wanted)
            if name.means(str(row.get("display_id")), int(row.get("job_id") or 0))
        ]
        if name.ranges or not own:
            own += _unmet(engine, vjob=wanted)
        elif any("_" in str(row.get("display_id")) for row in own):
            own += _unmet(engine, vjob=str(name.job))
        own.sort(key=lambda row: _elements(row)[:1])
        missing = name.missing(str(row.get("display_id")) for row in own)
        try:
            found += own or [engine.vjob(wanted)]
        except NotFoundError as error:
            faults.append(str(error))
        else:
            if own and missing:
                faults.append(f"no vjob {name.job}_[{missing}]")
    return found, faults
