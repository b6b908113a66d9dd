"""What the metrics of an engine on a simulated cluster say, as Prometheus' own parser reads it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from scenarios.world import World

from rmsplugin.engine.metrics.metrics import Metrics

Values = dict[tuple[str, frozenset[str]], float]


def values(text: bytes) -> Values:
    """By name and values of labels, what the parser of prometheus_client reads."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found[sample.name.removeprefix("rmsplugin_"), frozenset(sample.labels.values())] = sample.value
    return found


def value(text: bytes, name: str, *labels: str) -> float:
    return values(text)[name, frozenset(labels)]


def metrics_of(world: World) -> Metrics:
    return Metrics(world.capacities(), world.cycle, world.context.agents_told)


def tick(world: World, metrics: Metrics) -> bytes:
    """A cycle, and what is told then."""
    world.tick()
    metrics.cycle_ended()
    return metrics.text()
