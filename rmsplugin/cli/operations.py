"""Operations: suspend, resume and migrate a vjob through the engine, and watch how that goes."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from rmsplugin.cli import arguments as options
from rmsplugin.cli.connection import connect, read_settings
from rmsplugin.cli.elements import operate_on_each
from rmsplugin.cli.pages import read_pages
from rmsplugin.cli.table import printable, short_bytes
from rmsplugin.cli.watching import watch
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.job_names import parse

if TYPE_CHECKING:
    from rmsplugin.client import EngineClient


def add_commands(commands: options.Commands) -> None:
    """Add suspend, resume and migrate to the command line."""
    suspend = options.add_command(
        commands,
        "suspend",
        "save the VMs of a running vjob to files and free what they take",
        _run,
        """
        For the vjob's user and for operators. The Slurm job is SUSPENDED meanwhile. The id of a job array means
        all of its elements, as for `scontrol suspend`.

        examples:
          rmsplugin suspend 12
          rmsplugin suspend --no-wait 12
          rmsplugin suspend '12_[1-3]'
        """,
    )
    resume = options.add_command(
        commands,
        "resume",
        "restore the VMs of a sleeping vjob, here or on another node",
        _run,
        """
        For the vjob's user and for operators. Without --to the engine chooses the nodes, and prefers those
        that hold the saved states. The id of a job array means all of its elements; with --to name one of them.

        examples:
          rmsplugin resume 12
          rmsplugin resume 12 --to n2
        """,
    )
    migrate = options.add_command(
        commands,
        "migrate",
        "move the VMs of a running vjob to other nodes while they run",
        _run,
        """
        For operators. Without --to the engine chooses the nodes. The id of a job array means all of its elements;
        with --to or --vm name one of them.

        examples:
          rmsplugin migrate 12 --to n2
          rmsplugin migrate 12 --vm 0 --to n3
        """,
    )
    for command in (suspend, resume, migrate):
        command.add_argument("job", metavar="JOBID", type=options.job_id, help=options.JOB_HELP)
    for command in (resume, migrate):
        command.add_argument("--to", metavar="NODE", type=options.node_name, help="the node to use")
    migrate.add_argument("--vm", metavar="VM", type=options.vm, help="only this VM: its name, or its number from 0 on")
    for command in (suspend, resume, migrate):
        command.add_argument("--no-wait", action="store_true", help="do not wait for the end")
        command.add_argument("--json", action="store_true", help="print the operation as JSON when it has ended")


def _run(arguments: argparse.Namespace) -> int:
    client = connect(read_settings(arguments.config))
    body = {}
    if to := getattr(arguments, "to", None):
        body["to"] = to
    if vm := getattr(arguments, "vm", None):
        body["vm"] = vm_name(client, arguments.job, vm)
    started = time.monotonic()
    answer = client.request("POST", f"{options.job_path(arguments.job)}/{arguments.command}", body)
    if "elements" in answer:
        return operate_on_each(client, arguments, answer["elements"])
    number = answer["operation"]
    if arguments.no_wait:
        print(json.dumps({"operation": number}) if arguments.json else f"operation {number}")
        return 0
    operation = watch(client, number, f"{arguments.command} {arguments.job}")
    if arguments.json:
        print(json.dumps(operation, indent=1))
    if operation.get("state") == "failed":
        raise OperationFailedError(printable(str(operation.get("error") or "failed, without a reason")))
    if not arguments.json:
        moved = operation.get("bytes_done") or 0
        amount = f", {short_bytes(moved)}B" if moved else ""
        print(f"{arguments.command} {arguments.job}: done in {time.monotonic() - started:.1f} s{amount}")
    return 0


def vm_name(client: EngineClient, job: str, vm: str) -> str:
    """The name of a VM of the vjob, given its number or its name.

    Raises:
        OperationFailedError: the vjob has no such VM.
    """
    if not vm.isdecimal():
        return vm
    names = [
        str(row["name"])
        for row in read_pages(client, "/v1/vms", "vms")[0]
        if parse(job).means(str(row.get("vjob"))) and str(row["name"]).endswith(f"-{int(vm)}")
    ]
    if not names:
        raise OperationFailedError(f"vjob {job} has no VM number {vm} now; `rmsplugin vms` lists them")
    return names[0]
