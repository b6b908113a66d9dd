"""An engine whose site's policy errs acts on nothing that it would decide, says why, and goes on when it is mended."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios.world import CPUS, World

from rmsplugin.decision.own_policies import find
from rmsplugin.model.vjob import VJobState

POLICY = """
from pathlib import Path
from rmsplugin.policy import Selection

def decide(configuration, parameters):
    if Path({broken!r}).exists():
        raise LookupError("no gold left")
    selection = Selection(configuration, parameters)
    for vjob in selection.vjobs:
        selection.add(vjob)
    return selection.decision()
"""


@pytest.fixture
def broken(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file is there, the policy fails."""
    marker = directory / "broken"
    modules = directory / "modules"
    modules.mkdir()
    (modules / "policy_of_a_scenario.py").write_text(POLICY.format(broken=str(marker)))
    monkeypatch.syspath_prepend(modules)
    find.cache_clear()
    return marker


def test_while_a_sites_policy_fails_nobody_starts_or_stops_and_after_that_all_goes_on(
    directory: Path, broken: Path
) -> None:
    world = World(directory, policy="policy_of_a_scenario:decide")
    first = world.running(cpus=CPUS)
    broken.touch()
    second = world.submit(vms=1, cpus=CPUS)
    for _ in range(10):
        world.tick()
    assert world.states(first, second) == [VJobState.RUNNING, VJobState.WAITING]
    assert any("failed: LookupError: no gold left" in problem for problem in world.cycle.report.problems)
    broken.unlink()
    world.until(second, VJobState.RUNNING)
    assert world.state(first) is VJobState.RUNNING
    assert not any("LookupError" in problem for problem in world.cycle.report.problems)
