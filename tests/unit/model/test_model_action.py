"""The actions: what each begins and ends in, needs, gives back, and why it cannot begin."""

from __future__ import annotations

import itertools

import pytest

from rmsplugin.model.action import (
    TRANSITIONS,
    Action,
    ActionKind,
    InfeasibleActionError,
    migrate,
    pause,
    resume,
    run,
    stop,
    suspend,
    unpause,
)
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    SHARED,
    TERMINATED,
    VM,
    WAITING,
    Location,
    Node,
    NodeState,
    VJob,
    VMState,
    paused_on,
    running_on,
    sleeping_on,
)
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing

A = VM("a", Resources(1, 512))
B = VM("b", Resources(1, 600))
NODES = (
    Node("n1", Resources(1, 1024)),
    Node("n2", Resources(1, 1024)),
    Node("draining", Resources(1, 1024), NodeState.DRAINING),
    Node("down", Resources(1, 1024), NodeState.DOWN),
    Node("forbidden", Resources(1, 1024)),
)


def where(a: Location, b: Location = WAITING) -> Configuration:
    """VM a (512 MiB, not allowed on ``forbidden``) and VM b (600 MiB) there."""
    return Configuration(
        NODES, (VJob("va", (A,), rules=allowing(exclude=frozenset({"forbidden"}))), VJob("vb", (B,))), {"a": a, "b": b}
    )


PLACES = {
    VMState.WAITING: WAITING,
    VMState.RUNNING: running_on("n1"),
    VMState.PAUSED: paused_on("n1"),
    VMState.SLEEPING: sleeping_on("n1"),
    VMState.TERMINATED: TERMINATED,
}

ACTIONS = {
    "run": run(A, "n2"),
    "stop": stop(A, "n1"),
    "requeue": stop(A, "n1", requeue=True),
    "migrate": migrate(A, "n1", "n2"),
    "bypass migrate": migrate(A, "n1", "n2", bypass=True),
    "suspend": suspend(A, "n1"),
    "suspend to shared storage": suspend(A, "n1", SHARED),
    "resume here": resume(A, "n1", "n1"),
    "resume elsewhere": resume(A, "n1", "n2"),
    "pause": pause(A, "n1"),
    "unpause": unpause(A, "n1"),
    "migrate paused": migrate(A, "n1", "n2", paused=True),
    "save": suspend(A, "n1", paused=True),
}

#: The whole table: what each action makes of a VM in each state (on n1); nothing where it is illegal.
EFFECTS: dict[tuple[str, VMState], Location] = {
    ("run", VMState.WAITING): running_on("n2"),
    ("stop", VMState.RUNNING): TERMINATED,
    ("stop", VMState.SLEEPING): TERMINATED,
    ("requeue", VMState.RUNNING): WAITING,
    ("requeue", VMState.SLEEPING): WAITING,
    ("migrate", VMState.RUNNING): running_on("n2"),
    ("bypass migrate", VMState.RUNNING): running_on("n2"),
    ("suspend", VMState.RUNNING): sleeping_on("n1"),
    ("suspend to shared storage", VMState.RUNNING): sleeping_on(SHARED),
    ("resume here", VMState.SLEEPING): running_on("n1"),
    ("resume elsewhere", VMState.SLEEPING): running_on("n2"),
    ("stop", VMState.PAUSED): TERMINATED,
    ("requeue", VMState.PAUSED): WAITING,
    ("pause", VMState.RUNNING): paused_on("n1"),
    ("unpause", VMState.PAUSED): running_on("n1"),
    ("migrate paused", VMState.PAUSED): paused_on("n2"),
    ("save", VMState.PAUSED): sleeping_on("n1"),
}


@pytest.mark.parametrize(("name", "state"), list(itertools.product(ACTIONS, VMState)))
def test_each_action_in_each_state(name: str, state: VMState) -> None:
    action, before = ACTIONS[name], where(PLACES[state])
    after = EFFECTS.get((name, state))
    assert action.is_applicable(before) is action.is_feasible(before) is (after is not None)
    assert after is None or state in TRANSITIONS[action.kind]
    if after is None:
        assert action.obstacle(before) == f"a is {PLACES[state]}"
        with pytest.raises(InfeasibleActionError, match=f"a is {PLACES[state]}$"):
            action.apply(before)
    else:
        assert action.apply(before) == where(after)
        assert action.after == after
        assert after.state in TRANSITIONS[action.kind][state]


def test_the_table_of_transitions_has_every_kind_and_no_edge_that_nothing_uses() -> None:
    assert set(TRANSITIONS) == set(ActionKind)
    used = {(ACTIONS[name].kind, state, after.state) for (name, state), after in EFFECTS.items()}
    assert used == {(kind, begin, end) for kind, ends in TRANSITIONS.items() for begin in ends for end in ends[begin]}


@pytest.mark.parametrize(
    ("name", "state", "frees", "demands"),
    [
        ("run", VMState.WAITING, None, "n2"),
        ("stop", VMState.RUNNING, "n1", None),
        ("stop", VMState.SLEEPING, None, None),
        ("requeue", VMState.SLEEPING, None, None),
        ("migrate", VMState.RUNNING, "n1", "n2"),
        ("suspend", VMState.RUNNING, "n1", None),
        ("suspend to shared storage", VMState.RUNNING, "n1", None),
        ("resume here", VMState.SLEEPING, None, "n1"),
        ("resume elsewhere", VMState.SLEEPING, None, "n2"),
        ("pause", VMState.RUNNING, None, None),
        ("unpause", VMState.PAUSED, None, None),
        ("migrate paused", VMState.PAUSED, "n1", "n2"),
        ("save", VMState.PAUSED, "n1", None),
        ("stop", VMState.PAUSED, "n1", None),
    ],
)
def test_what_an_action_gives_back_and_needs_is_what_applying_it_changes(
    name: str, state: VMState, frees: str | None, demands: str | None
) -> None:
    action, before = ACTIONS[name], where(PLACES[state])
    assert (action.frees(before), action.demands) == (frees, demands)
    after = action.apply(before)
    changes = {node.name: before.free(node.name).memory_mib - after.free(node.name).memory_mib for node in NODES}
    expected = dict.fromkeys((node.name for node in NODES), 0)
    if frees:
        expected[frees] -= 512
    if demands:
        expected[demands] += 512
    assert changes == expected


@pytest.mark.parametrize(
    ("action", "a", "b", "obstacle"),
    [
        (run(A, "draining"), WAITING, WAITING, "draining is draining"),
        (run(A, "down"), WAITING, WAITING, "down is down"),
        (run(A, "n9"), WAITING, WAITING, "there is no node 'n9'"),
        (run(A, SHARED), WAITING, WAITING, "there is no node 'shared'"),
        (run(A, "forbidden"), WAITING, WAITING, "vjob va may not be on forbidden"),
        (run(A, "n1"), WAITING, running_on("n1"), "n1 has 424 MiB free, it needs 512"),
        (resume(A, "n2", "n1"), sleeping_on("n2"), running_on("n1"), "n1 has 424 MiB free, it needs 512"),
        (resume(A, "n1", "n2"), sleeping_on("n2"), WAITING, "a is sleeping on n2"),
        (resume(A, "n1", "draining"), sleeping_on("n1"), WAITING, "draining is draining"),
        (migrate(A, "n1", "n2"), running_on("n1"), running_on("n2"), "n2 has 424 MiB free, it needs 512"),
        (migrate(A, "n2", "n1"), running_on("n1"), WAITING, "a is running on n1"),
        (migrate(A, "n1", "n1"), running_on("n1"), WAITING, "a is there already"),
        (migrate(A, "n1", "forbidden"), running_on("n1"), WAITING, "vjob va may not be on forbidden"),
        (migrate(A, "n1", "down"), running_on("n1"), WAITING, "down is down"),
        (suspend(A, "n2"), running_on("n1"), WAITING, "a is running on n1"),
        (suspend(A, "n1", "n2"), running_on("n1"), WAITING, "a state is saved where the VM is, or on shared storage"),
        (pause(A, "n2"), running_on("n1"), WAITING, "a is running on n1"),
        (pause(A, "n1"), paused_on("n1"), WAITING, "a is paused on n1"),
        (suspend(A, "n1"), paused_on("n1"), WAITING, "a is paused on n1"),
        (migrate(A, "n1", "n2", paused=True), running_on("n1"), WAITING, "a is running on n1"),
        (migrate(A, "n1", "n2", paused=True), paused_on("n1"), running_on("n2"), "n2 has 424 MiB free, it needs 512"),
        (unpause(A, "n1"), paused_on("n1"), running_on("n1"), "n1 has 0 CPUs free, it needs 1"),
        (unpause(A, "draining"), paused_on("draining"), WAITING, "draining is draining"),
        (unpause(A, "forbidden"), paused_on("forbidden"), WAITING, "vjob va may not be on forbidden"),
        (unpause(A, "n2"), paused_on("n1"), WAITING, "a is paused on n1"),
        (stop(A, "n2"), running_on("n1"), WAITING, "a is running on n1"),
        (stop(A, "n1"), sleeping_on(SHARED), WAITING, "a is sleeping on shared"),
        (run(VM("z", A.demand), "n1"), WAITING, WAITING, "z is unknown"),
    ],
    ids=str,
)
def test_why_an_action_cannot_begin(action: Action, a: Location, b: Location, obstacle: str) -> None:
    configuration = where(a, b)
    assert not action.is_feasible(configuration)
    with pytest.raises(InfeasibleActionError) as caught:
        action.apply(configuration)
    assert str(caught.value) == f"{action} is not feasible: {obstacle}"


@pytest.mark.parametrize(
    ("action", "a", "b"),
    [
        (migrate(A, "draining", "n1"), running_on("draining"), WAITING),
        (suspend(A, "draining"), running_on("draining"), WAITING),
        (stop(A, "draining"), running_on("draining"), WAITING),
        (resume(A, "draining", "n1"), sleeping_on("draining"), WAITING),
        (migrate(A, "forbidden", "n1"), running_on("forbidden"), WAITING),
        (run(B, "forbidden"), WAITING, WAITING),
        (resume(A, SHARED, "n1"), sleeping_on(SHARED), WAITING),
        (stop(A, SHARED), sleeping_on(SHARED), WAITING),
        (pause(A, "draining"), running_on("draining"), WAITING),
        (suspend(A, "draining", paused=True), paused_on("draining"), WAITING),
        (unpause(A, "n1"), paused_on("n1"), paused_on("n1")),  # its memory it has, and another's CPUs are free
        (suspend(B, "n1"), running_on("n1"), running_on("n1")),  # overcommitted: what leaves is always feasible
    ],
    ids=str,
)
def test_what_leaves_may_always_leave(action: Action, a: Location, b: Location) -> None:
    assert action.is_feasible(where(a, b))
    assert action.apply(where(a, b)).locations[action.vm.name] == action.after


def test_memory_to_the_last_mib_and_cpus_not_at_all_while_a_plan_is_carried_out() -> None:
    greedy, exact, over = VM("x", Resources(9, 512)), VM("y", Resources(9, 512)), VM("z", Resources(0, 1))
    vjob = VJob("v", (greedy, exact, over))
    half = Configuration(NODES, (vjob,), {"x": running_on("n1"), "y": WAITING, "z": WAITING})
    full = run(exact, "n1").apply(half)
    assert full.overloaded() == ["n1"]
    assert not run(over, "n1").is_feasible(full)


def test_the_demand_that_counts_is_the_configurations_not_the_one_it_was_planned_with() -> None:
    small = VM("a", Resources(1, 16))
    assert run(small, "n1").obstacle(where(WAITING, running_on("n1"))) == "n1 has 424 MiB free, it needs 512"


@pytest.mark.parametrize(
    ("kind", "source", "destination"),
    [
        (ActionKind.RUN, None, None),
        (ActionKind.RUN, "n1", "n2"),
        (ActionKind.STOP, None, None),
        (ActionKind.STOP, "n1", "n2"),
        (ActionKind.MIGRATE, "n1", None),
        (ActionKind.MIGRATE, None, "n1"),
        (ActionKind.SUSPEND, "n1", None),
        (ActionKind.SUSPEND, None, "n1"),
        (ActionKind.RESUME, "n1", ""),
        (ActionKind.RESUME, "", "n1"),
        (ActionKind.PAUSE, None, None),
        (ActionKind.PAUSE, "n1", "n1"),
        (ActionKind.UNPAUSE, "n1", None),
    ],
)
def test_an_action_that_leaves_a_choice_is_refused(
    kind: ActionKind, source: str | None, destination: str | None
) -> None:
    with pytest.raises(ValueError, match=f"^{kind} a needs "):
        Action(kind, A, source, destination)


def test_a_paused_vm_goes_on_where_it_is() -> None:
    with pytest.raises(ValueError, match="goes on where it is, and not on 'n2'"):
        Action(ActionKind.UNPAUSE, A, "n1", "n2")


@pytest.mark.parametrize("name", ["run", "stop", "resume here", "pause", "unpause"])
def test_only_migrations_and_saves_are_marked_as_of_a_paused_vm(name: str) -> None:
    action = ACTIONS[name]
    with pytest.raises(ValueError, match="only migrate and suspend"):
        Action(action.kind, A, action.source, action.destination, paused=True)


def test_a_pause_frees_the_cpus_and_keeps_the_memory_until_it_is_saved() -> None:
    before = where(running_on("n1"))
    paused = pause(A, "n1").apply(before)
    assert paused.free("n1") == Resources(1, 512)
    saved = suspend(A, "n1", paused=True).apply(paused)
    assert saved.free("n1") == Resources(1, 1024)


@pytest.mark.parametrize("action", [ACTIONS[name] for name in ("run", "stop", "pause", "unpause")], ids=str)
def test_no_bypass_boots_or_ends_a_vm(action: Action) -> None:
    with pytest.raises(ValueError, match="can be a bypass"):
        Action(action.kind, A, action.source, action.destination, bypass=True)


@pytest.mark.parametrize("name", ["run", "migrate", "suspend", "resume here"])
def test_only_a_stop_requeues(name: str) -> None:
    action = ACTIONS[name]
    with pytest.raises(ValueError, match="only a stop"):
        Action(action.kind, A, action.source, action.destination, requeue=True)


def test_local_is_a_resume_that_copies_nothing() -> None:
    assert [resume(A, image, "n1").is_local for image in ("n1", "n2", SHARED)] == [True, False, True]


def test_an_action_says_what_it_does() -> None:
    assert [str(action) for action in ACTIONS.values()] == [
        "run a to n2",
        "stop a from n1",
        "stop a from n1, to begin anew",
        "migrate a from n1 to n2",
        "bypass migrate a from n1 to n2",
        "suspend a from n1 to n1",
        "suspend a from n1 to shared",
        "resume a from n1 to n1",
        "resume a from n1 to n2",
        "pause a from n1",
        "unpause a from n1 to n1",
        "migrate paused a from n1 to n2",
        "suspend paused a from n1 to n1",
    ]
