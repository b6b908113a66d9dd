"""Options that simulate and compare share: the workload, the cluster, and how it is simulated."""

from __future__ import annotations

import argparse
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rmsplugin.cli import arguments as options
from rmsplugin.errors import WorkloadError
from rmsplugin.input_file import blocks, named

if TYPE_CHECKING:
    from rmsplugin.simulation.capacity import Cluster
    from rmsplugin.simulation.measured import Measured
    from rmsplugin.simulation.observed_memory import MemoryParameters
    from rmsplugin.simulation.parameters import ReplayParameters
    from rmsplugin.workload.activity import Activity
    from rmsplugin.workload.jobs import Job

#: Those that switch nothing, and those that do.
COUNTING = ("fcfs", "easy")
SWITCHING = ("easy-preempt", "rjsp", "rjsp-exact", "mixed", "slowdown", "load-sharing", "v-reconfiguration")
POLICIES = COUNTING + SWITCHING

#: The limit of each search for a plan, in the solver's unit, about a second of one core; decisions get half of it.
_LIMIT = 0.2

#: As sections [memory] of the settings has it.
_THRESHOLD, _UNKNOWN = 0.9, 0.5

#: Options that a ledger has no need of.
_OF_TRACES = ("trace_memory", "cpus_per_vm", "memory_per_vm")


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
        ("--memory-threshold", "of a node's memory, VMs are planned up to this share", _THRESHOLD),
        ("--memory-unknown", "of its request, a VM is expected to need this share until one like it has run", _UNKNOWN),
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


def refuse_misuse(arguments: argparse.Namespace, policies: tuple[str, ...]) -> None:
    """End with status 2 where options do not go together."""
    switching = [policy for policy in policies if policy in SWITCHING]
    if arguments.memory_per_node is None and switching:
        arguments.refuse(f"{switching[0]} needs --memory-per-node: how long a context switch takes depends on memory")
    if arguments.memory_per_vm is not None and arguments.memory_per_node is None:
        arguments.refuse("--memory-per-vm is looked at only with --memory-per-node")
    _refuse_other_source(arguments)
    _refuse_memory(arguments, switching)
    if (arguments.cpus_per_vm or 1) > arguments.cpus_per_node:
        arguments.refuse("--cpus-per-vm is more than --cpus-per-node")


def refuse_page(arguments: argparse.Namespace) -> None:
    """End with status 2 where --html cannot be meant."""
    if arguments.html == "":
        arguments.refuse("argument --html: the name of a file is empty")
    if arguments.html == "-":
        arguments.refuse("--html needs a file")
    refuse_input(arguments, "--html", arguments.html)


def refuse_input(arguments: argparse.Namespace, option: str, output: str | None) -> None:
    """End with status 2 where an output would replace what is read."""
    if output is not None and output != "-" and _same_file(arguments.workload or arguments.ledger, output):
        what = "the trace of --workload" if arguments.workload else "the ledger of --ledger"
        arguments.refuse(f"{option} would replace {what}")


def _same_file(one: str, other: str) -> bool:
    """Whether both names are of one file that is there."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # one of them is not there, or no path at all
        return False


def _refuse_other_source(arguments: argparse.Namespace) -> None:
    """Refuse what is said of a trace where there is a ledger, and the other way round."""
    source, other = ("--workload", "--ledger") if arguments.ledger is None else ("--ledger", "--workload")
    names = ("ask_slurm", "unpreemptible", "measured") if arguments.ledger is None else _OF_TRACES
    for name in names:
        if getattr(arguments, name):
            arguments.refuse(f"--{name.replace('_', '-')} goes with {other}, not with {source}")


def _refuse_memory(arguments: argparse.Namespace, switching: Sequence[str]) -> None:
    """Refuse to observe memory where nobody can be moved, and to say how where it is not observed."""
    if arguments.memory == "observed" and arguments.ledger is not None:
        arguments.refuse("--memory observed goes with --workload, not with --ledger")
    if arguments.memory == "observed" and not switching:
        arguments.refuse("--memory observed is not for fcfs and easy, which cannot relieve a node that is short")
    for name in ("memory_threshold", "memory_unknown"):
        if arguments.memory != "observed" and getattr(arguments, name) is not None:
            arguments.refuse(f"--{name.replace('_', '-')} goes with --memory observed")


def memory_of(arguments: argparse.Namespace, durations: Mapping[str, float]) -> MemoryParameters | None:
    """How memory is observed; None if it is not."""
    if arguments.memory != "observed":
        return None
    from rmsplugin.decision.unblocking import Prices
    from rmsplugin.simulation.observed_memory import MemoryParameters

    threshold, unknown = arguments.memory_threshold or _THRESHOLD, arguments.memory_unknown or _UNKNOWN
    return MemoryParameters(threshold, unknown, prices=Prices.from_values(durations))


def cluster_of(arguments: argparse.Namespace) -> Cluster:
    """The cluster."""
    from rmsplugin.simulation.capacity import Cluster

    return Cluster(
        arguments.nodes,
        arguments.cpus_per_node,
        arguments.memory_per_node,
        arguments.memory_per_vm,
        arguments.cpus_per_vm or 1,
    )


def replay_parameters(
    arguments: argparse.Namespace, policy: str, activity: Mapping[int, Activity], measured: Measured | None
) -> ReplayParameters:
    """How context switches are simulated.

    Args:
        arguments: of the command.
        policy: who runs.
        activity: what the VMs of jobs do, by job id.
        measured: how what is done to jobs goes, whatever is expected; None: it takes what is expected.

    Raises:
        WorkloadError: a file cannot be read, or has something wrong in it.
    """
    from rmsplugin.decision.parameters import Parameters, SlowdownParameters, SwitchDurations
    from rmsplugin.model.durations import DEFAULTS
    from rmsplugin.packing.search import Search
    from rmsplugin.planning.order.transfers import Durations
    from rmsplugin.proposing.parameters import ProposalParameters
    from rmsplugin.simulation.hosts import NO_SLOWDOWN, Slowdown
    from rmsplugin.simulation.measured import Measured
    from rmsplugin.simulation.parameters import ReplayParameters

    if policy in COUNTING:  # as where processors are counted: everything takes no time, whenever it is
        at_once = Durations.from_values(dict.fromkeys(DEFAULTS, 0.0))
        return ReplayParameters(ProposalParameters(policy, durations=at_once), cycle_s=0.0, activity=activity)
    values = dict(DEFAULTS) if arguments.durations is None else _durations(arguments.durations)
    limit = arguments.deterministic_limit
    search = Search(time_limit_s=math.inf, seed=arguments.seed, deterministic_limit=limit)
    switch = SwitchDurations.from_values(values)
    decision = Parameters(
        search=search.part(0.5),
        durations=switch,
        exempt_s=arguments.exempt,
        pause_limit_s=arguments.pause_limit,
        slowdown=SlowdownParameters(user_share=arguments.user_share, user_share_s=arguments.user_share_s),
    )
    durations = Durations.from_values(values)
    proposal = ProposalParameters(policy, decision=decision, search=search, durations=durations)
    return ReplayParameters(
        proposal,
        cycle_s=arguments.cycle,
        look_s=arguments.look,
        failure_rate=arguments.failure_rate,
        seed=arguments.seed,
        slowdown=Slowdown() if measured is None else NO_SLOWDOWN,
        activity=activity,
        window_s=arguments.demand_window,
        measured=measured or Measured(),
        memory=memory_of(arguments, values),
        known=measured is not None,
    )


def _durations(path: str) -> dict[str, float]:
    from pydantic import ValidationError

    from rmsplugin.settings.deciding import Durations

    with named(path, WorkloadError):
        text = b"".join(blocks(path, WorkloadError, "section of settings")).decode()
        try:
            section = tomllib.loads(text).get("durations")
        except tomllib.TOMLDecodeError as error:
            raise WorkloadError(f"no TOML: {error}") from None
        if not isinstance(section, dict):
            raise WorkloadError("has no section [durations], as `rmsplugin calibrate` prints it")
        try:
            return Durations(**section).model_dump()
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in ("durations", *first["loc"]))
            raise WorkloadError(f"{place}: {first['msg']}") from None


def read_activity_of(arguments: argparse.Namespace, jobs: Sequence[Job], cluster: Cluster) -> Mapping[int, Activity]:
    """What the VMs of the jobs do, by job id, as far as --activity tells.

    Raises:
        WorkloadError: the file cannot be read, or does not fit the jobs.
    """
    from rmsplugin.workload.activity_file import fitted, read_activity

    if arguments.activity is None:
        return {}
    with named(arguments.activity, WorkloadError):
        known = read_activity(b"".join(blocks(arguments.activity, WorkloadError, "activity")).decode())
        each = {job.job_id: fitted(known, job.job_id, cluster.vms_of(job), cluster.vcpus_of(job)) for job in jobs}
    return {job_id: activity for job_id, activity in each.items() if activity}
