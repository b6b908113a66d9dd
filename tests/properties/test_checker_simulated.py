"""The checker agrees with a simulation that knows only the model's own semantics of actions, on random plans."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from examples import few
from hypothesis import event, given, settings
from hypothesis import strategies as st
from properties.generators import rotations
from unit.checked_plan import (
    NODES,
    SOURCE,
    TARGET,
    Pools,
    Target,
    mutable,
)

from rmsplugin.model.action import ActionKind, migrate
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    TERMINATED,
    WAITING,
    Location,
    running_on,
    sleeping_on,
)
from rmsplugin.planning.checker import check_plan


def simulated(source: Configuration, target: Mapping[str, Location], pools: Pools) -> bool:
    """Whether a plan is right, by carrying it out action by action, in each pool in the orders that are worst."""
    configuration = source
    for number, pool in enumerate(pools):
        names = [action.vm.name for action in pool]
        if not pool or len(set(names)) < len(names):
            return False
        for node in source.nodes:
            ordered = sorted(pool, key=lambda action, first=node.name: action.demands != first)  # type: ignore[misc]
            after = configuration
            for action in ordered:
                if source.vm_by_name.get(action.vm.name) != action.vm or not action.is_feasible(after):
                    return False
                after = action.apply(after)
        configuration = after
        for action in pool:
            departs = action.kind is ActionKind.STOP or (action.kind is ActionKind.SUSPEND and not action.bypass)
            if departs and number > 0:
                return False
    expected = {**source.locations, **target}
    for name, location in configuration.locations.items():
        if location != expected[name] and (location, expected[name]) != (WAITING, TERMINATED):
            return False
    if any(len({expected[each.name].state for each in vjob.vms}) > 1 for vjob in source.vjobs):
        return False
    stayed_put = {name for name in source.locations if configuration.locations[name] == source.locations[name]}
    for name in configuration.overloaded():
        hosted = {each for each, location in configuration.locations.items() if location == running_on(name)}
        cpus, memory = configuration.free(name).centi_cpus < 0, configuration.free(name).memory_mib < 0
        had_cpus, had_memory = source.free(name).centi_cpus < 0, source.free(name).memory_mib < 0
        if not hosted <= stayed_put or (cpus and not had_cpus) or (memory and not had_memory):
            return False
    return grouped_and_marked(source, pools)


def grouped_and_marked(source: Configuration, pools: Pools) -> bool:
    """Whether resumes are together, detours are marked, and nothing is suspended or requeued that may not be."""
    flat = [(number, action) for number, pool in enumerate(pools) for action in pool]
    for vjob in source.vjobs:
        own = [(number, action) for number, action in flat if action.vm in vjob.vms]
        if len({number for number, action in own if action.kind is ActionKind.RESUME and not action.bypass}) > 1:
            return False
        begun = any(source.locations[each.name] == WAITING for each in vjob.vms)
        if not (vjob.lost or begun) and any(action.requeue for _, action in own):
            return False
        for each in vjob.vms:
            word = "".join(
                action.kind[0].upper() if action.bypass else f"{action.kind[0:3]}."
                for _, action in own
                if action.vm == each
            )
            # M: bypass migrate, S: bypass suspend, R: bypass resume; what is not marked comes last
            if not re.fullmatch(r"(R(?=M|mig))?(M*S(R|(?=res)))*(M+(?=mig))?(run.|sto.|mig.|sus.|res.)?", word):
                return False
            if "sus." in word and not vjob.preemptible:
                return False
    return True


def change_at_random(draw: st.DrawFn, pools: Pools, target: Target) -> None:
    places = [(i, j) for i, pool in enumerate(pools) for j in range(len(pool))]
    if not places:
        return
    i, j = draw(st.sampled_from(places))
    action = pools[i][j]
    node = draw(st.sampled_from([each.name for each in NODES]))
    other = draw(st.integers(0, len(pools)))
    match draw(st.sampled_from(["drop", "move", "copy", "redirect", "both", "mark", "want"])):
        case "drop":
            pools[i].pop(j)
        case "move" | "copy" as how:
            if how == "move":
                pools[i].pop(j)
            if other == len(pools):
                pools.append([])
            pools[other].append(action)
        case "redirect" | "both" as how if action.demands:
            pools[i][j] = replace(action, destination=node)
            if how == "both":
                target[action.vm.name] = running_on(node)
        case "mark" if action.kind not in (ActionKind.RUN, ActionKind.STOP):
            pools[i][j] = replace(action, bypass=not action.bypass)
        case "want":
            target[action.vm.name] = draw(st.sampled_from([running_on(node), sleeping_on(node), WAITING, TERMINATED]))


@settings(max_examples=few(400))
@given(st.data())
def test_a_plan_changed_at_random_is_rejected_unless_a_simulation_says_that_it_is_right(data: st.DataObject) -> None:
    pools, target = mutable(), dict(TARGET)
    for _ in range(data.draw(st.integers(1, 3))):
        data.draw(st.composite(lambda draw: change_at_random(draw, pools, target))())
    right = simulated(SOURCE, target, pools)
    event("right" if right else "wrong")
    found = check_plan(SOURCE, target, pools)
    assert (not found) is right, f"{pools}: {found}"


@settings(max_examples=few(400))
@given(rotations(), st.data())
def test_random_migrations_are_judged_as_a_simulation_judges_them(
    problem: tuple[Configuration, Mapping[str, Location]], data: st.DataObject
) -> None:
    source, _ = problem
    hosts = {name: location.node or "" for name, location in source.locations.items()}
    pools: Pools = []
    for _ in range(data.draw(st.integers(1, 3))):
        chosen = data.draw(st.sets(st.sampled_from(sorted(hosts)), min_size=1, max_size=2))
        pools.append([])
        for name in sorted(chosen):
            to = data.draw(st.sampled_from([node.name for node in source.nodes]))
            pools[-1].append(migrate(source.vm_by_name[name], hosts[name], to))
            hosts[name] = to
    final = {action.vm.name: number for number, pool in enumerate(pools) for action in pool}
    pools = [
        [replace(action, bypass=final[action.vm.name] != number) for action in pool]
        for number, pool in enumerate(pools)
    ]
    target = {name: running_on(host) for name, host in hosts.items()}
    right = simulated(source, target, pools)
    event("right" if right else "wrong")
    assert (not check_plan(source, target, pools)) is right
