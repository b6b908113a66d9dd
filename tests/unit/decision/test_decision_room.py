"""Room: what is free, and the order of the vjobs, after every change."""

from __future__ import annotations

import random

import pytest
from unit.queues import Queue, nodes

from rmsplugin.decision.room import NodeRoom, Site
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import WAITING, VJob
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import allowing

ALLOWED = (None, frozenset({"n1", "n3"}), frozenset({"n2", "n3", "n4"}))
EXCLUDED = (frozenset[str](), frozenset({"n3"}), frozenset({"n1", "n2"}))


def queue(seed: int) -> list[VJob]:
    """Vjobs of one or two VMs with all combinations of nodes that they may and may not use."""
    dice = random.Random(seed)
    made = Queue(*nodes(4, cpus=4))
    for number in range(24):
        size = {
            "cpus": dice.choice((0.5, 1, 1.5)),
            "memory_mib": dice.choice((256, 512, 1024)),
            "vms": dice.choice((1, 2)),
        }
        made.add(f"v{number}", **size, rules=allowing(dice.choice(ALLOWED), dice.choice(EXCLUDED)))
    return made.vjobs


def site(vjobs: list[VJob], pinned: int) -> Site:
    waiting = {vm.name: WAITING for vjob in vjobs for vm in vjob.vms}
    places = {vjob.name: {vm.name: "n4" for vm in vjob.vms} for vjob in vjobs[:: len(vjobs) // pinned][:pinned]}
    return Site(Configuration(tuple(nodes(4, cpus=4)), tuple(vjobs), waiting), places)


def free(room: NodeRoom, vjob: VJob) -> Resources:
    """What is free for a vjob, summed up node by node from where the members are."""
    left = {name: node.capacity for name, node in room.site.up.items()}
    for member in room.members:
        for vm in member.vms:
            left[room.placement[vm.name]] -= vm.demand
    some = [Resources(max(0.0, left[name].cpus), max(0, left[name].memory_mib)) for name in left if vjob.allows(name)]
    return sum(some, NOTHING)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_free_for_a_vjob_is_the_sum_over_its_nodes_after_every_change(seed: int) -> None:
    vjobs = queue(seed)
    places = site(vjobs, pinned=2)
    room = places.pack([vjob for vjob in vjobs if vjob.name in places.pinned])
    assert room is not None
    order = [vjob for vjob in vjobs if vjob.name not in places.pinned]
    random.Random(seed).shuffle(order)
    changes = 0
    for vjob in order:
        changes += room.add(vjob)
        for each in vjobs:
            assert room.free_for(each) == free(room, each)
            assert room.behind(each) == [m for m in room.members if vjobs.index(m) > vjobs.index(each)]
    assert changes > 4


@pytest.mark.parametrize("seed", range(8))
def test_what_is_ahead_of_a_vjob_is_what_would_be_packed_before_it(seed: int) -> None:
    vjobs = queue(seed)
    places = site(vjobs, pinned=2)
    room = places.pack([vjob for vjob in vjobs if vjob.name in places.pinned])
    assert room is not None
    for vjob in vjobs[1::2]:
        room.add(vjob)
    asked = list(vjobs)
    random.Random(seed).shuffle(asked)
    for vjob in asked:
        before = [m for m in room.members if m.name in places.pinned or vjobs.index(m) < vjobs.index(vjob)]
        packed = places.pack(before)
        assert packed is not None
        assert room.ahead_of(vjob).placement == packed.placement


@pytest.mark.parametrize("seed", range(8))
def test_a_room_that_gives_some_of_the_pinned_up_is_as_one_packed_without_them(seed: int) -> None:
    vjobs = queue(seed)
    places = site(vjobs, pinned=6)
    everybody = places.pack(vjob for vjob in vjobs if vjob.name in places.pinned)
    assert everybody is not None
    before = [everybody.free_for(each) for each in vjobs]
    item = next(vjob for vjob in vjobs if vjob.name not in places.pinned)
    for optional in ({vjobs[4].name}, {vjobs[8].name, vjobs[12].name}):
        found = everybody.insert(item, optional)
        fewer = places.with_pinned({name: nodes for name, nodes in places.pinned.items() if name not in optional})
        staying = [vjob for vjob in vjobs if vjob.name in fewer.pinned]
        assert found is not None
        packed = [each for each in vjobs if each.name in optional and each not in found[1]]
        anew = fewer.pack([*staying, item, *packed])
        assert anew is not None
        assert found[0].placement == anew.placement
        assert [found[0].free_for(each) for each in vjobs] == [anew.free_for(each) for each in vjobs]
    assert [everybody.free_for(each) for each in vjobs] == before
    assert everybody.members == [vjob for vjob in vjobs if vjob.name in places.pinned]


def test_what_was_taken_back_is_no_more_ahead_of_those_behind_it() -> None:
    made = Queue(*nodes(2, cpus=4))
    made.add("wide", cpus=3, vms=1).add("small", vms=1).add("last", vms=1)
    wide, small, last = made.vjobs
    room = NodeRoom(Site(made.configuration))
    assert room.add(wide) and room.ahead_of(last).placement == {"wide-0": "n1"}
    room.discard(wide)
    assert room.add(small) and room.ahead_of(last).placement == {"small-0": "n1"}
