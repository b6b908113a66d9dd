"""Elections under faults in any order: never two that may act, epochs grow, and in the end somebody leads."""

from __future__ import annotations

import contextlib
from pathlib import Path

from contract.coordinations import OnEnsemble
from examples import few
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.errors import UnavailableError

COUNT = 3
#: Seconds between two campaigns of an engine.
PERIOD_S = 0.5

engine = st.integers(0, COUNT - 1)
seconds = st.sampled_from([0.5, 1.0, 3.0, 5.0, 20.0])
request = st.integers(0, 8)
faults = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), seconds),
        st.tuples(st.just("cut"), engine),
        st.tuples(st.just("mend"), engine),
        st.tuples(st.just("lose answer"), engine, request),
        st.tuples(st.just("stop"), engine, request, seconds),
        st.tuples(st.just("end session"), engine, request),
        st.tuples(st.just("quorum"), st.booleans()),
        st.tuples(st.just("kill"), engine),
        st.tuples(st.just("resign"), engine, st.booleans()),
        st.tuples(st.just("remove place"), engine),
    ),
    max_size=14,
)


class Site:
    """Engines on an ensemble, and what is to hold of them."""

    def __init__(self) -> None:
        self.kind = OnEnsemble(Path())
        self.engines = [self.kind.coordination() for _ in range(COUNT)]
        self.stopped: set[Elected] = set()
        self.holder: Elected | None = None
        self.highest = 0
        self.free_from = 0.0  # nothing that an earlier leader has begun is under way from then on

    def do(self, what: str, *arguments: float) -> None:
        getattr(self, what.replace(" ", "_"))(*arguments)
        self.check()

    def check(self) -> None:
        holding = [each for each in self.engines if self.kind.lease(each).held()]
        assert len(holding) <= 1, "two may act"
        for each in holding:
            if each is not self.holder:
                assert self.kind.clock.now >= self.free_from, "something that the one before has begun may be under way"
                assert each.epoch > self.highest, "epochs grow"
                self.holder, self.highest = each, each.epoch
            self.free_from = self.kind.clock.now + self.kind.ACT_S

    def campaign(self, one: Elected) -> None:
        if one not in self.stopped:
            with contextlib.suppress(UnavailableError):
                one.campaign()
            self.check()

    def at_request(self, number: int, index: int, act: str, *arguments: float) -> None:
        """Do something between a request of the engine's next campaign and its answer."""
        tree, one = self.kind.trees[self.engines[index]], self.engines[index]

        def count(left: int) -> None:
            tree.late = (lambda: count(left - 1)) if left else (lambda: getattr(self, act)(one, *arguments))

        count(number)
        self.campaign(one)
        tree.late = None

    def pass_for(self, one: Elected, duration_s: float) -> None:
        self.stopped.add(one)
        self.let_pass(duration_s)
        self.stopped.discard(one)

    def let_pass(self, duration_s: float) -> None:
        for _ in range(int(duration_s / PERIOD_S)):
            self.kind.pass_time(PERIOD_S, silent=tuple(self.stopped))
            self.check()
            for one in list(self.engines):
                self.campaign(one)

    def lose(self, one: Elected) -> None:
        self.kind.trees[one].answers_lost = 1

    def end(self, one: Elected) -> None:
        self.kind.trees[one].end()

    # -- faults by their names -------------------------------------------------------------------------------------

    def cut(self, index: int) -> None:
        self.kind.trees[self.engines[index]].cut = True

    def mend(self, index: int) -> None:
        self.kind.trees[self.engines[index]].cut = False

    def lose_answer(self, index: int, number: int) -> None:
        self.at_request(number, index, "lose")

    def stop(self, index: int, number: int, duration_s: float) -> None:
        self.at_request(number, index, "pass_for", duration_s)

    def end_session(self, index: int, number: int) -> None:
        self.at_request(number, index, "end")

    def quorum(self, there: bool) -> None:
        self.kind.ensemble.quorum = there

    def kill(self, index: int) -> None:
        killed = self.engines[index]
        self.kind.trees[killed].cut = True
        self.engines[index] = self.kind.coordination()

    def resign(self, index: int, at_rest: bool) -> None:
        resigned = self.engines[index]
        if at_rest and resigned is self.holder and self.kind.lease(resigned).held():
            self.free_from = self.kind.clock.now
        resigned.resign(at_rest=at_rest)
        self.engines[index] = self.kind.coordination()

    def remove_place(self, index: int) -> None:
        tree = self.kind.trees[self.engines[index]]
        for path in [path for path, node in self.kind.ensemble.nodes.items() if node.session is tree]:
            del self.kind.ensemble.nodes[path]


@example([("kill", 0), ("pass", 0.5), ("remove place", 0), ("remove place", 1), ("remove place", 2)])
@given(faults)
@settings(max_examples=few(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_never_two_may_act_epochs_grow_and_in_the_end_somebody_leads(course: list[tuple]) -> None:  # type: ignore[type-arg]
    site = Site()
    for one in site.engines:
        site.campaign(one)
    for what, *arguments in course:
        if what == "pass":
            site.let_pass(*arguments)
        else:
            site.do(what, *arguments)
    site.quorum(True)
    for index in range(COUNT):
        site.mend(index)
    kind = site.kind
    # The sessions of those that are gone end; then the next leader waits; one more campaign takes the turn.
    site.let_pass(kind.SESSION_S + kind.WAIT_S + 4 * PERIOD_S)
    assert any(kind.lease(each).held() for each in site.engines)
