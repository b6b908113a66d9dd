"""Unknown names: partitions, nodes, users and kinds by which a listing is chosen, and of which there are none.

As `squeue` has it: a partition, a node or a user that there is not is an error; accounts and names of jobs are not.
"""

from __future__ import annotations

import pwd
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmsplugin.errors import NotFoundError, RefusedError

if TYPE_CHECKING:
    from rmsplugin.api.binding import Engine


def sentences_of_unknown(
    engine: Engine, wanted: Mapping[str, Sequence[str]], rows: Iterable[Mapping[str, Any]]
) -> list[str]:
    """A sentence for each name that there is not.

    A name that a row has is known: ended vjobs and events name what was there before. Where the engine may not tell, or
    has not looked yet, all names pass.

    Args:
        engine: says which partitions and nodes there are; it is asked only about names that no row has.
        wanted: names by key; of the keys ``partition``, ``node``, ``user`` and ``kind`` they are looked at.
        rows: that were found, before they were chosen from.
    """
    judges: dict[str, Callable[[Engine, Sequence[str]], list[str]]] = {
        "partition": _no_partitions,
        "node": _no_nodes,
        "user": _no_users,
        "kind": _no_kinds,
    }
    told = list(rows)
    found: list[str] = []
    for key, judge in judges.items():
        asked = [name for name in dict.fromkeys(wanted.get(key, ())) if not any(_names(row, key, name) for row in told)]
        if asked:
            found += judge(engine, asked)
    return found


def _names(row: Mapping[str, Any], key: str, name: str) -> bool:
    return name == row.get(key) or name in (row.get("nodes") or () if key == "node" else ())


def _no_partitions(engine: Engine, names: Sequence[str]) -> list[str]:
    try:
        known: Collection[str] = engine.config()["settings"]["slurm"]["partitions"]
    except (NotFoundError, RefusedError, KeyError):  # an older engine, or one that does not tell everybody
        return []
    return [f"{name} is no partition of vjobs; there are {', '.join(known)}" for name in names if name not in known]


def _no_nodes(engine: Engine, names: Sequence[str]) -> list[str]:
    try:
        known = {row.get("name") for row in engine.nodes()}
    except (NotFoundError, RefusedError):
        return []
    return [f"{name} is no node that may host VMs" for name in names if known and name not in known]


def _no_users(_: Engine, names: Sequence[str]) -> list[str]:
    return [f"no user {name}" for name in names if not _is_account(name)]


def _no_kinds(engine: Engine, names: Sequence[str]) -> list[str]:
    """Kinds that neither this release records, nor the engine's ledger has of another one."""
    from rmsplugin.model.event_kinds import KINDS

    strange = [name for name in names if name not in KINDS]
    known = f"there are {', '.join(sorted(KINDS))}"
    unheard = [name for name in strange if not engine.events(limit=1, wanted={"kind": (name,)})]
    return [f"{name} is no kind of event; {known}" for name in unheard]


def _is_account(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
