"""The cache of vjobs never says what the ledger does not say any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh_ledger import laid_down
from unit.engine.test_ledger import vjob

from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.vjob_cache import VJobCache
from rmsplugin.errors import NotFoundError
from rmsplugin.model.vjob import VJobState


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(laid_down(tmp_path / "ledger.sqlite"))
    yield opened
    opened.close()


def test_an_entry_goes_with_the_change_of_its_vjob_by_whatever_name_it_was_asked_for(ledger: Ledger) -> None:
    ledger.add_vjob(vjob(12, display_id="10_2", state=VJobState.RUNNING))
    vjob_cache = VJobCache(ledger)
    assert vjob_cache.known("10_2") is None
    entries = [vjob_cache.look_up("10_2"), vjob_cache.look_up("12")]
    assert [vjob_cache.known("10_2"), vjob_cache.known("12")] == entries
    ledger.update_vjob(12, finished=True)
    assert (vjob_cache.known("10_2"), vjob_cache.known("12")) == (None, None)


def test_what_changes_while_it_is_read_is_not_kept(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.add_vjob(vjob(12, state=VJobState.RUNNING))
    vjob_cache = VJobCache(ledger)
    row = ledger.vjob(12)

    def read_late(_: str) -> object:
        ledger.transition(12, VJobState.SUSPENDING, "meanwhile")
        return row

    monkeypatch.setattr(ledger, "find_vjob", read_late)
    vjob_cache.look_up("12")
    assert vjob_cache.known("12") is None


def test_only_running_vjobs_are_kept(ledger: Ledger) -> None:
    ledger.add_vjob(vjob(12))
    vjob_cache = VJobCache(ledger)
    assert vjob_cache.look_up("12").state is VJobState.WAITING
    assert vjob_cache.known("12") is None
    with pytest.raises(NotFoundError):
        vjob_cache.look_up("13")
