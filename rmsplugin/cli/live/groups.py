"""Groups: `rmsplugin groups`, the groups of VM hosts, with what is free there and what is demanded of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.table import (
    Field,
    Row,
    add_table_options,
    columns_of,
    mebibytes_of,
    print_rows,
    text_of,
)

#: The hosts that the table shows by name.
_SHOWN = 4


def _hosts(row: Row) -> str:
    hosts = row.get("hosts") or []
    more = [f"... {hosts[-1]}"] if len(hosts) > _SHOWN else []
    return ",".join([*hosts[: _SHOWN - len(more)], *more])


def _hot(row: Row) -> str:
    """Who waits for whose room, as "7:3,4"."""
    hot = row.get("hot")
    return f"{hot['waits']}:{','.join(map(str, hot['vjobs']))}" if hot else ""


def _amount(what: str) -> Callable[[Row], str]:
    """CPUs and memory in one column, as "4/8192M"."""
    memory = mebibytes_of(f"memory_{what}_mib")
    return lambda row: f"{row.get(f'cpus_{what}', 0):g}/{memory(row)}"


FIELDS = (
    Field("group", "its name: that of a section [group.NAME], or of its hosts partitions", text_of("name")),
    Field("state", "up; draining, when no node takes VMs and some have them; or down", text_of("state")),
    Field("nodes", "number of its VM hosts", text_of("nodes"), right=True),
    Field("nodesup", "number of those that take VMs", text_of("nodes_up"), right=True),
    Field("cpus", "CPUs that VMs may take on these", text_of("cpus"), right=True),
    Field("cpusfree", "CPUs that are free there", text_of("cpus_free"), right=True),
    Field("memory", "memory that VMs may take on these", mebibytes_of("memory_mib"), right=True),
    Field("memoryfree", "memory that is free there", mebibytes_of("memory_free_mib"), right=True),
    Field("hole", "the largest hole, which is on one node: CPUs and memory", _amount("largest"), right=True),
    Field("running", "number of vjobs that run there", text_of("running"), right=True),
    Field("paused", "number of vjobs that are paused there", text_of("paused"), right=True),
    Field("sleeping", "number of vjobs that sleep and were given to it", text_of("sleeping"), right=True),
    Field("waiting", "number of vjobs that wait and were given to it", text_of("waiting"), right=True),
    Field("demand", "what all its vjobs demand, running or not: CPUs and memory", _amount("demanded"), right=True),
    Field(
        "hot",
        "with cluster.migration_domains: the vjob that has no room there, and those that run without any of which it "
        "would have some; one of them may go to another group",
        _hot,
    ),
    Field("hosts", "the names of its hosts; --json has all", _hosts),
)
_COLUMNS = "group,state,nodes,cpus,cpusfree,memoryfree,hole,running,waiting,demand"


def add_command(commands: options.Commands) -> None:
    """Add groups to the command line."""
    parser = options.add_command(
        commands,
        "groups",
        "list the groups of VM hosts: what is free there, and what is demanded of them",
        _groups,
        """
        The engine plans for each group by itself, all at the same time. A vjob is in one group, and never split. A
        hosts partition is a group, unless sections [group.NAME] of the settings say otherwise; one of more than 1,000
        hosts is several. The numbers are those of the last decision; there are none before the first one of an
        engine.

        examples:
          rmsplugin groups
          rmsplugin groups --format=group,nodes,hosts
          rmsplugin groups --json
        """,
    )
    add_table_options(parser, FIELDS, _COLUMNS)


def _groups(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, FIELDS)
    print_rows(arguments, columns, "groups", find_engine(arguments).groups())
    return 0
