"""Exposition: figures and counts in the text that Prometheus reads."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from rmsplugin import __version__
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.ledger.tally import ACTION_KINDS, BOUNDS_S, REQUEUES, Counts, Durations
from rmsplugin.engine.metrics.catalogue import METRICS, Kind, Metric
from rmsplugin.engine.metrics.figures import OTHER, Figures
from rmsplugin.errors import SettingsError
from rmsplugin.model.vjob import VJobState

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

#: By name of a metric, its values by the values of its labels.
Values = dict[str, Mapping[tuple[str, ...], float]]
#: By name of a histogram, its durations by the values of its labels.
Histograms = dict[str, Mapping[tuple[str, ...], Durations]]
_OUTCOMES = {False: "done", True: "failed"}
_NONE: tuple[str, ...] = ()


def content_type_and_writer() -> tuple[str, Callable[[Iterable[Family]], bytes]]:
    """The content type of the text, and what writes it.

    Raises:
        SettingsError: prometheus_client is not installed.
    """
    try:
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
    except ImportError:
        raise SettingsError(
            "metrics.listen is set, but the Python package prometheus_client is not installed: "
            'pip install "rmsplugin[metrics]"'
        ) from None

    def write(families: Iterable[Family]) -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        once: Any = _Once(families)
        registry.register(once)
        text: bytes = generate_latest(registry)
        return text

    content_type: str = CONTENT_TYPE_LATEST
    return content_type, write


class _Once:
    """Families of metrics that are made once and given out as often as the library asks."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> list[Family]:
        return self._families


def families(figures: Figures, counts: Counts, now: float, since: float, group: str) -> Iterator[Family]:
    """All metrics.

    Args:
        figures: of the last cycle.
        counts: of this process.
        now: seconds since the epoch, by the engine's clock.
        since: when this engine began, likewise.
        group: whose engine it is; empty: of all groups.
    """
    values = {
        **_of_engine(figures, now, since, group),
        **_of_vjobs(figures, counts, now),
        **_of_nodes(figures),
        **_of_actions(figures, counts),
    }
    histograms: Histograms = {
        "operation_duration_seconds": _by_outcome(counts.operations),
        "action_duration_seconds": _by_outcome(counts.actions),
    }
    for metric in METRICS:
        yield _family(metric, values, histograms)


def _family(metric: Metric, values: Values, histograms: Histograms) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    name, labels = f"rmsplugin_{metric.name}", metric.labels
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(name, metric.help, labels=labels)
        for key, durations in histograms[metric.name].items():
            bounds = [*(str(each) for each in BOUNDS_S), "+Inf"]
            sums = accumulate(durations.counts)
            histogram.add_metric(list(key), list(zip(bounds, sums, strict=True)), durations.total_s)
        return histogram
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(name, metric.help, labels=labels)
    for key, value in values[metric.name].items():
        family.add_metric(list(key), value)
    return family


def _of_engine(figures: Figures, now: float, since: float, group: str) -> Values:
    plan = figures.plan
    return {
        "build_info": {(__version__, platform.python_version(), group): 1},
        "start_time_seconds": {_NONE: since},
        "cycle_age_seconds": {_NONE: max(0.0, now - (figures.cycle_ended or since))},
        "cycle_duration_seconds": {_NONE: figures.cycle_s},
        "cycle_phase_duration_seconds": _single(figures.phases),
        "cycle_phase_seconds": _single(figures.phases_total),
        "cycles": {(outcome,): figures.cycles.get(failed, 0) for failed, outcome in _OUTCOMES.items()},
        "cycle_problems": {_NONE: figures.problems},
        "paused": {_NONE: figures.paused},
        "ledger_bytes": {_NONE: figures.ledger_bytes},
        "last_plan_cost_bytes": {_NONE: plan[0]} if plan else {},
        "last_plan_bound_bytes": {_NONE: plan[1]} if plan else {},
        "last_plan_proposing_seconds": {_NONE: plan[2]} if plan else {},
        "proposing_seconds": {_NONE: figures.proposed_total_s},
        "solver_seconds": {_NONE: figures.solver_total_s},
    }


def _of_vjobs(figures: Figures, counts: Counts, now: float) -> Values:
    known = figures.partitions
    entered = {
        state: _folded({partition: n for (partition, into), n in counts.entered.items() if into is state}, known)
        for state in (VJobState.SLEEPING, VJobState.PAUSED)
    }
    states = [state for state in VJobState if state is not VJobState.TERMINATED]
    others = sorted({partition for partition, _ in figures.vjobs} - set(known))
    return {
        "vjobs": {(name, str(s)): figures.vjobs.get((name, s), 0) for name in (*known, *others) for s in states},
        "waits": _single(figures.waits),
        "oldest_waiting_seconds": _ages(figures.oldest_waiting, known, now),
        "oldest_sleeping_seconds": _ages(figures.oldest_sleeping, known, now),
        "vjob_sleeps": entered[VJobState.SLEEPING],
        "vjob_pauses": entered[VJobState.PAUSED],
        "vjob_losses": _folded(counts.lost, known),
        "requeues": {(cause,): counts.requeues[cause] for cause in REQUEUES.values()},
        "saved_state_bytes": {_NONE: figures.saved_bytes},
        "checkpoint_bytes": {_NONE: figures.checkpoint_bytes},
    }


def _of_nodes(figures: Figures) -> Values:
    sums = {"capacity": figures.capacity, "booked": figures.booked, "used": figures.used}
    groups, sensors, on_nodes = figures.groups.items(), figures.sensors, figures.on_nodes
    return {
        "nodes": _single(figures.nodes),
        "agents": _single(on_nodes.agents),
        "stores": {_NONE: on_nodes.stores},
        "store_free_bytes": {_NONE: on_nodes.free_bytes},
        "templates": {_NONE: on_nodes.templates[0]} if on_nodes.templates else {},
        "template_bytes": {_NONE: on_nodes.templates[1]} if on_nodes.templates else {},
        "vm_received_bytes": {_NONE: figures.traffic.received},
        "vm_sent_bytes": {_NONE: figures.traffic.sent},
        "hot_nodes": {_NONE: sensors.hot},
        "sensed_nodes": {_NONE: sensors.told},
        "sensed_watts": {_NONE: sensors.watts},
        "highest_temperature_celsius": {} if sensors.celsius is None else {_NONE: sensors.celsius},
        "late_ratio": {} if figures.late is None else {_NONE: figures.late},
        "late_at_most_ratio": {} if figures.late_at_most is None else {_NONE: figures.late_at_most},
        "late_kept_nodes": {_NONE: figures.late_kept},
        **{f"{what}_cpus": {_NONE: each.cpus} for what, each in sums.items()},
        **{f"{what}_memory_bytes": {_NONE: each.memory_bytes} for what, each in sums.items()},
        "group_nodes_up": {(name,): each.nodes_up for name, each in groups},
        "group_capacity_cpus": {(name,): each.size.cpus for name, each in groups},
        "group_free_cpus": {(name,): each.free.cpus for name, each in groups},
        "group_capacity_memory_bytes": {(name,): each.size.memory_bytes for name, each in groups},
        "group_free_memory_bytes": {(name,): each.free.memory_bytes for name, each in groups},
    }


def _of_actions(figures: Figures, counts: Counts) -> Values:
    under_way = list(counts.under_way.values())
    return {
        "operations_in_progress": {(str(kind),): figures.operations.get(kind, 0) for kind in OperationKind},
        "actions_in_progress": {(kind,): under_way.count(kind) for kind in ACTION_KINDS},
        "moved_bytes": {(kind,): counts.moved_bytes[kind] for kind in ACTION_KINDS},
        "requests": {(route, str(code)): count for (route, code), count in counts.answers.items()},
    }


def _single(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(name,): value for name, value in values.items()}


def _folded(values: Mapping[str, int], known: tuple[str, ...]) -> dict[tuple[str, ...], float]:
    """By partition; those that the settings do not have are told as one."""
    found: dict[tuple[str, ...], float] = {(name,): 0 for name in known}
    for name, value in values.items():
        key = (name if name in known else OTHER,)
        found[key] = found.get(key, 0) + value
    return found


def _ages(since: Mapping[str, float], known: tuple[str, ...], now: float) -> dict[tuple[str, ...], float]:
    zeros = dict.fromkeys(known, now)
    return {(name,): max(0.0, now - began) for name, began in (zeros | dict(since)).items()}


def _by_outcome(durations: Mapping[tuple[str, bool], Durations]) -> dict[tuple[str, ...], Durations]:
    return {(kind, _OUTCOMES[failed]): each for (kind, failed), each in durations.items()}
