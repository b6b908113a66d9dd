"""Catalogue: all metrics, each with its kind, labels and meaning; the guide's table is this one."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.StrEnum):
    """The kinds of metrics."""

    GAUGE = "gauge"
    COUNTER = "counter"  # begins at 0 with the process
    HISTOGRAM = "histogram"  # likewise


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``name`` has no prefix; a counter's lacks its ``_total``, too."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name of its samples; of a histogram without ``_bucket``, ``_sum`` and ``_count``."""
        return f"rmsplugin_{self.name}{'_total' if self.kind is Kind.COUNTER else ''}"


_G, _C, _H = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM

METRICS = tuple(
    Metric(*words)
    for words in (
        (
            "build_info",
            _G,
            "Always 1; the release of rmsplugin and of Python, and the engine's group",
            ("version", "python", "group"),
        ),
        (
            "start_time_seconds",
            _G,
            "When this engine began to lead, since which counters count; seconds since the epoch",
        ),
        ("cycle_age_seconds", _G, "Time since the last cycle ended; since the engine's start if none has"),
        ("cycle_duration_seconds", _G, "Time that the last cycle took"),
        ("cycle_phase_duration_seconds", _G, "Time that each part of the last cycle took", ("phase",)),
        ("cycle_phase_seconds", _C, "Time that each part of cycles has taken", ("phase",)),
        ("cycles", _C, "Cycles; one is failed if it ended early, as Slurm or the ledger did not answer", ("outcome",)),
        ("cycle_problems", _G, "Problems of the site that the last cycle told"),
        ("paused", _G, "1 while an operator has paused context switches"),
        ("vjobs", _G, "Vjobs that have not ended", ("partition", "state")),
        ("waits", _G, "Vjobs that wait, by the reason that the last cycle found", ("reason",)),
        (
            "oldest_waiting_seconds",
            _G,
            "Time since the submission of the vjob that has waited longest; 0: none waits",
            ("partition",),
        ),
        ("oldest_sleeping_seconds", _G, "Time for which a vjob has slept at most; 0: none sleeps", ("partition",)),
        ("vjob_sleeps", _C, "Times that a vjob went to sleep, in files", ("partition",)),
        ("vjob_pauses", _C, "Times that a vjob was paused, in memory", ("partition",)),
        ("vjob_losses", _C, "Times that the state of a vjob was lost", ("partition",)),
        ("requeues", _C, "Requeues of jobs of vjobs, by who caused them", ("cause",)),
        ("nodes", _G, "VM hosts, by what the last cycle saw of them", ("state",)),
        (
            "agents",
            _G,
            "Node agents of VM hosts, by whether they answered when the engine asked them last for its work",
            ("state",),
        ),
        ("hot_nodes", _G, "VM hosts that are hot: they take no VM"),
        ("sensed_nodes", _G, "VM hosts whose BMC told watts or a temperature when it was asked last"),
        ("sensed_watts", _G, "Watts of all VM hosts whose BMC told them"),
        ("highest_temperature_celsius", _G, "The highest temperature that a BMC told; absent if none did"),
        (
            "late_ratio",
            _G,
            "Part of their time from submission to end for which vjobs waited for nodes to come on, or were behind "
            "vjobs that did, over a week or so; absent if no nodes are switched",
        ),
        ("late_at_most_ratio", _G, "What power.late_at_most allows of it; absent if that is not set"),
        ("late_kept_nodes", _G, "Idle nodes that stay on for that, beside power.reserve"),
        ("capacity_cpus", _G, "CPUs of all VM hosts"),
        ("booked_cpus", _G, "CPUs booked for VMs"),
        ("used_cpus", _G, "CPUs that VMs were last seen to demand"),
        ("capacity_memory_bytes", _G, "Memory of all VM hosts for VMs"),
        ("booked_memory_bytes", _G, "Memory booked for VMs"),
        ("used_memory_bytes", _G, "Memory that VMs were last seen to have of their hosts"),
        ("vm_received_bytes", _C, "Bytes that VMs have received over the network, as cycles read their counters"),
        ("vm_sent_bytes", _C, "Bytes that VMs have sent, likewise"),
        ("group_nodes_up", _G, "VM hosts of a group that are up", ("group",)),
        ("group_capacity_cpus", _G, "CPUs of a group's hosts that are up", ("group",)),
        ("group_free_cpus", _G, "CPUs of them that are not booked", ("group",)),
        ("group_capacity_memory_bytes", _G, "Memory of a group's hosts that are up", ("group",)),
        ("group_free_memory_bytes", _G, "Memory of them that is not booked", ("group",)),
        ("saved_state_bytes", _G, "Saved states of vjobs, in the stores"),
        ("checkpoint_bytes", _G, "The newest checkpoint of each vjob"),
        ("stores", _G, "Stores of saved states whose room is known"),
        ("store_free_bytes", _G, "Room in these stores, as of the last look at each"),
        ("templates", _G, "Templates on VM hosts, as of the last sweep; absent before the first one of this engine"),
        ("template_bytes", _G, "Bytes of these templates"),
        ("ledger_bytes", _G, "The ledger with its log"),
        ("operations_in_progress", _G, "Operations on vjobs under way, at the end of the last cycle", ("kind",)),
        ("actions_in_progress", _G, "Actions on VMs under way that this process has begun", ("kind",)),
        ("operation_duration_seconds", _H, "Time of ended operations on vjobs", ("kind", "outcome")),
        ("action_duration_seconds", _H, "Time of ended actions on VMs", ("kind", "outcome")),
        ("moved_bytes", _C, "Bytes that ended actions have moved", ("kind",)),
        (
            "last_plan_cost_bytes",
            _G,
            "Cost of the last plan in bytes of memory to be moved; absent before the first plan",
        ),
        ("last_plan_bound_bytes", _G, "No plan for that decision costs less"),
        ("last_plan_proposing_seconds", _G, "Time that it took to decide and to find the last plan"),
        ("proposing_seconds", _C, "Time that the proposing process has taken, its solver's among it"),
        ("solver_seconds", _C, "Time that solvers have taken for proposals, of those beside each other all of it"),
        ("requests", _C, "Answered requests of the API, by route and status of the answer", ("route", "code")),
    )
)
