"""Properties of all policies, over generated clusters and queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from examples import few
from hypothesis import example, given, settings
from hypothesis import strategies as st
from properties.generators import draw_configuration, one_of
from unit.queues import Queue, nodes

from rmsplugin.decision.admission import staying
from rmsplugin.decision.parameters import ActionDuration, Parameters, SwitchDurations
from rmsplugin.decision.policies import POLICIES, decide
from rmsplugin.decision.result import Decision, Infeasible, ReasonCode
from rmsplugin.decision.rounds import applied
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Location, Node, NodeState, VJob, VMState
from rmsplugin.model.policy_names import STATIC
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import Ban, Fence
from rmsplugin.model.validation import LEGAL_TARGETS
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search

SEARCH = Search(time_limit_s=60, deterministic_limit=10.0)

PREFERENCES = (None, None, None, None, VJobState.RUNNING, VJobState.SLEEPING)

tunables = st.builds(
    Parameters,
    search=st.just(SEARCH),
    exempt_s=st.sampled_from([0.0, 60.0]),
    patience_s=st.sampled_from([0.0, 100.0, 1e6]),
    horizon_s=st.sampled_from([30.0, 600.0]),
    durations=st.sampled_from([SwitchDurations(), SwitchDurations(*[ActionDuration(0.0)] * 3)]),
)


@st.composite
def queues(draw: st.DrawFn, targets: bool = True, max_vjobs: int = 6) -> Configuration:
    """Configurations with all that matters to a decision: limits, ages, tiers, losses, targets, overloads."""
    base = draw_configuration(
        draw, max_vjobs=max_vjobs, overcommitted=draw(st.booleans()), consistent=draw(st.integers(0, 4)) < 4
    )
    vjobs = []
    priority = 2
    for vjob in base.vjobs:
        priority = draw(one_of((priority, priority, max(0, priority - 1))))  # the queue is in order of tiers
        state = base.state(vjob)
        limit_s = draw(one_of((None, None, 50.0, 500.0)))
        # Policies never see who shall be paused: see rmsplugin.decision.pausing.
        known = LEGAL_TARGETS[state] - {VJobState.PAUSED}
        legal = [t for t in known if t is not VJobState.SLEEPING or vjob.preemptible]
        vjobs.append(
            replace(
                vjob,
                priority=priority,
                time_limit_s=limit_s,
                ran_s=draw(one_of((0.0, 30.0, 70.0))),
                state_s=draw(one_of((None, 0.0, 50.0, 500.0))),
                waited_s=draw(one_of((0.0, 40.0, 700.0, 90000.0))),
                weight=draw(one_of((1.0, 1.0, 0.1))),
                lost=draw(st.integers(0, 9)) == 9,
                target=draw(one_of(tuple(sorted(legal)))) if targets and draw(st.integers(0, 7)) == 7 else None,
                preference=draw(st.sampled_from(PREFERENCES)) if targets else None,
            )
        )
    return Configuration(base.nodes, tuple(vjobs), base.locations)


def decided(policy: str, configuration: Configuration, parameters: Parameters) -> Decision | None:
    decision = decide(policy, configuration, parameters)
    if isinstance(decision, Infeasible):
        assert decision.explanation
        assert any(vjob.target is VJobState.RUNNING for vjob in configuration.vjobs)
        return None
    return decision


def staying_at(vjob: VJob, stays: Mapping[str, Mapping[str, str]]) -> list[tuple[VM, str]]:
    return [(vm, stays[vjob.name][vm.name]) for vm in vjob.vms] if vjob.name in stays else []


policies = st.sampled_from(sorted(POLICIES))


@settings(max_examples=few(300))
@given(policies, queues(), tunables)
def test_decisions_are_sound(policy: str, configuration: Configuration, parameters: Parameters) -> None:
    decision = decided(policy, configuration, parameters)
    if decision is None:
        return
    names = [vjob.name for vjob in configuration.vjobs]
    assert list(decision.states) == list(decision.reasons) == names
    assert decision.sentence
    left = {node.name: node.capacity for node in configuration.nodes if node.state is NodeState.UP}
    stays = staying(configuration)
    run_on = [vjob for vjob in configuration.vjobs if decision.states[vjob.name] is VJobState.RUNNING]
    for node, demand in ((at, vm.demand) for vjob in run_on for vm, at in staying_at(vjob, stays)):
        if node in left:  # they may be more than it can hold; nobody comes beside them then
            least = left[node] - demand
            left[node] = Resources(max(0.0, least.cpus), max(0, least.memory_mib))
    for vjob in configuration.vjobs:
        before, after = configuration.state(vjob), decision.states[vjob.name]
        code = decision.reasons[vjob.name].code
        assert str(decision.reasons[vjob.name])
        assert after in LEGAL_TARGETS[before] or code is ReasonCode.LOST
        if code is ReasonCode.LOST:
            assert after is VJobState.WAITING
            continue
        if vjob.target is not None and before is not VJobState.TERMINATED:
            assert after is vjob.target
        prefers = vjob.preference if vjob.target is None else None
        may_rest = vjob.preemptible and (prefers is VJobState.SLEEPING or policy not in STATIC)
        if before is VJobState.RUNNING and vjob.target is None and not may_rest:
            assert after is VJobState.RUNNING
        if prefers is VJobState.SLEEPING and (vjob.preemptible or before is not VJobState.RUNNING):
            assert after is not VJobState.RUNNING
        if prefers is VJobState.RUNNING and before is VJobState.RUNNING:
            assert after is VJobState.RUNNING
        sleeps = before is VJobState.RUNNING and after is VJobState.SLEEPING
        if policy in (*STATIC, "mixed", "slowdown") and sleeps:
            wanted = VJobState.SLEEPING in (vjob.target, prefers)
            assert policy in ("mixed", "slowdown") or wanted
            exempt = vjob.state_s is not None and vjob.state_s < parameters.exempt_s
            assert not exempt or wanted
        assert {vm.name in decision.placement for vm in vjob.vms} == {after is VJobState.RUNNING}
        if vjob.name in stays and after is VJobState.RUNNING:
            assert stays[vjob.name] == {vm.name: decision.placement[vm.name] for vm in vjob.vms}
        elif after is VJobState.RUNNING and code is not ReasonCode.RESERVED_IN_PLACE:
            for vm in vjob.vms:
                node = decision.placement[vm.name]
                assert vjob.allows(node)
                left[node] -= vm.demand
    sound = [name for name, free in left.items() if not free.holds(NOTHING)]
    assert sound == []


def naive_rjsp(nodes: tuple[Node, ...], locations: dict[str, Location], queue: list[VJob]) -> dict[str, str]:
    """interfaces.md, word for word, with lists and loops; for queues in which nothing must run, and nothing is lost."""
    free = [
        [node.name, round(node.capacity.cpus * 100), node.capacity.memory_mib] for node in nodes if node.state == "up"
    ]
    result = {}
    for vjob in queue:
        where = {locations[vm.name].state for vm in vjob.vms}
        if VMState.TERMINATED in where:
            result[vjob.name] = "terminated"
            continue
        trial = [list(row) for row in free]
        fits = True
        for vm in sorted(sorted(vjob.vms, key=lambda v: v.name), key=lambda v: (-v.demand.memory_mib, -v.demand.cpus)):
            for row in trial:
                name, cpus, memory = row
                only, exclude = [{r.nodes for r in vjob.rules if isinstance(r, kind)} for kind in (Fence, Ban)]
                allowed = all(name in each for each in only) and all(name not in each for each in exclude)
                if allowed and cpus >= round(vm.demand.cpus * 100) and memory >= vm.demand.memory_mib:
                    row[1] -= round(vm.demand.cpus * 100)
                    row[2] -= vm.demand.memory_mib
                    break
            else:
                fits = False
        if fits:
            free = trial
        never = "waiting" if VMState.WAITING in where else "sleeping"
        result[vjob.name] = "running" if fits else never
    return result


def preemptible(configuration: Configuration) -> Configuration:
    return replace(configuration, vjobs=tuple(replace(v, preemptible=True, lost=False) for v in configuration.vjobs))


@settings(max_examples=few(300))
@given(queues(targets=False).map(preemptible))
def test_rjsp_equals_a_naive_recomputation(configuration: Configuration) -> None:
    decision = decided("rjsp", configuration, Parameters())
    assert decision is not None
    assert decision.states == naive_rjsp(configuration.nodes, dict(configuration.locations), list(configuration.vjobs))


def first(configuration: Configuration, count: int) -> Configuration:
    queue = configuration.vjobs[:count]
    return Configuration(
        configuration.nodes, queue, {vm.name: configuration.locations[vm.name] for vjob in queue for vm in vjob.vms}
    )


@given(queues(targets=False).map(preemptible))
def test_rjsp_decides_for_those_ahead_whatever_comes_behind(configuration: Configuration) -> None:
    whole = decided("rjsp", configuration, Parameters())
    assert whole is not None
    for count in range(len(configuration.vjobs)):
        part = decided("rjsp", first(configuration, count), Parameters())
        assert part is not None
        assert list(part.states.items()) == list(whole.states.items())[:count]


@given(queues())
def test_rjsp_exact_differs_first_in_favour_of_one_more(configuration: Configuration) -> None:
    plain = decided("rjsp", configuration, Parameters(search=SEARCH))
    exact = decided("rjsp-exact", configuration, Parameters(search=SEARCH))
    assert (plain is None) == (exact is None)
    if plain is not None and exact is not None and plain.states != exact.states:
        name = next(name for name in plain.states if plain.states[name] is not exact.states[name])
        assert exact.states[name] is VJobState.RUNNING


def in_parts() -> Configuration:
    """One VM of the last vjob runs, where the other one has no room beside it; there is room elsewhere for one move."""
    sizes = {"n1": Resources(1.0, 1024), "n2": Resources(1.0, 2048), "n3": Resources(2.0, 2048)}
    queue = (
        VJob("vjob1", (VM("vjob1-0", Resources(0.0, 1024)),)),
        VJob("vjob2", (VM("vjob2-0", Resources(0.0, 2048)),)),
        VJob("vjob3", (VM("vjob3-0", Resources(0.05, 256)), VM("vjob3-1", Resources(2.0, 256)))),
    )
    hosts = {"vjob1-0": "n1", "vjob2-0": "n2", "vjob3-0": "n3"}
    locations = {name: Location(VMState.RUNNING, node) for name, node in hosts.items()}
    here = tuple(Node(name, size) for name, size in sizes.items())
    return Configuration(here, queue, {**locations, "vjob3-1": Location(VMState.WAITING)})


def overloaded_by_an_exempt_one() -> Configuration:
    """A node is too small for all that run: one of a higher tier, and two of a lower one, the last began just now."""

    def all_on_n1(name: str, *memory_mib: int, priority: int, state_s: float | None = None) -> VJob:
        vms = tuple(VM(f"{name}-{number}", Resources(0.0, each)) for number, each in enumerate(memory_mib))
        return VJob(name, vms, priority=priority, state_s=state_s)

    queue = (
        all_on_n1("vjob1", 256, priority=2),
        all_on_n1("vjob2", 256, 256, 256, priority=1),
        all_on_n1("vjob3", 256, 256, 512, priority=1, state_s=0.0),
    )
    here = tuple(Node(name, Resources(1.0, 512)) for name in ("n1", "n2"))
    return Configuration(here, queue, {vm.name: Location(VMState.RUNNING, "n1") for vjob in queue for vm in vjob.vms})


def resumed_in_part() -> Configuration:
    """One VM of the first vjob, resumed just now, sleeps on a node that is too small for it; the last was to start."""
    memory = {"vjob1": (256, 768), "vjob2": (256, 256), "vjob3": (256, 256, 256), "vjob4": (256, 256, 256)}
    queue = tuple(
        VJob(
            name,
            tuple(VM(f"{name}-{number}", Resources(0.0, mib)) for number, mib in enumerate(each)),
            priority=2,
            state_s=0.0 if name == "vjob1" else None,
        )
        for name, each in memory.items()
    )
    hosts = {"vjob1-0": "n1", "vjob2-0": "n1", "vjob2-1": "n2", "vjob3-0": "n2", "vjob3-1": "n3", "vjob3-2": "n3"}
    locations = {name: Location(VMState.RUNNING, node) for name, node in hosts.items()}
    locations |= {name: Location(VMState.RUNNING, "n4") for name in ("vjob4-0", "vjob4-1")}
    locations |= {"vjob1-1": Location(VMState.SLEEPING, "n1"), "vjob4-2": Location(VMState.WAITING)}
    here = tuple(Node(f"n{number}", Resources(1.0, 512)) for number in range(1, 5))
    return Configuration(here, queue, locations)


@settings(max_examples=few(600))
@given(st.sampled_from(["mixed", "slowdown"]), queues(), tunables)
@example("slowdown", resumed_in_part(), Parameters(search=SEARCH, exempt_s=0.0, patience_s=0.0, horizon_s=30.0))
@example("slowdown", overloaded_by_an_exempt_one(), Parameters(search=SEARCH, exempt_s=0.0))
@example("mixed", in_parts(), Parameters(search=SEARCH, exempt_s=0.0, patience_s=0.0))
@example("slowdown", in_parts(), Parameters(search=SEARCH, exempt_s=0.0, patience_s=0.0))
def test_what_was_decided_is_not_decided_otherwise_once_it_was_applied(
    policy: str, configuration: Configuration, parameters: Parameters
) -> None:
    decision = decided(policy, configuration, parameters)
    if decision is None or any(reason.code is ReasonCode.LOST for reason in decision.reasons.values()):
        return  # what is lost begins anew in the next cycle: that is new
    again = decided(policy, applied(configuration, decision), parameters)
    assert again is not None
    assert again.states == decision.states
    assert again.sentence.endswith(": nothing changes")


@settings(max_examples=few(200))
@given(queues(targets=False), tunables)
def test_mixed_suspends_only_for_one_ahead_or_for_want_of_room(
    configuration: Configuration, parameters: Parameters
) -> None:
    decision = decided("mixed", configuration, parameters)
    assert decision is not None
    started_ahead = False
    for vjob in configuration.vjobs:
        before, after = configuration.state(vjob), decision.states[vjob.name]
        if after is VJobState.RUNNING and before is not after:
            started_ahead = True
        if before is VJobState.RUNNING and after is VJobState.SLEEPING and not started_ahead:
            assert not is_viable(configuration), "nobody ahead of it takes its room, and all had room"


def is_viable(configuration: Configuration) -> bool:
    up = {node.name for node in configuration.nodes if node.state is NodeState.UP}
    there = {
        location.node
        for name, location in configuration.locations.items()
        if location.state is VMState.RUNNING and configuration.state(configuration.vjob_by_vm[name]) == "running"
    }
    at_home = all(
        configuration.vjob_by_vm[name].allows(location.node or "")
        for name, location in configuration.locations.items()
        if location.state is VMState.RUNNING
    )
    whole = all(len({configuration.locations[vm.name].state for vm in vjob.vms}) == 1 for vjob in configuration.vjobs)
    return there <= up and at_home and whole and not configuration.overloaded()


def test_the_naive_recomputation_says_what_figure_6_says() -> None:
    queue = Queue(*nodes(3)).add("vjob1", "n1", "n2", memory_mib=512)
    configuration = queue.add("vjob2", "n3", "n3", memory_mib=512).add("vjob3", memory_mib=512).configuration
    assert naive_rjsp(configuration.nodes, dict(configuration.locations), list(configuration.vjobs)) == {
        "vjob1": "running",
        "vjob2": "sleeping",
        "vjob3": "running",
    }
