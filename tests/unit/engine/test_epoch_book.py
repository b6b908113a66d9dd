"""The epochs of engines that have led with a ledger: nodes are never asked to obey one that is not above all before."""

from __future__ import annotations

from pathlib import Path

import pytest
from fresh_ledger import laid_down

from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.errors import LedgerError
from rmsplugin.model.epochs import FIRST_EPOCH

TOKEN = 0x5_0000_0007


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(laid_down(tmp_path / "ledger.sqlite"))


def test_engines_on_one_host_are_of_the_first_epoch_for_ever(ledger: Ledger) -> None:
    assert [ledger.epochs.begin_turn(FIRST_EPOCH) for _ in range(3)] == [FIRST_EPOCH] * 3
    assert ledger.epochs.highest() == FIRST_EPOCH


def test_the_token_of_an_ensemble_is_the_epoch_and_outlives_the_engine(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.epochs.begin_turn(TOKEN) == TOKEN
    ledger.close()
    again = Ledger(tmp_path / "ledger.sqlite")
    assert again.epochs.highest() == TOKEN
    assert again.epochs.begin_turn(TOKEN + 1) == TOKEN + 1


@pytest.mark.parametrize("token", [TOKEN, TOKEN - 1, 2])
def test_a_token_that_is_not_above_all_before_is_refused_and_changes_nothing(ledger: Ledger, token: int) -> None:
    ledger.epochs.begin_turn(TOKEN)
    with pytest.raises(LedgerError, match=rf"gives epoch {token}, but engines have led with epoch {TOKEN}.*one by one"):
        ledger.epochs.begin_turn(token)
    assert ledger.epochs.highest() == TOKEN
    assert ledger.epochs.begin_turn(TOKEN + 9) == TOKEN + 9


def test_back_on_one_host_each_engine_has_an_epoch_that_nodes_obey(ledger: Ledger) -> None:
    ledger.epochs.begin_turn(TOKEN)
    assert [ledger.epochs.begin_turn(FIRST_EPOCH) for _ in range(2)] == [TOKEN + 1, TOKEN + 2]
