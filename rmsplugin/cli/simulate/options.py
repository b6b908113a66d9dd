"""Options that simulate and compare share: the workload, the cluster, and how it is simulated."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.simulate.platforms import PLATFORMS
from rmsplugin.model.overbooking import MOST_OVERBOOKING
from rmsplugin.simulation.capacity import EVERYWHERE

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
    parser.add_argument(
        "--rules",
        metavar="FILE",
        help="the placement rules that VMs obey: sections [rule.NAME] of the settings, as TOML (default: none)",
    )
    parser.add_argument(
        "--wishes",
        metavar="FILE",
        nargs="?",
        const="",
        help="what users asked for their VMs by --switches, --spread-job and --exclusive, by job, as JSON; without "
        "FILE what the ledger has of it (default: none of it is kept)",
    )
    parser.add_argument(
        "--topology",
        metavar="FILE",
        help="the leaf switches of the nodes, as topology.conf has them, for jobs that ask for --switches=N "
        "(default: all nodes are on one)",
    )
    parser.add_argument(
        "--energy",
        metavar="FILE",
        help="the watts of nodes, as TOML or JSON: idle nodes are switched off where that pays, vjobs wait for nodes "
        "that come on, and kilowatt-hours are told beside those with all nodes on, and those of an oracle",
    )


def _add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """What a trace leaves open, and the nodes."""
    parser.add_argument(
        "--trace-memory",
        metavar="UNIT",
        choices=("kib-per-processor", "bytes-per-job"),
        help="unit of memory in the trace: kib-per-processor, as SWF says (default), or bytes-per-job",
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
        "--cpu-overbooking",
        metavar="RATIO",
        type=overbooking,
        default={},
        help="CPUs of VMs for each CPU of a node, as cpu_overbooking of a partition: 2 for all, or PARTITION=2,... for "
        "some; VMs that use more CPUs than their node has share them, and take longer (default: 1)",
    )
    parser.add_argument(
        "--activity",
        metavar="FILE",
        help="the phases of the VMs of jobs, as JSON (default: the same demand all the time)",
    )


def _add_switch_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("context switches (not for fcfs and easy)")
    group.add_argument(
        "--platform",
        choices=tuple(PLATFORMS),
        default=next(iter(PLATFORMS)),
        help="what runs the jobs: libvirt (default): VMs, which are saved, restored and moved; native: plain Slurm "
        "jobs, which make way by a pause and go on where they are, for as long as they last",
    )
    times = (
        ("--cycle", 30.0, "seconds between decisions"),
        (
            "--exempt",
            300.0,
            "time after a start or resume in which easy-preempt, mixed, slowdown, load-sharing and "
            "v-reconfiguration suspend no vjob",
        ),
        (
            "--demand-window",
            60.0,
            "time for which a VM has to use less before its demand falls, as decision.demand_window_s",
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
        help="longest time for which a vjob that makes way keeps its memory on its nodes, if nobody "
        "needs that memory (default: it is saved at once)",
    )
    group.add_argument(
        "--user-share",
        metavar="SHARE",
        type=options.share,
        default=1.0,
        help="slowdown: a user's vjobs beyond this part of the cluster make way for those of other users (default: 1)",
    )
    group.add_argument(
        "--user-share-s",
        metavar="S",
        type=options.positive_seconds,
        default=3600.0,
        help="slowdown: --user-share makes way only for vjobs that have waited for this time (default: 3600)",
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
        "--cpu-in-plan",
        action="store_true",
        help="a VM comes to a node only when it has its CPUs there, as planning.cpu_in_plan "
        "(default: CPUs count at a plan's end)",
    )
    group.add_argument(
        "--durations",
        metavar="FILE",
        help="how long actions take: section [durations] of the settings, as `rmsplugin calibrate` prints it",
    )
    group.add_argument(
        "--failure-rate", metavar="R", type=failure_rate, default=0.0, help="share of actions that fail (default: 0)"
    )
    group.add_argument(
        "--seed", metavar="N", type=options.seed, default=0, help="seed of failures and searches (default: 0)"
    )
    group.add_argument(
        "--deterministic-limit",
        metavar="L",
        type=options.positive_amount,
        default=_LIMIT,
        help=f"limit of each search for a plan, in the solver's unit, about a second of one core (default: {_LIMIT})",
    )


def _add_memory_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("memory by observation (not for fcfs and easy, nor for a ledger)")
    group.add_argument(
        "--memory",
        metavar="HOW",
        choices=("requested", "observed"),
        default="requested",
        help="memory of its node that a VM takes: requested (default): all that was requested for it; "
        "observed: what is expected of it until it runs, then what it used according to the trace",
    )
    shares = (
        ("--memory-threshold", "share of a node's memory up to which VMs are planned", THRESHOLD),
        ("--memory-unknown", "share of its request that a VM is expected to need until one like it has run", UNKNOWN),
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
        help="ask Slurm's accounting for the jobs' time limits (default: run times stand for them)",
    )
    group.add_argument(
        "--unpreemptible",
        metavar="PARTITION,...",
        type=options.names,
        default=(),
        help="jobs of these partitions are never suspended or moved",
    )
    group.add_argument(
        "--measured",
        action="store_true",
        help="each action takes the time that it took on the cluster; VMs demand what was seen of them, "
        "at the times when it was seen; nothing slows them down, since that is in their times "
        "already (default: actions take what --durations says)",
    )


def overbooking(text: str) -> dict[str, float]:
    """Ratios by partition; a ratio alone is for all."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, named, number = part.rpartition("=")
        name = name if named else EVERYWHERE
        try:
            ratio = float(number)
        except ValueError:
            ratio = math.nan
        if not 1 <= ratio <= MOST_OVERBOOKING:
            raise argparse.ArgumentTypeError(f"{part!r}: the ratio is not a number from 1 to {MOST_OVERBOOKING:g}")
        if not name or name in found:
            raise argparse.ArgumentTypeError(f"{part!r}: name each partition once, as PARTITION=RATIO")
        found[name] = ratio
    return {} if set(found.values()) == {1.0} else found


def failure_rate(text: str) -> float:
    """A part of all, below 1: where everything fails nothing ever ends."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 0.9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 0.9")
    return number
