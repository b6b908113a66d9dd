"""Parameters: the cluster and the replay that the options of simulate and compare ask for."""

from __future__ import annotations

import argparse
import math
import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rmsplugin.cli.simulate.options import THRESHOLD, UNKNOWN
from rmsplugin.cli.simulate.platforms import PLATFORMS
from rmsplugin.errors import WorkloadError
from rmsplugin.input_file import blocks, named
from rmsplugin.model.policy_names import STATIC

if TYPE_CHECKING:
    from rmsplugin.packing.search import Search
    from rmsplugin.simulation.capacity import Cluster
    from rmsplugin.simulation.measured import Measured
    from rmsplugin.simulation.observed_memory import MemoryParameters
    from rmsplugin.simulation.parameters import ReplayParameters
    from rmsplugin.workload.activity import Activity
    from rmsplugin.workload.jobs import Job


def memory_of(arguments: argparse.Namespace, durations: Mapping[str, float]) -> MemoryParameters | None:
    """How memory is observed; None if it is not."""
    if arguments.memory != "observed":
        return None
    from rmsplugin.decision.unblocking import Prices
    from rmsplugin.simulation.observed_memory import MemoryParameters

    threshold, unknown = arguments.memory_threshold or THRESHOLD, arguments.memory_unknown or UNKNOWN
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
        arguments.cpu_overbooking,
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
    from rmsplugin.planning.order.transfers import Durations
    from rmsplugin.proposing.parameters import ProposalParameters
    from rmsplugin.simulation.hosts import NO_SLOWDOWN, Slowdown
    from rmsplugin.simulation.measured import Measured
    from rmsplugin.simulation.parameters import ReplayParameters

    search = search_of(arguments)
    if policy in STATIC:  # as where processors are counted: everything takes no time, whenever it is
        at_once = Durations.from_values(dict.fromkeys(DEFAULTS, 0.0))
        decision = Parameters(search=search.part(0.5), explains=False)
        proposal = ProposalParameters(policy, decision=decision, search=search, durations=at_once)
        return ReplayParameters(proposal, cycle_s=0.0, activity=activity)
    platform = PLATFORMS[arguments.platform]
    can = platform.can
    values = dict(platform.durations) if arguments.durations is None else _durations(arguments.durations)
    switch = SwitchDurations.from_values(values)
    decision = Parameters(
        search=search.part(0.5),
        durations=switch,
        exempt_s=arguments.exempt,
        pause_limit_s=math.inf if can.only_pauses else arguments.pause_limit,
        slowdown=SlowdownParameters(user_share=arguments.user_share, user_share_s=arguments.user_share_s),
        explains=False,  # nobody reads the reasons of a replay
    )
    durations = Durations.from_values(values)
    proposal = ProposalParameters(
        policy,
        decision=decision,
        search=search,
        durations=durations,
        cpu_in_plan=arguments.cpu_in_plan or can.only_pauses,  # Slurm starts no job before its CPUs are free
        capabilities=can,
    )
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


def search_of(arguments: argparse.Namespace) -> Search:
    """The limit of each search; none looks at a clock."""
    from rmsplugin.packing.search import Search

    return Search(time_limit_s=math.inf, seed=arguments.seed, deterministic_limit=arguments.deterministic_limit)


def _durations(path: str) -> dict[str, float]:
    from pydantic import ValidationError

    from rmsplugin.settings.deciding import Durations

    with named(path, WorkloadError):
        text = b"".join(blocks(path, WorkloadError, "section of settings")).decode()
        try:
            section = tomllib.loads(text).get("durations")
        except tomllib.TOMLDecodeError as error:
            raise WorkloadError(f"no TOML: {error}") from None
        except RecursionError:
            raise WorkloadError("lists and sections are nested too deeply") from None
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
