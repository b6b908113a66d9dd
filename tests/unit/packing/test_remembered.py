"""Remembered: a program that is as it was is not solved again, and any other one is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from ortools.sat.python import cp_model

from rmsplugin.model.elements import VM, Node
from rmsplugin.model.joint import Gather, Joint, Split, Spread
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.packing import remembered, ruled_program
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.item import Item
from rmsplugin.packing.net import Net
from rmsplugin.packing.remembered import Answer, Answers
from rmsplugin.packing.repair import Repair, Repaired
from rmsplugin.packing.ruled_program import Wish, solve
from rmsplugin.packing.search import Search

SEARCH = Search(deterministic_limit=1.0)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The deterministic limit of each run of a solver; nothing is known from before."""
    limits: list[float] = []
    solve = cp_model.CpSolver.solve

    def counted(self: cp_model.CpSolver, model: cp_model.CpModel) -> cp_model.CpSolverStatus:
        limits.append(self.parameters.max_deterministic_time)
        return solve(self, model)

    monkeypatch.setattr(cp_model.CpSolver, "solve", counted)
    remembered.answers.cache_clear()
    yield limits
    remembered.answers.cache_clear()


def crowded(
    vms: str = "abc",
    nodes: tuple[str, str] = ("n1", "n2"),
    memory_mib: int = 4,
    small: int = 2,
    only: str = "",
    at: int = 1,
    search: Search = SEARCH,
) -> Repaired | None:
    """Two VMs of ``small`` MiB on a node each, and a third of 4 MiB that has a place where both are on one node."""
    first, second, third = vms
    anywhere, there_only = allowing(None, frozenset()), allowing(frozenset({only}) if only else None, frozenset())
    items = [Item(VM(name, Resources(0, small)), anywhere) for name in (first, second)]
    items.append(Item(VM(third, Resources(0, 4)), there_only))
    there = [Node(name, Resources(4, memory_mib)) for name in nodes]
    repair = Repair(items, there, {first: nodes[0], second: nodes[at]})
    return repair.by_program(search)


@pytest.mark.parametrize("search", [SEARCH, Search(time_limit_s=60.0)])
@pytest.mark.parametrize("small", [2, 3])
def test_what_was_solved_or_proven_impossible_is_not_solved_again(
    runs: list[float], search: Search, small: int
) -> None:
    first = crowded(small=small, search=search)
    assert len(runs) == 1 and (first is None) == (small == 3)
    assert crowded(small=small, search=search) == first
    assert len(runs) == 1


def test_an_answer_is_given_to_other_vms_and_nodes_by_their_names(runs: list[float]) -> None:
    found, other = crowded(), crowded(vms="xyz", nodes=("m1", "m2"))
    assert len(runs) == 1 and found is not None and other is not None
    names = {"a": "x", "b": "y", "c": "z", "n1": "m1", "n2": "m2"}
    assert other.assignment == {names[vm]: names[node] for vm, node in found.assignment.items()}
    assert other.moved_mib == found.moved_mib == 2


@pytest.mark.parametrize(
    "otherwise", [{"memory_mib": 5}, {"small": 1}, {"only": "n2"}, {"only": "n1"}, {"at": 0}], ids=str
)
def test_whatever_it_depends_on_makes_another_question(runs: list[float], otherwise: dict[str, object]) -> None:
    crowded()
    asked = crowded(**otherwise)  # type: ignore[arg-type]
    assert len(runs) == 2
    remembered.answers.cache_clear()
    assert crowded(**otherwise) == asked  # type: ignore[arg-type]


def test_another_seed_makes_another_question(runs: list[float]) -> None:
    crowded()
    crowded(search=replace(SEARCH, seed=7))
    assert len(runs) == 2


def test_a_proven_answer_is_not_sought_again_within_other_limits(runs: list[float]) -> None:
    """So is a decision made again with half the limits of the one before (``decision.ruled``)."""
    found = crowded()
    for limit in (2.0, 0.5):
        assert crowded(search=Search(deterministic_limit=limit)) == found
    assert len(runs) == 1


def test_a_proven_answer_holds_for_all_limits_in_which_there_is_time_for_it() -> None:
    known, proven, best = Answers(), Answer(None, 0.5), Answer({(0, 0): 1}, 1.0)
    known.learn(SEARCH, "proven", proven, is_proven=True)
    known.learn(SEARCH, "best so far", best, is_proven=False)
    for limit, found in ((2.0, [proven, None]), (1.0, [proven, best]), (0.5, [proven, None]), (0.4, [None, None])):
        limits = Search(deterministic_limit=limit)
        assert [known.within(limits, question) for question in ("proven", "best so far")] == found
    by_the_clock = Search(time_limit_s=SEARCH.time_limit_s)
    assert known.within(by_the_clock, "proven") == proven


def test_a_remembered_answer_takes_what_it_took_of_a_deterministic_limit(runs: list[float]) -> None:
    """So what comes after it has the same limits, and the whole answer depends on nothing that happened before."""

    def impossible() -> Repaired | None:
        """Twenty nodes, in neighbourhoods that grow: each run has a part of what those before it left."""
        anywhere = allowing(None, frozenset())
        items = [Item(VM(f"vm{i:02}", Resources(0, 26 + i % 5)), anywhere) for i in range(60)]
        items.append(Item(VM("large", Resources(0, 60)), anywhere))
        nodes = [Node(f"n{i:02}", Resources(4, 100)) for i in range(20)]
        return Repair(items, nodes, {f"vm{i:02}": f"n{i // 3:02}" for i in range(60)}).by_program(SEARCH)

    assert impossible() is None
    first, known = list(runs), remembered.answers()
    assert len(first) > 1
    last = list(known._known)[-1]
    del known._known[last]
    assert impossible() is None
    assert runs[len(first) :] == first[-1:]


def test_a_search_that_the_clock_ended_is_made_again(runs: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp_model.CpSolver, "solve", lambda self, model: runs.append(0) or _given_up(self, model))
    for number in (1, 2):
        assert crowded(search=Search(time_limit_s=60.0)) is None
        assert len(runs) == number


def test_what_a_net_cut_short_is_not_remembered(runs: list[float]) -> None:
    """Its limits are deterministic, and the question is the same with a net as without one."""
    net = Net(1e-9)
    assert crowded(search=replace(SEARCH, net=net)) is None
    assert net.has_struck
    assert crowded() is not None
    assert len(runs) == 2
    roomy = Net(60.0)
    assert crowded(search=replace(SEARCH, net=roomy)) is not None
    assert len(runs) == 2 and not roomy.has_struck


def _given_up(solver: cp_model.CpSolver, model: cp_model.CpModel) -> cp_model.CpSolverStatus:
    """A run that has no time for anything."""
    solver.parameters.max_deterministic_time = 0.0
    status = _SOLVE(solver, model)
    assert status == cp_model.UNKNOWN
    return status


_SOLVE = cp_model.CpSolver.solve


def test_the_answers_that_were_asked_for_last_are_kept() -> None:
    answers, none = Answers(2), Answer(None, 0.0)
    answers.keep("a", none)
    answers.keep("b", none)
    assert answers.find("a") is none
    answers.keep("c", none)
    assert [answers.find(each) for each in "abc"] == [none, None, none]


def ruled(
    vms: str = "ab",
    nodes: str = "12",
    rule: Callable[[frozenset[str]], Joint] = Spread,
    limit: float = 1.0,
    cpus: int = 1,
    strangers: str = "",
) -> ruled_program.Answer | None:
    """The answer to VMs of a CPU on nodes of two, by a rule about them and ``strangers``, who do not come."""
    items = [Item(VM(name, Resources(cpus, 0))) for name in vms]
    cluster = [Node(name, Resources(2, 0)) for name in nodes]
    about = rule(frozenset((*vms, *strangers)))
    return solve(items, cluster, [about], {}, {}, Wish(a_node=1), Budget(Search(deterministic_limit=limit)))


def each_in_a_group(vms: frozenset[str]) -> Split:
    return Split(tuple(frozenset(vm) for vm in sorted(vms)))


@pytest.mark.parametrize("rule", [Spread, Gather, each_in_a_group])
def test_a_program_of_rules_is_not_solved_again_for_other_names(
    runs: list[float], rule: Callable[[frozenset[str]], Joint]
) -> None:
    found = ruled(rule=rule)
    assert len(runs) == 1 and found is not None and found.hosts is not None
    others = {"a": "x", "b": "y", "1": "8", "2": "9"}
    again = ruled("xy", "89", rule, strangers="z")
    assert again == (type(found)({others[vm]: others[node] for vm, node in found.hosts.items()}, found.bound))
    assert len(runs) == 1


@pytest.mark.parametrize("otherwise", [{"vms": "abc"}, {"nodes": "123"}, {"rule": Gather}, {"cpus": 2}], ids=str)
def test_another_program_of_rules_is_another_question(runs: list[float], otherwise: dict[str, object]) -> None:
    ruled()
    asked = ruled(**otherwise)  # type: ignore[arg-type]
    assert len(runs) == 2
    remembered.answers.cache_clear()
    assert ruled(**otherwise) == asked  # type: ignore[arg-type]


def test_a_proven_answer_of_rules_holds_for_any_limit_that_it_needed_no_more_of(runs: list[float]) -> None:
    impossible = ruled("abc")
    assert impossible is not None and impossible.bound is None
    assert ruled("abc", limit=2.0) == impossible
    assert len(runs) == 1


def test_a_remembered_answer_of_rules_takes_what_it_took_of_the_limit() -> None:
    remembered.answers.cache_clear()
    left = []
    for _ in range(2):
        budget = Budget(Search(deterministic_limit=1.0))
        items = [Item(VM(f"v{i}", Resources(1, i))) for i in range(9)]
        nodes = [Node(f"n{i}", Resources(2, 12)) for i in range(6)]
        solve(items, nodes, [Spread(frozenset(f"v{i}" for i in range(6)))], {}, {}, Wish(a_node=1), budget)
        left.append(budget.left)
    assert left[0] == left[1] < 1.0
