"""What is taken back from a room leaves all others where they were, and the same nodes are tried next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from properties.generators import configurations

from rmsplugin.decision.room import NodeRoom, Site
from rmsplugin.model.configuration import Configuration


@given(configurations(max_nodes=4, max_vjobs=6, max_vms=3), st.lists(st.booleans(), min_size=24), st.randoms())
def test_a_room_is_as_it_was_after_the_last_one_is_taken_back(
    source: Configuration, keeps: list[bool], chance: st.DataObject
) -> None:
    site, kept = Site(source), []
    room, left = NodeRoom(site), [*source.vjobs] * 2
    chance.shuffle(left)
    for vjob, keep in zip(left, keeps, strict=False):
        if vjob in kept:
            continue
        room.ahead_of(vjob)  # a walk along the queue, whose results are kept
        if room.add(vjob):
            if keep:
                kept.append(vjob)
            else:
                room.ahead_of(source.vjobs[-1])
                room.discard(vjob)
        anew = site.pack(kept)
        assert anew is not None
        assert room.placement == anew.placement
        assert all(room.free_at(node.name) == anew.free_at(node.name) for node in source.nodes)
        assert [each.name for each in room.members] == [each.name for each in anew.members]


@given(configurations(max_nodes=4, max_vjobs=6, max_vms=3), st.randoms())
def test_those_ahead_have_the_places_that_they_have_without_those_behind(
    source: Configuration, chance: st.DataObject
) -> None:
    site = Site(source)
    room, left = NodeRoom(site), [*source.vjobs]
    for vjob in source.vjobs:
        room.append(vjob)
    chance.shuffle(left)
    for vjob in left:
        found = room.ahead_of(vjob)
        anew = site.pack(member for member in room.members if site.position[member.name] < site.position[vjob.name])
        assert anew is not None
        assert found.placement == anew.placement
        assert all(found.free_at(node.name) == anew.free_at(node.name) for node in source.nodes)
        assert [each.name for each in found.members] == [each.name for each in anew.members]
