"""A site's own policy in the proposing process: whatever it does, the engine has an answer in time and goes on."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from unit.proposing.test_proposer import LIMITS, SOURCE, is_there, until

from rmsplugin.decision.own_policies import find
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Decision
from rmsplugin.errors import OperationFailedError, OwnPolicyError
from rmsplugin.packing.search import Search
from rmsplugin.proposer.policy_process import PolicyProcess
from rmsplugin.proposer.process import Process, ProcessFailedError, ProposerLimits
from rmsplugin.proposer.proposer import Proposed, Proposer
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.prepared import Prepared, prepare
from rmsplugin.proposing.proposal import Missing, NoProposal, Proposal
from rmsplugin.proposing.propose import propose

ROOT = Path(__file__).resolve().parents[3]
TEMPLATE = ROOT / "contrib/policy-template"
SHORT = ProposerLimits(deadline_s=2.0, fallback_s=2.0, start_s=60, memory_mib=2048)


def ask(
    directory: Path, monkeypatch: pytest.MonkeyPatch, body: str, limits: ProposerLimits = SHORT
) -> tuple[Proposed, Proposed]:
    """What the process answers with this policy, and after that with one of the product."""
    (directory / "ours.py").write_text(
        "import os, sys, time\nfrom rmsplugin.policy import Selection\n\n"
        f"def decide(configuration, parameters):\n    {body}\n"
        "    return Selection(configuration, parameters).decision()\n"
    )
    monkeypatch.syspath_prepend(directory)  # the process finds what this one does
    with Proposer(limits) as made:
        return tuple(made.propose(SOURCE, ProposalParameters(name)) for name in ("ours:decide", "rjsp"))  # type: ignore


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("time.sleep(600)", "had no answer within 2 s"),
        ("while True: pass", "had no answer within 2 s"),
        ("os._exit(3)", "ended"),
        ("bytearray(8 << 30)", "MemoryError"),
    ],
)
def test_a_policy_that_gives_no_answer_costs_one_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, told: str
) -> None:
    own, other = ask(tmp_path, monkeypatch, body)
    assert isinstance(own.found, NoProposal)
    assert told in own.failure + own.found.explanation
    assert isinstance(other.found, Proposal) and other.failure == "", "the next request is answered"


def test_what_a_policy_prints_and_reads_is_not_mistaken_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _ = ask(tmp_path, monkeypatch, "print('x' * 100_000); os.write(1, b'y' * 1000); sys.stdin.read()", LIMITS)
    assert own.failure == ""
    assert isinstance(own.found, Proposal) and own.found.decision.policy == "ours:decide"


def test_a_policy_that_errs_is_told_as_the_reason_why_nothing_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _ = ask(tmp_path, monkeypatch, "raise KeyError('gold')", LIMITS)
    assert isinstance(own.found, NoProposal) and own.found.missing is Missing.DECISION
    assert "policy ours:decide failed: KeyError: 'gold' (" in own.found.explanation


@pytest.mark.parametrize("looks_away", [False, True])
def test_an_answer_of_a_class_of_the_sites_is_refused_and_loads_nothing_in_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks_away: bool
) -> None:
    """Its own process refuses it, and goes on; where the policy has that looked away from, the engine does."""
    (tmp_path / "theirs.py").write_text("import enum\n\nclass Word(enum.StrEnum):\n    TELLING = 'telling'\n")
    away = "from rmsplugin.decision import own_policies; own_policies.require_known = lambda found: None; "
    body = (away if looks_away else "") + (
        "from theirs import Word; from dataclasses import replace; "
        "found = Selection(configuration, parameters).decision(); "
        "told = {name: replace(each, numbers={'word': Word.TELLING}) for name, each in found.reasons.items()}; "
        "return replace(found, reasons=told)"
    )
    own, other = ask(tmp_path, monkeypatch, body, LIMITS)
    assert isinstance(own.found, NoProposal)
    assert own.found.missing is (Missing.ANSWER if looks_away else Missing.DECISION)
    who = "the proposer" if looks_away else "policy ours:decide"
    assert f"{who} answered with an object of theirs.Word: give text" in own.failure + own.found.explanation
    assert bool(own.failure) == looks_away, "a process that failed is replaced"
    assert isinstance(other.found, Proposal) and "theirs" not in sys.modules


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import time\ntime.sleep(600)\n", "had no answer within 2 s"),
        ("import ctypes\nctypes.PyDLL(None).sleep(600)\n", "had no answer within 2 s"),
        ("import os\nos._exit(4)\n", "ended with status 4"),
        ("raise SystemExit\n", "cannot be loaded: SystemExit"),
    ],
)
def test_a_command_that_loads_a_policy_waits_no_longer_for_it_than_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    """Whatever the module does while it is loaded; and no process is left of it."""
    (tmp_path / "loaded.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    ended = []
    monkeypatch.setattr(Process, "end", lambda self, end=Process.end: (end(self), ended.append(self.is_usable)))
    with pytest.raises(OwnPolicyError, match=re.escape(told)):
        PolicyProcess("loaded:decide", SHORT)
    assert ended and not any(ended)


@pytest.mark.parametrize(("limit", "deadline_s"), [(0.1, 2.0), (600.0, 2400.0)])
def test_a_decision_may_take_as_long_as_its_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: float, deadline_s: float
) -> None:
    """The policy is loaded within the usual time, whatever the user allows for searches."""
    (tmp_path / "patient.py").write_text(
        "from rmsplugin.policy import Selection\n\n"
        "def decide(configuration, parameters):\n    return Selection(configuration, parameters).decision()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    given = []
    ask_ = Process.ask
    monkeypatch.setattr(
        Process, "ask", lambda self, request, most_s: (given.append(most_s), ask_(self, request, most_s))[1]
    )
    search = Search(time_limit_s=math.inf, deterministic_limit=limit)
    with PolicyProcess("patient:decide", SHORT) as asked:
        found = asked.decide(SOURCE, ProposalParameters("patient:decide", decision=Parameters(search=search)))
    assert isinstance(found, Decision) and given == [2.0, deadline_s]


def test_where_the_system_starts_no_process_that_is_not_the_policys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise ProcessFailedError("could not be started: Resource temporarily unavailable")

    monkeypatch.setattr("rmsplugin.proposer.policy_process.Process", full)
    with pytest.raises(OperationFailedError, match="policy ours:decide could not be started: Resource temp"):
        PolicyProcess("ours:decide")


def test_the_templates_policy_is_proposed_by_and_passes_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TEMPLATE)
    project = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())
    [(name, value)] = project["project"]["entry-points"]["rmsplugin.policies"].items()
    assert name == "shortest-first" and callable(find(value))
    found = prepare(SOURCE, ProposalParameters(value), propose)
    assert isinstance(found, Prepared) and found.fault == "" and found.proposal is not None
    assert found.proposal.decision.reasons["a"].sentence == "has less of its time limit left than those that wait"


def test_the_templates_own_tests_pass_where_rmsplugin_is_installed(tmp_path: Path) -> None:
    shutil.copytree(TEMPLATE, tmp_path / "ours")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "tests"]
    environment = {**os.environ, "PYTHONPATH": f".{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    found = subprocess.run(command, cwd=tmp_path / "ours", env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0 and "2 passed" in found.stdout, found.stdout + found.stderr


def test_the_guide_shows_the_templates_policy_as_it_is() -> None:
    guide = (ROOT / "docs/writing-a-policy.md").read_text()
    [shown] = [block for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "def shortest_first" in block]
    assert shown == (TEMPLATE / "shortest_first.py").read_text()


#: A module that starts a program while it is loaded, as a policy may at any time.
STARTS = """
import pathlib, subprocess
started = subprocess.Popen(["sleep", "600"])
pathlib.Path(__file__).with_name("pid").write_text(str(started.pid))

def decide(configuration, parameters):
    return None
"""


@pytest.mark.parametrize(
    "ends",
    [
        "asked.close()",
        "os.kill(os.getpid(), 9)",
        "os.kill(asked._process.pid, 9); asked.close()",
        # as the kernel may do for a process that was killed: the pipe of the requests ends before the lifeline
        "asked._process._requests.close(); os.waitpid(asked._process.pid, 0); asked._process._reaped = True",
    ],
)
def test_what_a_policy_starts_ends_with_the_command(tmp_path: Path, ends: str) -> None:
    """However the command ends, and also where the policy's process was ended before."""
    (tmp_path / "starting.py").write_text(STARTS)
    program = (
        "import os\nfrom rmsplugin.proposer.policy_process import PolicyProcess\n"
        f"asked = PolicyProcess('starting:decide')\n{ends}\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    pid = int((tmp_path / "pid").read_text())
    try:
        assert until(lambda: not is_there(pid), 10.0)
    finally:
        if is_there(pid):
            os.kill(pid, signal.SIGKILL)
