"""Gathering: several ledgers, read as if they were one: what reports and measurements ask for, each thing once.

A vjob that was parted or moved is known to several ledgers, and so may be what was done with it. Ledgers that engines
have come first. The database is a temporary one without a name, and has no keys.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from rmsplugin.engine.ledger.history import reading, reading_older
from rmsplugin.engine.ledger.ledger_file import with_newest_schema
from rmsplugin.engine.ledger.site_ledgers import SiteLedger
from rmsplugin.errors import LedgerError

#: The memory that SQLite takes before it writes the temporary database to disk.
_CACHE_KIB = 64 << 10
#: Columns with keys, which nobody asks for here.
_KEYS = {"private_key", "public_key"}
#: The tables with a number of their own that others refer to; what tells two rows of them apart; and those others.
_NUMBERED = {
    "operations": (("job_id", "kind", "created"), "actions", "operation_id"),
    "plans": (("time", "sentence"), "steps", "plan_id"),
}


@contextmanager
def reading_all(ledgers: Sequence[SiteLedger]) -> Iterator[sqlite3.Connection]:
    """Connect to what these ledgers know together: vjobs, what was done with them, samples and events.

    Each ledger is as it was at one moment. Changes nothing.

    Raises:
        LedgerError: one of them cannot be read, or is of a newer release; or there is none.
    """
    if not ledgers:
        raise LedgerError("there is no ledger, or none that may be read")
    if len(ledgers) == 1:
        with reading(ledgers[0].path) as only:
            yield only
        return
    with closing(sqlite3.connect("", isolation_level=None)) as site:
        _prepare(site)
        for each in ledgers:
            # Ledgers from before a release was installed are never brought up by an engine.
            with reading_older(each.path) if each.left else reading(each.path) as source:
                try:
                    _add(site, source, each)
                except sqlite3.Error as error:
                    raise LedgerError(f"{each.path} cannot be read: {error}") from error
        site.execute("insert into events select null, time, vjob, vm, node, kind, message from told order by time")
        columns = ", ".join(name for name in _columns(site, "power_acts") if name != "id")
        site.execute(f"insert into power_acts ({columns}) select {columns} from switched order by began")
        site.execute("commit")
        yield site


def _prepare(site: sqlite3.Connection) -> None:
    site.execute(f"pragma cache_size = -{_CACHE_KIB}")
    site.execute("pragma synchronous = off")
    site.execute("pragma journal_mode = off")
    with_newest_schema(site)
    site.execute("begin")
    for table, (key, _, _) in _NUMBERED.items():
        site.execute(f"create index site_{table} on {table} ({', '.join(key)})")
    site.execute("create index site_events on events (time)")
    for table in ("operations", "plans"):
        site.execute(f"create temp table new_{table} as select * from {table} limit 0")
    site.execute("create temp table told as select * from events limit 0")
    site.execute("create unique index told_once on told (time, vjob, vm, node, kind, message)")
    site.execute("create temp table switched as select * from power_acts limit 0")
    site.execute("create unique index switched_once on switched (node, kind, began)")


def _add(site: sqlite3.Connection, source: sqlite3.Connection, ledger: SiteLedger) -> None:
    """Add what one ledger knows, and no ledger before it."""
    _add_vjobs(site, source, ledger)
    for table in _NUMBERED:
        _add_numbered(site, source, table)
    _copy(site, source, "samples", "samples", "insert or ignore")
    _copy(site, source, "events", "told", "insert or ignore")
    _copy(site, source, "power_acts", "switched", "insert or ignore")
    _copy(site, source, "power_late", "power_late", "insert or ignore")


def _add_vjobs(site: sqlite3.Connection, source: sqlite3.Connection, ledger: SiteLedger) -> None:
    columns = _columns(site, "vjobs")
    asked = ", ".join("''" if name in _KEYS else name for name in columns)
    where = "where state = 'terminated'" if ledger.ended_only else ""
    # A number is given out again by Slurm; a vjob that moved has changed later where it is now.
    newer = "(excluded.submitted, excluded.state_since) > (vjobs.submitted, vjobs.state_since)"
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
    change = "nothing" if ledger.left else f"update set {changes} where {newer}"
    site.executemany(
        f"insert into vjobs ({', '.join(columns)}) values ({_marks(columns)}) on conflict (job_id) do {change}",
        source.execute(f"select {asked} from vjobs {where}"),
    )


def _add_numbered(site: sqlite3.Connection, source: sqlite3.Connection, table: str) -> None:
    """Add operations with their actions, or plans with their steps, under numbers of the site."""
    key, parts, refers = _NUMBERED[table]
    columns = _columns(site, table)
    site.execute(f"delete from new_{table}")
    _copy(site, source, table, f"new_{table}")
    highest, highest_part = (
        site.execute(f"select ifnull(max(id), 0) from {name}").fetchone()[0] for name in (table, parts)
    )
    same = " and ".join(f"{table}.{name} = new.{name}" for name in key)
    renumbered = ", ".join(f"new.id + {highest}" if name == "id" else f"new.{name}" for name in columns)
    # One that was under way when the ledger was left is told by the ledger in which it has ended.
    site.execute(
        f"insert into {table} select {renumbered} from new_{table} as new where not exists (select 1 from {table} "
        f"where {same} and ({table}.state != 'running' or new.state = 'running'))"
    )
    site.execute(
        f"delete from {table} where id <= {highest} and state = 'running' and exists "
        f"(select 1 from {table} as new where new.id > {highest} and {same})"
    )
    own = _columns(site, parts)
    numbers = ", ".join(
        f"id + {highest_part}" if name == "id" else f"{refers} + {highest}" if name == refers else name for name in own
    )
    taken = {number for (number,) in site.execute(f"select id from {table} where id > {highest}")}
    place = own.index(refers)
    rows = (row for row in source.execute(f"select {numbers} from {parts}") if row[place] in taken)
    site.executemany(f"insert into {parts} ({', '.join(own)}) values ({_marks(own)})", rows)


def _copy(site: sqlite3.Connection, source: sqlite3.Connection, table: str, to: str, how: str = "insert") -> None:
    columns = _columns(site, table)
    names = ", ".join(columns)
    rows = source.execute(f"select {names} from {table}")
    site.executemany(f"{how} into {to} ({names}) values ({_marks(columns)})", rows)


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"pragma table_info({table})")]


def _marks(columns: Sequence[str]) -> str:
    return ", ".join("?" * len(columns))
