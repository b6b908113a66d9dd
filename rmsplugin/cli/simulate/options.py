"""Options that simulate and compare share: the workload, the cluster, and how it is simulated."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options

if TYPE_CHECKING:
    pass


#: The limit of each search for a plan, in the solver's unit, about a second of one core; decisions get half of it.
_LIMIT = 0.2

#: As sections [memory] of the settings has it.
THRESHOLD, UNKNOWN = 0.9, 0.5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--workload",
        metavar="FILE",
        help="an SWF file, compressed (gzip, bzip2, xz) or not; - is standard input",
    )
    source.add_argument(
        "--ledger",
        metavar="FILE",
        help="the jobs that ran on a live cluster, from the engine's ledger or a copy of it; it is only read",
    )
    _add_ledger_options(parser)
    _add_cluster_options(parser)
    _add_switch_options(parser)
    _add_memory_options(parser)


def _add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """What a trace leaves open, and the nodes."""
    parser.add_argument(
        "--trace-memory",
        metavar="UNIT",
        choices=("kib-per-processor", "bytes-per-job"),
        help="what the memory in the trace is in: kib-per-processor, as SWF says (default), or bytes-per-job",
    )
    amounts = (
        ("--nodes", "N", "how many nodes there are, all equal", True),
        ("--cpus-per-node", "C", "CPUs of a node", True),
        (
            "--memory-per-node",
            "MIB",
            "memory of a node for VMs (default for fcfs and easy: memory is not looked at)",
            False,
        ),
        ("--cpus-per-vm", "C", "CPUs of a VM: a job of P processors is P/C VMs, rounded up (default: 1)", False),
        (
            "--memory-per-vm",
            "MIB",
            "memory of a VM where the trace has none (default: its CPUs' share of a node)",
            False,
        ),
    )
    for name, metavar, words, required in amounts:
        parser.add_argument(name, metavar=metavar, type=options.positive_number, required=required, help=words)
    parser.add_argument(
        "--activity",
        metavar="FILE",
        help="what the VMs of jobs do, phase by phase, as JSON (default: all the time the same)",
    )


def _add_switch_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("context switches (not for fcfs and easy)")
    times = (
        ("--cycle", 30.0, "seconds between decisions"),
        (
            "--exempt",
            300.0,
            "easy-preempt, mixed, slowdown, load-sharing, v-reconfiguration suspend nobody for so long after a start "
            "or resume",
        ),
        (
            "--demand-window",
            60.0,
            "so long a VM has to use less before its demand falls, as decision.demand_window_s",
        ),
    )
    group.add_argument(
        "--look",
        metavar="S",
        type=options.positive_seconds,
        default=0.0,
        help="seconds that the engine takes to look and decide, once something calls for a decision (default: 0)",
    )
    group.add_argument(
        "--pause-limit",
        metavar="S",
        type=options.positive_seconds,
        default=0.0,
        help="a vjob that makes way keeps its memory on its nodes for so long, unless somebody needs that (default: it "
        "is saved at once)",
    )
    group.add_argument(
        "--user-share",
        metavar="SHARE",
        type=options.share,
        default=1.0,
        help="slowdown: what a user has beyond this part of the cluster makes way for others (default: 1)",
    )
    group.add_argument(
        "--user-share-s",
        metavar="S",
        type=options.positive_seconds,
        default=3600.0,
        help="slowdown: for those that have waited for so long (default: 3600)",
    )
    for name, seconds, words in times:
        group.add_argument(
            name,
            metavar="S",
            type=options.positive_seconds,
            default=seconds,
            help=f"{words} (default: {seconds:g})",
        )
    group.add_argument(
        "--durations",
        metavar="FILE",
        help="how long actions take: section [durations] of the settings, as `rmsplugin calibrate` prints it",
    )
    group.add_argument(
        "--failure-rate", metavar="R", type=failure_rate, default=0.0, help="part of all actions that fail (default: 0)"
    )
    group.add_argument(
        "--seed", metavar="N", type=options.seed, default=0, help="of failures and searches (default: 0)"
    )
    group.add_argument(
        "--deterministic-limit",
        metavar="L",
        type=options.positive_amount,
        default=_LIMIT,
        help=f"of each search for a plan, in the solver's unit, about a second of one core (default: {_LIMIT})",
    )


def _add_memory_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("memory by observation (not for fcfs and easy, nor for a ledger)")
    group.add_argument(
        "--memory",
        metavar="HOW",
        choices=("requested", "observed"),
        default="requested",
        help="what of its node's memory a VM takes: all that was requested for it (requested, the default), or what it"
        " used by the trace once it runs, and what is expected of it before (observed)",
    )
    shares = (
        ("--memory-threshold", "of a node's memory, VMs are planned up to this share", THRESHOLD),
        ("--memory-unknown", "of its request, a VM is expected to need this share until one like it has run", UNKNOWN),
    )
    for name, words, default in shares:
        group.add_argument(
            name, metavar="SHARE", type=options.share, help=f"with --memory observed: {words} (default: {default})"
        )


def _add_ledger_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("jobs of a ledger")
    group.add_argument(
        "--ask-slurm",
        action="store_true",
        help="ask Slurm's accounting for their time limits (default: their run times stand for these)",
    )
    group.add_argument(
        "--unpreemptible",
        metavar="PARTITION,...",
        type=options.names,
        default=(),
        help="those of these partitions are never suspended or moved",
    )
    group.add_argument(
        "--measured",
        action="store_true",
        help="what is done to a job takes what just that took on the cluster, its VMs demand what was seen, when it "
        "was, and nothing slows them down, for that is in their times (default: actions take what --durations says)",
    )


def failure_rate(text: str) -> float:
    """A part of all, below 1: where everything fails nothing ever ends."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 0.9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 0.9")
    return number
