"""Operation: what suspend, resume and migrate share: their options, and how the engine is told and watched."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from rmsplugin.cli.live.elements import operate_on_each
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import connect, read_settings
from rmsplugin.cli.shared.pages import read_pages
from rmsplugin.cli.shared.watching import done_sentence, refuse_failed, watch
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.job_names import parse

if TYPE_CHECKING:
    from rmsplugin.client import EngineClient


def add_operation(commands: options.Commands, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    """Add a command that has the engine do something to a vjob; its path in the engine's API ends with ``name``."""
    parser = options.add_command(commands, name, summary, _operate, epilog)
    parser.add_argument("job", metavar="JOBID", type=options.job_id, help=options.JOB_HELP)
    return parser


def add_node_option(parser: argparse.ArgumentParser) -> None:
    """Let a node be named."""
    parser.add_argument("--to", metavar="NODE", type=options.node_name, help="the node to use")


def add_end_options(parser: argparse.ArgumentParser) -> None:
    """Say whether the end is waited for, and how it is told."""
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the end")
    parser.add_argument("--json", action="store_true", help="print the operation as JSON when it has ended")


def _operate(arguments: argparse.Namespace) -> int:
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
    refuse_failed(operation)
    if not arguments.json:
        print(done_sentence(f"{arguments.command} {arguments.job}", operation, started))
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
