"""Upgrade: what stands in the way of a newer release, before anything is stopped: rules, and the look for their facts.

The release that is asked may be the newer one, unpacked beside the one that is installed: it knows which settings and
ledgers it can read.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmsplugin import __version__
from rmsplugin.adapters.nodes.base import NodeCheck
from rmsplugin.cli.check.node_facts import NodeFacts
from rmsplugin.cli.shared.connection import connect
from rmsplugin.engine.ledger import ledger_care
from rmsplugin.engine.ledger.site_ledgers import of_engines, site_ledgers
from rmsplugin.errors import LedgerError, RmspluginError
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings

_MIB = 1 << 20
#: What has to stay free beside the copy of a ledger, as beside a backup.
_LEFT_FREE = 256 * _MIB
#: The longest silence of the engine that is put up with, in seconds.
_ENGINE_S = 5.0
#: How many nodes a sentence names.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class LedgerFact:
    """One ledger of an engine: how it is, its size, and the room beside it, in bytes."""

    whole: bool
    sentence: str
    size_bytes: int = 0
    free_bytes: int = 0
    directory: str = ""


@dataclass(frozen=True, slots=True)
class UpgradeFacts:
    """What was seen before an upgrade."""

    ledgers: tuple[LedgerFact, ...]
    engine: str = ""  # why the engine does not answer; empty: it does
    version: str = ""  # of the engine that runs
    held: tuple[str, ...] = ()  # vjobs about which an operator has to be asked
    vjobs: Mapping[VJobState, int] = field(default_factory=dict)  # by state, how many have not ended


def probe_upgrade(settings: Settings) -> UpgradeFacts:
    """Look at the ledgers, and ask the engine. Changes nothing."""
    ledgers = tuple(_ledger(each.path) for each in of_engines(site_ledgers(settings)))
    try:
        client = connect(settings)
        status = client.status(within_s=_ENGINE_S)
        states = Counter(VJobState(each["state"]) for each in client.vjobs())
    except RmspluginError as fault:
        return UpgradeFacts(ledgers, str(fault))
    held = tuple(str(each["vjob"]) for each in status.get("held", ()))
    return UpgradeFacts(ledgers, "", str(status["version"]), held, states)


def _ledger(path: Path) -> LedgerFact:
    try:
        health = ledger_care.check(path)
        return LedgerFact(
            health.whole, health.sentence, path.stat().st_size, shutil.disk_usage(path.parent).free, str(path.parent)
        )
    except (LedgerError, OSError) as fault:
        return LedgerFact(False, str(fault))


def judge_upgrade(facts: UpgradeFacts, nodes: list[NodeFacts] | str) -> Iterator[Finding]:
    """Say what is in the way of an upgrade, and what goes on meanwhile; ``nodes``: a text says why none are known."""
    for ledger in facts.ledgers:
        yield from _judge_ledger(ledger)
    yield from _judge_engine(facts)
    if isinstance(nodes, str):
        yield error("nodes", f"are not known: {nodes}", "mend that first: a VM host that is forgotten fails later")
    else:
        yield from _judge_nodes(nodes)


def _judge_ledger(ledger: LedgerFact) -> Iterator[Finding]:
    if not ledger.whole:
        yield error("ledger", ledger.sentence, "see Backup and restore in docs/operator/restoring.md")
        return
    yield ok("ledger", ledger.sentence)
    wanted = ledger.size_bytes + _LEFT_FREE
    if ledger.free_bytes < wanted:
        yield error(
            "ledger",
            f"{ledger.directory} has {ledger.free_bytes // _MIB} MiB free, and the copy that the next release makes "
            f"of the ledger first may take {-(-wanted // _MIB)} MiB",
            "make room there",
        )


def _judge_engine(facts: UpgradeFacts) -> Iterator[Finding]:
    if facts.engine:
        yield warning(
            "engine", facts.engine, "see what is wrong before the upgrade: afterwards it may be harder to tell"
        )
        return
    yield ok("engine", f"is of release {facts.version}; this is {__version__}")
    resting = {state: number for state, number in sorted(facts.vjobs.items()) if not state.is_transitional}
    under_way = sum(facts.vjobs.values()) - sum(resting.values())
    if resting:
        told = ", ".join(f"{number} {state}" for state, number in resting.items())
        yield ok("vjobs", f"{told}: they stay so in an upgrade")
    if under_way:
        yield warning(
            "vjobs",
            f"{under_way} are about to start, end, sleep, resume or move",
            "wait for them, after `rmsplugin pause`: what the engine's stop breaks off is taken up by the next release",
        )
    if facts.held:
        yield warning(
            "vjobs", f"{', '.join(facts.held)} are held back", "settle that first: `rmsplugin confirm` tells what it is"
        )


def _judge_nodes(nodes: list[NodeFacts]) -> Iterator[Finding]:
    silent = [node.name for node in nodes if isinstance(node.agent, str)]
    releases: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node.agent, NodeCheck):
            releases.setdefault(node.agent.version, []).append(node.name)
    if silent:
        yield error(
            "nodes",
            f"{_some(silent)} are not reached: they would keep the release that they have",
            "mend them, or drain them until they have the newer release",
        )
    if len(releases) > 1:
        found = "; ".join(f"{release}: {_some(names)}" for release, names in sorted(releases.items()))
        yield warning("nodes", f"are of several releases: {found}", "end the upgrade before with these nodes first")
    elif releases:
        [(release, names)] = releases.items()
        yield ok("nodes", f"all {len(names)} that answer are of release {release}")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
