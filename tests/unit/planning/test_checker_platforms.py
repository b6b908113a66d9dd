"""The checker finds each action that a platform does not have, and each VM on a node of another platform."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from unit.queues import Queue

from rmsplugin.model.action import Action, migrate, pause, resume, run, suspend, unpause
from rmsplugin.model.capabilities import EVERYTHING
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Node, paused_on
from rmsplugin.model.resources import Resources
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.violations import Rule

NODES = [Node(name, Resources(4, 4096), platform="b" if name == "n3" else "") for name in ("n1", "n2", "n3")]


def source(lacks: str) -> Configuration:
    can = replace(EVERYTHING, **{lacks: False}) if lacks else EVERYTHING
    queue = Queue(*NODES).add("a", "n1", memory_mib=256, can=can).add("w", memory_mib=256, can=can)
    if lacks == "suspend":
        return queue.configuration
    return queue.add("z", "zz:n1", memory_mib=256, can=can).configuration


def platform_faults(configuration: Configuration, plan: Sequence[Action]) -> list[str]:
    at = dict(configuration.locations)
    for action in plan:
        at[action.vm.name] = action.after
    found = check_plan(configuration, at, [[action] for action in plan])
    return [each.sentence for each in found if each.rule is Rule.PLATFORM]


@pytest.mark.parametrize("lacks", ["", "migrate", "suspend", "elsewhere", "pause"])
def test_an_action_that_the_platform_has_not_is_found(lacks: str) -> None:
    site = source(lacks)
    vm = site.vm_by_name
    plans = {
        "migrate": [migrate(vm["a-0"], "n1", "n2")],
        "suspend": [suspend(vm["a-0"], "n1")],
        "pause": [pause(vm["a-0"], "n1")],
    }
    if "z-0" in vm:
        plans["elsewhere"] = [resume(vm["z-0"], "n1", "n2")]
        assert platform_faults(site, [resume(vm["z-0"], "n1", "n1")]) == []
    for needs, plan in plans.items():
        assert bool(platform_faults(site, plan)) == (needs == lacks), needs
    assert platform_faults(site, [run(vm["w-0"], "n2")]) == []


def test_an_unpause_is_asked_of_a_platform_that_pauses() -> None:
    site = source("")
    paused = site.with_locations({"a-0": paused_on("n1")})
    assert platform_faults(paused, [unpause(site.vm_by_name["a-0"], "n1")]) == []
    unable = tuple(replace(vjob, can=replace(EVERYTHING, pause=False)) for vjob in paused.vjobs)
    assert platform_faults(replace(paused, vjobs=unable, checked=True), [unpause(site.vm_by_name["a-0"], "n1")]) == [
        "the platform of vjob a has no pause"
    ]


@pytest.mark.parametrize("kind", ["run", "migrate", "resume"])
def test_a_vm_that_goes_to_a_node_of_another_platform_is_found(kind: str) -> None:
    site = source("")
    vm = site.vm_by_name
    for node, wrong in (("n2", []), ("n3", ["n3 is of another platform than vjob {}"])):
        action = {
            "run": run(vm["w-0"], node),
            "migrate": migrate(vm["a-0"], "n1", node),
            "resume": resume(vm["z-0"], "n1", node),
        }[kind]
        name = action.vm.name.partition("-")[0]
        assert platform_faults(site, [action]) == [each.format(name) for each in wrong]
