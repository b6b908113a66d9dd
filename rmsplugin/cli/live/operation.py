"""Operation: what suspend, resume and migrate share: their options, and how the engine is told and watched."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from rmsplugin.api.binding import SeveralError
from rmsplugin.cli.live.elements import begin_on, operate_on_each, operate_on_several
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.document import print_document, tell
from rmsplugin.cli.shared.watching import done_sentence, faults_of, refuse_failed, watch
from rmsplugin.errors import OperationFailedError, WrongOrderError
from rmsplugin.model.job_names import parse

if TYPE_CHECKING:
    from rmsplugin.api.binding import Engine


def add_operation(commands: options.Commands, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    """Add a command that has the engine do something to a vjob; its path in the engine's API ends with ``name``."""
    parser = options.add_command(commands, name, summary, _operate, epilog)
    parser.add_argument("jobs", metavar="JOBID", nargs="+", type=options.job_ids, help=options.JOB_HELP)
    return parser


def add_node_option(parser: argparse.ArgumentParser) -> None:
    """Let a node be named."""
    parser.add_argument("--to", metavar="NODE", type=options.node_name, help="the node to use")


def add_end_options(parser: argparse.ArgumentParser) -> None:
    """Say whether the end is waited for, and how it is told."""
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the end")
    parser.add_argument("--json", action="store_true", help="print the operation as JSON when it has ended")


def _operate(arguments: argparse.Namespace) -> int:
    to, vm = getattr(arguments, "to", None) or "", getattr(arguments, "vm", None) or ""
    names = list(dict.fromkeys(name for named in arguments.jobs for name in named))
    if vm and len(names) > 1:
        raise WrongOrderError("--vm is about one vjob: name one")
    engine = find_engine(arguments)
    if len(names) > 1:
        return operate_on_several(engine, arguments, names, to=to)
    arguments.job = names[0]
    vm = vm_name(engine, arguments.job, vm) if vm else ""
    started = time.monotonic()
    try:
        number = begin_on(engine, arguments.command, arguments.job, to=to, vm=vm)
    except SeveralError as error:
        return operate_on_each(engine, arguments, error.elements)
    if arguments.no_wait:
        tell(arguments, {"operation": number}, f"operation {number}")
        return 0
    operation = watch(engine, number, f"{arguments.command} {arguments.job}")
    if arguments.json:
        print_document(arguments, operation, errors=faults_of(operation))
    refuse_failed(operation)
    if not arguments.json:
        print(done_sentence(f"{arguments.command} {arguments.job}", operation, started))
    return 0


def vm_name(engine: Engine, job: str, vm: str) -> str:
    """The name of a VM of the vjob, given its number or its name.

    Raises:
        OperationFailedError: the vjob has no such VM.
    """
    if not vm.isdecimal():
        return vm
    names = [
        str(row["name"])
        for row in engine.vms()
        if parse(job).means(str(row.get("vjob"))) and str(row["name"]).endswith(f"-{int(vm)}")
    ]
    if not names:
        raise OperationFailedError(f"vjob {job} has no VM number {vm} now; `rmsplugin vms` lists them")
    return names[0]
