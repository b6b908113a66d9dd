"""Classes: what nodes take, with the times that the engine's own switches took in place of those of the settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rmsplugin.energy.measured import Measured, measured, with_measured
from rmsplugin.energy.power import PowerClass
from rmsplugin.engine.ledger.power_book import PowerBook, Took
from rmsplugin.model.node_action import NodeActionKind
from rmsplugin.settings import Settings
from rmsplugin.settings.power import PowerWatts

#: Of a node whose class was taken out of the settings while it was off.
_UNKNOWN = PowerClass(idle_w=0.0, busy_w=0.0, off_w=0.0, transition_w=0.0, off_s=120.0, on_s=300.0)
_NEVER = Measured(0, None)


class PowerClasses:
    """The class of each node. The settings of an engine never change; what it measured does."""

    def __init__(self, settings: Settings, book: PowerBook) -> None:
        self._settings = settings
        self._book = book
        self._took: Sequence[Took] = ()
        self._times: Mapping[str, Mapping[NodeActionKind, Measured]] = {}
        self._found: dict[str, tuple[str, PowerClass]] = {}

    def of(self, node: str) -> tuple[str, PowerClass]:
        """The name, and the watts and times, of a node's class."""
        self._read()
        if node not in self._found:
            self._found[node] = self._of_class(self._settings.power.watts_of(node))
        return self._found[node]

    def patient(self, node: str) -> PowerClass:
        """The class with the longer of the set and the measured times: a node that is slow once has not failed."""
        (_, power), found = self.of(node), self._settings.power.watts_of(node)
        if found is None:
            return power
        return replace(power, off_s=max(power.off_s, found.off_s), on_s=max(power.on_s, found.on_s))

    def all(self) -> list[PowerClass]:
        """Each class."""
        self._read()
        return [self._of_class(each)[1] for each in self._settings.power.classes]

    def _read(self) -> None:
        if (took := self._book.took()) is not self._took:
            self._took, self._times, self._found = took, times_of(self._settings, took), {}

    def _of_class(self, watts: PowerWatts | None) -> tuple[str, PowerClass]:
        if watts is None:
            return "", _UNKNOWN
        times = self._times.get(class_name(watts), {})
        off, on = (times.get(kind, _NEVER) for kind in (NodeActionKind.POWER_OFF, NodeActionKind.POWER_ON))
        return class_name(watts), with_measured(power_class(watts), off, on)


def class_name(watts: PowerWatts) -> str:
    """The name of a class in the ledger."""
    return watts.nodes if isinstance(watts.nodes, str) else ",".join(watts.nodes)


def power_class(watts: PowerWatts) -> PowerClass:
    """The watts and times of a class as the settings have them."""
    return PowerClass(
        idle_w=watts.idle_w,
        busy_w=watts.busy_w,
        off_w=watts.off_w,
        transition_w=watts.transition_w,
        off_s=watts.off_s,
        on_s=watts.on_s,
        least_on_s=watts.least_on_s,
        least_off_s=watts.least_off_s,
        cycles_a_day=watts.cycles_a_day,
    )


def times_of(settings: Settings, took: Iterable[Took]) -> Mapping[str, Mapping[NodeActionKind, Measured]]:
    """By class and kind of switch, how long nodes took; ``took`` is the newest first."""
    found: dict[str, dict[NodeActionKind, list[float]]] = defaultdict(lambda: defaultdict(list))
    for each in took:
        if (watts := settings.power.watts_of(each.node)) is not None:
            found[class_name(watts)][each.kind].append(each.seconds)
    return {name: {kind: measured(seconds) for kind, seconds in kinds.items()} for name, kinds in found.items()}
