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
    """A ``Lease`` that is refused so often, and lost after so many renewals."""

    epoch = 5

    def __init__(self, refusals: int = 0, renewals: int = 0, error: type[Exception] = UnavailableError) -> None:
        self.refusals, self.renewals, self._error = refusals, renewals, error
        self.holds = False

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
