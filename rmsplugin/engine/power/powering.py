"""Powering: in each cycle, goes on with the nodes that are being switched, and decides which are switched now.

Off: the intent; the BMC answers; Slurm is told while the engine has its room there; once nothing has the node any more,
its BMC gets the order; the BMC says that it is off. On: the intent; Slurm is told, since it counts a node as back only
if it booted after that; the BMC gets the order; Slurm has the node with a newer boot time, and the node answers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from rmsplugin.adapters.power.base import PowerDriver
from rmsplugin.adapters.rms.base import NodePower, Rms, RmsNode
from rmsplugin.energy.power import PowerClass
from rmsplugin.energy.prediction import Average
from rmsplugin.energy.switching import Choice, IdleNode, OffNode, choose, too_soon_s
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.cycle_report import CycleReport
from rmsplugin.engine.decide.planned_power import PlannedPower
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.power_book import NodeSwitch, SwitchState
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import RoomState, is_busy, next_reservation
from rmsplugin.engine.observe.switched import has_booted
from rmsplugin.engine.power.bmc_orders import BmcOrders, back_off_s, patience_on_s
from rmsplugin.engine.power.classes import PowerClasses
from rmsplugin.engine.power.demand import NEEDED, PowerDemand
from rmsplugin.engine.power.felt import FeltLateness
from rmsplugin.engine.power.idle import is_used, stays_on, switchable, used_first, with_something
from rmsplugin.model.node_action import NodeActionKind
from rmsplugin.settings import Settings

_OFF, _ON = NodeActionKind.POWER_OFF, NodeActionKind.POWER_ON
_S = SwitchState
_DAY_S = 86400.0
_SOON = "it will be needed soon"
#: What Slurm is told; it shows that beside the node.
_REASON = "rmsplugin: nobody uses it"
_SLURMS = "Slurm needs it for a job"
_ALREADY = "Slurm has it on already, for a job or because somebody switched it on"
#: A node that did not come on so often in a row is tried again only if a vjob would start there.
_TRIES = 6
#: A node that is off is asked for its power once in so many seconds: somebody may have switched it on.
_WATCH_S = 60.0
#: For so many seconds a node that is to go off waits for the engine's room there; then it stays on.
_ROOM_S = 600.0


class Powering:
    """Switches nodes, once a cycle."""

    def __init__(
        self, settings: Settings, ledger: Ledger, clock: Clock, rms: Rms, driver: PowerDriver, placing: Placing
    ) -> None:
        """Act by these; ``placing`` closes a node to VMs."""
        self._settings = settings
        self._ledger = ledger
        self._book = ledger.power
        self._clock = clock
        self._rms = rms
        self._driver = driver
        self._placing = placing
        self._said: list[str] = []
        self.classes = PowerClasses(settings, ledger.power)
        self.orders = BmcOrders(ledger, clock, driver)
        self.felt = FeltLateness(settings, ledger)
        self._asked: dict[str, float] = {}  # when nodes were asked of which the ledger does not know that they are off

    def switch_nodes(self, seen: Observation, demand: PowerDemand, report: CycleReport) -> frozenset[str]:
        """Go on with what is under way, and begin what is due; ``report`` receives what was begun, and what fails.

        Returns:
            The nodes on which the engine needs its room, so that they can go off.
        """
        self._said = report.begun
        switches = self._book.switches()
        if not self._settings.power.switch and not switches:
            return frozenset()
        self._take_in(seen, switches)
        something = with_something(self._ledger, seen)
        for switch in switches.values():
            if switch.node in seen.rms.nodes and switch.node not in self.orders.under_way:
                with report.alone(f"the power of {switch.node}"):
                    self._go_on(seen, switch, demand, something)
        self._decide(seen, demand, something, switches.keys() | demand.kept)
        left = [each for each in self._book.switches().values() if each.node in seen.rms.nodes]
        report.problems += [f"{each.node}: {each.sentence}" for each in left if each.error]
        return frozenset(each.node for each in left if each.state is _S.GOING_OFF and not each.told)

    def planned(self, seen: Observation, demand: PowerDemand) -> tuple[PlannedPower, ...]:
        """The switches that are under way, and those that a cycle would begin now. Changes nothing.

        Args:
            seen: one look at the cluster.
            demand: of vjobs that its decision leaves waiting.
        """
        switches = self._book.switches()
        known = [each for each in switches.values() if each.node in seen.rms.nodes]
        comes = {each.node: self._needed(seen, each, demand) for each in known if not each.action}
        comes = {node: why for node, why in comes.items() if why}
        goes: dict[str, str] = {}
        if self._settings.power.switch:
            left = {node: each for node, each in switches.items() if node not in comes}
            free = _without(self._idle_now(seen), switches.keys() | demand.kept)
            goes, soon = self._due(seen, demand, free, self._idle_nodes(seen, free, demand), left)
            comes |= dict.fromkeys(soon, _SOON)
        found = [self._under_way(seen, each) for each in known if each.action]
        found += [PlannedPower(_OFF, node, why, self.classes.of(node)[1].off_s) for node, why in goes.items()]
        found += [PlannedPower(_ON, node, why, self.classes.of(node)[1].on_s) for node, why in comes.items()]
        return tuple(_with_vjobs(each, demand) for each in found)

    def _under_way(self, seen: Observation, switch: NodeSwitch) -> PlannedPower:
        power, goes = self._power(switch), switch.state is _S.GOING_OFF
        takes_s = max(0.0, switch.since + (power.off_s if goes else power.on_s) - seen.taken)
        return PlannedPower(_OFF if goes else _ON, switch.node, switch.why, takes_s, under_way=True)

    def _idle_now(self, seen: Observation) -> Mapping[str, float]:
        """Since when nodes have nothing; nothing is kept of it."""
        known, something = self._book.idle_since(), with_something(self._ledger, seen)
        begun, ended, _ = self._idle_changes(seen, switchable(self._settings, self._driver, seen), known, something)
        return _since(known, begun, ended)

    def _take_in(self, seen: Observation, known: Collection[str]) -> None:
        """Find out about nodes that Slurm has off and the ledger has not: of another group before, or it was lost."""
        if not self._settings.power.switch:
            return
        for node in switchable(self._settings, self._driver, seen):
            found = seen.rms.nodes[node]
            due = seen.taken - self._asked.get(node, -math.inf) > _WATCH_S
            if found.power is NodePower.OFF and node not in known and due:
                self._asked[node] = seen.taken
                self.orders.take_in(node, found.boot_time, is_ours=found.reason.startswith(_REASON))

    # -- what is under way ---------------------------------------------------------------------------------------

    def _go_on(self, seen: Observation, switch: NodeSwitch, demand: PowerDemand, something: frozenset[str]) -> None:
        if switch.state is _S.COMING_ON:
            self._come_on(seen, switch)
        elif switch.state is _S.GOING_OFF and not switch.told:
            self._prepare_off(seen, switch, demand, something)
        elif switch.state is _S.GOING_OFF:
            self._go_off(seen, switch)
        elif switch.state is _S.OFF and has_booted(seen.rms.nodes[switch.node], switch):
            self._was_on(seen, switch)
        elif why := self._needed(seen, switch, demand):
            self._switch_on(seen, switch, why)
        elif switch.state is _S.OFF and seen.taken - switch.checked > _WATCH_S:
            self.orders.watch(switch)
        elif switch.state is _S.FAILED and _is_back(seen, switch):
            self._book.note_idle({}, [switch.node], {})
            self._is_on(switch, "somebody else had it boot, and Slurm has it")

    def _prepare_off(
        self, seen: Observation, switch: NodeSwitch, demand: PowerDemand, something: frozenset[str]
    ) -> None:
        """Tell Slurm, in the room; until then the node may stay on."""
        node, room = switch.node, seen.rooms.by_node.get(switch.node)
        if seen.rms.nodes[node].power is not NodePower.ON:
            self._book.change(node, told=self._clock.now())
        elif why := self._stays_after_all(seen, switch, demand, something):
            self._book.forget(switch, why)
            self._said.append(f"keep {node} on: {why}")
        elif not switch.checked:
            self.orders.check(switch)
        elif room is not None and room.state is RoomState.HELD:
            self._rms.power_down(node, _REASON)
            self._book.change(node, told=self._clock.now())

    def _stays_after_all(
        self, seen: Observation, switch: NodeSwitch, demand: PowerDemand, something: frozenset[str]
    ) -> str:
        if not self._settings.power.switch:
            return "power.switch is not set"
        if switch.node in demand.wanted:
            return NEEDED
        if demand.begins.get(switch.node, math.inf) - seen.taken <= too_soon_s(self._power(switch)):
            return "a vjob begins there soon"
        if is_used(seen, switch.node, something):
            return "it is used"
        late = seen.taken - switch.since > _ROOM_S
        return "Slurm gives the engine no room there" if late else ""

    def _go_off(self, seen: Observation, switch: NodeSwitch) -> None:
        """Order it off once nothing has it: Slurm starts nothing there since it was told."""
        node = seen.rms.nodes[switch.node]
        if node.power in (NodePower.ON, NodePower.COMING_ON):  # it may be off or not: no order may hit what comes
            self._switch_on(seen, switch, _SLURMS)
            return
        has_job = is_busy(node) or "COMPLETING" in node.state or switch.node in seen.rooms.by_node
        if not has_job and seen.taken > switch.told:
            self._when_due(seen, switch, lambda: self.orders.switch_off(switch, self._patient(switch)))

    def _come_on(self, seen: Observation, switch: NodeSwitch) -> None:
        node = seen.rms.nodes[switch.node]
        if _is_back(seen, switch):
            self._is_on(switch)
        elif not switch.told and self._may_hang(switch, node):
            self._when_due(seen, switch, lambda: self.orders.make_sure_it_is_off(switch, self._patient(switch)))
        elif not switch.told:
            self._tell_on(switch, node)
        elif switch.told < seen.taken and self._is_late(seen, switch, node):
            self._did_not_come(switch, node)
        elif (
            switch.told < seen.taken and "POWER_UP" not in node.flags
        ):  # a boot before Slurm heard of it is not counted
            self._when_due(seen, switch, lambda: self.orders.switch_on(switch))

    def _may_hang(self, switch: NodeSwitch, node: RmsNode) -> bool:
        """Whether it may be on since long ago. One that Slurm waits for may just boot; one that it has is used."""
        known_off = switch.checked or (switch.proved and not switch.failures)
        return not known_off and node.power is NodePower.OFF

    def _tell_on(self, switch: NodeSwitch, node: RmsNode) -> None:
        """Tell Slurm; a node that it still powers down is told later."""
        if node.power is NodePower.GOING_OFF:
            return
        if "DOWN" in node.flags:
            self._rms.repair_node(node.name)
        self._rms.power_up(node.name)
        self._book.change(node.name, told=self._clock.now())

    def _is_late(self, seen: Observation, switch: NodeSwitch, node: RmsNode) -> bool:
        since = max(switch.told, switch.ordered)
        return "DOWN" in node.flags or seen.taken - since > patience_on_s(self._patient(switch))

    def _did_not_come(self, switch: NodeSwitch, node: RmsNode) -> None:
        """Leave it alone for a while; another one is chosen meanwhile."""
        failures = switch.failures + 1
        boots = node.boot_time <= switch.boot_before and node.power is NodePower.ON
        error = "Slurm has it with the boot time from before" if boots else f"Slurm says that it is {node.state}"
        until = self._clock.now() + back_off_s(failures)
        with self._ledger.transaction():
            self._book.enter(switch, _S.FAILED, failures=failures, error=error, not_before=until, ordered=0.0, told=0.0)
            self._ledger.event("power-failed", f"{node.name} did not come on: {error}", node=node.name)

    def _is_on(self, switch: NodeSwitch, why: str = "") -> None:
        # Slurm began sooner if it needs the node itself; and a node that might hang went off first.
        own = switch.told and not switch.checked and switch.why != _SLURMS
        took_s = self._clock.now() - switch.told if own else 0.0
        with self._ledger.transaction():
            self._book.forget(switch, took_s=took_s)
            self._ledger.event("power-on", f"{switch.node} is on: {why or switch.why}", node=switch.node)

    def _when_due(self, seen: Observation, switch: NodeSwitch, act: object) -> None:
        if switch.not_before <= seen.taken and callable(act):
            act()

    def _power(self, switch: NodeSwitch) -> PowerClass:
        return self.classes.of(switch.node)[1]

    def _patient(self, switch: NodeSwitch) -> PowerClass:
        return self.classes.patient(switch.node)

    # -- needs of nodes that are off -----------------------------------------------------------------------------

    def _needed(self, seen: Observation, switch: NodeSwitch, demand: PowerDemand) -> str:
        """Why a node that is off has to come on, in a sentence; empty: it need not."""
        node = seen.rms.nodes[switch.node]
        if node.power is NodePower.ON:
            return ""  # it has jobs, or may have some any time: nothing is to be done for it
        if node.power is NodePower.COMING_ON:
            return _SLURMS
        if switch.node in demand.wanted:
            return NEEDED
        if switch.state is _S.FAILED:
            again = 0 < switch.failures < _TRIES and switch.not_before <= seen.taken
            return "it is tried again" if again else ""
        if not self._settings.power.switch:
            return "power.switch is not set"
        begins_s = next_reservation(self._settings, seen.rms, switch.node, seen.taken) - seen.taken
        return "a reservation needs it" if begins_s <= 2 * self._power(switch).on_s else ""

    def _was_on(self, seen: Observation, switch: NodeSwitch) -> None:
        """Slurm has had it on while the engine did not look, or somebody switched it on: its idle time begins anew."""
        self._book.note_idle({}, [switch.node], {})
        self._switch_on(seen, switch, _ALREADY)

    def _switch_on(self, seen: Observation, switch: NodeSwitch, why: str) -> None:
        boot = switch.boot_before
        with self._ledger.transaction():
            self._book.begin(switch.node, _ON, why, boot_before=boot, failures=switch.failures, proved=switch.proved)
            self._ledger.event("power-intended", f"{switch.node} comes on: {why}", node=switch.node)
        self._said.append(f"power-on {switch.node}: {why}")
        self._come_on(seen, self._book.switches()[switch.node])

    # -- the decision --------------------------------------------------------------------------------------------

    def _decide(self, seen: Observation, demand: PowerDemand, something: frozenset[str], stay: Collection[str]) -> None:
        """Switch nodes; those that ``stay`` as they are, or were just now switched, are left alone."""
        if not self._settings.power.switch or self._ledger.plans.pause is not None:
            return
        switches = self._book.switches()
        nodes = switchable(self._settings, self._driver, seen)
        since = self._note_idle(seen, nodes, something)
        free = _without(since, stay)
        idle = self._idle_nodes(seen, free, demand)
        back = [node for node in stay if node in since and node not in switches]
        goes, comes = self._due(seen, demand, free, idle, switches, back)
        for node, why in goes.items():
            self._switch_off(seen, node, why)
        for node in comes:
            self._switch_on(seen, switches[node], _SOON)
        self.felt.note(demand, self._book.switches(), (each for each in idle if each.name not in goes), seen.taken)

    def _due(
        self,
        seen: Observation,
        demand: PowerDemand,
        free: Mapping[str, float],
        idle: list[IdleNode],
        switches: Mapping[str, NodeSwitch],
        back: Collection[str] = (),
    ) -> tuple[dict[str, str], list[str]]:
        """The nodes to switch off now, with why, and those to switch on.

        Args:
            seen: one look at the cluster.
            demand: of vjobs left waiting.
            free: since when nodes that may be switched have nothing; without those that stay as they are.
            idle: those of them that may go off.
            switches: the nodes that are not simply on.
            back: nodes that have just now come on, and have nothing.
        """
        off = [each for each in switches.values() if each.state is _S.OFF and not each.action]
        off = [each for each in off if seen.may_take_vms(each.node)]
        coming = self._nobodys(seen, demand, [*back, *_booting(switches.values())])
        choice = self._choose(idle, off, demand, coming, seen.taken)
        going = sum(bool(each.action) for each in switches.values())
        goes = {node: f"nobody has used it for {seen.taken - free[node]:.0f} s" for node in choice.off}
        goes |= self._hot(seen, free)
        most = max(0, self._settings.power.at_once - going)
        comes = [node for node in choice.on if node in switches and switches[node].not_before <= seen.taken]
        return dict([*goes.items()][:most]), comes

    def _nobodys(self, seen: Observation, demand: PowerDemand, nodes: Collection[str]) -> int:
        """How many of these nodes are there for any vjob that arrives: no other one, and no job, will have them."""
        something = with_something(self._ledger, seen) if nodes else frozenset()
        free = (node for node in nodes if node not in seen.hot and not demand.has(node))
        return sum(not is_used(seen, node, something) and not self._is_reserved(seen, node) for node in free)

    def _is_reserved(self, seen: Observation, node: str) -> bool:
        begins_s = next_reservation(self._settings, seen.rms, node, seen.taken)
        return begins_s - seen.taken <= _kept_s(self.classes.of(node)[1])

    def _hot(self, seen: Observation, idle: Collection[str]) -> dict[str, str]:
        """The hot nodes among those that have nothing, with why they go off: however long they will have nothing."""
        found = [node for node in idle if node in seen.hot] if self._settings.power.hot_off else []
        return {node: seen.hot[node] for node in found if not stays_on(self._settings, self._ledger, seen, node, 0.0)}

    def _choose(
        self, idle: list[IdleNode], off: list[NodeSwitch], demand: PowerDemand, coming: int, now: float
    ) -> Choice:
        known = self._book.averages()
        averages: dict[PowerClass, Average] = {}
        for node in (*(each.name for each in idle), *(each.node for each in off)):
            name, power = self.classes.of(node)
            averages[power] = Average(self._settings.power.predict, known.get(name))
        asleep = [OffNode(each.node, self._power(each), each.since, self._has_to_be_on_s(each, demand)) for each in off]
        self.felt.recall(now)
        lateness = self.felt.lateness
        reserve = self._settings.power.reserve + lateness.reserve
        return choose(idle, asleep, demand.needs, averages, reserve, now, lateness.held(demand.needs), coming)

    def _has_to_be_on_s(self, switch: NodeSwitch, demand: PowerDemand) -> float:
        """When it has to be on for a vjob with a begin time: a cycle before, for it is looked at once a cycle."""
        return demand.begins.get(switch.node, math.inf) - self._settings.engine.cycle_s

    def _idle_nodes(self, seen: Observation, since: Mapping[str, float], demand: PowerDemand) -> list[IdleNode]:
        """Those that may go off, in the order in which they would be used; ``since``: when they have nothing."""
        came_on = self._book.came_on()
        today, given_up = self._offs(seen.taken)
        found = []
        for node in used_first(seen, dict.fromkeys(since)):
            power = self.classes.of(node)[1]
            acts = given_up.get(node, [])
            rests = acts and seen.taken < acts[-1] + back_off_s(len(acts))
            if not rests and not stays_on(self._settings, self._ledger, seen, node, _kept_s(power)):
                on_s = came_on.get(node, 0.0)
                begins_s = demand.begins.get(node, math.inf)
                offs, takes_vms = tuple(today.get(node, ())), node not in seen.hot
                found.append(IdleNode(node, power, since[node], on_s, offs, begins_s, takes_vms))
        return found

    def _offs(self, now: float) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """By node, when within a day it was switched off, and when that was given up."""
        done: dict[str, list[float]] = {}
        given_up: dict[str, list[float]] = {}
        for act in self._book.acts(now - _DAY_S):
            if act.kind is _OFF:
                (given_up if act.error else done).setdefault(act.node, []).append(act.ended if act.error else act.began)
        return done, given_up

    def _note_idle(self, seen: Observation, nodes: list[str], something: frozenset[str]) -> Mapping[str, float]:
        """Keep since when nodes have nothing, and what periods were; returns the former."""
        known = self._book.idle_since()
        begun, ended, used = self._idle_changes(seen, nodes, known, something)
        averages: dict[str, float] = {}
        before = self._book.averages() if ended else {}
        for node in (each for each in ended if each in used):
            name, _ = self.classes.of(node)
            average = Average(self._settings.power.predict, averages.get(name, before.get(name)))
            average.see(seen.taken - known[node])
            averages[name] = average.expected_s or 0.0
        if ended or begun:
            self._book.note_idle(begun, ended, averages)
        return _since(known, begun, ended)

    def _idle_changes(
        self, seen: Observation, nodes: list[str], known: Mapping[str, float], something: frozenset[str]
    ) -> tuple[dict[str, float], list[str], set[str]]:
        """The idle periods that have begun, and those that have ended; and the nodes that are used."""
        used = {node for node in nodes if is_used(seen, node, something)}
        ended = [node for node in known if node in used or node not in nodes]
        return {node: seen.taken for node in nodes if node not in used and node not in known}, ended, used

    def _switch_off(self, seen: Observation, node: str, why: str) -> None:
        def occupied() -> bool:
            return is_used(seen, node, with_something(self._ledger, seen))

        if not self._placing.close(node, occupied):
            return
        with self._ledger.transaction():
            self._book.begin(node, _OFF, why, boot_before=seen.rms.nodes[node].boot_time)
            self._ledger.event("power-intended", f"{node} goes off: {why}", node=node)
        self._said.append(f"power-off {node}: {why}")
        self.orders.check(self._book.switches()[node])


def _since(known: Mapping[str, float], begun: Mapping[str, float], ended: Collection[str]) -> dict[str, float]:
    """Since when nodes have nothing, after changes."""
    return {**{node: at for node, at in known.items() if node not in ended}, **begun}


def _kept_s(power: PowerClass) -> float:
    """An idle node on which a reservation of others begins within so many seconds stays on."""
    return power.threshold_s + power.on_s


def _booting(switches: Iterable[NodeSwitch]) -> list[str]:
    """The nodes that come on, but for no vjob that would start there at once."""
    return [each.node for each in switches if each.state is _S.COMING_ON and each.why != NEEDED]


def _without(since: Mapping[str, float], stay: Collection[str]) -> dict[str, float]:
    return {node: at for node, at in since.items() if node not in stay}


def _with_vjobs(planned: PlannedPower, demand: PowerDemand) -> PlannedPower:
    """With the vjobs that start there once it is on."""
    if planned.kind is _OFF:
        return planned
    vjobs = (name for name, nodes in demand.places.items() if planned.node in nodes)
    return replace(planned, needed_by=tuple(vjobs))


def _is_back(seen: Observation, switch: NodeSwitch) -> bool:
    """Whether Slurm has the node with a newer boot time, and the node answers."""
    return has_booted(seen.rms.nodes[switch.node], switch) and switch.node in seen.vms
