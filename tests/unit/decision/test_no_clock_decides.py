"""No clock decides: the same question has the same answer, however fast the machine's clock runs beside its work."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from ortools.linear_solver.python import model_builder_helper as lp
from ortools.sat.python import cp_model
from scenarios.world import make_settings
from unit.queues import Queue, nodes

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.decision.own_policies import decide_by
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Decision, Infeasible
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.engine.decide.parameters import proposal_parameters
from rmsplugin.groups.merging import parameters_of
from rmsplugin.groups.splitting import Part
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, NodeState, VJob, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing import remembered
from rmsplugin.packing.search import Search
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import NoProposal, Proposal
from rmsplugin.proposing.propose import propose

#: Clusters and policies whose decisions need a solver; these differed when the clock ended its runs.
CASES = [
    (12, 6, 0, "rjsp-exact"),
    (12, 6, 2, "slowdown"),
    (20, 10, 1, "mixed"),
    (20, 10, 8, "conservative"),
    (20, 10, 9, "easy-preempt"),
]


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    remembered.answers.cache_clear()
    yield
    remembered.answers.cache_clear()


@pytest.fixture
def hasten(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, the clock of solvers runs a hundred thousand times as fast, and nothing is remembered."""
    solver, helper, times = cp_model.CpSolver, lp.ModelSolverHelper, 1e5
    solve, wall_time = solver.solve, vars(solver)["wall_time"].fget
    limit, linear_wall_time = helper.set_time_limit_in_seconds, helper.wall_time

    def fast(self: cp_model.CpSolver, model: cp_model.CpModel) -> cp_model.CpSolverStatus:
        self.parameters.max_time_in_seconds /= times
        return solve(self, model)

    def now() -> None:
        remembered.answers.cache_clear()
        monkeypatch.setattr(solver, "solve", fast)
        monkeypatch.setattr(solver, "wall_time", property(lambda self: times * wall_time(self)))
        monkeypatch.setattr(helper, "set_time_limit_in_seconds", lambda self, s: limit(self, s / times))
        monkeypatch.setattr(helper, "wall_time", lambda self: times * linear_wall_time(self))

    return now


def cluster(number: int, waiting: int, seed: int) -> Configuration:
    """Full nodes, of which one drains, and vjobs that wait."""
    chance = random.Random(seed)
    there = [Node(f"n{i}", Resources(8, 16384)) for i in range(number)]
    free = {node.name: node.capacity for node in there}
    locations, running, failed = dict[str, Location](), list[VJob](), 0
    while failed < 30:
        count, each = _size(chance, [1, 2, 4, 8, 9], [1, 1, 2, 3], [512, 1024, 2048, 3072])
        places = _places(chance, there, free, [each] * count)
        if not places:
            failed += 1
            continue
        vms = tuple(VM(f"r{len(running)}-{i}", each) for i in range(count))
        limit_s, ran_s = chance.choice([600, 3600, 7200, 86400]), chance.randrange(500)
        running.append(VJob(f"r{len(running)}", vms, time_limit_s=limit_s, ran_s=ran_s))
        locations |= {vm.name: running_on(node) for vm, node in zip(vms, places, strict=True)}
    chance.shuffle(running)
    ready = []
    for k in range(waiting):
        count, each = _size(chance, [1, 2, 4], [1, 2, 3], [512, 1024, 2048])
        vms = tuple(VM(f"w{k}-{i}", each) for i in range(count))
        ready.append(VJob(f"w{k}", vms, time_limit_s=chance.choice([600, 3600, 7200])))
        locations |= dict.fromkeys((vm.name for vm in vms), WAITING)
    (leaving,) = chance.sample(range(number), 1)
    there[leaving] = replace(there[leaving], state=NodeState.DRAINING)
    return Configuration(tuple(there), (*running, *ready), locations)


def _size(chance: random.Random, counts: list[int], cpus: list[int], mib: list[int]) -> tuple[int, Resources]:
    count = chance.choice(counts)
    cpu = chance.choice(cpus)
    return count, Resources(cpu, chance.choice(mib))


def _places(
    chance: random.Random, there: list[Node], free: dict[str, Resources], demands: list[Resources]
) -> list[str]:
    """Random nodes with room for all of these, which is taken; none if one finds none in twenty tries."""
    places: list[str] = []
    for demand in demands:
        tries = (chance.choice(there).name for _ in range(20))
        place = next((name for name in tries if free[name].holds(demand)), None)
        if place is None:
            for name in places:
                free[name] += demand
            return []
        free[place] -= demand
        places.append(place)
    return places


def of_the_engine(policy: str) -> ProposalParameters:
    """The parameters of an engine with default settings, but for the policy; without a search for a plan."""
    settings = make_settings()
    settings = settings.model_copy(update={"decision": settings.decision.model_copy(update={"policy": policy})})
    return replace(proposal_parameters(settings, RmsSnapshot(jobs=())), heuristic="repair")


def decided(source: Configuration, policy: str, parameters: Parameters) -> Decision:
    found = decide_by_rules(policy, source, parameters)
    assert isinstance(found, Decision)
    return found


def proposed(source: Configuration, parameters: ProposalParameters) -> Proposal:
    found = propose(source, parameters)
    assert isinstance(found, Proposal)
    return found


@pytest.mark.parametrize(("number", "waiting", "seed", "policy"), CASES)
def test_a_decision_is_the_same_where_the_clock_runs_fast(
    number: int, waiting: int, seed: int, policy: str, hasten: Callable[[], None]
) -> None:
    source = cluster(number, waiting, seed)
    for parameters in (Parameters(), of_the_engine(policy).decision):
        first = decided(source, policy, parameters)
        hasten()
        assert decided(source, policy, parameters) == first


def test_a_search_that_only_the_clock_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="search must have a deterministic limit"):
        Parameters(search=Search(time_limit_s=5.0))
    with pytest.raises(ValueError, match="net_s must be a number of seconds above 0, not 0"):
        Parameters(net_s=0)


def test_a_proposal_tells_that_the_clock_has_ended_searches_of_its_decision(hasten: Callable[[], None]) -> None:
    source, parameters = cluster(20, 10, 8), of_the_engine("conservative")
    calm = proposed(source, parameters)
    assert (calm.fallback, calm.decision.cut_short) == ("", "")
    hasten()
    found = proposed(source, parameters)
    assert "were ended by the clock after" in found.fallback
    assert found.fallback in found.decision.sentence and found.fallback in found.sentence
    assert found.decision.states != calm.decision.states


def test_where_the_clock_ends_the_searches_and_nothing_is_decided_the_reason_tells_so(
    hasten: Callable[[], None],
) -> None:
    demands = [Resources(1, 1024 * size) for size in (6, 5, 5, 4, 4, 3, 3, 2)]  # the two halves fill both nodes
    vms = tuple(VM(f"v{i}", demand) for i, demand in enumerate(demands))
    there = tuple(Node(f"n{i}", Resources(4, 16384)) for i in range(2))
    wanted = VJob("v", vms, target=VJobState.RUNNING)
    source = Configuration(there, (wanted,), dict.fromkeys((vm.name for vm in vms), WAITING))
    assert proposed(source, of_the_engine("conservative")).decision.states == {"v": VJobState.RUNNING}
    hasten()
    found = propose(source, of_the_engine("conservative"))
    assert isinstance(found, NoProposal)
    assert "as its target demands" in found.explanation and "were ended by the clock after" in found.explanation


def test_a_policy_of_the_site_whose_searches_the_clock_ended_is_not_said_to_be_impure(
    hasten: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked twice; the clock may cut short one of the two."""
    asked = list[Parameters]()

    def policy(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
        asked.append(parameters)
        if len(asked) == 2:
            hasten()
        return decide_by_rules("conservative", configuration, parameters)

    monkeypatch.setattr("rmsplugin.decision.own_policies.find", lambda name: policy)
    source = cluster(20, 10, 8)
    found = proposed(source, of_the_engine("site:policy"))
    assert len(asked) == 2 and "were ended by the clock" in found.fallback
    asked.clear()
    assert decide_by("site:policy", Queue(*nodes(2)).add("a").configuration, Parameters()) is not None
    assert len(asked) == 2


def test_groups_proposed_one_after_the_other_share_the_limits_of_a_decision() -> None:
    whole = of_the_engine("mixed")
    part = parameters_of(Part(("g1",), cluster(12, 6, 0)), whole, turns=4)
    limit = whole.decision.search.deterministic_limit
    assert limit is not None and part.decision.search.deterministic_limit == limit / 4
    assert part.decision.net_s == whole.decision.net_s / 4
    assert part.search.time_limit_s == whole.search.time_limit_s / 4
    assert math.isfinite(whole.decision.net_s)
