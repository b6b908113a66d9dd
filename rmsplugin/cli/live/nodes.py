"""Nodes: `rmsplugin nodes`, the nodes that may host VMs, and what of them is taken."""

from __future__ import annotations

import argparse

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.table import (
    Field,
    add_table_options,
    columns_of,
    mebibytes_of,
    parse_format,
    print_rows,
    text_of,
    time_of,
)
from rmsplugin.errors import NotFoundError

FIELDS = (
    Field("node", "name, as in Slurm", text_of("name")),
    Field(
        "state",
        "Slurm's word for its state; `unreachable` when its libvirt does not answer; `gone` when somebody said so; "
        "or `power` where that is not on",
        text_of("state"),
    ),
    Field(
        "power",
        "whether the engine has switched it: on, going-off, off, coming-on, or failed: it did not come on, or somebody "
        "else switched it on",
        text_of("power"),
    ),
    Field("powersince", "since when it is off, going off or coming on", time_of("power_since")),
    Field("powerwhy", "why it was switched", text_of("power_why")),
    Field("gonesince", "since when the node is gone, by an operator's word or by fencing", time_of("gone_since")),
    Field("goneby", "who said that the node is gone", text_of("gone_by")),
    Field("vms", "number of VMs on it", text_of("vms"), right=True),
    Field("cpus", "CPUs that VMs may take", text_of("cpus"), right=True),
    Field("cpusused", "CPUs that VMs have taken", text_of("cpus_used"), right=True),
    Field("memory", "memory that VMs may take", mebibytes_of("memory_mib"), right=True),
    Field("memoryused", "memory that VMs have taken", mebibytes_of("memory_used_mib"), right=True),
    Field("load", "its load average of a minute, as slurmd measured it", text_of("cpu_load"), right=True),
    Field("memoryfree", "memory that no process there has, likewise", mebibytes_of("memory_free_mib"), right=True),
    Field(
        "watts",
        "the power that it takes, as its BMC tells (power.sense_s), or Slurm where it has a plugin for energy",
        text_of("watts"),
        right=True,
    ),
    Field(
        "temperature",
        "degrees Celsius, as its BMC tells, or Slurm where it has external sensors",
        text_of("temperature_c"),
        right=True,
    ),
    Field(
        "room",
        "the engine's room there: held; leaving, when it has to be given back; requested or starting, when Slurm has "
        "not given the node yet; or none, as always with platform native",
        text_of("room"),
    ),
    Field("roomjob", "the room's job in Slurm", text_of("room_job"), right=True),
    Field("since", "since when the engine has the node for VMs", time_of("since")),
    Field("until", "when Slurm takes the node back; a room's time limit is extended long before", time_of("until")),
    Field("features", "its active features, for `sbatch -C`", text_of("features")),
    Field(
        "reservedfor",
        "the VM for which the node is reserved: one that has outgrown its own node",
        text_of("reserved_for"),
    ),
    Field("reservedsince", "since when the node is reserved", time_of("reserved_since")),
    Field(
        "guests", "the VMs that have moved there since; the node is reserved until they have ended", text_of("guests")
    ),
    Field(
        "reason",
        "why no VM may come now: drained, unreachable, no room, or what its room waits for; or the "
        "kind of action that the engine begins no more on the node for a while, because several in "
        "a row failed; or the VM for which the node is reserved",
        text_of("reason"),
    ),
)


_COLUMNS = "node,state,room,since,until,vms,cpusused,cpus,memoryused,memory,reason"
#: Columns that are shown by default where there is anything in them.
_SENSORS = {"watts": "watts", "temperature": "temperature_c"}


def add_command(commands: options.Commands) -> None:
    """Add nodes to the command line."""
    nodes = options.add_command(
        commands,
        "nodes",
        "list the nodes that may host VMs: whether the engine has them, and what of them is taken",
        _nodes,
        """
        A node hosts VMs while the engine has a room there: a Slurm job of the engine's that has the whole node.
        With platform native the engine has no rooms: Slurm has the nodes, and a VM here is a vjob's part of one.
        Where watts or temperatures are known, they are listed by default, too.

        examples:
          rmsplugin nodes
          rmsplugin nodes n1 'n[3-5]'
          rmsplugin nodes --format=node,room,roomjob,until,features,reason
          rmsplugin nodes --json
        """,
    )
    nodes.add_argument(
        "nodes", metavar="NODE", nargs="*", type=options.node_names, help="only these nodes: n1, or n[1-4]"
    )
    add_table_options(nodes, FIELDS, _COLUMNS)


def _nodes(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, FIELDS)
    wanted = dict.fromkeys(name for names in arguments.nodes for name in names)
    found = find_engine(arguments).nodes()
    answer = [node for node in found if not wanted or node.get("name") in wanted]
    if arguments.format == _COLUMNS:
        told = [name for name, key in _SENSORS.items() if any(node.get(key) is not None for node in answer)]
        columns = parse_format(",".join([_COLUMNS.removesuffix(",reason"), *told, "reason"]), FIELDS)
    missing = wanted.keys() - {node.get("name") for node in found}
    faults = [f"{name} is no node that may host VMs" for name in wanted if name in missing]
    print_rows(arguments, columns, "nodes", answer, errors=faults)
    if faults:
        raise NotFoundError("\n".join(faults))
    return 0
