"""Commands with a policy of the site: it decides; where it errs, whatever it does, there is a sentence and status 2."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.cli.json_documents import answer_of
from unit.cli.test_cli_compare import TRACE, call

from rmsplugin.proposer import policy_process
from rmsplugin.proposer.process import ProposerLimits

POLICIES = """
import os, sys
from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path
from rmsplugin.decision.rjsp import rjsp

from rmsplugin.policy import Decision, Infeasible, Selection, VJobState

with Path(__file__).with_name("loaded").open("a") as loaded:
    print(os.getpid(), file=loaded)

calls = []

def right(configuration, parameters):
    assert configuration.vjobs, "asked about nothing"
    selection = Selection(configuration, parameters)
    for vjob in selection.vjobs:
        selection.add(vjob)
    return selection.decision()

def chatty(configuration, parameters):
    print("x" * 100_000)
    os.write(1, b"y" * 1000)
    sys.stdin.read()
    return right(configuration, parameters)

def as_rjsp(configuration, parameters):
    return rjsp(configuration, parameters)

def raising(configuration, parameters):
    return configuration.nodes[7]

def about_nobody(configuration, parameters):
    found = right(configuration, parameters)
    return replace(found, states={**found.states, "nobody": VJobState.RUNNING})

def beyond_the_nodes(configuration, parameters):
    found = right(configuration, parameters)
    return replace(found, placement=dict.fromkeys(found.placement, "n9"))

def impure(configuration, parameters):
    calls.append(1)
    return right(configuration, parameters) if len(calls) % 2 else replace(right(configuration, parameters), reasons={})

def fickle(configuration, parameters):
    calls.append(1)
    selection = Selection(configuration, parameters)
    if len(calls) % 2:
        selection.add(selection.vjobs[0])
    return selection.decision()

def gone(configuration, parameters):
    os._exit(3)

def endless(configuration, parameters):
    while True:
        pass

class Word(StrEnum):
    TELLING = "telling"

class OwnDecision(Decision):
    pass

def telling(configuration, parameters):
    found = right(configuration, parameters)
    said = {name: replace(each, numbers={**each.numbers, "word": Word.TELLING}) for name, each in found.reasons.items()}
    return replace(found, reasons=said)

def of_its_own_kind(configuration, parameters):
    found = right(configuration, parameters)
    return OwnDecision(**{each.name: getattr(found, each.name) for each in fields(found)})

def unwilling(configuration, parameters):
    return Infeasible("it is Sunday")
"""
INSTANCE = {
    "nodes": [{"name": "n1", "cpu": 2, "memory_mib": 4096}],
    "vjobs": [{"name": "a", "state": "waiting", "vms": [{"name": "a-0", "cpu": 1, "memory_mib": 512}]}],
}
REPLAY = ("--workload", "t.swf", "--nodes", "2", "--cpus-per-node", "2", "--memory-per-node", "4096")

#: By command, its words with a policy; the files that it would write are there already.
COMMANDS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "plan": lambda policy: ("plan", "--instance", "c.json", "--policy", policy, "--dot", "out"),
    "simulate": lambda policy: ("simulate", *REPLAY, "--policy", policy, "--jobs-out", "out"),
    "compare": lambda policy: ("compare", *REPLAY, "--policies", f"fcfs,{policy}", "--processes", "1"),
}


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with a trace, a configuration, an output of yesterday, and where modules are found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("t.swf").write_text(TRACE)
    Path("c.json").write_text(json.dumps(INSTANCE))
    Path("out").write_text("of yesterday")
    Path("ours.py").write_text(POLICIES)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_policy_of_the_site_decides(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, *COMMANDS[command]("ours:right"))
    assert (status, err) == (0, "")
    assert "1 starts" in out if command == "plan" else "ours:right" in out
    assert command == "compare" or Path("out").read_text() != "of yesterday"


@pytest.mark.parametrize("command", COMMANDS)
def test_what_it_prints_and_reads_is_not_the_commands(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, *COMMANDS[command]("ours:chatty"), "--json")
    assert (status, err) == (0, "")
    assert answer_of(out)


def test_a_replay_by_the_same_function_elsewhere_is_the_same_replay(capsys: pytest.CaptureFixture[str]) -> None:
    schedules = []
    for policy in ("rjsp", "ours:as_rjsp"):
        assert call(capsys, *COMMANDS["simulate"](policy))[0] == 0
        schedules.append(Path("out").read_text())
    assert schedules[0] == schedules[1]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("ours:raising", "policy ours:raising failed: IndexError: tuple index out of range ("),
        ("ours:about_nobody", "policy ours:about_nobody: it decided about 'nobody', and there is no such vjob"),
        ("ours:beyond_the_nodes", "is to be on 'n9', and there is no such node"),
        ("ours:impure", "policy ours:impure is not pure: asked again about the same, it decides nothing: "),
        ("ours:fickle", "policy ours:fickle is not pure: of two answers about the same, one has vjob "),
        ("ours:gone", "policy ours:gone: the process that asks it ended with status 3"),
        ("ours:telling", "policy ours:telling answered with an object of ours.Word: give text, numbers"),
        ("ours:of_its_own_kind", "policy ours:of_its_own_kind answered with an object of ours.OwnDecision: give"),
        ("ours:missing", "policy ours:missing: module ours has no missing"),
        ("nowhere:decide", "policy nowhere:decide cannot be loaded: ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_one_that_errs_is_refused_and_nothing_is_written(
    command: str, policy: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = call(capsys, *COMMANDS[command](policy))
    assert (status, out) == (2, "")
    assert err.startswith(f"rmsplugin {command}: policy {policy}") and told in err
    assert Path("out").read_text() == "of yesterday"
    assert str(os.getpid()) not in (Path("loaded").read_text().split() if Path("loaded").exists() else ())


@pytest.mark.parametrize("command", COMMANDS)
def test_one_that_does_not_end_is_refused_after_its_time(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_process, "LIMITS", ProposerLimits(deadline_s=2.0, nice=0))
    status, out, err = call(capsys, *COMMANDS[command]("ours:endless"), "--deterministic-limit", "0.1")
    assert (status, out) == (2, "")
    assert "policy ours:endless: the process that asks it had no answer within 2 s, and was killed" in err
    assert Path("out").read_text() == "of yesterday"


@pytest.mark.parametrize("command", COMMANDS)
def test_one_that_says_itself_that_nothing_can_be_decided_does_not_err(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The input is right, and there is no answer."""
    status, _, err = call(capsys, *COMMANDS[command]("ours:unwilling"))
    assert status == 1 and "policy ours:unwilling: it is Sunday" in err


def test_a_policy_is_looked_for_before_any_replay_begins(capsys: pytest.CaptureFixture[str]) -> None:
    """Replays of the others may take hours."""
    Path("t.swf").unlink()
    status, _, err = call(capsys, *COMMANDS["compare"]("ours:missing"))
    assert status == 2 and "module ours has no missing" in err


def test_a_fault_ends_the_replays_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The other one would take for ever: its policy has an hour for a decision."""
    words = ("compare", *REPLAY, "--policies", "ours:endless,ours:raising", "--processes", "2")
    status, out, err = call(capsys, *words, "--deterministic-limit", "900")
    assert (status, out) == (2, "")
    assert err.startswith("rmsplugin compare: policy ours:raising failed: IndexError")
    assert multiprocessing.active_children() == []
