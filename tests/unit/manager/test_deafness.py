"""A manager that cannot hear: it has clients ask another one, and engines on all hosts take nobody for silent."""

from __future__ import annotations

from rmsplugin.adapters.coordination.words_of_managers import DEAF, WordsOfManagers
from rmsplugin.adapters.simulated.ensemble import SimulatedEnsemble
from rmsplugin.engine.context.hearing import Hearing
from rmsplugin.engine.controllers.deaf_entries import DeafEntries
from rmsplugin.errors import UnavailableError
from rmsplugin.manager.deafness import Deafness

MUNGE = "munged does not answer"


class Site:
    """Two managers, and an engine that none of them is on the host of."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.ensemble = SimulatedEnsemble(lambda: self.now)
        self.trees = {name: self.ensemble.open(4.0) for name in ("c1:7", "c2:7", "engine")}
        self.managers = {name: WordsOfManagers(tree, "/site", DEAF) for name, tree in self.trees.items()}
        self.heard = {name: Hearing() for name in self.trees}
        clock = lambda: self.now  # noqa: E731
        self.c1, self.c2 = (Deafness(self.heard[each], self.managers[each], each, clock) for each in ("c1:7", "c2:7"))
        self.entries = DeafEntries(self.managers["engine"], self.heard["engine"], clock)

    def tell(self) -> None:
        for manager in (self.c1, self.c2):
            manager.tell()
        self.entries.note_deaf()


def test_a_manager_that_is_deaf_is_known_to_all_and_takes_no_requests_until_it_hears() -> None:
    site = Site()
    site.tell()
    assert site.c2.hears() and site.c1.deaf == {} and site.heard["engine"].deaf_until(site.now) == 0.0
    site.c2.note(MUNGE)
    site.tell()
    site.tell()
    assert not site.c2.hears() and site.c1.hears()
    assert site.c1.deaf == site.c2.deaf == {"c2:7": MUNGE}
    assert site.heard["engine"].deaf_until(site.now) == site.now
    assert site.heard["engine"].why(site.now, 0.0) == f"wrappers that ask the manager c2:7 are not heard: {MUNGE}"
    site.now += 6.0
    site.tell()
    assert site.c2.hears(), "a test has passed since"
    assert site.heard["engine"].deaf_until(site.now) == site.now, "a sign that came before may be lost yet"
    site.now += 5.0
    site.tell()
    assert site.c1.deaf == {} and site.heard["engine"].deaf_until(site.now) == site.now - 5.0


def test_a_process_that_stood_still_says_so_when_it_goes_on() -> None:
    site = Site()
    site.heard["c1:7"].test_begins(site.now)
    site.heard["c1:7"].test_ends(site.now)
    site.now += 60.0
    assert not site.c1.hears()
    site.tell()
    assert site.c2.deaf == {"c1:7": "its process stood still"}


def test_a_new_reason_is_said_too_and_the_end_of_the_session_takes_it_back() -> None:
    site = Site()
    site.c2.note(MUNGE)
    site.tell()
    site.c2.note("it is full")
    site.tell()
    assert site.managers["engine"].all() == {"c2:7": f"{MUNGE}; it is full"}
    site.trees["c2:7"].close()
    assert site.managers["engine"].all() == {}


def test_what_a_manager_of_this_name_has_said_before_is_taken_back() -> None:
    site = Site()
    WordsOfManagers(site.trees["c2:7"], "/site", DEAF).say("c1:7", MUNGE)
    site.tell()
    site.tell()
    assert site.c2.deaf == {}


def test_an_ensemble_that_does_not_answer_changes_nothing() -> None:
    site = Site()
    site.c2.note(MUNGE)
    site.tell()

    class Silent(WordsOfManagers):
        def all(self) -> dict[str, str]:
            raise UnavailableError("no quorum")

    before = site.heard["engine"].deaf_until(site.now)
    silent = Silent(site.trees["engine"], "/site", DEAF)
    DeafEntries(silent, site.heard["engine"], lambda: site.now + 1).note_deaf()
    assert site.heard["engine"].deaf_until(site.now) == before
    gone = Deafness(Hearing(), silent, "c1:7", lambda: site.now)
    gone.tell()
    assert gone.deaf == {} and gone.hears()
