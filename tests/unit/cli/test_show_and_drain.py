"""`rmsplugin show`, `drain`, `undrain`: the real commands and service, with a program in scontrol's place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of
from unit.cli.test_cli import SETTINGS
from unit.served import Served

from rmsplugin.cli.live import drain
from rmsplugin.cli.main import main


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(tmp_path)
    path = tmp_path / "rmsplugin.toml"
    text = SETTINGS.format(socket=served.socket)
    path.write_text(text.replace("[slurm]\n", f'[slurm]\nbin_dir = "{tmp_path}"\n'))
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(path))
    scontrol(tmp_path, f'printf "%s\\n" "$@" > {tmp_path}/said')
    yield served
    served.close()


def scontrol(directory: Path, line: str) -> None:
    program = directory / "scontrol"
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    def run_command(*words: str, status: int = 0) -> tuple[str, str]:
        assert main(list(words)) == status
        return tuple(capsys.readouterr())  # type: ignore[return-value]

    return run_command


Says = Callable[..., tuple[str, str]]


def test_a_vm_is_found_from_its_vjob_and_back(served: Served, said: Says) -> None:
    job = served.world.running()
    served.ledger.update_vjob(job, display_id="5010_0")
    shown = said("show", "vm", f"vjob{job}-0")[0]
    assert [line.split() for line in shown.splitlines() if line.startswith("  vjob ")] == [["vjob", "5010_0"]]
    parts = answer_of(said("show", "vjob", "5010_0", "--json")[0])
    assert [row["name"] for row in parts["vms"]] == [f"vjob{job}-0"]
    assert {"vjob", "vms", "decisions", "events"} == set(parts) and parts["vjob"][0]["job_id"] == job


def test_a_node_is_shown_with_its_vms_and_events(served: Served, said: Says) -> None:
    job = served.world.running()
    node = served.ledger.vms(job)[0].host
    served.ledger.event("for-a-test", "something happened there", node=node)
    shown = said("show", "node", node)[0]
    assert f"vjob{job}-0" in shown and "something happened there" in shown
    assert any(line.split() == ["node", node] for line in shown.splitlines())


def test_an_idle_vm_has_a_rate_of_0_and_one_that_is_not_known_has_none(served: Served, said: Says) -> None:
    name = f"vjob{served.world.running()}-0"

    def rates() -> tuple[list[str], list[list[str]]]:
        listed = said("vms", "--noheader", "--parsable2", "--format=received,sent")[0].split()
        shown = [line.split() for line in said("show", "vm", name)[0].splitlines()]
        return listed, [words for words in shown if words and words[0] in ("received", "sent")]

    assert rates() == (["|"], [])
    for _ in range(2):
        served.world.pass_time(30.0)
        served.world.tick()
    assert rates() == (["0|0"], [["received", "0"], ["sent", "0"]])


@pytest.mark.parametrize(
    ("what", "name", "error"),
    [("vjob", "99", "no vjob 99"), ("vm", "vjob99-0", "no vjob 99"), ("node", "n9", "n9 is no node that may host VMs")],
)
def test_what_is_not_there_is_said(served: Served, said: Says, what: str, name: str, error: str) -> None:
    served.world.tick()
    assert said("show", what, name, status=1)[1] == f"rmsplugin show: {error}\n"


@pytest.mark.parametrize("words", [("vjob", "x"), ("vm", "../n1"), ("node", "a b"), ("thing", "12")])
def test_what_cannot_be_is_wrong_usage(served: Served, words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["show", *words])
    assert ended.value.code == 2


def test_a_drain_is_slurms_and_ends_when_no_vm_is_left(
    served: Served, said: Says, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = served.world
    job = world.running()
    node = served.ledger.vms(job)[0].host
    looks = 0

    def pass_time(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            world.rms.set_node(node, draining=True, reason="new memory")
        for _ in range(5):
            world.tick()

    monkeypatch.setattr(drain.time, "sleep", pass_time)
    assert said("drain", node, "--reason", "new memory") == (f"{node}: no VM is left\n", "")
    assert (tmp_path / "said").read_text().splitlines() == [
        "update",
        f"NodeName={node}",
        "State=DRAIN",
        "Reason=new memory",
    ]
    assert looks >= 2 and served.ledger.vms(job)[0].host != node
    world.rms.set_node(node, draining=False, reason="")
    assert said("undrain", node)[0] == f"{node}: takes VMs again\n"
    assert "State=RESUME" in (tmp_path / "said").read_text()


def test_a_drain_that_is_not_done_in_time_says_what_is_left(
    served: Served, said: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.world.tick()
    monkeypatch.setattr(drain.time, "sleep", lambda _: None)
    out, error = said("drain", "n1", "--timeout", "0.001", status=1)
    assert (out, error) == ("", "rmsplugin drain: not done after 0.001 s: n1: the engine has not seen it yet\n")


def test_a_drain_waits_for_the_vms_and_then_for_the_room() -> None:
    node: Any = {"name": "n1", "power": "on", "state": "idle+drain", "vms": 2, "room": "held"}
    assert drain._is_empty(node) == "2 VMs left"
    assert drain._is_empty({**node, "vms": 0}) == "the node is given back"
    assert drain._is_empty({**node, "vms": 0, "room": "none"}) == ""


def test_slurms_refusal_is_said_in_its_words_and_a_wrong_name_changes_nothing(
    served: Served, said: Says, tmp_path: Path
) -> None:
    served.world.tick()
    assert said("drain", "n1", "n9", status=1)[1] == "rmsplugin drain: n9 is no node that may host VMs\n"
    assert not (tmp_path / "said").exists()
    scontrol(tmp_path, "echo 'slurm_update error: Invalid user id' >&2; exit 1")
    remedy = "only operators and administrators of Slurm may drain nodes; try sudo"
    refused = f"rmsplugin drain: slurm_update error: Invalid user id: {remedy}\n"
    assert said("drain", "n1", status=1)[1] == refused
    scontrol(tmp_path, "echo 'slurm_update error: Invalid node state specified' >&2; exit 1")
    assert said("drain", "n1", status=1)[1] == "rmsplugin drain: slurm_update error: Invalid node state specified\n"
