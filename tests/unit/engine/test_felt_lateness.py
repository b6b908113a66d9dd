"""Which vjobs of the queue wait because of nodes that are not on."""

from __future__ import annotations

from pathlib import Path

from fresh_ledger import laid_down
from scenarios.world import make_settings

from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.power_book import NodeSwitch, SwitchState
from rmsplugin.engine.power.demand import NEEDED, PowerDemand
from rmsplugin.engine.power.felt import FeltLateness, behind

PLACES = {"1": frozenset({"on"}), "2": frozenset({"on", "boots"}), "4": frozenset({"off"})}


def test_the_first_one_waits_for_what_comes_on_where_places_are_not_known() -> None:
    comes = {"n1": NodeSwitch("n1", SwitchState.COMING_ON, 0.0, NEEDED)}
    assert behind(PowerDemand(left=("7", "8")), comes) == 2
    off = {"n1": NodeSwitch("n1", SwitchState.OFF, 0.0, NEEDED)}
    assert behind(PowerDemand(left=("7", "8")), off) == 0


def switches(**states: SwitchState) -> dict[str, NodeSwitch]:
    return {node: NodeSwitch(node, state, 0.0, "") for node, state in states.items()}


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
    settings = make_settings()
    settings = settings.model_copy(update={"power": settings.power.model_copy(update={"late_at_most": 0.02})})
    for state, reserve in ((SwitchState.FAILED, 0), (SwitchState.OFF, 4), (SwitchState.GOING_OFF, 4)):
        felt = FeltLateness(settings, Ledger(laid_down(tmp_path / f"{state}.sqlite")))
        off = switches(boots=SwitchState.COMING_ON, **{f"n{number}": state for number in range(40)})
        for now in (0.0, 30.0):
            felt.note(demand("1", "2"), off, (), now)
        assert (felt.lateness.share, felt.lateness.reserve) == (0.5, reserve), state
