"""The book of nodes that are switched off and on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmsplugin.energy.lateness import LateSums
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.power_book import LateSpan, SwitchState, can_come_on, comes_on
from rmsplugin.errors import NotFoundError
from rmsplugin.model.node_action import NodeActionKind

OFF, ON = NodeActionKind.POWER_OFF, NodeActionKind.POWER_ON
S = SwitchState


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite", clock=Clock())


def test_a_switch_is_found_again_by_the_next_engine(ledger: Ledger) -> None:
    ledger.power.begin("n1", OFF, "nobody uses it", boot_before=17)
    ledger.power.change("n1", told=1001.0, ordered=1002.0)
    ledger.close()
    [row] = Ledger(ledger.path, clock=Clock()).power.switches().values()
    assert (row.state, row.told, row.ordered, row.boot_before) == (S.GOING_OFF, 1001.0, 1002.0, 17)
    assert row.answers_nothing


def test_only_a_proved_node_is_off(ledger: Ledger) -> None:
    ledger.power.begin("n1", OFF, "nobody uses it")
    assert not ledger.power.is_off("n1")
    ledger.power.enter(ledger.power.switches()["n1"], S.OFF, proved=1003.0)
    assert ledger.power.is_off("n1")
    assert [(act.node, act.kind, act.ended, act.error) for act in ledger.power.acts()] == [("n1", OFF, 1000.0, "")]
    ledger.power.begin("n1", ON, "a vjob needs it")
    assert not ledger.power.is_off("n1")


def test_one_that_is_given_up_leaves_its_reason(ledger: Ledger) -> None:
    switch = ledger.power.begin("n1", OFF, "nobody uses it")
    ledger.power.forget(switch, "a vjob needs it")
    assert ledger.power.switches() == {}
    assert [act.error for act in ledger.power.acts()] == ["a vjob needs it"]
    assert ledger.power.came_on() == {}
    with pytest.raises(NotFoundError):
        ledger.power.change("n1", told=1.0)


def test_when_a_node_came_on_is_known(ledger: Ledger) -> None:
    ledger.power.forget(ledger.power.begin("n1", ON, "a vjob needs it"))
    assert ledger.power.came_on() == {"n1": 1000.0}
    ledger.power.prune(1001.0)
    assert ledger.power.came_on() == {}


def test_nodes_are_had_in_the_order_of_their_effort(ledger: Ledger) -> None:
    power = ledger.power
    for node in ("failed", "off", "told", "untold", "resting", "coming"):
        power.begin(node, ON if node == "coming" else OFF, "")
    for node in ("failed", "resting"):
        power.enter(power.switches()[node], S.FAILED, not_before=2000.0 if node == "resting" else 0.0)
    power.enter(power.switches()["off"], S.OFF)
    power.change("told", told=1000.0)
    assert can_come_on(power.switches(), 1000.0) == ["untold", "off", "told", "failed"]
    assert [node for node in power.switches() if comes_on(power.switches(), node)] == ["coming"]


def test_idle_periods_and_averages_are_kept(ledger: Ledger) -> None:
    ledger.power.note_idle({"n1": 10.0, "n2": 20.0}, (), {"*": 5.0})
    ledger.power.note_idle({"n2": 99.0}, ("n1",), {"*": 7.0})
    assert ledger.power.idle_since() == {"n2": 20.0}, "a period that is under way began when it began"
    assert ledger.power.averages() == {"*": 7.0}


def test_how_late_vjobs_were_is_kept_until_it_is_forgotten(ledger: Ledger) -> None:
    old, new = (LateSpan(began, began + 60, LateSums(1.0, 2.0, 3.0, 4.0, 60.0)) for began in (100.0, 500.0))
    for span in (old, LateSpan(500.0, 530.0, LateSums()), new):
        ledger.power.note_late(span)
    assert ledger.power.late_spans(0.0) == [old, new]
    assert ledger.power.late_spans(161.0) == [new]
    ledger.power.prune(161.0)
    assert ledger.power.late_spans(0.0) == [new]
