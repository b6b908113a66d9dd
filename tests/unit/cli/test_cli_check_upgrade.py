"""``rmsplugin check --upgrade``: what stands in the way of an upgrade is found, and a site in order has nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from unit.check_facts import settings

from rmsplugin import __version__
from rmsplugin.adapters.nodes.base import NodeCheck
from rmsplugin.cli.check.node_facts import NodeFacts
from rmsplugin.cli.check.upgrade import LedgerFact, UpgradeFacts, judge_upgrade, probe_upgrade
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.finding import Level
from rmsplugin.model.vjob import VJobState

S = VJobState
LEDGER = LedgerFact(True, "/l is whole", 40 << 20, 10 << 30, "/var/lib/rmsplugin")
FACTS = UpgradeFacts((LEDGER,), "", "1.2.3", (), {S.RUNNING: 5, S.SLEEPING: 2, S.WAITING: 1})


def node(name: str, release: str = "1.2.3") -> NodeFacts:
    return NodeFacts(name, "not asked", NodeCheck(release, {}, {}, 0.0, True, "raw", frozenset()))


NODES = [node("n1"), node("n2")]


def faults(facts: UpgradeFacts, nodes: list[NodeFacts] | str = NODES) -> list[tuple[Level, str, str]]:
    return [(each.level, each.subject, each.what) for each in judge_upgrade(facts, nodes) if each.level is not Level.OK]


def test_a_site_in_order_has_nothing_in_the_way_and_says_what_goes_on() -> None:
    assert faults(FACTS) == []
    assert [f"{each.subject}: {each.what}" for each in judge_upgrade(FACTS, NODES)] == [
        "ledger: /l is whole",
        f"engine: is of release 1.2.3; this is {__version__}",
        "vjobs: 5 running, 2 sleeping, 1 waiting: they stay so in an upgrade",
        "nodes: all 2 that answer are of release 1.2.3",
    ]


def test_a_ledger_that_is_damaged_or_has_no_room_for_its_copy_is_an_error() -> None:
    damaged = replace(LEDGER, whole=False, sentence="/l is damaged: page 7")
    assert faults(replace(FACTS, ledgers=(damaged, LEDGER))) == [(Level.ERROR, "ledger", "/l is damaged: page 7")]
    [(level, _, what)] = faults(replace(FACTS, ledgers=(replace(LEDGER, free_bytes=(296 << 20) - 1),)))
    assert level is Level.ERROR
    assert what == (
        "/var/lib/rmsplugin has 295 MiB free, and the copy that the next release makes of the ledger first may take "
        "296 MiB"
    )
    assert faults(replace(FACTS, ledgers=(replace(LEDGER, free_bytes=296 << 20),))) == []


def test_vjobs_that_change_or_are_held_back_are_told() -> None:
    found = faults(replace(FACTS, held=("12", "13"), vjobs={S.RUNNING: 1, S.SUSPENDING: 1, S.RESUMING: 2}))
    assert found == [
        (Level.WARNING, "vjobs", "3 are about to start, end, sleep, resume or move"),
        (Level.WARNING, "vjobs", "12, 13 are held back"),
    ]


def test_an_engine_that_does_not_answer_is_told() -> None:
    found = faults(UpgradeFacts((LEDGER,), "the engine does not answer"))
    assert found == [(Level.WARNING, "engine", "the engine does not answer")]


def test_nodes_that_are_not_known_are_an_error() -> None:
    assert faults(FACTS, "slurmctld does not answer") == [
        (Level.ERROR, "nodes", "are not known: slurmctld does not answer")
    ]


def test_nodes_that_would_be_forgotten_and_those_of_an_upgrade_before_are_named() -> None:
    silent = [NodeFacts(f"n{number}", "silent", "cannot be reached") for number in range(3, 10)]
    found = faults(FACTS, [*NODES, node("n10", "1.2.2"), *silent])
    assert found == [
        (
            Level.ERROR,
            "nodes",
            "n3, n4, n5, n6, n7 and 2 more are not reached: they would keep the release that they have",
        ),
        (Level.WARNING, "nodes", "are of several releases: 1.2.2: n10; 1.2.3: n1, n2"),
    ]


def test_the_ledger_of_a_newer_release_is_found(tmp_path: Path) -> None:
    site = settings(
        engine={"state_dir": str(tmp_path), "socket": str(tmp_path / "no.sock"), "url": "http://127.0.0.1:9"}
    )
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    facts = probe_upgrade(site)
    assert facts.engine, "nobody listens there"
    [fact] = facts.ledgers
    assert fact.whole and fact.size_bytes == path.stat().st_size and fact.directory == str(tmp_path)
    assert abs(fact.free_bytes - shutil.disk_usage(tmp_path).free) < 1 << 33
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("update _sqlite_migrations set name = 'm999_more' where name = 'm007_nodes'")
        connection.commit()
    [fact] = probe_upgrade(site).ledgers
    assert not fact.whole and "newer release" in fact.sentence
    os.unlink(path)
    [fact] = probe_upgrade(site).ledgers
    assert not fact.whole and "there is no ledger" in fact.sentence
