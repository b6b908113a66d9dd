"""Powering: nodes of the simulated cluster that are switched off and on; a step that needs one that is off waits."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field

from rmsplugin.energy.account import OffTime
from rmsplugin.energy.daily import DAY_S
from rmsplugin.energy.emptying import idle_after_s
from rmsplugin.energy.lateness import Lateness, Sight, kept_from_s
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.energy.power import PowerClass
from rmsplugin.energy.prediction import Average, Need
from rmsplugin.energy.switching import Choice, IdleNode, OffNode, choose
from rmsplugin.simulation.events import Events
from rmsplugin.simulation.outcome import Powered


class _Is(enum.Enum):
    ON = enum.auto()
    OFF = enum.auto()  # or going off: since ``since_s``
    COMING = enum.auto()  # on from ``since_s``


@dataclass(slots=True)
class _Node:
    name: str
    power: PowerClass
    state: _Is = _Is.ON
    since_s: float = -math.inf
    idle_since_s: float | None = None  # None: it has something, or something is to come
    switched_off_s: list[float] = field(default_factory=list)


class Powering:
    """All nodes of the replay, by name."""

    def __init__(self, names: Iterable[str], parameters: EnergyParameters, events: Events) -> None:
        """Begin with all nodes on and idle; ``events``: of the replay, so that it goes on when a node is on."""
        self._nodes = {name: _Node(name, parameters.classes[name]) for name in names}
        self._reserve = parameters.reserve
        self._lateness = Lateness(parameters.late_at_most)
        self._vjobs = (0, 0)  # how many there are, and how many wait because of nodes
        self._averages = {node.power: Average(parameters.predict) for node in self._nodes.values()}
        self._events = events
        self._used: set[str] = set()
        self._waiting_s: dict[str, float] = {}  # by vjob, since when a step of it waits
        self._looks_s = math.inf  # when nodes are looked at again
        self._begun = False
        self._queue = (0, 0)
        self._off_times: list[OffTime] = []
        self._delays_s: list[float] = []

    def are_on(self, vjob: str, nodes: Collection[str], now: float) -> bool:
        """Whether a step of a vjob may begin on nodes; those that are off come on."""
        ready = True
        for name in dict.fromkeys(nodes):
            node = self._nodes[name]
            if node.state is _Is.OFF:
                self._switch_on(node, now)
            ready &= self._is_on(node, now)
        if not ready:
            self._waiting_s.setdefault(vjob, now)
        elif vjob in self._waiting_s:
            self._delays_s.append(now - self._waiting_s.pop(vjob))
        return ready

    def instead(self, nodes: Iterable[str], taken: Callable[[], Collection[str]], now: float) -> dict[str, str]:
        """Nodes that are on and have nothing, each in place of one that is off: nodes that have nothing are alike.

        Args:
            nodes: to which VMs of a vjob come.
            taken: tells to which others VMs come.
            now: the time.

        Returns:
            By name of a node that is off, the other one, as far as there are any.
        """
        off = [name for name in dict.fromkeys(nodes) if not self._is_on(self._nodes[name], now)]
        spare = [node.name for node in self._idle() if self._is_on(node, now)] if off else []
        if not spare:
            return {}
        others = taken()
        return dict(zip(off, (name for name in spare if name not in others), strict=False))

    def feel(self, vjobs: int, behind: Callable[[Container[str]], int], now: float) -> None:
        """Note how late vjobs are because nodes were off.

        Args:
            vjobs: how many have not ended.
            behind: tells how many wait, from the first one of these names on.
            now: the time.
        """
        if self._lateness.at_most is not None:
            self._vjobs = (vjobs, behind(self._waiting_s) if self._waiting_s else 0)
            self._note_lateness(now)

    def _note_lateness(self, now: float) -> None:
        vjobs, behind = self._vjobs
        kept = [kept_from_s(self._as_idle(node)) for node in self._idle()]
        self._lateness.see(Sight(vjobs, behind, len(self._off()), kept), now)

    def switch_idle(
        self, used: set[str], queue: tuple[int, int], needs: Callable[[], Sequence[Need]], now: float
    ) -> None:
        """Note which nodes have something, or will have, and switch others.

        A node that has nothing any more is first offered to a vjob that waits for another one to come on.

        Args:
            used: their names.
            queue: how many vjobs were submitted, and have not ended; needs change only with these or ``used``.
            needs: tells the known needs of nodes; it is called only if nodes may be switched.
            now: the time.
        """
        if used == self._used and queue == self._queue and now < self._looks_s:
            return
        self._queue = queue
        if self._note(used, now) and self._waiting_s:
            self._looks_s = now
            self._events.at(now, wake)
            return
        self._looks_s = math.inf
        while self._idle() or self._off():
            choice = self._choose(needs(), now)
            for name in choice.off:
                self._switch_off(self._nodes[name], now)
            for name in choice.on:
                self._switch_on(self._nodes[name], now)
            if not choice.off and not choice.on:
                self._looks_s = choice.again_s
                break
            if self._lateness.at_most is not None:
                self._note_lateness(now)
        if math.isfinite(self._looks_s):
            self._events.at(self._looks_s, wake)

    def _choose(self, needs: Sequence[Need], now: float) -> Choice:
        idle = [self._as_idle(node) for node in self._idle()]
        off = [OffNode(node.name, node.power, node.since_s) for node in self._off()]
        reserve = self._reserve + self._lateness.reserve
        return choose(idle, off, needs, self._averages, reserve, now, self._lateness.held(needs))

    def idle_after_s(self, name: str, rests_s: Iterable[float], now: float) -> float:
        """How much longer a node has nothing, if it is emptied now; ``rests_s``: of the vjobs that have VMs there."""
        power = self._nodes[name].power
        alike = (node.idle_since_s for node in self._nodes.values() if node.power is power)
        longest_s = max((now - since_s for since_s in alike if since_s is not None), default=0.0)
        return idle_after_s(rests_s, self._averages[power].expected_s, longest_s)

    def told(self, emptied: int) -> Powered:
        """What became of the nodes, at the end of the replay: those that are off stay so; ``emptied``: how many."""
        stay = [OffTime(node.name, node.since_s, None) for node in self._off()]
        return Powered((*self._off_times, *stay), tuple(self._delays_s), emptied)

    def _is_on(self, node: _Node, now: float) -> bool:
        if node.state is _Is.COMING and node.since_s <= now:
            node.state = _Is.ON
        return node.state is _Is.ON

    def _note(self, used: set[str], now: float) -> bool:
        """Begin and end idle periods; these are learnt from. Returns whether a node that is on has nothing any more."""
        changed = used ^ self._used if self._begun else self._nodes.keys()
        for name in sorted(changed):
            node = self._nodes[name]
            if name not in used:
                node.idle_since_s = now
            elif node.idle_since_s is not None:
                self._averages[node.power].see(now - node.idle_since_s)
                node.idle_since_s = None
        self._used, self._begun = used, True
        return any(self._is_on(self._nodes[name], now) for name in changed - used)

    def _idle(self) -> list[_Node]:
        """The nodes that have nothing and are on, or coming on."""
        return [n for n in self._nodes.values() if n.idle_since_s is not None and n.state is not _Is.OFF]

    def _off(self) -> list[_Node]:
        return [node for node in self._nodes.values() if node.state is _Is.OFF]

    def _as_idle(self, node: _Node) -> IdleNode:
        assert node.idle_since_s is not None
        return IdleNode(node.name, node.power, node.idle_since_s, node.since_s, node.switched_off_s)

    def _switch_off(self, node: _Node, now: float) -> None:
        node.state, node.since_s = _Is.OFF, now
        node.switched_off_s = [at for at in node.switched_off_s if at > now - DAY_S] + [now]

    def _switch_on(self, node: _Node, now: float) -> None:
        begin_s = max(now, node.since_s + node.power.off_s)
        self._off_times.append(OffTime(node.name, node.since_s, begin_s))
        node.state, node.since_s = _Is.COMING, begin_s + node.power.on_s
        self._events.at(node.since_s, wake)


def wake(now: float) -> None:
    """Nothing: the replay goes on at that time, and looks."""
