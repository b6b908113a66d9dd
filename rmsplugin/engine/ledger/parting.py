"""Parting: the ledger of one engine becomes the first ledgers of groups' engines; and the way back.

A vjob with VMs or saved states goes to the group whose hosts have them. A vjob of which nothing has begun goes to none:
the leader gives it. What is only remembered, such as vjobs that have ended and events, goes to the first group.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import sqlite_utils

from rmsplugin.engine.ledger.ledger_file import read_only
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.shared_files import ledgers_in
from rmsplugin.errors import LedgerError
from rmsplugin.model.vjob import VJobState

#: The file, beside the ledgers of an engine of all groups, that says that groups have ledgers of their own since.
SPLIT = "split"
#: How many vjobs a sentence names.
_NAMED = 10
#: The tables of what is only remembered.
_MEMORY = ("events", "decisions", "power_late")
#: The tables with rows of vjobs, by job id.
_OF_VJOBS = ("vms", "operations", "vjob_failures", "usage", "checkpoints", "asides", "vjobs")
#: The tables with rows of nodes, and the column with their names.
_OF_NODES = (
    *(("left_behind", "node"), ("nodes", "name"), ("node_failures", "node"), ("reservations", "node")),
    *(("power_switches", "node"), ("power_acts", "node"), ("power_idle", "node")),
    *(("hot_nodes", "node"), ("node_samples", "node")),
)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the ledger that a takeover makes.

    Attributes:
        adapt: changes it, in the transaction in which it gets its epoch. Raises LedgerError.
        begins_with: the directory of the ledgers of which the first one is made: only that one is changed. None: the
            next one, whatever it is made of.
    """

    adapt: Callable[[sqlite_utils.Database], None]
    begins_with: Path | None = None


def own_part(
    group: str, groups: Mapping[str, Sequence[str]], claim: Callable[[str, str], bool]
) -> Callable[[sqlite_utils.Database], None]:
    """What makes the ledger of all groups that of one.

    Args:
        group: its name.
        groups: the hosts of all groups.
        claim: has a group have an address, and returns whether it has it. It is called for the VMs of all groups.
    """
    group_of = {host: name for name, hosts in groups.items() for host in hosts}

    def adapt(db: sqlite_utils.Database) -> None:
        homes = _homes(db, group_of)
        for name, address in _addresses(db, homes):
            if not claim(name, address):
                raise LedgerError(f"a VM of group {name} has the address {address}, and another group has claimed it")
        first = group == min(groups)
        ended = _ids(db, "select job_id from vjobs where state = ?", [str(VJobState.TERMINATED)])
        own = {job for job, home in homes.items() if home == group} | (ended - homes.keys() if first else set())
        _remove_all_but(db, own)
        if not first:
            for table in _MEMORY:
                db.execute(f"delete from {table}")
        hosts = [host for host, name in group_of.items() if name == group]
        for table, column in _OF_NODES:
            _delete_where_not(db, table, column, hosts)
        # It numbers its events by itself from now on.
        db.execute("update identity set id = lower(hex(randomblob(4)))")
        # Its part of a store that all nodes mount is another one, and is set up when it is used first.
        db.execute("delete from stores where name = ?", [SHARED])

    return adapt


def joined_again(groups: Mapping[str, Sequence[str]], parted: Iterable[str]) -> Callable[[sqlite_utils.Database], None]:
    """What makes the ledger of all groups, from before, that of now: its vjobs have been groups', and have ended there.

    Args:
        groups: the hosts of all groups, as it was parted.
        parted: the groups that have had ledgers of their own. The vjobs of others are here still.
    """
    gone = {*parted}
    group_of = {host: name for name, hosts in groups.items() for host in hosts}

    def adapt(db: sqlite_utils.Database) -> None:
        ended = _ids(db, "select job_id from vjobs where state = ?", [str(VJobState.TERMINATED)])
        homes = _homes(db, group_of)
        _remove_all_but(db, {job for job in ended | homes.keys() if homes.get(job, "") not in gone})
        # Groups have switched nodes since: what is known of them from before proves nothing any more.
        db.execute("delete from power_switches")
        db.execute("delete from power_idle")
        db.execute("delete from hot_nodes")

    return adapt


def known_in(groups: Iterable[Path]) -> dict[str, list[str]]:
    """By group, the vjobs that its newest ledger has and that have not ended; ``groups``: directories of ledgers.

    Raises:
        LedgerError: a ledger cannot be read.
    """
    found = {}
    for directory in groups:
        ledgers = ledgers_in(directory)
        if not ledgers:
            continue
        try:
            with closing(read_only(ledgers[-1])) as connection:
                sql = "select display_id from vjobs where state != ? order by job_id"
                rows = connection.execute(sql, [str(VJobState.TERMINATED)]).fetchall()
                if connection.execute("select 1 from sqlite_master where name = 'parcels'").fetchone():
                    # On their way to another group, they are in no table of vjobs.
                    rows += connection.execute("select number from parcels where kind = 'vjob'").fetchall()
        except Exception as error:
            raise LedgerError(f"{ledgers[-1]} cannot be read: {error}") from error
        if rows:
            found[directory.name] = [str(row[0]) for row in rows]
    return found


def _homes(db: sqlite_utils.Database, group_of: Mapping[str, str]) -> dict[int, str]:
    """By job id, the group of each vjob that has VMs or saved states. Raises LedgerError if it is in no one group."""
    places: dict[int, set[str]] = {}
    for job, touched, *nodes in db.execute("select job_id, touched, host, destination, image_node from vms").fetchall():
        # Of a VM that is lost there may be files left where it was.
        places.setdefault(job, set()).update(_hosts({*nodes} - {""}, json.loads(touched)) or json.loads(touched))
    for job, vms in db.execute("select job_id, vms from asides").fetchall():
        for vm in json.loads(vms):
            places.setdefault(job, set()).update(_hosts({vm["image_node"]}, json.loads(vm["touched"])))
    homes, faults = {}, []
    for job, nodes in places.items():
        found = {group_of.get(node, "") for node in nodes}
        if len(found) == 1 and "" not in found:
            homes[job] = found.pop()
        elif found:
            faults.append(f"{job} (on {', '.join(sorted(nodes))})")
    if faults:
        more = f" and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
        raise LedgerError(
            f"the ledger cannot be parted: the VMs or saved states of vjobs {', '.join(faults[:_NAMED])}{more} are not "
            "on hosts of one group. Start one engine again, and have them on hosts of one group (rmsplugin migrate, or "
            "suspend and resume --to), or let them end"
        )
    return homes


def _hosts(nodes: set[str], touched: Sequence[str]) -> set[str]:
    """The nodes that say whose a VM is: where it is, or, with its state where all nodes see it, where it was last."""
    if SHARED not in nodes:
        return nodes
    return nodes - {SHARED} or {*touched[-1:]} or {SHARED}


def _addresses(db: sqlite_utils.Database, homes: Mapping[int, str]) -> list[tuple[str, str]]:
    rows = db.execute("select job_id, address from vms").fetchall()
    return [(homes[job], str(address)) for job, address in rows if job in homes]


def _remove_all_but(db: sqlite_utils.Database, own: set[int]) -> None:
    others = _ids(db, "select job_id from vjobs") - own
    db.execute("create temp table others (job_id integer primary key)")
    db.conn.executemany("insert into others values (?)", [(job,) for job in others])
    of_others = "select job_id from others"
    db.execute(f"delete from actions where operation_id in (select id from operations where job_id in ({of_others}))")
    names = f"select display_id from vjobs where job_id in ({of_others})"
    for state in ("planned", "running"):
        # Nobody carries them out any more; the plan ends when all its steps have ended.
        db.execute(
            f"update steps set state = 'skipped', error = 'the ledger was parted' "
            f"where state = '{state}' and (state = 'planned' or vjob in ({names}))"
        )
    for table in _OF_VJOBS:
        db.execute(f"delete from {table} where job_id in ({of_others})")
    db.execute("delete from samples where vm not in (select name from vms)")
    db.execute("drop table others")


def _delete_where_not(db: sqlite_utils.Database, table: str, column: str, values: Sequence[str]) -> None:
    db.execute(f"delete from {table} where {column} not in (select value from json_each(?))", [json.dumps([*values])])


def _ids(db: sqlite_utils.Database, sql: str, parameters: Sequence[str] = ()) -> set[int]:
    return {int(row[0]) for row in db.execute(sql, parameters).fetchall()}
