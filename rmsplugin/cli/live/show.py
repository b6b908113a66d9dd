"""Show: `rmsplugin show vjob|vm|node NAME`, everything that is known of one, with its history."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rmsplugin.cli.live import decisions, events, nodes, vjobs, vms
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.table import Field, Row, plain_table, terminal_width
from rmsplugin.errors import NotFoundError
from rmsplugin.model.vm_names import parse_vm_name

if TYPE_CHECKING:
    from rmsplugin.api.binding import Engine

#: The newest events and decisions that are shown.
_NEWEST = 50


def add_command(commands: options.Commands) -> None:
    """Add show to the command line."""
    parser = options.add_command(
        commands,
        "show",
        "show everything that is known of a vjob, a VM or a node, with its history",
        _show,
        """
        A VM is named after the id that Slurm gave its job: that of an element of an array differs from the id that
        users see. `show vm` names the vjob, and `show vjob` the VMs.

        examples:
          rmsplugin show vjob 12_3
          rmsplugin show vm vjob50016-0
          rmsplugin show node n1 --json
        """,
    )
    parser.add_argument("what", metavar="vjob|vm|node", choices=("vjob", "vm", "node"), help="what to show")
    parser.add_argument("name", metavar="NAME", help="a job id, the name of a VM (vjob12-0), or a node")
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.set_defaults(misused=parser.error)


def _show(arguments: argparse.Namespace) -> int:
    reads = {"vjob": options.job_id, "vm": options.vm, "node": options.node_name}
    try:
        name = reads[arguments.what](arguments.name)
    except argparse.ArgumentTypeError as error:
        arguments.misused(str(error))
    shows = {"vjob": _vjob, "vm": _vm, "node": _node}
    parts = shows[arguments.what](find_engine(arguments), name)
    if arguments.json:
        print_document(arguments, parts)
        return 0
    for title, fields in _PARTS.items():
        if rows := parts.get(title):
            _print_part(title, fields, rows)
    return 0


def _vjob(engine: Engine, name: str) -> dict[str, Sequence[Any]]:
    rows: list[Any] = [*engine.vjobs_named(name), *engine.unmet(vjob=name)]
    return {
        "vjob": rows or [engine.vjob(name)],
        "vms": engine.vms(vjob=name),
        "decisions": engine.decisions(name)[-_NEWEST:],
        "events": engine.events(vjob=name, limit=_NEWEST),
    }


def _vm(engine: Engine, name: str) -> dict[str, Sequence[Any]]:
    parsed = parse_vm_name(name)
    if parsed is None:
        raise NotFoundError(f"{name} is not the name of a VM, which is as vjob12-0; `rmsplugin vms` lists them")
    job = str(parsed[0])
    found = [row for row in engine.vms(vjob=job) if row["name"] == name]
    vjob = engine.vjob(job)  # says so if there is none
    if not found:
        raise NotFoundError(f"there is no VM {name} now: vjob {vjob['display_id']} is {vjob['state']}")
    happened = engine.events(vjob=vjob["display_id"], limit=_NEWEST)
    return {"vm": found, "vjob": [vjob], "events": [each for each in happened if each["vm"] in ("", name)]}


def _node(engine: Engine, name: str) -> dict[str, Sequence[Any]]:
    found = [row for row in engine.nodes() if row["name"] == name]
    if not found:
        raise NotFoundError(f"{name} is no node that may host VMs")
    here = [row for row in engine.vms() if name in (row["node"], row["image_node"])]
    return {"node": found, "vms": here, "events": engine.events(limit=_NEWEST, wanted={"node": [name]})}


_PARTS: dict[str, Sequence[Field]] = {
    "node": nodes.FIELDS,
    "vm": vms.FIELDS,
    "vjob": vjobs.FIELDS,
    "vms": [field for field in vms.FIELDS if field.name in ("name", "vjob", "state", "node", "address", "image")],
    "decisions": decisions.FIELDS,
    "events": [field for field in events.FIELDS if field.name != "id"],
}


def _print_part(title: str, fields: Sequence[Field], rows: Iterable[Row]) -> None:
    """One object has a line for each thing that is known of it; a list is a table."""
    if title in ("vms", "decisions", "events"):
        print(f"\n{title}:")
        for line in plain_table(fields, width=terminal_width(indent=2)).lines(rows):
            print(f"  {line}")
        return
    for row in rows:
        print(f"{title}:")
        for field in fields:
            if text := field.text(row):
                print(f"  {field.name:<14} {printable(text)}")
