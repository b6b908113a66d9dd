"""An engine whose group another manager has ends in order, when its own manager has not said so for a while."""

from __future__ import annotations

from rmsplugin.adapters.coordination.assignments import Assignment, Assignments
from rmsplugin.adapters.simulated.ensemble import SimulatedEnsemble
from rmsplugin.engine.controllers.given_to import GivenTo


def test_it_ends_once_when_another_manager_has_the_group_for_a_while() -> None:
    now, ended = [0.0], list[float]()
    ensemble = SimulatedEnsemble(lambda: now[0])
    tree = ensemble.open(1000.0)
    assignments = Assignments(tree, "/rmsplugin/assigned")
    given = GivenTo(assignments, "g", "one", 4.0, lambda: ended.append(now[0]), lambda: now[0])

    def look(seconds: int) -> None:
        for _ in range(seconds):
            now[0] += 1.0
            given.note_owner()

    look(9)
    known = assignments.write("g", Assignment(("n1",), "one"))
    look(9)
    known = assignments.write("g", Assignment(("n1",), "two", known.version))
    look(4)  # its manager may say so yet
    known = assignments.write("g", Assignment(("n1",), "one", known.version))
    look(9)
    known = assignments.write("g", Assignment(("n1",), "", known.version))
    look(9)  # nobody has it: it goes on
    assert ended == []
    assignments.write("g", Assignment(("n1",), "two", known.version))
    tree.cut = True
    look(9)
    assert ended == [], "nothing is known"
    tree.cut = False
    look(9)
    assert ended == [54.0]
