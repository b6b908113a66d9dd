"""Backups of the ledger, and the end of what it has kept for long: whole, bounded, and beside an engine that writes."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import threading
from collections import namedtuple
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fresh_ledger import laid_down

from rmsplugin.engine.ledger import ledger_care
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.schedule.ledger_jobs import back_up, retain
from rmsplugin.errors import OperationFailedError

DAY_S = 86400.0
NOW = 1_000 * DAY_S


class Site:
    """An engine's ledger with events, 12 MiB of which are old."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "ledger.sqlite"
        self.backups = directory / "backups"
        self.now = NOW - 100 * DAY_S
        self.ledger = Ledger(laid_down(self.path), clock=lambda: self.now)
        self.write(1500)
        self.now = NOW
        self.write(10)

    def write(self, number: int) -> None:
        with self.ledger.transaction():
            for _ in range(number):
                self.ledger.event("kind", "x" * 8000)

    @property
    def size(self) -> int:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("pragma wal_checkpoint(truncate)")
        return self.path.stat().st_size


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.ledger.close()


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096] = b"\xff" * 4096
    path.write_bytes(bytes(data))


def test_a_backup_is_whole_private_and_of_the_moment(site: Site) -> None:
    said = back_up(site.path, site.backups, 3)
    [copy] = site.backups.iterdir()
    assert said.startswith(f"{copy}: ") and said.endswith("whole; 1 are kept")
    assert (stat.S_IMODE(copy.stat().st_mode), stat.S_IMODE(site.backups.stat().st_mode)) == (0o600, 0o700)
    assert ledger_care.check(copy).whole
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("select count(*) from events").fetchone() == (1510,)


def test_so_many_are_kept_and_nothing_else_is_removed(site: Site) -> None:
    site.backups.mkdir()
    (site.backups / "ledger-of-the-upgrade.sqlite").touch()
    (site.backups / "ledger-20260101T000000.000000Z.sqlite.new").touch()  # of an engine that was killed
    copies = []
    for _ in range(4):
        back_up(site.path, site.backups, 2)
        copies += [path for path in sorted(site.backups.glob("ledger-2*")) if path not in copies]
    assert sorted(site.backups.iterdir()) == [*copies[-2:], site.backups / "ledger-of-the-upgrade.sqlite"]


def test_a_full_disk_and_a_damaged_ledger_make_no_backup_and_cost_none(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(site.path, site.backups, 1)
    before = list(site.backups.iterdir())
    usage = namedtuple("usage", ("total", "used", "free"))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, 200 << 20))
        with pytest.raises(OperationFailedError, match="has 200 MiB free"):
            back_up(site.path, site.backups, 1)
    site.ledger.close()
    damage(site.path)
    with pytest.raises(OperationFailedError, match=r"damaged|malformed"):
        back_up(site.path, site.backups, 1)
    assert list(site.backups.iterdir()) == before
    site.ledger = Ledger(site.path.with_name("other.sqlite"))


def test_a_directory_that_cannot_be_made_is_told(site: Site) -> None:
    site.backups.touch()
    with pytest.raises(OperationFailedError, match="backups"):
        back_up(site.path, site.backups, 1)


def test_what_is_old_is_forgotten_and_its_room_given_back(site: Site) -> None:
    before = site.size
    said = retain(site.ledger, site.path, NOW, 90)
    assert said.startswith("forgot 0 vjobs, gave back ") and said.endswith(" are left, and whole")
    assert site.size < before / 10
    assert len(site.ledger.events()) == 10
    site.write(1)
    assert ledger_care.check(site.path).whole


def test_a_ledger_with_little_to_give_back_or_with_much_to_copy_is_left_as_it_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    retain(site.ledger, site.path, NOW - 200 * DAY_S, 90)
    before = site.size
    assert ledger_care.compact(site.path) == 0 and site.size == before
    site.ledger.prune(NOW - 90 * DAY_S)
    with monkeypatch.context() as patch:
        patch.setattr(ledger_care, "_MOST_COMPACTED_BYTES", 4096)
        assert ledger_care.compact(site.path) == 0 and site.size == before
    assert ledger_care.compact(site.path) > 8 << 20


def test_an_engine_that_writes_meanwhile_loses_nothing(site: Site) -> None:
    stop, faults = threading.Event(), []

    def write() -> None:
        try:
            while not stop.is_set():
                site.write(1)
        except Exception as error:
            faults.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        back_up(site.path, site.backups, 1)
        retain(site.ledger, site.path, NOW, 90)
    finally:
        stop.set()
        writer.join()
    assert faults == [] and ledger_care.check(site.path).whole
    [copy] = site.backups.iterdir()
    assert ledger_care.check(copy).whole


def test_a_damaged_ledger_is_told(site: Site) -> None:
    site.size  # noqa: B018  # all of it is in the file
    damage(site.path)
    with pytest.raises(Exception, match=r"damaged|malformed"):
        retain(site.ledger, site.path, 0.0, 90)
