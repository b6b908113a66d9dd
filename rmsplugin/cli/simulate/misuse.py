"""Misuse: options of simulate and compare that do not go together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmsplugin.cli.shared.replacing import replaced
from rmsplugin.cli.simulate.platforms import PLATFORMS
from rmsplugin.model.policy_names import COUNTING, STATIC

if TYPE_CHECKING:
    pass


#: Options that a ledger has no need of.
_OF_TRACES = ("trace_memory", "cpus_per_vm", "memory_per_vm")
#: Options that name a file that is read, and what that is.
_INPUTS = {
    "workload": "the trace",
    "ledger": "the ledger",
    **dict.fromkeys(("activity", "durations", "energy", "rules", "topology", "wishes"), "the file"),
}


def refuse_misuse(arguments: argparse.Namespace, policies: tuple[str, ...]) -> None:
    """End with status 2 where options do not go together."""
    switching = [policy for policy in policies if policy not in STATIC]
    if arguments.memory_per_node is None and switching:
        arguments.refuse(f"{switching[0]} needs --memory-per-node: how long a context switch takes depends on memory")
    on_nodes = [policy for policy in policies if policy not in COUNTING]
    if arguments.memory_per_node is None and on_nodes:
        arguments.refuse(f"{on_nodes[0]} needs --memory-per-node: it is simulated on nodes, and not by counting")
    if arguments.memory_per_vm is not None and arguments.memory_per_node is None:
        arguments.refuse("--memory-per-vm is looked at only with --memory-per-node")
    if arguments.energy is not None and arguments.memory_per_node is None:
        arguments.refuse("--energy needs --memory-per-node: it depends on which node each VM is on")
    _refuse_rules(arguments)
    _refuse_overbooking(arguments)
    _refuse_other_source(arguments)
    _refuse_memory(arguments, switching)
    _refuse_platform(arguments)
    if (arguments.cpus_per_vm or 1) > arguments.cpus_per_node:
        arguments.refuse("--cpus-per-vm is more than --cpus-per-node")


def refuse_outputs(arguments: argparse.Namespace, *names: str) -> None:
    """End with status 2 where an output of these options cannot be meant, or would replace what is read."""
    outputs: dict[str, str | None] = {f"--{name.replace('_', '-')}": getattr(arguments, name) for name in names}
    for option, file in outputs.items():
        if file == "":
            arguments.refuse(f"argument {option}: the name of a file is empty")
        if file == "-" and option != "--jobs-out":
            arguments.refuse(f"{option} needs a file")
    inputs = {f"{what} of --{name}": getattr(arguments, name) for name, what in _INPUTS.items()}
    if words := replaced(outputs, inputs):
        arguments.refuse(words)


def _refuse_other_source(arguments: argparse.Namespace) -> None:
    """Refuse what is said of a trace where there is a ledger, and the other way round."""
    source, other = ("--workload", "--ledger") if arguments.ledger is None else ("--ledger", "--workload")
    names = ("ask_slurm", "unpreemptible", "measured") if arguments.ledger is None else _OF_TRACES
    for name in names:
        if getattr(arguments, name):
            arguments.refuse(f"--{name.replace('_', '-')} goes with {other}, not with {source}")


def _refuse_rules(arguments: argparse.Namespace) -> None:
    """Refuse placement rules, and wishes, where the replay does not keep them."""
    if arguments.topology is not None and arguments.wishes is None:
        arguments.refuse("--topology goes with --wishes, which tells the jobs that ask for --switches=N")
    if arguments.wishes == "" and arguments.ledger is None:
        arguments.refuse("--wishes needs the name of a file: a trace tells of no wishes")
    for option, given in (("--rules", arguments.rules), ("--wishes", arguments.wishes)):
        if given is None:
            continue
        if arguments.memory_per_node is None:
            arguments.refuse(f"{option} needs --memory-per-node: it is about nodes of VMs, and not about processors")
        if PLATFORMS[arguments.platform].can.only_pauses:
            arguments.refuse(f"{option} is not for --platform {arguments.platform}: it is about VMs, and it has none")
        if arguments.memory == "observed":
            arguments.refuse(
                f"{option} does not go with --memory observed: nodes that are short are relieved without rules"
            )


def _refuse_overbooking(arguments: argparse.Namespace) -> None:
    """Refuse to overbook CPUs where it is not known how VMs share them."""
    if not arguments.cpu_overbooking:
        return
    if arguments.memory_per_node is None:
        arguments.refuse("--cpu-overbooking needs --memory-per-node: how fast VMs are depends on the nodes of others")
    if PLATFORMS[arguments.platform].can.only_pauses:
        arguments.refuse(f"--cpu-overbooking is not for --platform {arguments.platform}: Slurm books whole CPUs")
    if arguments.measured:
        arguments.refuse("--cpu-overbooking does not go with --measured: what was measured has its sharing in it")


def _refuse_platform(arguments: argparse.Namespace) -> None:
    """Refuse what is said of VMs where jobs run without any."""
    if not PLATFORMS[arguments.platform].can.only_pauses:
        return
    where = f"is not for --platform {arguments.platform}"
    if arguments.pause_limit:
        arguments.refuse(f"--pause-limit {where}: there a job stays paused until its turn comes")
    if arguments.memory == "observed":
        arguments.refuse(f"--memory observed {where}: Slurm books what was requested")
    if arguments.measured:
        arguments.refuse(f"--measured {where}: what was measured are the times of VMs")


def _refuse_memory(arguments: argparse.Namespace, switching: Sequence[str]) -> None:
    """Refuse to observe memory where nobody can be moved, and to say how where it is not observed."""
    if arguments.memory == "observed" and arguments.ledger is not None:
        arguments.refuse("--memory observed goes with --workload, not with --ledger")
    if arguments.memory == "observed" and not switching:
        arguments.refuse("--memory observed is not for fcfs and easy, which cannot relieve a node that is short")
    for name in ("memory_threshold", "memory_unknown"):
        if arguments.memory != "observed" and getattr(arguments, name) is not None:
            arguments.refuse(f"--{name.replace('_', '-')} goes with --memory observed")
