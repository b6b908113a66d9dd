"""An engine waits until it leads, keeps its lease, and asks nothing of its neighbours once it is lost."""

from __future__ import annotations

import queue
import threading

import pytest
from patience import PATIENCE_S

from rmsplugin.engine.context.acts import Acts, only_led
from rmsplugin.engine.leadership import Leadership
from rmsplugin.errors import DeposedError, RefusedError, UnavailableError


class Lease:
    """A ``Lease`` that is refused so often, and lost after so many renewals; ``gone``: or only run out."""

    epoch = 5

    def __init__(self, refusals: int = 0, renewals: int = 0, error: type[Exception] = UnavailableError) -> None:
        self.refusals, self.renewals, self._error = refusals, renewals, error
        self.holds, self.gone = False, True

    def acquire(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise self._error(f"one leads; waits {self.refusals} s")
        self.holds = True

    def renew(self) -> None:
        if not self.renewals:
            self.holds = False
            raise self._error("lost")
        self.renewals -= 1

    def held(self) -> bool:
        return self.holds

    def lost(self) -> bool:
        return self.gone

    def release(self, *, at_rest: bool = True) -> None:
        self.holds = False


def test_it_waits_until_it_leads_and_says_once_for_what(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    lease = Lease(refusals=4)
    told: list[str] = []
    assert Leadership(lease, 0.0).wait(threading.Event(), told.append)
    assert lease.held() and told[0] == "one leads; waits 3 s" and len(told) == 4
    assert len(caplog.messages) == 4, "each sentence that is another one"
    caplog.clear()
    assert Leadership(Lease(refusals=3), 0.0).wait(threading.Event())


def test_one_that_is_told_to_end_waits_no_more() -> None:
    told = threading.Event()
    told.set()
    assert not Leadership(Lease(refusals=1), PATIENCE_S).wait(told)


def test_one_that_can_never_lead_says_so() -> None:
    with pytest.raises(RefusedError):
        Leadership(Lease(refusals=1, error=RefusedError), 0.0).wait(threading.Event())


@pytest.mark.parametrize("error", [UnavailableError, RuntimeError])
def test_a_lost_lease_is_told_once(error: type[Exception]) -> None:
    told: queue.Queue[str] = queue.Queue()
    Leadership(Lease(renewals=3, error=error), 0.0).keep(told.put)
    assert told.get(timeout=PATIENCE_S) == "lost"
    assert told.empty()


class RunsOut(Lease):
    """One that is not lost, and is renewed again after so many failures, each of which takes a second."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures, self.now, self.gone = failures, 100.0, False
        self.renewed = threading.Event()

    def renew(self) -> None:
        self.now += 1.0
        if self.failures:
            self.failures -= 1
            raise UnavailableError("no server answers")
        self.renewed.set()


def test_an_engine_whose_lease_has_run_out_stands_still_and_goes_on_when_it_is_renewed() -> None:
    lease, told = RunsOut(failures=9), queue.Queue[str]()
    leadership = Leadership(lease, 0.001, 10.0, lambda: lease.now)
    leadership.keep(told.put)
    assert lease.renewed.wait(PATIENCE_S)
    leadership.release(at_rest=True)
    assert told.empty()


@pytest.mark.parametrize("gone", [False, True])
def test_an_engine_stands_still_so_long_and_not_at_all_where_its_lease_is_lost(gone: bool) -> None:
    lease, told = RunsOut(failures=1000), queue.Queue[str]()
    lease.gone = gone
    Leadership(lease, 0.0, 10.0, lambda: lease.now).keep(told.put)
    assert told.get(timeout=PATIENCE_S) == "no server answers"
    assert lease.now == (101.0 if gone else 111.0)


def test_a_lease_that_is_released_is_not_lost() -> None:
    told: list[str] = []
    leadership = Leadership(Lease(renewals=1), 0.0)
    leadership.release(at_rest=True)
    leadership._renew_until_lost(told.append)

    class Released(Lease):
        def renew(self) -> None:
            leadership.release(at_rest=True)
            raise UnavailableError("this engine does not lead")

    leadership = Leadership(Released(), 0.0)
    leadership._renew_until_lost(told.append)
    assert told == []


class Neighbour:
    kind = "real"

    def act(self, what: str, *, twice: bool = False) -> str:
        return what * (1 + twice)


def test_a_neighbour_is_asked_while_the_lease_is_held_and_not_a_moment_longer() -> None:
    lease = Lease()
    acts = Acts(lease.held)
    neighbour = only_led(Neighbour(), acts)
    act = neighbour.act
    for held in (False, True, False):
        lease.holds = held
        assert neighbour.kind == "real"
        for call in (neighbour.act, act):
            if held:
                assert call("a", twice=True) == "aa"
            else:
                with pytest.raises(DeposedError, match="its lease has ended"):
                    call("a")


def test_an_engine_ends_before_its_first_refusal_is_taken_for_a_failure() -> None:
    told: list[str] = []
    acts = Acts(lambda: False, told.append)
    with pytest.raises(DeposedError):
        only_led(Neighbour(), acts).act("a")
    assert told == ["the turn of this engine is over: its lease has ended"]


def test_an_act_waits_while_the_lease_has_run_out_and_is_done_when_it_is_held_again() -> None:
    lease, waits = Lease(), list[bool]()
    lease.gone = False
    acts = Acts(lease.held, lost=lease.lost, pause=lambda: pause())

    def pause() -> None:
        waits.append(acts.at_rest())
        lease.holds = len(waits) == 3

    assert only_led(Neighbour(), acts).act("a") == "a"
    assert waits == [True] * 3, "it is not under way meanwhile"


def test_an_act_that_waits_is_refused_when_the_lease_is_lost_and_waits_for_good_when_the_engine_ends() -> None:
    lease, told = Lease(), list[str]()
    lease.gone = False
    acts = Acts(lease.held, told.append, lost=lease.lost, pause=lambda: setattr(lease, "gone", True))
    with pytest.raises(DeposedError):
        only_led(Neighbour(), acts).act("a")
    assert told == ["the turn of this engine is over: its lease has ended"]

    lease.gone, begun, ending = False, threading.Event(), threading.Event()
    ends = Acts(lease.held, told.append, lost=lease.lost, pause=lambda: ending.set() or ends.end(now=True))  # type: ignore[func-returns-value]

    def begin() -> None:
        with ends.one():
            begun.set()

    threading.Thread(target=begin, daemon=True).start()
    assert ending.wait(PATIENCE_S)
    lease.holds = True
    assert not begun.wait(0.1) and len(told) == 1


def test_an_engine_is_at_rest_when_no_act_is_under_way() -> None:
    lease = Lease()
    lease.holds = True
    acts = Acts(lease.held)
    seen: list[bool] = []

    class Asked:
        def act(self) -> None:
            seen.append(acts.at_rest())
            lease.holds = False
            raise OSError

    neighbour = only_led(Asked(), acts)
    with pytest.raises(OSError):
        neighbour.act()
    with pytest.raises(DeposedError):
        neighbour.act()
    assert (seen, acts.at_rest()) == ([False], True)


def test_an_engine_that_ends_begins_no_act_once_none_is_under_way() -> None:
    acts = Acts()
    with acts.one():
        assert not acts.end()
        with acts.one():
            pass
    assert acts.end()
    begun = threading.Event()

    def begin() -> None:
        with acts.one():
            begun.set()

    threading.Thread(target=begin, daemon=True).start()
    assert not begun.wait(0.1), "a refusal would be taken for a failure, and written down"
    assert acts.end() and acts.at_rest()


def test_an_engine_that_waits_no_more_begins_no_act_while_others_are_under_way() -> None:
    acts = Acts()
    with acts.one():
        assert acts.end(now=True) and not acts.at_rest()
    assert acts.at_rest()
