"""The book of nodes that are gone: each call of a platform asks for them, so that the answer is kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.errors import RefusedError


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    found = Ledger(tmp_path / "ledger.sqlite", clock=lambda: 1000.0)
    yield found
    found.close()


def gone_to_another_thread(ledger: Ledger) -> set[str]:
    found: set[str] = set()
    thread = threading.Thread(target=lambda: found.update(ledger.nodes.gone()))
    thread.start()
    thread.join()
    return found


def test_a_node_is_gone_from_the_moment_somebody_says_so_until_it_is_said_to_be_back(ledger: Ledger) -> None:
    assert ledger.nodes.gone() == {}
    ledger.nodes.set_gone("n1", "root")
    assert set(ledger.nodes.gone()) == gone_to_another_thread(ledger) == {"n1"}
    with pytest.raises(RefusedError, match="n1 is gone since"):
        ledger.nodes.set_gone("n1", "root")
    ledger.nodes.set_gone("n2", "root")
    ledger.nodes.set_back("n1")
    assert set(ledger.nodes.gone()) == gone_to_another_thread(ledger) == {"n2"}


@pytest.mark.parametrize("asks_inside", [False, True])
def test_what_is_undone_was_never_said(asks_inside: bool, ledger: Ledger) -> None:
    ledger.nodes.set_gone("n1", "root")
    with pytest.raises(KeyError), ledger.transaction():
        ledger.nodes.set_gone("n2", "root")
        ledger.nodes.set_back("n1")
        if asks_inside:
            assert set(ledger.nodes.gone()) == {"n2"}
        raise KeyError
    assert set(ledger.nodes.gone()) == gone_to_another_thread(ledger) == {"n1"}


def test_whoever_asks_again_waits_neither_for_the_database_nor_for_its_lock(ledger: Ledger) -> None:
    ledger.nodes.set_gone("n1", "root")
    assert set(ledger.nodes.gone()) == {"n1"}
    asked: list[str] = []
    ledger._db.conn.set_trace_callback(asked.append)
    with ledger._lock:
        assert gone_to_another_thread(ledger) == {"n1"}
    assert asked == []
