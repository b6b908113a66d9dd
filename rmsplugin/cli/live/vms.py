"""VMs: `rmsplugin vms`, the VMs of all vjobs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.table import (
    Field,
    add_table_options,
    bytes_of,
    columns_of,
    mebibytes_of,
    print_rows,
    rate_of,
    text_of,
)
from rmsplugin.errors import NotFoundError

if TYPE_CHECKING:
    from rmsplugin.api.answers import VM
    from rmsplugin.api.binding import Engine

FIELDS = (
    Field("name", "name, also its host name", text_of("name")),
    Field("vjob", "its vjob", text_of("vjob"), right=True),
    Field("state", "state of the VM", text_of("state")),
    Field("node", "where it runs", text_of("node")),
    Field("address", "its IP address", text_of("address")),
    Field("image", "node that holds its saved state", text_of("image_node")),
    Field("imagesize", "size of its saved state", bytes_of("image_bytes"), right=True),
    Field("cpus", "its CPUs", text_of("cpus"), right=True),
    Field("memory", "its memory", mebibytes_of("memory_mib"), right=True),
    Field("cpudemand", "CPUs that it demands, as observed", text_of("cpus_demand"), right=True),
    Field("memdemand", "memory that it needs, as its guest says", mebibytes_of("memory_demand_mib"), right=True),
    Field("received", "bytes a second that it receives over the network", rate_of("received_bytes_s"), right=True),
    Field("sent", "bytes a second that it sends", rate_of("sent_bytes_s"), right=True),
)


def add_command(commands: options.Commands) -> None:
    """Add vms to the command line."""
    vms = options.add_command(
        commands,
        "vms",
        "list the VMs of all vjobs, or of some",
        _vms,
        """
        examples:
          rmsplugin vms
          rmsplugin vms 12 '13_[0-3]'
          rmsplugin vms --parsable2 --format=name,node,address
        """,
    )
    vms.add_argument(
        "jobs", metavar="JOBID", nargs="*", type=options.job_id, help=f"only VMs of these: {options.JOB_HELP}"
    )
    add_table_options(vms, FIELDS, "name,vjob,state,node,address,image,imagesize,cpus,memory")


def _vms(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, FIELDS)
    engine = find_engine(arguments)
    rows, faults = ([], []) if arguments.jobs else (engine.vms(), list[str]())
    for name in dict.fromkeys(arguments.jobs):
        try:
            rows += _of_vjob(engine, name)
        except NotFoundError as error:
            faults.append(str(error))
    print_rows(arguments, columns, "vms", rows, errors=faults)
    if faults:
        raise NotFoundError("\n".join(faults))
    return 0


def _of_vjob(engine: Engine, name: str) -> list[VM]:
    """The VMs of vjobs of this name. Raises NotFoundError if there is no such vjob."""
    rows = engine.vms(vjob=name)
    if not rows and not engine.vjobs_named(name) and not engine.unmet(vjob=name):
        engine.vjob(name)
    return rows
