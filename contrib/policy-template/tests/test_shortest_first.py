"""Who has the least time left runs first, and small differences switch nobody."""

from shortest_first import shortest_first

from rmsplugin.policy import VM, Configuration, Decision, Location, Node, Parameters, Resources, VJob, VMState


def decided(*vjobs: tuple[str, float, bool]) -> set[str]:
    """The names of those that run on one node with one CPU; of each: name, time limit, whether it runs now."""
    one = Resources(1.0, 1024)
    queue = tuple(VJob(name, (VM(f"{name}-0", one),), time_limit_s=limit_s) for name, limit_s, _ in vjobs)
    places = {
        f"{name}-0": Location(VMState.RUNNING, "n1") if runs else Location(VMState.WAITING) for name, _, runs in vjobs
    }
    decision = shortest_first(Configuration((Node("n1", one),), queue, places), Parameters())
    assert isinstance(decision, Decision)
    return {name for name, state in decision.states.items() if state == "running"}


def test_the_shortest_one_runs() -> None:
    """Whoever came first."""
    assert decided(("long", 7200.0, False), ("short", 600.0, False)) == {"short"}


def test_one_that_runs_makes_way_only_for_one_that_is_much_shorter() -> None:
    """A switch for less would not pay."""
    assert decided(("runs", 3600.0, True), ("shorter", 1800.0, False)) == {"runs"}
    assert decided(("runs", 3600.0, True), ("much-shorter", 600.0, False)) == {"much-shorter"}
