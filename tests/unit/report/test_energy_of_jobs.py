"""`rmsplugin energy`: whose kilowatt-hours they were, from a ledger."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of
from unit.reported import NOON, Told

from rmsplugin.cli.main import main
from rmsplugin.energy.lateness import LateSums
from rmsplugin.engine.ledger.power_book import LateSpan, SwitchState
from rmsplugin.model.node_action import NodeActionKind
from rmsplugin.report.document import Node

ENERGY = {
    "classes": [{"nodes": "*", "idle_w": 120, "busy_w": 300, "off_w": 8, "transition_w": 150, "off_s": 30, "on_s": 120}]
}
ALONE = ("--without-slurm", "--cpus-per-node", "4")
SACCT = """#!/bin/sh
cat <<END
1|physics|{0}|{0}|3600|00:00:00|20|COMPLETED
2|maths|{0}|{0}|1800|00:00:00|30|COMPLETED
END
"""


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """In the first hour alice has 3 CPUs of n1, and in its first half bob has the fourth; in the second bob has n2."""
    told = Told(tmp_path)
    for job_id, user, cpus in ((1, "alice", 3), (2, "bob", 1)):
        told.at(-60).start(told.submit(job_id, user=user, cpus=cpus), "n1")
    told.at(1800).end(2)
    told.at(3600).end(1)
    told.start(told.submit(3, user="bob", cpus=4), "n2")
    told.at(7200)
    (tmp_path / "energy.json").write_text(json.dumps(ENERGY))
    return told


def run(told: Told, *words: str) -> int:
    energy = str(told.path.parent / "energy.json")
    since, until = (
        f"{name}={value}" for name, value in (("--since", "2025-11-03T12:00:00"), ("--until", "2025-11-03T14:00:00"))
    )
    return main(["energy", "--config", str(told.settings), "--energy", energy, since, until, *words])


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def document(told: Told, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(told, *ALONE, "--json", *words) == 0
    found: dict[str, Any] = answer_of(capsys.readouterr().out)
    return found


def test_energy_is_told_of_all_by_node_and_by_owner(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(told, capsys)
    kwh = {by: {row["name"]: row["kwh"] for row in found[by]} for by in ("nodes", "users", "partitions")}
    start_s = 13  # job 1 is cleaned up, and job 3 boots: nobody's
    n1 = 0.120 * 2 + 0.180 * (3 / 4 + 1 / 4 * 1 / 2)
    n2 = 0.120 * 2 + 0.180 * (3600 - start_s) / 3600
    assert kwh["nodes"] == pytest.approx({"n1": n1, "n2": n2}, abs=1e-5)
    assert found["energy"]["kwh"] == pytest.approx(n1 + n2, abs=1e-5)
    alice = 0.180 * 3 / 4 + 0.120 * (3 / 4 + 1) / 2
    bob = 0.180 / 8 + 0.120 / 8 + 0.300 * (3600 - start_s) / 3600
    assert kwh["users"] == pytest.approx({"(nobody)": n1 + n2 - alice - bob, "alice": alice, "bob": bob}, abs=1e-5)
    assert sum(kwh["partitions"].values()) == pytest.approx(n1 + n2, abs=1e-5)
    assert found["energy"]["cost"] is None
    assert 0.240 < found["energy"]["kwh_oracle"] < n1 + n2


def test_a_person_reads_lines_without_empty_cells(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(told, *ALONE, "--by", "user") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["NAME", "KWH", "COST", "CARBON", "ALLON", "UNEMPTIED", "ORACLE"]
    assert [line[0] for line in lines[1:]] == ["(nobody)", "alice", "bob"]
    assert {len(line) for line in lines} == {7}


def switch(told: Told, node: str, kind: NodeActionKind, begins: float, ends: float) -> None:
    """The engine switches a node, as its ledger has it."""
    book = told.at(begins).ledger.power
    switch = book.begin(node, kind, "as told")
    told.at(ends)
    if kind is NodeActionKind.POWER_ON:
        book.forget(switch)
    else:
        book.enter(switch, SwitchState.OFF)


def test_nodes_that_were_off_took_less_than_with_all_on(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """n2 is off from the first minute to shortly before the second hour; n1 for all of its rest."""
    before = document(told, capsys)
    switch(told, "n2", NodeActionKind.POWER_OFF, 0, 60)
    switch(told, "n2", NodeActionKind.POWER_ON, 3460, 3580)
    switch(told, "n1", NodeActionKind.POWER_OFF, 3630, 3700)
    told.at(7200)
    found = document(told, capsys)
    kwh = {row["name"]: row["kwh"] for row in found["nodes"]}
    n1, n2 = (row["kwh"] for row in before["nodes"])
    joules = 30 * 30 - 112 * (3460 - 60) + 30 * 120, 30 * 30 - 112 * (7200 - 3700)
    assert kwh["n2"] == pytest.approx(n2 + joules[0] / 3.6e6, abs=1e-5)
    assert kwh["n1"] == pytest.approx(n1 + joules[1] / 3.6e6, abs=1e-5)
    assert {row["name"]: row["kwh_all_on"] for row in found["nodes"]} == {"n1": n1, "n2": n2}
    assert found["energy"]["kwh_not_emptied"] == found["energy"]["kwh"] == pytest.approx(sum(kwh.values()), abs=1e-5)
    assert found["energy"]["kwh_oracle"] == before["energy"]["kwh_oracle"] < found["energy"]["kwh"]
    users = {row["name"]: row["kwh"] for row in found["users"]}
    assert sum(users.values()) == pytest.approx(found["energy"]["kwh"], abs=1e-5)
    assert users["alice"] == next(row["kwh"] for row in before["users"] if row["name"] == "alice"), "off is nobody's"


def test_how_late_vjobs_were_because_nodes_were_off_is_told(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an hour of which only a half was in the time, half of it counts."""
    assert document(told, capsys)["lateness"] is None
    spans = ((-1800, 1800, 72.0), (1800, 5400, 18.0), (8000, 9000, 900.0))
    for began, ended, late_s in spans:
        told.ledger.power.note_late(LateSpan(NOON + began, NOON + ended, LateSums(late_s, 3600.0)))
    told.at(7200)
    sentence = (
        "vjobs spent 1 % of their time from submission to end waiting for nodes to come on, or behind vjobs that did; "
        "power.late_at_most is not set"
    )
    assert document(told, capsys)["lateness"] == {"share": 0.01, "at_most": None, "sentence": sentence}
    run(told, *ALONE)
    assert capsys.readouterr().out.splitlines()[-1] == sentence
    with_power(told)
    told.settings.write_text(told.settings.read_text() + "[power]\nlate_at_most = 0.02\n")
    assert document(told, capsys)["lateness"]["at_most"] == 0.02
    for option in ("--noheader", "--parsable2"):
        run(told, *ALONE, option)
        assert "vjobs spent" not in capsys.readouterr().out


def test_nothing_is_said_of_a_setting_that_is_not_known(
    told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a copy of the ledger, where there are no settings."""
    told.ledger.power.note_late(LateSpan(NOON, NOON + 3600, LateSums(36.0, 3600.0)))
    told.at(7200)
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(told.path.parent / "none.toml"))
    energy, times = told.path.parent / "energy.json", ("--since=2025-11-03T12:00:00", "--until=2025-11-03T14:00:00")
    assert main(["energy", "--ledger", str(told.path), "--energy", str(energy), *ALONE, *times]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("vjobs spent 1 %") and said.endswith("or behind vjobs that did")


def test_a_node_that_somebody_else_switched_on_is_on_from_then(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    before = document(told, capsys)
    switch(told, "n2", NodeActionKind.POWER_OFF, 0, 60)
    told.at(1060).ledger.event("power-on", "n2 is on: somebody else switched it on", node="n2")
    switch(told, "n2", NodeActionKind.POWER_OFF, 1600, 1660)
    switch(told, "n2", NodeActionKind.POWER_ON, 3000, 3060)
    told.at(7200)
    joules = 2 * 30 * 30 - 112 * (1000 + 1340) + 2 * 30 * 120
    assert document(told, capsys)["nodes"][1]["kwh"] == pytest.approx(
        before["nodes"][1]["kwh"] + joules / 3.6e6, abs=1e-5
    )


def test_what_emptying_a_node_saved_is_told(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """Alice's VM leaves n1 after a quarter of an hour, and n1 is off from the 20th minute on."""
    told.at(900).ledger.event("node-emptied", "n1 is emptied", node="n1")
    switch(told, "n1", NodeActionKind.POWER_OFF, 1140, 1200)
    told.at(7200)
    found = document(told, capsys)["nodes"][0]
    ended_s = 3610.0  # with the end of its job
    assert found["kwh_not_emptied"] - found["kwh"] == pytest.approx(112 * (ended_s - 1170) / 3.6e6, abs=1e-3)
    assert found["kwh_not_emptied"] < found["kwh_all_on"]


def test_watts_are_those_of_the_settings_without_a_file(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(told, capsys)
    words = ["energy", "--config", str(told.settings), *ALONE, "--json"]
    words += ["--since=2025-11-03T12:00:00", "--until=2025-11-03T14:00:00"]
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "--energy FILE is needed: the settings have no [[power.classes]]" in capsys.readouterr().err
    watts = "\n".join(f"{key} = {json.dumps(value)}" for key, value in ENERGY["classes"][0].items())
    before = told.settings.read_text()
    told.settings.write_text(f"{before}\n[[power.classes]]\n{watts}\n")
    assert main(words) == 0
    assert answer_of(capsys.readouterr().out) == found
    told.settings.write_text(f"{before}\n[[power.classes]]\n{watts}\n".replace('"*"', '["n1"]'))
    assert main(words) == 2
    assert "node n2 has no class" in capsys.readouterr().err


def test_cost_is_by_local_time_of_day(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    path = told.path.parent / "energy.json"
    tariff = [{"begin": "00:00", "price": 0.1}, {"begin": "13:00", "price": 0.4}]
    path.write_text(json.dumps({**ENERGY, "tariff": tariff}))
    found = document(told, capsys)
    (n1,) = [row for row in found["nodes"] if row["name"] == "n1"]
    assert n1["cost"] == pytest.approx(0.1 * (0.120 + 0.180 * 7 / 8) + 0.4 * 0.120, abs=1e-5)


TARIFF = """
[[power.tariff]]
begin = "13:00"
price = 0.4

[[power.tariff]]
begin = "12:00"
price = 0.1

[[power.co2]]
begin = "06:00"
grams = 300
"""


def with_power(told: Told) -> None:
    """The settings know watts, tariff and CO2, as the energy file does."""
    watts = "\n".join(f"{key} = {json.dumps(value)}" for key, value in ENERGY["classes"][0].items())
    told.settings.write_text(f"{told.settings.read_text()}\n[[power.classes]]\n{watts}\n{TARIFF}")
    tariff = [{"begin": "12:00", "price": 0.1}, {"begin": "13:00", "price": 0.4}]
    directory = told.path.parent
    (directory / "co2.csv").write_text("06:00,300\n")
    (directory / "energy.json").write_text(json.dumps({**ENERGY, "tariff": tariff, "co2_file": "co2.csv"}))


def test_tariff_and_co2_of_the_settings_are_those_of_a_file(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    with_power(told)
    by_file = document(told, capsys)
    words = ["energy", "--config", str(told.settings), *ALONE, "--json"]
    assert main([*words, "--since=2025-11-03T12:00:00", "--until=2025-11-03T14:00:00"]) == 0
    found = answer_of(capsys.readouterr().out)
    assert found == by_file
    (n1,) = [row for row in found["nodes"] if row["name"] == "n1"]
    assert n1["cost"] == pytest.approx(0.1 * (0.120 + 0.180 * 7 / 8) + 0.4 * 0.120, abs=1e-5)
    assert n1["co2_kg"] == pytest.approx(0.3 * n1["kwh"], abs=1e-5)


def test_a_report_has_cost_and_co2_by_node_user_and_account(
    told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_power(told)
    alone = document(told, capsys)
    nodes = [Node("n1", 4, 8192), Node("n2", 4, 8192)]
    monkeypatch.setattr("rmsplugin.report.slurm.nodes_of", lambda _: (nodes, {"n1": 4, "n2": 4}))
    words = ["report", "--config", str(told.settings), "--since=2025-11-03T12:00:00", "--until=2025-11-03T14:00:00"]
    assert main([*words, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["energy"]
    keys = ("kwh", "cost", "co2_kg")
    assert [found[key] for key in keys] == pytest.approx([alone["energy"][key] for key in keys], abs=2e-6)
    for part in ("nodes", "users", "accounts"):
        shown = {each["name"] or "(nobody)": [each[key] for key in keys] for each in found[part]}
        assert shown == {each["name"]: [each[key] for key in keys] for each in alone[part]}, part
        for key in keys:
            assert sum(each[key] for each in found[part]) == pytest.approx(found[key], abs=1e-5), (part, key)
    assert main([*words, "--email-format"]) == 0
    mail = " ".join(capsys.readouterr().out.split())
    kwh, cost, co2_kg = (found[key] for key in keys)
    assert f"nodes took {kwh:.1f} kWh, which cost {cost:.2f}, with {co2_kg:.1f} kg of CO2, and were" in mail


def test_a_nodes_watts_follow_all_its_cpus_also_those_that_are_kept_from_vms(
    told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = document(told, capsys)
    offered = [Node("n1", 3, 8192), Node("n2", 3, 8192)]
    monkeypatch.setattr("rmsplugin.report.slurm.nodes_of", lambda _: (offered, {"n1": 4, "n2": 4}))
    assert run(told, "--json") == 0
    assert answer_of(capsys.readouterr().out) == alone


def test_each_vm_counts_with_its_own_cpus(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    before = document(told, capsys)
    told.at(3700).start(told.submit(4, user="carol", vms=2, cpus=2, small=(1, 512)), "n1", "n1")
    told.at(5510).end(4)
    told.at(7200)
    n1 = document(told, capsys)["nodes"][0]["kwh"] - before["nodes"][0]["kwh"]
    assert n1 == pytest.approx(0.180 * 3 / 4 * 1800 / 3600, abs=1e-5)


def test_no_node_takes_more_than_with_all_its_cpus_busy(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """Carol requests four of the CPUs that bob has: from then on each has half of them."""
    before = document(told, capsys)
    told.at(5390).start(told.submit(4, user="carol", cpus=4), "n2")
    told.at(7200)
    found = document(told, capsys)
    assert found["nodes"] == before["nodes"]
    bob = before["users"][-1]["kwh"] - 0.300 / 2 * 1800 / 3600
    assert {row["name"]: row["kwh"] for row in found["users"]} == pytest.approx(
        {**{row["name"]: row["kwh"] for row in before["users"]}, "bob": bob, "carol": 0.300 / 2 * 1800 / 3600}, abs=1e-5
    )


def test_a_copy_of_the_ledger_needs_no_settings(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(told, capsys)
    told.settings.unlink()
    words = ["energy", "--energy", str(told.path.parent / "energy.json"), "--ledger", str(told.path), *ALONE, "--json"]
    assert main([*words, "--since=2025-11-03T12:00:00", "--until=2025-11-03T14:00:00"]) == 0
    assert answer_of(capsys.readouterr().out)["users"] == found["users"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--without-slurm",), "--without-slurm and --cpus-per-node belong together"),
        (("--cpus-per-node", "4"), "--without-slurm and --cpus-per-node belong together"),
        ((*ALONE, "--until=2025-11-03T11:00:00"), "--since has to be before --until"),
        ((*ALONE, "--format", "watts"), "--format: no field 'watts'"),
        ((*ALONE, "--since=2025-11-01", "--until=2025-11-02"), "no VM ran on any node in this time"),
    ],
)
def test_what_cannot_be_told_is_refused(
    told: Told, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], complaint: str
) -> None:
    try:
        status = run(told, *words)
    except SystemExit as ended:
        status = int(str(ended.code))
    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    assert complaint in printed.err


def test_who_may_not_read_the_ledger_is_refused(
    told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert run(told, *ALONE) == 1
    assert "the ledger is not yours to read" in capsys.readouterr().err


def test_nodes_are_slurms_and_accounts_those_of_accounting(
    told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sacct = told.path.parent / "sacct"
    sacct.write_text(SACCT.format(int(NOON) - 60))
    sacct.chmod(0o755)
    nodes = [Node("n1", 4, 8192), Node("n2", 4, 8192), Node("n3", 4, 8192)]
    monkeypatch.setattr("rmsplugin.report.slurm.nodes_of", lambda _: (nodes, {node.name: node.cpus for node in nodes}))
    assert run(told, "--json") == 0
    found = answer_of(capsys.readouterr().out)
    assert [row["name"] for row in found["nodes"]] == ["n1", "n2", "n3"]
    accounts = {row["name"]: row["kwh"] for row in found["accounts"]}
    assert accounts["physics"] == pytest.approx(0.180 * 3 / 4 + 0.120 * (3 / 4 + 1) / 2, abs=1e-5)
    assert accounts["maths"] == pytest.approx(0.180 / 8 + 0.120 / 8, abs=1e-5)


def test_a_report_of_the_whole_cluster_has_the_energy_of_its_nodes(
    told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch(told, "n2", NodeActionKind.POWER_OFF, 0, 60)
    switch(told, "n2", NodeActionKind.POWER_ON, 3460, 3580)
    told.at(7200)
    alone = document(told, capsys)
    by_itself = alone["energy"]
    nodes = [Node("n1", 4, 8192), Node("n2", 4, 8192)]
    monkeypatch.setattr("rmsplugin.report.slurm.nodes_of", lambda _: (nodes, {"n1": 4, "n2": 4}))
    words = ["report", "--config", str(told.settings), "--since=2025-11-03T12:00:00", "--until=2025-11-03T14:00:00"]

    def energy(*more: str) -> list[dict[str, Any]]:
        assert main([*words, "--json", *more]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["energy"]
        return found

    assert energy() == [], "no watts are known"
    watts = "\n".join(f"{key} = {json.dumps(value)}" for key, value in ENERGY["classes"][0].items())
    told.settings.write_text(f"{told.settings.read_text()}\n[[power.classes]]\n{watts}\n")
    (found,) = energy()
    keys = ("kwh", "kwh_all_on", "kwh_not_emptied", "kwh_oracle")
    assert {key: found[key] for key in keys} == {key: by_itself[key] for key in keys}
    assert (found["policy"], found["switched_off"], found["cost"]) == ("live", 1, None)
    for owners in ("users", "accounts"):
        assert {each["name"] or "(nobody)": each["kwh"] for each in found[owners]} == {
            each["name"]: each["kwh"] for each in alone[owners]
        }
    assert [each["name"] for each in found["users"]] == ["", "alice", "bob"]
    assert energy("--user", "alice") == [], "it is of a part of the cluster"
    assert main([*words, "--email-format"]) == 0
    mail = " ".join(capsys.readouterr().out.split())
    told_kwh = f"nodes took {found['kwh']:.1f} kWh, and were switched off 1 times; it would have been"
    assert f"{told_kwh} {found['kwh_all_on']:.1f} kWh with all of them on" in mail
    assert main([*words, "--html", str(told.path.parent / "page.html")]) == 0
    assert f'"kwh":{found["kwh"]}' in (told.path.parent / "page.html").read_text().replace(": ", ":")
