"""What a decision with rules keeps for its further rounds changes nothing that is decided."""

from __future__ import annotations

import pytest
from bench.ruling import full
from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Decision
from rmsplugin.decision.room import NodeRoom, Site
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.decision.ruled_placing import Placing
from rmsplugin.model.configuration import Configuration
from rmsplugin.packing.remembered import answers
from rmsplugin.packing.search import Search


def decide(policy: str, source: Configuration, most_vms: int) -> Decision:
    """Decide within so many VMs that are placed on trial: what is kept counts as if it was placed again."""
    answers.cache_clear()
    found = decide_by_rules(
        policy, source, Parameters(search=Search(deterministic_limit=0.05), exact_checks=1, packed_vms=most_vms)
    )
    assert isinstance(found, Decision)
    return found


def keep_nothing(patched: pytest.MonkeyPatch) -> None:
    """All that is kept is packed, or placed, anew."""
    patched.setattr(NodeRoom, "_repeats", property(lambda room: False, lambda room, value: None), raising=False)
    patched.setattr(Site, "pack_as_before", Site.pack)
    patched.setattr(Placing, "begins_as", lambda one, other: False)


@pytest.mark.parametrize("policy", ["easy", "conservative"])
@given(seed=st.integers(0, 10_000), nodes=st.integers(4, 8), most_vms=st.sampled_from([100, 400, 1_000_000]))
@settings(max_examples=few(4), deadline=None)
def test_a_decision_is_the_same_whether_its_rounds_keep_what_they_packed(
    policy: str, seed: int, nodes: int, most_vms: int
) -> None:
    source = full(nodes, nodes, seed)
    found = decide(policy, source, most_vms)
    assert source.kept == {}
    with pytest.MonkeyPatch.context() as patched:
        keep_nothing(patched)
        anew = decide(policy, source, most_vms)
    assert found == anew
