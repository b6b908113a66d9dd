"""Short nodes before it is decided who runs: reserved nodes are closed, and who waits for one keeps what it has."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from rmsplugin.decision.outgrown import MemoryFacts, Shortage, bearable, outgrown
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.reservation import Note, Reservation, ReservationLimits, Reservations
from rmsplugin.decision.result import Decision
from rmsplugin.decision.unblocking import Prices
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Node, VJob, running_on, vm_in_transit
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState

NONE = Reservations()
REAL = 2000
THRESHOLD = 1800
NODES = ("n0", "n1", "n2", "n3")
FACTS = MemoryFacts(dict.fromkeys(NODES, REAL))


def vjob(name: str, memory_mib: int, **others: object) -> VJob:
    fields = {"ran_s": 100.0, **others}
    return VJob(name, (VM(f"{name}-0", Resources(0.1, memory_mib)),), **fields)  # type: ignore[arg-type]


def cluster(at: dict[str, dict[str, int]], waiting: dict[str, int] | None = None) -> Configuration:
    """By node, what the vjobs there demand, in the order of the queue; ``waiting`` after them."""
    nodes = tuple(Node(name, Resources(8, THRESHOLD)) for name in at)
    vjobs = [vjob(name, mib) for here in at.values() for name, mib in here.items()]
    vjobs += [vjob(name, mib, ran_s=0.0) for name, mib in (waiting or {}).items()]
    places = {f"{name}-0": running_on(node) for node, here in at.items() for name in here}
    return Configuration(nodes, tuple(vjobs), {f"{each.name}-0": WAITING for each in vjobs} | places)


def blocked(grown_mib: int = 1200) -> Configuration:
    """n0 is short by 100 MiB: its large vjob has outgrown it; 1,830 MiB are idle, in pieces."""
    small = {f"n{i}": {f"a{i}": 590, f"b{i}": 600} for i in (1, 2, 3)}
    return cluster({"n0": {"large": grown_mib, "a0": 700}, **small})


@dataclass(frozen=True)
class Looked:
    """A remedy, and the configuration that is decided about with it."""

    configuration: Configuration
    reservations: Reservations
    notes: tuple[Note, ...]
    waiting: frozenset[str]


def looked_at(configuration: Configuration, before: Reservations = NONE, now_s: float = 0.0) -> Looked:
    remedy = outgrown(configuration, Shortage(FACTS, before, now_s, ReservationLimits(), Prices()))
    return Looked(remedy.applied_to(configuration), remedy.reservations, remedy.notes, remedy.waiting)


def decided(configuration: Configuration) -> Decision:
    found = decide("mixed", configuration, Parameters())
    assert isinstance(found, Decision)
    return found


def test_where_no_node_is_short_the_configuration_is_what_it_was() -> None:
    source = cluster({"n0": {"a": 1000}, "n1": {}})
    assert looked_at(source).configuration is source


def test_a_node_is_reserved_where_that_is_cheapest_and_the_short_one_waits() -> None:
    found = looked_at(blocked())
    (held,) = found.reservations.held
    (note,) = found.notes
    assert (note.what, held.vm, held.guests) == ("reserved", "large-0", frozenset())
    assert found.waiting == {"n0"}
    assert found.configuration.node_by_name["n0"].capacity.memory_mib == 1900
    assert all(way in note.sentence for way in ("compaction", "reservation", "suspension"))


def test_while_a_node_is_reserved_nobody_goes_there_and_nobody_is_suspended() -> None:
    source = blocked()
    waiting = vjob("new", 500, ran_s=0.0)
    source = replace(source, vjobs=(*source.vjobs, waiting), locations={**source.locations, "new-0": WAITING})
    before = Reservations((Reservation("n1", "large-0", 0.0),))
    found = looked_at(source, before, 10.0)
    assert found.reservations.nodes == {"n1"}
    decision = decided(found.configuration)
    assert decision.placement["new-0"] in ("n2", "n3")
    assert all(state is VJobState.RUNNING for state in decision.states.values())


def on_n0(decision: Decision) -> set[str]:
    return {vm for vm, node in decision.placement.items() if node == "n0"}


def test_without_a_reservation_somebody_leaves_the_short_node_at_once() -> None:
    assert on_n0(decided(blocked())) < {"large-0", "a0-0"}
    assert on_n0(decided(looked_at(blocked()).configuration)) == {"large-0", "a0-0"}


def test_a_node_whose_vms_demand_more_than_it_really_has_waits_for_nothing() -> None:
    found = looked_at(blocked(REAL - 700 + 1))
    assert not found.waiting
    assert not found.reservations.held
    assert on_n0(decided(found.configuration)) < {"large-0", "a0-0"}


def kept_out() -> Configuration:
    """As blocked, with many that wait, and lose their time while a node is reserved."""
    waiting = {f"w{i}": 150 for i in range(12)}
    small = {f"n{i}": {f"a{i}": 590, f"b{i}": 600} for i in (1, 2, 3)}
    return cluster({"n0": {"large": 1200, "a0": 700}, **small}, waiting)


def test_without_prices_a_node_is_reserved_even_where_that_is_not_the_cheapest_way() -> None:
    remedy = outgrown(kept_out(), Shortage(FACTS, NONE, 0.0, ReservationLimits(), None))
    assert [held.vm for held in remedy.reservations.held] == ["large-0"]
    assert remedy.waiting == {"n0"}
    [note] = remedy.notes
    assert note.what == "reserved" and note.sentence.endswith("are idle in pieces")


def test_where_it_is_cheaper_not_to_reserve_the_prices_are_told_and_nobody_is_said_to_be_suspended() -> None:
    found = looked_at(kept_out())
    (note,) = found.notes
    assert note.what == "short"
    assert note.sentence.startswith("n0 is short of 100 MiB, and is relieved without a reservation; compaction ")
    assert not found.reservations.held and not found.waiting


def test_a_shortage_that_a_migration_ends_is_told_with_its_numbers() -> None:
    found = looked_at(cluster({"n0": {"large": 1200, "a0": 700}, "n1": {}}))
    assert [(note.what, note.sentence) for note in found.notes] == [
        ("short", "n0 is short of 100 MiB: its VMs take 1900 of 1800 MiB")
    ]
    assert not found.reservations.held and not found.waiting


def test_the_large_one_moves_to_the_reserved_node_as_soon_as_there_is_room() -> None:
    before = looked_at(blocked()).reservations
    (held,) = before.held
    source = blocked()
    ended = [each for each in source.vjobs if source.locations[f"{each.name}-0"].node == held.node][:1]
    left = tuple(each for each in source.vjobs if each not in ended)
    source = Configuration(source.nodes, left, {f"{v.name}-0": source.locations[f"{v.name}-0"] for v in left})
    found = looked_at(source, before, 60.0)
    assert [note.what for note in found.notes] == ["served", "short"]
    assert not found.waiting
    decision = decided(found.configuration)
    assert decision.placement["large-0"] == held.node
    assert all(state is VJobState.RUNNING for state in decision.states.values())


def served() -> Configuration:
    """The large one has moved to n1."""
    return cluster({"n0": {"a0": 700}, "n1": {"large": 1200}, "n2": {"a2": 590, "b2": 600}, "n3": {"a3": 590}})


GUEST = Reservations((Reservation("n1", "large-0", 0.0, frozenset({"large-0"})),))


def test_a_reserved_node_stays_closed_as_long_as_its_guest_runs() -> None:
    found = looked_at(served(), GUEST, 1000.0)
    assert found.reservations == GUEST
    assert not next(each for each in found.configuration.vjobs if each.name == "a0").allows("n1")


def test_a_reservation_ends_with_its_guest() -> None:
    source = served()
    left = tuple(each for each in source.vjobs if each.name != "large")
    source = Configuration(source.nodes, left, {f"{v.name}-0": source.locations[f"{v.name}-0"] for v in left})
    found = looked_at(source, GUEST, 1000.0)
    assert not found.reservations.held
    assert [note.what for note in found.notes] == ["released"]
    assert all(each.allows("n1") for each in found.configuration.vjobs)


def test_a_guest_that_is_on_its_way_has_come() -> None:
    source = served()
    name = vm_in_transit("large", "large-0", "n1")
    moving = VJob(
        "large@n1", (VM(name, Resources(0.1, 1200)),), False, rules=allowing(frozenset({"n1"})), in_transit=True
    )
    vjobs = tuple(moving if each.name == "large" else each for each in source.vjobs)
    locations = {f"{v.name}-0": source.locations[f"{v.name}-0"] for v in vjobs if v is not moving}
    source = Configuration(source.nodes, vjobs, {**locations, name: running_on("n1")})
    assert looked_at(source, GUEST, 5.0).reservations == GUEST


def test_a_guest_that_has_not_come_yet_is_waited_for() -> None:
    found = looked_at(blocked(), GUEST, 5.0)
    (held,) = found.reservations.held
    assert (held.node, held.vm, held.guests) == ("n1", "large-0", frozenset())
    assert found.waiting == {"n0"}


@pytest.mark.parametrize(
    "source",
    [cluster({"n0": {"a0": 700}, "n1": {"a1": 590}, "n2": {}}), cluster({"n0": {"large": 900, "a0": 700}, "n2": {}})],
    ids=["cancelled", "the node is lost, and nobody is short any more"],
)
def test_a_reservation_ends_where_nobody_is_blocked(source: Configuration) -> None:
    found = looked_at(source, Reservations((Reservation("n1", "large-0", 0.0),)), 5.0)
    assert not found.reservations.held
    assert [note.what for note in found.notes] == ["released"]


def test_a_node_that_had_no_room_in_time_is_given_up_and_that_is_said() -> None:
    before = Reservations((Reservation("n1", "large-0", 0.0),))
    found = looked_at(blocked(), before, 601.0)
    assert "full" in [note.what for note in found.notes]
    assert not found.reservations.held and not found.waiting


def test_those_that_cannot_go_make_no_node_short() -> None:
    stays = replace(vjob("stays", 1900), preemptible=False, rules=allowing(frozenset({"n0"})))
    nodes = (Node("n0", Resources(8, THRESHOLD)), Node("n1", Resources(8, THRESHOLD)))
    source = Configuration(nodes, (stays,), {"stays-0": running_on("n0")})
    found = bearable(source)
    assert found.node_by_name["n0"].capacity.memory_mib == 1900
    assert found.node_by_name["n1"].capacity.memory_mib == THRESHOLD
    assert decided(found).states["stays"] is VJobState.RUNNING


@pytest.mark.parametrize(("grown_mib", "borne_mib"), [(1200, 1900), (1900, THRESHOLD + 700)])
def test_who_leaves_a_node_is_no_reason_for_others_to_go(grown_mib: int, borne_mib: int) -> None:
    """What is short without it is short as before."""
    name = vm_in_transit("goes", "goes-0", "n0")
    goes = VJob(
        "goes@n0", (VM(name, Resources(0.1, 700)),), rules=allowing(frozenset({"n0"})), in_transit=True, leaves=True
    )
    source = cluster({"n0": {"grown": grown_mib}, "n1": {}})
    vjobs = (*source.vjobs, goes)
    source = Configuration(source.nodes, vjobs, {**source.locations, name: running_on("n0")})
    found = bearable(source)
    assert found.node_by_name["n0"].capacity.memory_mib == borne_mib
    assert found.node_by_name["n1"].capacity.memory_mib == THRESHOLD
    if grown_mib < THRESHOLD:
        assert decided(found).states["grown"] is VJobState.RUNNING
        assert on_n0(decided(found)) >= {"grown-0"}
