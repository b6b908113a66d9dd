"""A site's own policy decides like the others where it is right, and is refused with a sentence where it errs."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.queues import Queue, nodes, running, states

from rmsplugin.decision.breaking import rules_broken
from rmsplugin.decision.own_policies import decide_by, find
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import POLICIES, decide
from rmsplugin.decision.result import Decision, Infeasible, Sample
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.errors import OwnPolicyError
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import NodeState
from rmsplugin.model.given_rules import given_rules
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Online, Part, Root, Split, Spread, Within
from rmsplugin.model.rules import Ban

HEAD = "from dataclasses import replace\nfrom rmsplugin.policy import *\n\n"
#: What most of the policies below begin with.
ALL_RUN = """
def all_run(configuration, parameters):
    selection = Selection(configuration, parameters)
    for vjob in selection.vjobs:
        selection.add(vjob)
    return selection.decision()
"""
_numbers = itertools.count()

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module with a function ``decide``; gives the policy's name."""
    monkeypatch.syspath_prepend(tmp_path)

    def module(text: str) -> str:
        name = f"site_policy_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(HEAD + ALL_RUN + text)
        return f"{name}:decide"

    return module


def queue() -> Queue:
    """One runs, one sleeps, two wait; two nodes have a CPU each."""
    found = Queue(*nodes(2)).add("runs", "n1").add("sleeps", "zz:n1")
    return found.add("waits").add("last")


def refusal(name: str, configuration: Configuration | None = None) -> str:
    found = decide(name, configuration or queue().configuration, Parameters())
    assert isinstance(found, Infeasible), found
    return found.explanation


# -- it decides ------------------------------------------------------------------------------------------------------


def test_a_function_of_a_module_decides(write: Write) -> None:
    name = write(
        """
def decide(configuration, parameters):
    selection = Selection(configuration, parameters)
    for vjob in reversed(selection.vjobs):
        selection.add(vjob, "is the last")
    return selection.decision()
"""
    )
    decision = queue().decide(name)
    assert states(decision) == {"runs": "sleeping", "sleeps": "sleeping", "waits": "running", "last": "running"}
    assert decision.policy == name
    assert decision.reasons["last"].sentence == "is the last"
    assert "2 CPUs" not in decision.reasons["runs"].sentence and decision.reasons["runs"].code == "no-room"


def test_an_installed_package_offers_one_by_its_entry_point(write: Write, tmp_path: Path) -> None:
    name = write("decide = all_run\n")
    offer(tmp_path, "ours", f"least-first = {name}")
    assert running(queue().decide("least-first")) == {"runs", "sleeps"}


def test_two_packages_that_offer_one_name_are_both_named(write: Write, tmp_path: Path) -> None:
    first, second = write("decide = all_run\n"), write("decide = all_run\n")
    offer(tmp_path, "ours", f"twice-offered = {first}")
    offer(tmp_path, "theirs", f"twice-offered = {second}")
    assert refusal("twice-offered") == (
        f"two packages offer a policy twice-offered: {first} and {second}; name one as MODULE:FUNCTION"
    )


def offer(directory: Path, package: str, line: str) -> None:
    """Do what pip does with a package of this entry point."""
    info = directory / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rmsplugin.policies]\n{line}\n")
    find.cache_clear()


def test_those_that_must_run_are_in_the_selection_before_any_is_chosen(write: Write) -> None:
    name = write("def decide(c, p):\n    return Selection(c, p).decision()\n")
    found = Queue(*nodes(3)).add("firm", "n1", preemptible=False).add("exempt", "n2", state_s=10.0)
    found = found.add("free", "n3").add("waits")
    decision = found.decide(name)
    assert states(decision) == {"firm": "running", "exempt": "running", "free": "sleeping", "waits": "waiting"}
    assert [str(decision.reasons[each].code) for each in ("firm", "exempt", "free", "waits")] == [
        "not-preemptible",
        "exempt",
        "not-chosen",
        "not-chosen",
    ]


def test_where_those_that_must_run_have_no_room_nothing_is_decided(write: Write) -> None:
    from rmsplugin.model.vjob import VJobState

    name = write("decide = all_run\n")
    found = Queue(*nodes(1)).add("big", cpus=2, target=VJobState.RUNNING).add("waits")
    assert "vjob 'big' cannot run, as its target demands" in refusal(name, found.configuration)


@settings(max_examples=few(60), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["", "n1", "n2", "zz:n1"])), max_size=6), st.data())
def test_whatever_is_chosen_in_whatever_order_is_a_decision_that_is_not_refused(
    vjobs: list[tuple[int, str]], data: st.DataObject
) -> None:
    from rmsplugin.decision.judging import faults
    from rmsplugin.decision.selection import Selection

    found = Queue(*nodes(2, cpus=4))
    for number, (cpus, where) in enumerate(vjobs):
        found.add(f"v{number}", where, cpus=cpus, preemptible=data.draw(st.booleans()))
    if found.configuration.overloaded():
        return
    selection = Selection(found.configuration, Parameters())
    for vjob in data.draw(st.permutations(selection.vjobs)):
        if data.draw(st.booleans()):
            selection.add(vjob)
    decision = selection.decision()
    assert isinstance(decision, Decision)
    assert list(faults(found.configuration, decision)) == []


# -- it errs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def decide(c, p):\n    return None\n", "gave None, and not a Decision"),
        ("def decide(c, p):\n    return ['runs']\n", "gave a value of type list, and not a Decision"),
        ("def decide(c, p):\n    return 1 / 0\n", "failed: ZeroDivisionError: division by zero (/"),
        ("def decide(c, p):\n    raise SystemExit(3)\n", "failed: SystemExit: 3 (/"),
        ("def decide(c):\n    return None\n", "failed: TypeError: decide() takes 1 positional argument"),
        ("def decide(c, p):\n    return Infeasible('it is Sunday')\n", ": it is Sunday"),
        ("decide = 5\n", "is no function, but a value of type int"),
        ("", "has no decide"),
        ("this is no Python\n", "cannot be loaded: SyntaxError"),
        ("raise SystemExit\n", "cannot be loaded: SystemExit"),
    ],
)
def test_what_gives_no_decision_is_refused_with_what_it_did(write: Write, text: str, told: str) -> None:
    name = write(text)
    assert told in refusal(name)
    assert refusal(name).startswith(f"policy {name}")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("states={**d.states, 'nobody': d.states['runs']}", "it decided about 'nobody', and there is no such vjob"),
        ("states={}", "it decided nothing about vjob last"),
        ("states={**d.states, 'waits': VJobState.SLEEPING}", "it has vjob waits sleeping; it is waiting, and can be"),
        ("states={**d.states, 'sleeps': VJobState.WAITING}", "it has vjob sleeps waiting; it is sleeping, and can be"),
        ("states={**d.states, 'runs': VJobState.TERMINATED}", "it has vjob runs terminated"),
        ("states={**d.states, 'runs': 'asleep'}", "it has vjob runs asleep"),
        ("states={**d.states, 'last': VJobState.RUNNING}", "vjob last is to run, and VM last-0 has no node"),
        ("sentence=lambda: 0", "answered with what cannot be written: "),
        ("reasons={}", "it gave no reason for the state of vjob runs"),
        ("placement={**d.placement, 'sleeps-0': 'n9'}", "VM sleeps-0 is to be on 'n9', and there is no such node"),
        ("placement={**d.placement, 'sleeps-0': 'n1'}", "node n1 has no room for VM sleeps-0"),
    ],
)
def test_a_decision_that_cannot_be_is_refused_with_its_fault(write: Write, change: str, told: str) -> None:
    name = write(f"def decide(c, p):\n    d = all_run(c, p)\n    return replace(d, {change})\n")
    assert told in refusal(name)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            "states={name: str(each) for name, each in d.states.items()}",
            "it has vjob runs running, which is a value of type str",
        ),
        ("states=list(d.states.items())", "its states are a value of type list"),
        ("placement=None", "its placement are None, and no mapping"),
        ("placement={**d.placement, 'runs-0': 1}", "its placement have a value of type int for 'runs-0', and no str"),
        ("barred={'last': 'runs'}", "its barred have a value of type str for 'last', and no Barred"),
        ("barred=None", "its barred are None, and no mapping"),
        ("sentence=None", "its sentence is None, and no str"),
        ("cut_short=3", "its cut_short is a value of type int, and no str"),
        ("sample_first='no'", "its sample_first is a value of type str, and no bool"),
        (
            "reasons={**d.reasons, 'last': Reason('full', 'x')}",
            "the code of its reason for vjob last is a value of type str",
        ),
        ("reasons={**d.reasons, 'last': Reason(ReasonCode.FITS, None)}", "its reason for vjob last is None"),
        (
            "reasons={**d.reasons, 'last': Reason(ReasonCode.FITS, '', [1])}",
            "the numbers of its reason for vjob last are",
        ),
        (
            "reasons={**d.reasons, 'last': Reason(ReasonCode.FITS, '', {'of': [1]})}",
            "last have a value of type list for 'of'",
        ),
        ("reasons={**d.reasons, 'last': Reason(ReasonCode.FITS, '', {1: 1})}", "last have a value of type int for 1"),
        ("reasons={**d.reasons, 'last': Reason(ReasonCode.FITS, '', {'of': float('nan')})}", "have nan for 'of'"),
    ],
)
def test_a_decision_with_a_part_of_another_type_is_refused_with_that(write: Write, change: str, told: str) -> None:
    """A string that equals a state is none: the plan would be wrong by it."""
    name = write(f"def decide(c, p):\n    d = all_run(c, p)\n    return replace(d, {change})\n")
    assert told in refusal(name)


@pytest.mark.parametrize(
    ("state", "rules", "told"),
    [
        (NodeState.DRAINING, (), "VM waits-0 is to be on n2, which is draining"),
        (NodeState.DOWN, (), "VM waits-0 is to be on n2, which is down"),
        (NodeState.UP, "n1", "VM waits-0 may not be on n2"),
    ],
)
def test_a_vm_comes_to_no_node_that_it_may_not_use(write: Write, state: NodeState, rules: object, told: str) -> None:
    from rmsplugin.model.rules import Fence

    known = {"rules": (Fence(frozenset({"n1"})),)} if rules else {}
    name = write(
        "def decide(c, p):\n"
        "    d = all_run(c, p)\n"
        "    return replace(d, states={'waits': VJobState.RUNNING}, placement={'waits-0': 'n2'})\n"
    )
    found = Queue(*nodes(1), *[replace_name(nodes(1, state=state)[0])]).add("waits", **known)
    assert told in refusal(name, found.configuration)


#: Where ``waits-0`` comes to ``n2``, and a rule bars it: ``there`` runs on ``n2``, ``away`` on ``n1``.
BARRED = [
    (Spread(frozenset({"waits-0", "there-0"}), label="s"), "n2, where there-0 is (rule s: spread of"),
    (Gather(frozenset({"waits-0", "away-0"}), label="g"), "n2 while away-0 is on n1 (rule g: gather of"),
    (Split((frozenset({"waits-0"}), frozenset({"there-0"})), label="p"), "n2, where there-0 is (rule p: split of"),
    (Lonely(frozenset({"there-0"}), label="l"), "n2, where there-0 is (rule l: lonely"),
    (Capacity(frozenset({"n2"}), frozenset({"waits-0", "there-0"}), 1, label="c"), "n2: it would be one of 2 there"),
    (
        Within((frozenset({"n1"}), frozenset({"n2"})), frozenset({"waits-0", "away-0"}), 1, label="w"),
        "n2: they would be on 2 sets of nodes (rule w: within",
    ),
    (Part(frozenset({"waits-0"}), Ban(frozenset({"n2"})), label="b"), "n2, which is one of the 1 nodes that it may"),
]


def with_rule(source: Configuration, rule: Joint) -> Configuration:
    return Configuration(source.nodes, given_rules(source.vjobs, [(rule, rule.names)]), source.locations)


def own_placement(write: Write, places: dict[str, str]) -> str:
    """A policy that has all these run, and places them itself."""
    return write(
        "def decide(c, p):\n"
        "    d = all_run(c, p)\n"
        "    states = {name: VJobState.RUNNING for name in d.states}\n"
        f"    return replace(d, states=states, placement={places})\n"
    )


@pytest.mark.parametrize(("rule", "told"), BARRED, ids=lambda each: type(each).__name__)
def test_a_place_against_a_rule_about_vms_beside_each_other_is_refused_with_it(
    write: Write, rule: Joint, told: str
) -> None:
    name = own_placement(write, {"waits-0": "n2", "there-0": "n2", "away-0": "n1"})
    found = Queue(*nodes(2, cpus=4)).add("waits").add("there", "n2").add("away", "n1").configuration
    assert isinstance(decide(name, found, Parameters()), Decision)
    assert isinstance(decide_by_rules(name, with_rule(found, rule), Parameters()), Infeasible)
    said = refusal(name, with_rule(found, rule))
    assert said.startswith(f"policy {name}: vjob waits is placed against a rule: waits-0 may not be on n2")
    assert told in said


def test_a_migration_against_a_rule_and_a_node_too_many_are_refused(write: Write) -> None:
    name = own_placement(write, {"a-0": "n2", "b-0": "n1"})
    found = Queue(*nodes(2, cpus=4)).add("a", "n1").add("b", "n1").configuration
    rooted, online = Root(frozenset({"a-0"}), label="r"), Online(frozenset({"n1", "n2"}), 1, label="o")
    assert "vjob a is placed against a rule: a-0 may not migrate from n1 to n2 (rule r" in refusal(
        name, with_rule(found, rooted)
    )
    assert "a-0 may not be on n2: it would be one of 2 nodes with VMs (rule o" in refusal(
        name, with_rule(found, online)
    )


def test_vms_that_stay_where_they_are_against_a_rule_are_no_fault_of_a_policy(write: Write) -> None:
    name = own_placement(write, {"a-0": "n1", "b-0": "n1"})
    found = Queue(*nodes(2, cpus=4)).add("a", "n1").add("b", "n1").configuration
    assert isinstance(decide(name, with_rule(found, Spread(frozenset({"a-0", "b-0"}))), Parameters()), Decision)


@pytest.mark.parametrize(("rule", "_"), BARRED, ids=lambda each: type(each).__name__)
def test_the_places_of_a_selection_are_not_its_policys_and_rules_move_them(write: Write, rule: Joint, _: str) -> None:
    name = write("decide = all_run\n")
    found = with_rule(Queue(*nodes(2, cpus=4)).add("waits").add("there", "n2").add("away", "n1").configuration, rule)
    decision = decide_by_rules(name, found, Parameters())
    assert isinstance(decision, Decision)
    assert running(decision) == {"waits", "there", "away"}
    assert list(rules_broken(found, decision.placement)) == []


CHANGES = (
    *("p['waits-0'] = 'n2'", "p.update({'waits-0': 'n2'})", "p |= {'waits-0': 'n2'}", "p.setdefault('x', 'n2')"),
    *("p.pop('waits-0')", "p.popitem()", "p.clear()", "del p['waits-0']"),
)


@pytest.mark.parametrize("change", CHANGES)
def test_the_places_of_a_selection_cannot_be_changed_in_place(write: Write, change: str) -> None:
    name = write(f"def decide(c, p):\n    d = all_run(c, p)\n    p = d.placement\n    {change}\n    return d\n")
    said = refusal(name, Queue(*nodes(2, cpus=4)).add("waits").configuration)
    assert said.startswith(
        f"policy {name} failed: TypeError: the placement of a Selection's decision cannot be changed"
    )
    assert "replace(decision, placement={**decision.placement, VM: NODE})" in said
    assert f"{name.partition(':')[0]}.py" in said, "the policy's line is told"


@pytest.mark.parametrize("made", ["{**d.placement, **OWN}", "d.placement | OWN", "dict(d.placement, **OWN)"])
def test_a_changed_copy_of_a_selections_places_is_judged_by_rules(write: Write, made: str) -> None:
    own = "OWN = {'waits-0': 'n2', 'there-0': 'n2', 'away-0': 'n1'}\n"
    name = write(f"{own}def decide(c, p):\n    d = all_run(c, p)\n    return replace(d, placement={made})\n")
    found = Queue(*nodes(2, cpus=4)).add("waits").add("there", "n2").add("away", "n1").configuration
    assert "vjob waits is placed against a rule" in refusal(name, with_rule(found, BARRED[0][0]))


def test_copies_of_a_selections_places_hold_the_same() -> None:
    places = Sample({"a": "n1"})
    for copied in (copy.copy(places), copy.deepcopy(places), pickle.loads(pickle.dumps(places))):
        assert (type(copied), copied) == (Sample, places)
    assert type(places.copy()) is dict


def test_a_policy_can_ask_which_rules_its_places_break(write: Write) -> None:
    name = write(
        """
def decide(c, p):
    d = all_run(c, p)
    tries = ({**d.placement, "waits-0": node.name} for node in c.nodes)
    return replace(d, placement=next(each for each in tries if not list(rules_broken(c, each))))
"""
    )
    found = Queue(*nodes(2, cpus=4)).add("waits").add("there", "n1").configuration
    spread = Spread(frozenset({"waits-0", "there-0"}))
    decision = decide(name, with_rule(found, spread), Parameters())
    assert isinstance(decision, Decision)
    assert decision.placement == {"waits-0": "n2", "there-0": "n1"}


def replace_name(node: object) -> object:
    from dataclasses import replace

    return replace(node, name="n2")  # type: ignore[type-var]


def test_vms_that_must_run_stay_where_they_are_whatever_has_become_of_their_node(write: Write) -> None:
    name = write("decide = all_run\n")
    found = Queue(*nodes(1), *[replace_name(nodes(1, state=NodeState.DRAINING)[0])])
    found.add("one", "n1", preemptible=False).add("other", "n1", preemptible=False)
    found.add("drained", "n2", preemptible=False)
    assert running(found.decide(name)) == {"one", "other", "drained"}


def test_a_vm_that_runs_elsewhere_comes_to_no_node_without_room(write: Write) -> None:
    name = write(
        "def decide(c, p):\n    d = all_run(c, p)\n    return replace(d, placement={'a-0': 'n2', 'b-0': 'n2'})\n"
    )
    found = Queue(*nodes(2)).add("a", "n1").add("b", "n2")
    assert "node n2 has no room for VM a-0" in refusal(name, found.configuration)


def test_one_that_may_not_be_preempted_is_not_suspended_by_anybody(write: Write) -> None:
    name = write(
        "def decide(c, p):\n"
        "    d = all_run(c, p)\n"
        "    return replace(d, states={'firm': VJobState.SLEEPING}, placement={})\n"
    )
    found = Queue(*nodes(1)).add("firm", "n1", preemptible=False)
    assert "it has vjob firm sleeping, which is not preemptible" in refusal(name, found.configuration)


def test_a_policy_that_is_not_pure_is_refused_with_what_differs(write: Write) -> None:
    name = write(
        """
calls = []
def decide(configuration, parameters):
    calls.append(1)
    selection = Selection(configuration, parameters)
    for vjob in selection.vjobs if len(calls) % 2 else reversed(selection.vjobs):
        selection.add(vjob)
    return selection.decision()
"""
    )
    told = refusal(name)
    assert told == (
        f"policy {name} is not pure: of two answers about the same, one has vjob runs running, and the other sleeping"
    )


def test_what_a_policy_does_to_what_it_was_given_harms_nobody(write: Write) -> None:
    name = write("def decide(c, p):\n    d = all_run(c, p)\n    c.locations.clear()\n    return d\n")
    configuration = queue().configuration
    assert isinstance(decide_by(name, configuration, Parameters()), Decision)
    assert len(configuration.locations) == 4


def test_a_vjob_is_added_once_and_only_if_it_is_the_policys(write: Write) -> None:
    twice = write("def decide(c, p):\n    s = Selection(c, p)\n    s.add(s.vjobs[0])\n    s.add(s.vjobs[0])\n")
    assert "vjob runs was added before, or is not the policy's to decide about" in refusal(twice)


def test_an_unknown_policy_is_named_with_those_that_exist() -> None:
    told = refusal("lottery")
    assert told.startswith("there is no policy 'lottery'; there are fcfs, easy, conservative, easy-preempt")
    assert all(name in told for name in POLICIES)
    with pytest.raises(OwnPolicyError, match=r"No module named .nowhere."):
        find("nowhere:decide")
