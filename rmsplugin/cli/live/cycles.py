"""Cycles: `rmsplugin cycles`, what the engine decided, when, what it cost and took; or the steps of one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.sentences import cycle_sentence, expected_text
from rmsplugin.cli.shared.table import (
    Field,
    Row,
    add_table_options,
    bytes_progress,
    columns_of,
    described,
    duration,
    hosts_of,
    local_time,
    parse_format,
    plain_table,
    print_rows,
    table_of,
    terminal_width,
    text_of,
    time_of,
)


def _duration_of(key: str) -> Any:
    def text(row: Row) -> str:
        value = row.get(key)
        return "" if value is None else duration(value)

    return text


def _expected(row: Row) -> str:
    return expected_text(row) if row.get("expected_s") is not None else ""


def _progress(row: Row) -> str:
    return f"{row.get('steps_done', 0)}/{row['steps']}" if row.get("steps") else ""


def _powers(row: Row) -> str:
    words = (f"{act['action']} {act['node']}{' failed' * (act['state'] == 'failed')}" for act in row.get("powers", []))
    return ", ".join(words)


def _decided(row: Row) -> str:
    return f"{row.get('decided_s') or 0:.2f}"


def _note(row: Row) -> str:
    return "; ".join(str(row[key]) for key in ("error", "fallback") if row.get(key))


FIELDS = (
    Field("number", "its number, for `rmsplugin cycles NUMBER`", text_of("number"), right=True),
    Field("time", "when it was decided", time_of("time")),
    Field(
        "state",
        "running, done (each step that was needed), or failed (a step failed, or was skipped); or nothing was done: "
        "rejected (by the checker), stale (the cluster had changed), none (nothing could be decided)",
        text_of("state"),
    ),
    Field(
        "policy",
        "a policy; by hand; forced: VMs have to leave a node, or scontrol suspended or resumed a job; or energy: a "
        "node is emptied to be switched off",
        text_of("policy"),
    ),
    Field("steps", "steps that are done, of all", _progress, right=True),
    Field("cost", "the cost of the plan, in MiB", text_of("cost_mib"), right=True),
    Field("bound", "the proven least cost of any plan, in MiB", text_of("lower_bound_mib"), right=True),
    Field(
        "expected",
        "the time that it was expected to take; unknown: too few of the last ones took about as long as they were "
        "expected to, or there were too few",
        _expected,
        right=True,
    ),
    Field("took", "the time that it took, or has taken until now", _duration_of("took_s"), right=True),
    Field("decided", "seconds that deciding and planning took", _decided, right=True),
    Field(
        "powers",
        "nodes that were switched from then on, until the next cycle that is listed; shown by default if there are any",
        _powers,
    ),
    Field("decision", "the decision, in a sentence", text_of("sentence")),
    Field("note", "what went wrong, and what took the place of the answer", _note),
)

STEP_FIELDS = (
    Field("step", "its number", text_of("number"), right=True),
    Field("kind", "start, suspend, resume or migrate", text_of("kind")),
    Field("vjob", "the vjob", text_of("vjob"), right=True),
    Field("nodes", "where its VMs run afterwards", hosts_of),
    Field("needs", "the steps that it waits for", text_of("needs")),
    Field(
        "state",
        "planned, running, done, failed, skipped, or needless: its vjob has ended, or is so already",
        text_of("state"),
    ),
    Field("began", "when it began", time_of("began")),
    Field("ended", "when it ended", time_of("ended")),
    Field("progress", "how far it is", bytes_progress),
    Field("error", "why it failed, or was skipped", text_of("error")),
    Field("reason", "why it is done", text_of("reason")),
)

_POWER_FIELDS = (
    Field("action", "power-off or power-on", text_of("action")),
    Field("node", "the node", text_of("node"), right=True),
    Field("needs", "the steps that it waited for", text_of("needs")),
    Field("state", "running, done or failed", text_of("state")),
    Field("began", "when it was decided", time_of("began")),
    Field("ended", "when it was proved, or given up", time_of("ended")),
    Field("error", "why it failed, or was given up", text_of("error")),
)

_CYCLE_COLUMNS = "number,time,state,steps,cost,bound,expected,took,decision,note"

_STEP_COLUMNS = "step,kind,vjob,nodes,needs,state,began,ended,progress,error"


def add_command(commands: options.Commands) -> None:
    """Add cycles to the command line."""
    cycles = options.add_command(
        commands,
        "cycles",
        "list the cycles that decided a context switch: what, when, what it cost and took; or the steps of one",
        _cycles,
        f"""
        Cycles that found nothing to do are not listed. With NUMBER the steps of that cycle are listed, and how far they
        are, and the nodes that were switched after it. The fields (--format) are then, by default {_STEP_COLUMNS}:

        {{steps}}

        examples:
          rmsplugin cycles
          rmsplugin cycles --limit 5 --json
          rmsplugin cycles 12
        """.replace("{steps}", described(STEP_FIELDS).replace("\n", "\n        ")),
    )
    cycles.add_argument(
        "number", metavar="NUMBER", nargs="?", type=options.positive_number, help="show the steps of this one"
    )
    cycles.add_argument(
        "-n",
        "--limit",
        metavar="LIMIT",
        type=options.number_of_rows,
        help="at most the newest N (default: 20)",
    )
    add_table_options(cycles, FIELDS, _CYCLE_COLUMNS)
    cycles.set_defaults(misused=cycles.error)


def _cycles(arguments: argparse.Namespace) -> int:
    if arguments.number is not None:
        return _one_cycle(arguments)
    columns = columns_of(arguments, FIELDS)
    cycles = find_engine(arguments).cycles(limit=arguments.limit or 20)
    if arguments.format == _CYCLE_COLUMNS and any(cycle.get("powers") for cycle in cycles):
        columns = parse_format(_CYCLE_COLUMNS.replace("decision", "powers,decision"), FIELDS)
    print_rows(arguments, columns, "cycles", cycles)
    return 0


def _one_cycle(arguments: argparse.Namespace) -> int:
    if arguments.limit is not None:
        arguments.misused("--limit is for the list; with NUMBER all steps are shown")
    # The default is that of the list.
    format_ = _STEP_COLUMNS if arguments.format == _CYCLE_COLUMNS else arguments.format
    columns = parse_format(format_, STEP_FIELDS)
    answer = find_engine(arguments).cycle(arguments.number)
    steps, cycle = answer["steps"], answer["cycle"]
    if arguments.json:
        print_document(arguments, answer)
        return 0
    if not (arguments.noheader or arguments.parsable2):
        for line in _headline(cycle):
            print(printable(line))
    for line in table_of(arguments, columns).lines(steps):
        print(line)
    if (powers := cycle.get("powers")) and not (arguments.noheader or arguments.parsable2):
        print()
        for line in plain_table(_POWER_FIELDS, width=terminal_width()).lines(powers):
            print(line)
    return 0


def _headline(cycle: Row) -> Iterator[str]:
    yield f"{cycle_sentence(cycle)}, decided {local_time(cycle['time'])} by {cycle['policy']} in {_decided(cycle)} s"
    if cycle["sentence"]:
        yield str(cycle["sentence"])
    if note := _note(cycle):
        yield note
    if cycle["steps"]:
        yield f"cost {cycle['cost_mib']} MiB, proven lower bound {cycle['lower_bound_mib']} MiB"
    yield ""
