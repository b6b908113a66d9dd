"""Which vjobs of the queue wait because of nodes that are not on."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from fresh_ledger import laid_down
from scenarios.world import make_settings

from rmsplugin.energy.prediction import Need
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.power_book import NodeSwitch, SwitchState
from rmsplugin.engine.power.demand import NEEDED, PowerDemand
from rmsplugin.engine.power.felt import FeltLateness, behind
from rmsplugin.settings import Settings

PLACES = {"1": frozenset({"on"}), "2": frozenset({"on", "boots"}), "4": frozenset({"off"})}


def test_the_first_one_waits_for_what_comes_on_where_places_are_not_known() -> None:
    comes = {"n1": NodeSwitch("n1", SwitchState.COMING_ON, 0.0, NEEDED)}
    assert behind(PowerDemand(left=("7", "8")), comes) == 2
    off = {"n1": NodeSwitch("n1", SwitchState.OFF, 0.0, NEEDED)}
    assert behind(PowerDemand(left=("7", "8")), off) == 0


def switches(**states: SwitchState) -> dict[str, NodeSwitch]:
    return {node: NodeSwitch(node, state, 0.0, "") for node, state in states.items()}


def with_bound(share: float | None) -> Settings:
    settings = make_settings()
    return settings.model_copy(update={"power": settings.power.model_copy(update={"late_at_most": share})})


def demand(*left: str) -> PowerDemand:
    return PowerDemand(places=PLACES, left=left)


def test_all_wait_from_the_first_one_on_whose_place_has_a_node_that_is_not_on() -> None:
    boots = switches(boots=SwitchState.COMING_ON, off=SwitchState.OFF)
    assert behind(demand("1", "2", "3", "4"), boots) == 3
    assert behind(demand("3", "4", "5"), boots) == 2


def test_nobody_waits_for_a_node_where_all_places_are_on() -> None:
    boots = switches(other=SwitchState.COMING_ON)
    assert behind(demand("1", "2", "3"), boots) == 0
    assert behind(demand(), boots) == 0


def test_nobody_waits_for_a_node_that_failed_to_come_on() -> None:
    assert behind(demand("4", "5"), switches(off=SwitchState.FAILED)) == 0
    assert behind(demand("2", "4"), switches(boots=SwitchState.COMING_ON, off=SwitchState.FAILED)) == 2


def test_nodes_that_failed_to_come_on_save_nothing(tmp_path: Path) -> None:
    """So no node stays on for a tenth of them, however many vjobs wait."""
    settings = with_bound(0.02)
    for state, reserve in ((SwitchState.FAILED, 0), (SwitchState.OFF, 4), (SwitchState.GOING_OFF, 4)):
        felt = FeltLateness(settings, Ledger(laid_down(tmp_path / f"{state}.sqlite")))
        off = switches(boots=SwitchState.COMING_ON, **{f"n{number}": state for number in range(40)})
        for now in (0.0, 30.0):
            felt.note(demand("1", "2"), off, (), now)
        assert (felt.lateness.share, felt.lateness.reserve) == (0.5, reserve), state


def watched(felt: FeltLateness, begins_s: float, until_s: float) -> None:
    """Two vjobs wait for a node that comes on, looked at each half a minute."""
    off = switches(boots=SwitchState.COMING_ON, **{f"n{number}": SwitchState.OFF for number in range(40)})
    for step in range(int((until_s - begins_s) / 30) + 1):
        felt.note(demand("2", "4"), off, (), begins_s + 30 * step)


def test_the_next_engine_goes_on_with_what_this_one_has_seen(tmp_path: Path) -> None:
    now = [0.0]
    ledger = Ledger(laid_down(tmp_path / "ledger.sqlite"), clock=lambda: now[0])
    felt = FeltLateness(with_bound(0.02), ledger)
    watched(felt, 1000.0, 1030.0 + 3 * 3600)
    spans = ledger.power.late_spans(0.0)
    assert [round(span.ended - span.began) for span in spans] == [3600, 3600, 3600]
    assert all(before.ended == after.began for before, after in itertools.pairwise(spans))
    after = FeltLateness(with_bound(0.02), ledger)
    after.recall(12_000.0)
    after.recall(12_000.0)
    assert after.lateness.sums.seen_s == pytest.approx(3 * 3600, rel=0.02), "once, and little has faded"
    assert (after.lateness.share, after.lateness.reserve) == (1.0, 4)
    later = FeltLateness(with_bound(0.02), ledger)
    later.recall(1000.0 + 14 * 86_400)
    assert later.lateness.sums.seen_s == pytest.approx(3 * 3600 * math.exp(-2), rel=0.02)


def test_the_next_engine_knows_how_many_nodes_are_off_while_there_are_no_vjobs(tmp_path: Path) -> None:
    """By day two vjobs wait, and 40 nodes are off; by night there is no vjob, and 200 are off."""
    ledger = Ledger(laid_down(tmp_path / "ledger.sqlite"))
    felt = FeltLateness(with_bound(0.02), ledger)
    watched(felt, 0.0, 4 * 3600)
    asleep = switches(**{f"n{number}": SwitchState.OFF for number in range(200)})
    for now in range(4 * 3600 + 30, 8 * 3600, 30):
        felt.note(demand(), asleep, (), now)
    after = FeltLateness(with_bound(0.02), ledger)
    after.recall(8 * 3600)
    assert (felt.lateness.reserve, after.lateness.reserve) == (12, 11), "less by the last minutes"


def test_at_most_ten_minutes_are_lost_with_an_engine(tmp_path: Path) -> None:
    ledger = Ledger(laid_down(tmp_path / "ledger.sqlite"))
    felt = FeltLateness(with_bound(0.02), ledger)
    watched(felt, 1000.0, 1000.0 + 1190)
    assert [span.sums.seen_s for span in ledger.power.late_spans(0.0)] == [600.0]
    watched(felt, 2220.0, 2220.0)
    assert [span.sums.seen_s for span in ledger.power.late_spans(0.0)] == [1220.0], "in place of the row before"


def test_lateness_is_seen_without_a_bound_and_keeps_no_node_on(tmp_path: Path) -> None:
    felt = FeltLateness(with_bound(None), Ledger(laid_down(tmp_path / "ledger.sqlite")))
    assert felt.view() is None
    watched(felt, 1000.0, 1300.0)
    view = felt.view()
    assert view is not None
    assert (view["share"], view["at_most"], view["kept_on"]) == (1.0, None, 0)
    assert view["sentence"].startswith("vjobs spent 100 % of their time")
    assert FeltLateness(with_bound(0.02), felt._ledger).view() is None
    assert felt.lateness.held([Need(0.0, 3)]) == 0
