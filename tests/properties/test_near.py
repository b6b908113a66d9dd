"""Room near where all is: what is answered at a glance is what the search for few migrations would answer."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from properties.generators import configurations

from rmsplugin.decision.near import Near, near
from rmsplugin.decision.room import Site
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import NodeState, VJob
from rmsplugin.model.vjob import VJobState


def answer(site: Site, vjobs: list[VJob]) -> tuple[object, ...]:
    """All that is seen of an answer."""
    found: Near | None = near(site, vjobs)
    seen = None if found is None else (found.moved_mib, found.room.placement, found.room.free, found.room.names)
    return seen, site.effort.left


@given(st.one_of(configurations(), configurations(consistent=False, overcommitted=True)), st.data())
def test_where_nobody_has_to_move_a_search_would_move_nobody_either(source: Configuration, data: st.DataObject) -> None:
    runs = [vjob for vjob in source.vjobs if source.state(vjob) is VJobState.RUNNING]
    shall_run = [vjob for vjob in runs if data.draw(st.integers(0, 3))]
    up = [node.name for node in source.nodes if node.state is NodeState.UP]
    pinned = {}
    for vjob in shall_run:
        here = {vm.name: source.locations[vm.name].node or up[0] for vm in vjob.vms} if up else {}
        if here and set(here.values()) <= set(up) and not data.draw(st.integers(0, 2)):
            elsewhere = data.draw(st.sampled_from(up))
            pinned[vjob.name] = here if data.draw(st.booleans()) else dict.fromkeys(here, elsewhere)
    at_a_glance = answer(Site(source, pinned), shall_run)
    with patch("rmsplugin.decision.near._in_place", return_value=None):
        assert at_a_glance == answer(Site(source, pinned), shall_run)
