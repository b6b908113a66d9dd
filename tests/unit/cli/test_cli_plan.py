"""`rmsplugin plan` and `rmsplugin pack` as users run them."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import math
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from patience import PATIENCE_S
from unit.cli.json_documents import answer_of, document_of, told

from rmsplugin import settings
from rmsplugin.cli.main import build_parser, main
from rmsplugin.cli.plan import packing, solve, text
from rmsplugin.cli.plan.interrupt import ends_at_once
from rmsplugin.cli.plan.search_options import search_of
from rmsplugin.cli.plan.solved import Solved
from rmsplugin.cli.plan.text import lines
from rmsplugin.cli.shared.output_file import OutputFile
from rmsplugin.decision.policies import POLICIES
from rmsplugin.decision.result import Decision, Reason, ReasonCode
from rmsplugin.errors import RefusedError
from rmsplugin.model.action import migrate, stop, suspend
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VM, WAITING, Node, VJob, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.planning.order import makespan
from rmsplugin.planning.order.dependencies import Order
from rmsplugin.planning.order.makespan import Makespan
from rmsplugin.planning.plan import Plan, Unreachable
from rmsplugin.planning.violations import Rule, Violation
from rmsplugin.proposing import check, propose
from rmsplugin.proposing.document import document, states_before
from rmsplugin.proposing.proposal import Proposal, sentence
from rmsplugin.settings.deciding import Durations

PROGRAM = Path(sys.executable).parent / "rmsplugin"

#: By RJSP a and b run, and c sleeps. The cheapest way: c-0 is suspended (512) and a-0 leaves n1 for n2 (1024), then b-0
#: resumes where its saved state lies (2048, after 1024 of the first pool); n1 has not the memory before. Together 4608.
SWITCH: dict[str, Any] = {
    "nodes": [
        {"name": "n1", "cpu": 2, "memory_mib": 3072},
        {"name": "n2", "cpu": 2, "memory_mib": 4096},
    ],
    "vjobs": [
        {
            "name": "a",
            "state": "running",
            "vms": [
                {"name": "a-0", "cpu": 1, "memory_mib": 1024, "host": "n1"},
                {"name": "a-1", "cpu": 1, "memory_mib": 1024, "host": "n2"},
            ],
        },
        {"name": "b", "state": "sleeping", "vms": [{"name": "b-0", "cpu": 2, "memory_mib": 2048, "image": "n1"}]},
        {"name": "c", "state": "running", "vms": [{"name": "c-0", "cpu": 1, "memory_mib": 512, "host": "n1"}]},
    ],
}


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings file, and a directory of its own for each test."""
    monkeypatch.delenv("RMSPLUGIN_CONFIG", raising=False)
    monkeypatch.setattr(settings, "DEFAULT_PATH", Path("/nonexistent/rmsplugin.toml"))
    monkeypatch.chdir(tmp_path)
    Path("switch.json").write_text(json.dumps(SWITCH))


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command in this process: status, standard output, standard error."""
    try:
        status = main(words)
    except SystemExit as error:
        status = int(str(error.code))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return status, out, err


def planned(capsys: pytest.CaptureFixture[str], *words: str, instance: Mapping[str, Any] = SWITCH) -> dict[str, Any]:
    """The JSON of a plan that is proven within the time limit, for a file that is written first."""
    Path("i.json").write_text(json.dumps(instance))
    status, out, err = call(capsys, "plan", "--instance", "i.json", "--json", *words)
    assert (status, err) == (0, "")
    found: dict[str, Any] = answer_of(out)
    return found


def with_change(*place_and_value: Any) -> dict[str, Any]:
    """SWITCH with another value in one place."""
    *place, key, value = place_and_value
    data = copy.deepcopy(SWITCH)
    holder: Any = data
    for step in place:
        holder = holder[step]
    holder[key] = value
    return data


# -- help ----------------------------------------------------------------------------------------------------------


def example(command: str) -> str:
    """What the help of a command says to paste: its last example."""
    done = subprocess.run([PROGRAM, command, "--help"], capture_output=True, text=True, check=True)
    return done.stdout[done.stdout.index("  echo '") :]


def pasted(script: str) -> str:
    path = {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_example_in_the_help_of_plan_works_when_pasted() -> None:
    assert pasted(example("plan")).splitlines() == [
        "2 of 2 vjobs run: 1 starts, 1 resumes; 2 actions in 1 pool, cost 1024 MiB.",
        "",
        "VJOB  NOW      STATE   REASON",
        "vjob1 sleeping running needs 1 CPU and 1024 MiB in 1 VM, which fit beside those ahead of it",
        "vjob2 waiting  running needs 2 CPUs and 2048 MiB in 1 VM, which fit beside those ahead of it",
        "",
        "pool I: 2 actions, cost 1024 MiB",
        "  ACTION VM      FROM TO COST NOTE",
        "  run    vjob2-0 -    n1    0 -",
        "  resume vjob1-0 n2   n2 1024 local",
        "",
        "cost      1024 MiB, proven lower bound 1024 MiB: optimal",
        "nodes     2 in use, proven lower bound 2",
        "makespan  about 0:49 pool by pool, 0:49 by dependencies alone",
    ]


def test_the_example_in_the_help_of_pack_works_when_pasted() -> None:
    assert pasted(example("pack")).splitlines() == [
        "NODE VMS CPU MEMORY_MIB NAMES",
        "n1     2 2/2  1024/4096 vjob1-0,vjob1-1",
        "",
        "2 running VMs on 1 node: the fewest possible; First Fit Decreasing uses 1.",
    ]


# -- plan --json ---------------------------------------------------------------------------------------------------


def test_the_json_is_what_interfaces_promise(capsys: pytest.CaptureFixture[str]) -> None:
    answer = planned(capsys)
    assert list(answer)[:6] == ["decision", "target", "plan", "nodes_used", "nodes_lower_bound", "seconds"]
    assert {name: vjob["state"] for name, vjob in answer["decision"].items()} == {
        "a": "running",
        "b": "running",
        "c": "sleeping",
    }
    assert all(vjob["reason"] and vjob["code"] for vjob in answer["decision"].values())
    assert answer["decision"]["c"]["numbers"]["memory_mib"] == 512
    assert list(answer["target"].items()) == [
        ("a-0", {"state": "running", "host": "n2"}),
        ("a-1", {"state": "running", "host": "n2"}),
        ("b-0", {"state": "running", "host": "n1"}),
        ("c-0", {"state": "sleeping", "image": "n1"}),
    ]
    plan = answer["plan"]
    assert (plan["cost"], plan["lower_bound"], plan["optimal"]) == (4608, 4608, True)
    assert (answer["nodes_used"], answer["nodes_lower_bound"]) == (2, 2)
    assert list(answer["seconds"]) == ["decision", "placement", "planning"]
    actions = {action["vm"]: action for pool in plan["pools"] for action in pool}
    common = {"id", "needs", "cost", "action", "vm"}
    assert {key: actions["a-0"][key] for key in actions["a-0"].keys() - common} == {"from": "n1", "to": "n2"}
    assert {key: actions["b-0"][key] for key in actions["b-0"].keys() - common} == {
        "from": "n1",
        "to": "n1",
        "local": True,
    }
    assert {key: actions["c-0"][key] for key in actions["c-0"].keys() - common} == {"from": "n1", "image": "n1"}
    assert {vm: (action["action"], action["cost"]) for vm, action in actions.items()} == {
        "a-0": ("migrate", 1024),
        "b-0": ("resume", 2048),
        "c-0": ("suspend", 512),
    }


def test_needs_name_what_an_action_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    actions = [action for pool in planned(capsys)["plan"]["pools"] for action in pool]
    assert [action["id"] for action in actions] == [0, 1, 2]
    by_id = {action["id"]: action["vm"] for action in actions}
    (resume,) = (action for action in actions if action["action"] == "resume")
    assert {by_id[number] for number in resume["needs"]} & {"a-0", "c-0"}
    assert all(action["needs"] == [] for action in actions if action["action"] == "suspend")


def test_makespans_are_told_and_dependencies_are_never_slower(capsys: pytest.CaptureFixture[str]) -> None:
    makespan = planned(capsys)["plan"]["makespan_s"]
    assert 0 < makespan["dependencies"] < makespan["pools"]


def test_the_actions_of_a_vjob_that_starts_ends_or_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    data = {
        "nodes": [
            {"name": "n1", "cpu": 4, "memory_mib": 4096},
            {"name": "n2", "cpu": 4, "memory_mib": 4096, "state": "down"},
        ],
        "vjobs": [
            {"name": "w", "state": "waiting", "vms": [{"name": "w-0", "cpu": 1, "memory_mib": 512}]},
            {
                "name": "e",
                "state": "running",
                "target": "terminated",
                "vms": [{"name": "e-0", "cpu": 1, "memory_mib": 512, "host": "n1"}],
            },
            {
                "name": "l",
                "state": "running",
                "vms": [
                    {"name": "l-0", "cpu": 0.5, "memory_mib": 512, "host": "n1"},
                    {"name": "l-1", "cpu": 0.5, "memory_mib": 512, "host": "n2"},
                ],
            },
        ],
    }
    answer = planned(capsys, instance=data)
    actions = {(action["action"], action["vm"]): action for pool in answer["plan"]["pools"] for action in pool}
    assert ("run", "w-0") in actions and actions["run", "w-0"]["to"] == "n1" and "from" not in actions["run", "w-0"]
    assert actions["stop", "e-0"]["from"] == "n1" and "to" not in actions["stop", "e-0"]
    assert actions["stop", "l-0"]["requeue"] is True
    assert answer["target"]["e-0"] == {"state": "terminated"}
    assert answer["plan"]["cost"] == 0


def test_an_action_costs_what_table_1_says_and_the_plan_their_sum(capsys: pytest.CaptureFixture[str]) -> None:
    data = copy.deepcopy(SWITCH)
    data["vjobs"][1]["nodes"] = ["n2"]  # b-0 has to be resumed where its saved state is not
    data["vjobs"] += [
        {"name": "r", "state": "waiting", "nodes": ["n1"], "vms": [{"name": "r-0", "cpu": 0, "memory_mib": 128}]},
        {
            "name": "s",
            "state": "running",
            "target": "terminated",
            "vms": [{"name": "s-0", "cpu": 1, "memory_mib": 128, "host": "n2"}],
        },
    ]
    plan = planned(capsys, instance=data)["plan"]
    actions = {action["vm"]: action for pool in plan["pools"] for action in pool}
    assert {vm: (action["action"], action["cost"]) for vm, action in actions.items()} == {
        "a-1": ("migrate", 1024),
        "b-0": ("resume", 4096),
        "c-0": ("suspend", 512),
        "r-0": ("run", 0),
        "s-0": ("stop", 0),
    }
    assert actions["b-0"]["local"] is False
    total = before = 0
    for pool in plan["pools"]:
        total += sum(before + action["cost"] for action in pool)
        before += max(action["cost"] for action in pool)
    assert plan["cost"] == total


#: What no small instance has: a bypass, a requeue, shared storage, numbers without end. Not a plan that would be right.
_VMS = {name: VM(name, Resources(1, 512)) for name in ("a-0", "b-0", "c-0")}
_PLAN = Plan(
    (
        (
            migrate(_VMS["a-0"], "n1", "n2", bypass=True),
            suspend(_VMS["b-0"], "n1", SHARED),
            stop(_VMS["c-0"], "n1", requeue=True),
        ),
        (migrate(_VMS["a-0"], "n2", "n1"),),
    )
)
_DECISION = Decision(
    "easy",
    {"a": VJobState.RUNNING, "b": VJobState.SLEEPING, "c": VJobState.WAITING},
    {
        name: Reason(ReasonCode.KEPT, f"because {name}", {"shadow_s": math.inf, "cpus": 1.5, "head": "x"})
        for name in ("a", "b", "c")
    },
    {"a-0": "n2"},
)
ODD = Solved(
    Configuration(
        (Node("n1", Resources(4, 4096)), Node("n2", Resources(4, 4096))),
        (
            VJob("a", (_VMS["a-0"],)),
            VJob("b", (_VMS["b-0"],)),
            VJob("c", (_VMS["c-0"],), lost=True),
        ),
        {"a-0": running_on("n1"), "b-0": running_on("n1"), "c-0": running_on("n1")},
    ),
    Proposal(
        _DECISION,
        {"a-0": running_on("n1"), "b-0": sleeping_on(SHARED), "c-0": WAITING},
        _PLAN,
        Order(tuple(_PLAN.actions()), ((), (), (), (2, 0)), ()),
        Makespan(65.5, 60.25, ()),
        lower_bound=512,
        nodes_used=1,
        nodes_lower_bound=1,
        fingerprint="",
        sentence=sentence(_DECISION, _PLAN),
    ),
    {"decision": 0.123456},
)


def test_the_json_of_what_is_odd() -> None:
    found = document(ODD.source, ODD.proposal, ODD.seconds)
    assert found["decision"]["a"] == {
        "state": "running",
        "reason": "because a",
        "code": "kept",
        "numbers": {"shadow_s": None, "cpus": 1.5, "head": "x"},  # JSON has no infinity
    }
    assert found["target"] == {
        "a-0": {"state": "running", "host": "n1"},
        "b-0": {"state": "sleeping", "image": "shared"},
        "c-0": {"state": "waiting"},
    }
    common = {"from": "n1", "needs": []}
    assert found["plan"]["pools"] == [
        [
            {"action": "migrate", "vm": "a-0", "to": "n2", "bypass": True, "cost": 512, "id": 0, **common},
            {"action": "suspend", "vm": "b-0", "image": "shared", "cost": 512, "id": 1, **common},
            {"action": "stop", "vm": "c-0", "requeue": True, "cost": 0, "id": 2, **common},
        ],
        [{"action": "migrate", "vm": "a-0", "from": "n2", "to": "n1", "cost": 512, "id": 3, "needs": [0, 2]}],
    ]
    assert found["plan"]["makespan_s"] == {"pools": 65.5, "dependencies": 60.25}
    assert (found["plan"]["cost"], found["plan"]["lower_bound"], found["plan"]["optimal"]) == (2048, 512, False)
    assert found["seconds"] == {"decision": 0.1235}


def test_the_text_of_what_is_odd() -> None:
    assert list(lines(document(ODD.source, ODD.proposal, {}), ODD.proposal.sentence, states_before(ODD.source))) == [
        "3 vjobs decided; 4 actions in 2 pools, cost 2048 MiB.",
        "",
        "VJOB NOW           STATE    REASON",
        "a    running       running  because a",
        "b    running       sleeping because b",
        "c    running, lost waiting  because c",
        "",
        "pool I: 3 actions, cost 512 MiB",
        "  ACTION  VM  FROM TO COST NOTE",
        "  migrate a-0 n1   n2  512 bypass",
        "  suspend b-0 n1   -   512 to shared storage",
        "  stop    c-0 n1   -     0 begins anew",
        "",
        "pool II: 1 action, cost 512 MiB",
        "  migrate a-0 n2   n1  512 -",
        "",
        "cost      2048 MiB, proven lower bound 512 MiB: gap 75.0 %",
        "nodes     1 in use, proven lower bound 1",
        "makespan  about 1:05 pool by pool, 1:00 by dependencies alone",
    ]


def crowded(nodes: int, vjobs: int) -> dict[str, Any]:
    """A cluster with more vjobs than it has room for, in all three states, so that there is something to search."""
    random = Random(7)
    free = {f"n{i}": [2.0, 4096] for i in range(nodes)}
    found = []
    for j in range(vjobs):
        state = random.choice(["running", "running", "sleeping", "waiting"])
        vms: list[dict[str, Any]] = []
        for k in range(random.choice([1, 3, 5])):
            cpu, memory_mib = random.choice([0, 0.5, 1]), random.choice([512, 1024, 2048])
            vm = {"name": f"j{j}-{k}", "cpu": cpu, "memory_mib": memory_mib}
            if state == "running":
                vm["host"] = random.choice([name for name, (_, memory) in free.items() if memory >= memory_mib])
                free[vm["host"]][1] -= memory_mib
            elif state == "sleeping":
                vm["image"] = random.choice(list(free))
            vms.append(vm)
        found.append({"name": f"j{j}", "state": state, "vms": vms})
    return {"nodes": [{"name": name, "cpu": 2, "memory_mib": 4096} for name in free], "vjobs": found}


@pytest.mark.parametrize("command", ["plan", "pack"])
def test_the_same_seed_and_limit_give_the_same_bytes(command: str) -> None:
    Path("i.json").write_text(json.dumps(crowded(30, 30)))
    words = [PROGRAM, command, "--instance", "i.json", "--json", "--seed", "3", "--deterministic-limit", "0.3"]
    answers = set()
    for hash_seed in ("1", "2"):  # no answer hangs on the order of a set
        done = subprocess.run(
            words, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
        )
        answers.add(re.sub(r'"seconds": (\{.*?\}|[\d.]+)', "", done.stdout, flags=re.DOTALL))
    assert len(answers) == 1


def test_the_limits_of_a_search_are_those_that_were_asked_for() -> None:
    def search(*words: str) -> Search:
        return search_of(build_parser().parse_args(["pack", "--instance", "f", *words]))

    own = search()
    assert (own.time_limit_s, own.seed, own.deterministic_limit) == (5, 0, None)
    assert 1 <= own.workers <= 4
    assert search("--time-limit", "0.5", "--workers", "3", "--seed", "9") == Search(0.5, 3, 9, None)
    # The clock, or the number of CPUs of this machine, must not decide what the answer is.
    deterministic = search("--deterministic-limit", "2")
    assert (deterministic.deterministic_limit, deterministic.workers) == (2, 1)
    assert deterministic.time_limit_s > 86400
    assert search("--deterministic-limit", "2", "--time-limit", "7").time_limit_s == 7


# -- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_has_an_answer(capsys: pytest.CaptureFixture[str], policy: str) -> None:
    assert planned(capsys, "--policy", policy)["policy"] == policy


def test_a_heuristic_takes_the_placement_of_the_decision(capsys: pytest.CaptureFixture[str]) -> None:
    answer = planned(capsys, "--heuristic", "ffd")
    # a-0 and a-1 on the first node with room, b-0 on the next: its saved state has to be copied
    assert {vm: place.get("host") for vm, place in answer["target"].items()} == {
        "a-0": "n1",
        "a-1": "n1",
        "b-0": "n2",
        "c-0": None,
    }
    assert answer["plan"]["cost"] >= 512 + 1024 + 4096
    assert 0 < answer["plan"]["lower_bound"] <= 4608 and not answer["plan"]["optimal"]


#: Figure 1 of RR-7398: d takes the place of a on n1, and a goes to n2, as far as it has room.
ARRIVAL: dict[str, Any] = {
    "nodes": [{"name": f"n{i}", "cpu": 10, "memory_mib": 4096} for i in (1, 2, 3)],
    "vjobs": [
        {"name": name, "state": "running", "vms": [{"name": name, "cpu": cpu, "memory_mib": 64, "host": host}]}
        for name, cpu, host in (("a", 1, "n1"), ("b", 8, "n1"), ("c", 9, "n2"))
    ]
    + [{"name": "d", "state": "waiting", "vms": [{"name": "d", "cpu": 2, "memory_mib": 64}]}],
}


def test_better_fit_moves_a_smaller_vm_for_one_that_arrives(capsys: pytest.CaptureFixture[str]) -> None:
    answer = planned(capsys, "--heuristic", "better-fit", instance=ARRIVAL)
    hosts = {vm: place["host"] for vm, place in answer["target"].items()}
    assert hosts == {"a": "n2", "b": "n1", "c": "n2", "d": "n1"}
    assert [action["action"] for action in answer["plan"]["pools"][0]] == ["migrate", "run"]
    assert (answer["nodes_used"], answer["nodes_lower_bound"]) == (2, 2)


def test_better_fit_that_finds_no_room_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    data = copy.deepcopy(ARRIVAL)
    data["nodes"], data["vjobs"] = data["nodes"][:2], []
    for name, cpu, host in (("a", 2, "n1"), ("b", 2, "n2"), ("c", 5, "n1"), ("d", 5, "n2")):
        vm = {"name": name, "cpu": cpu, "memory_mib": 64, "host": host}
        data["vjobs"].append({"name": name, "state": "running", "vms": [vm]})
    data["vjobs"].append({"name": "e", "state": "waiting", "vms": [{"name": "e", "cpu": 6, "memory_mib": 64}]})
    Path("i.json").write_text(json.dumps(data))
    words = ("plan", "--instance", "i.json", "--heuristic", "better-fit", "--policy", "rjsp-exact")
    status, out, err = call(capsys, *words)
    assert (status, out) == (1, "")
    assert "better-fit finds no node with room for VM e" in err


def test_fewer_nodes_can_be_the_objective(capsys: pytest.CaptureFixture[str]) -> None:
    data = {
        "nodes": [{"name": f"n{i}", "cpu": 4, "memory_mib": 4096} for i in (1, 2)],
        "vjobs": [
            {
                "name": "a",
                "state": "running",
                "vms": [{"name": f"a-{i}", "cpu": 1, "memory_mib": 512 * i, "host": f"n{i}"} for i in (1, 2)],
            }
        ],
    }
    cheap, few = planned(capsys, instance=data), planned(capsys, "--objective", "nodes", instance=data)
    assert (cheap["plan"]["cost"], cheap["nodes_used"], cheap["nodes_lower_bound"]) == (0, 2, 1)
    assert (few["plan"]["cost"], few["nodes_used"], few["nodes_lower_bound"]) == (512, 1, 1)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "give --instance FILE, or --live"),
        (
            ("--instance", "f", "--policy", "lottery"),
            "argument --policy: there is no policy 'lottery'; there are fcfs, easy",
        ),
        (("--instance", "f", "--policy", "by lot"), "argument --policy: 'by lot' is no name of a policy"),
        (("--instance", "f", "--objective", "speed"), "invalid choice: 'speed'"),
        (("--instance", "f", "--heuristic", "bfd"), "invalid choice: 'bfd'"),
        (("--instance", "f", "--time-limit", "0"), "'0' is not a number of seconds above 0"),
        (("--instance", "f", "--time-limit", "nan"), "'nan' is not a number of seconds above 0"),
        (("--instance", "f", "--time-limit", "inf"), "'inf' is not a number of seconds above 0"),
        (("--instance", "f", "--deterministic-limit", "-1"), "--deterministic-limit"),
        (("--instance", "f", "--workers", "0"), "at least 1"),
        (("--instance", "f", "--workers", "257"), "at most 256"),
        (("--instance", "f", "--seed", "2147483648"), "at most 2147483647"),
        (("--instance", "f", "--seed", "x"), "is not a whole number"),
        (("--instance", "f", "--seed", "-1"), "'-1' is not a whole number from 0 on"),
        (("--instance", "f", "--seed", "9" * 20), "is too large"),
        (("--instance", "f", "--deterministic-limit", "0"), "'0' is not a number above 0"),
        (("--instance", "f", "--dot", ""), "the name of a file is empty"),
        (("--instance", "f", "--json", "--dot", "-"), "both print on standard output"),
        (("--instance", "f", "--heuristic", "ffd", "--objective", "nodes"), "does not search"),
        (("--instance", "f", "--heuristic", "better-fit", "--objective", "nodes"), "better-fit does not search"),
    ],
)
def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], complaint: str) -> None:
    status, out, err = call(capsys, "plan", *words)
    assert (status, out) == (2, "")
    assert complaint in err


# -- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["plan", "pack"])
def test_each_fault_of_a_file_is_a_line_and_the_status_2(capsys: pytest.CaptureFixture[str], command: str) -> None:
    data = with_change("vjobs", 1, "vms", 0, "memory_mib", -5)
    data["vjobs"][0]["vms"][0]["host"] = "n9"
    Path("bad.json").write_text(json.dumps(data))
    status, out, err = call(capsys, command, "--instance", "bad.json")
    assert (status, out) == (2, "")
    assert err.splitlines() == [
        f"rmsplugin {command}: bad.json: $.vjobs[0].vms[0].host: there is no node 'n9'",
        f"rmsplugin {command}: bad.json: $.vjobs[1].vms[0].memory_mib: "
        "must be a whole number of MiB, 0 or more, not -5",
    ]


def test_a_gzipped_file_and_standard_input_are_as_good(capsys: pytest.CaptureFixture[str]) -> None:
    Path("i.json.gz").write_bytes(gzip.compress(json.dumps(SWITCH).encode()))
    status, out, _ = call(capsys, "plan", "--instance", "i.json.gz", "--json")
    assert status == 0
    with open("i.json.gz", "rb") as file:
        words = [PROGRAM, "plan", "--instance", "-", "--json"]
        done = subprocess.run(words, stdin=file, capture_output=True, text=True, check=True)
    assert answer_of(done.stdout)["plan"]["pools"] == answer_of(out)["plan"]["pools"]


def test_settings_are_not_needed_but_those_that_are_named_must_be_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, err = call(capsys, "plan", "--instance", "switch.json", "--config", "/no/such/file")
    assert status == 2 and "/no/such/file" in err
    status, _, err = call(capsys, "plan", "--instance", "switch.json")
    assert (status, err) == (0, "")
    monkeypatch.setenv("RMSPLUGIN_CONFIG", "/no/such/file")
    status, _, err = call(capsys, "plan", "--instance", "switch.json")
    assert status == 2 and "/no/such/file" in err


@pytest.mark.parametrize("command", ["plan", "pack"])
def test_closed_streams_are_status_1_or_2_and_one_line(command: str) -> None:
    said = []
    for redirection in (">&-", "<&-"):
        line = f'exec "$0" {command} --instance {"switch.json" if redirection == ">&-" else "-"} {redirection}'
        done = subprocess.run(["sh", "-c", line, PROGRAM], capture_output=True, text=True, check=False)
        said.append((done.returncode, done.stderr))
    assert said == [
        (1, "rmsplugin: standard output is closed\n"),
        (2, f"rmsplugin {command}: standard input: is closed\n"),
    ]


SETTINGS = """\
[slurm]
partitions = ["vjob"]

[partition.vjob]
hosts = "vmhosts"
[network]
pool = "10.77.1.10-10.77.1.20"
prefix_length = 16
[image.default]
kind = "kernel"
kernel = "/images/vmlinuz"
initrd = "/images/initrd.img"
[durations]
run_s = 100
"""

#: One VM, and nothing to do but to run it.
START: dict[str, Any] = {
    "nodes": [{"name": "n1", "cpu": 1, "memory_mib": 512}],
    "vjobs": [{"name": "a", "state": "waiting", "vms": [{"name": "a-0", "cpu": 1, "memory_mib": 512}]}],
}


def test_durations_are_those_of_the_settings_if_there_are_any(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert planned(capsys, instance=START)["plan"]["makespan_s"] == {"pools": 6.0, "dependencies": 6.0}
    Path("site.toml").write_text(SETTINGS)
    told = planned(capsys, "--config", "site.toml", instance=START)
    assert told["plan"]["makespan_s"] == {"pools": 100.0, "dependencies": 100.0}
    monkeypatch.setenv("RMSPLUGIN_CONFIG", "site.toml")
    assert planned(capsys, instance=START)["plan"]["makespan_s"] == {"pools": 100.0, "dependencies": 100.0}
    Path("site.toml").write_text(SETTINGS + "fly_s = 1\n")
    status, _, err = call(capsys, "plan", "--instance", "i.json")
    assert (status, err) == (2, "rmsplugin plan: site.toml:15: durations.fly_s: unknown key\n")


def test_each_duration_of_the_settings_is_used() -> None:
    values = {key: index + 1 for index, key in enumerate(Durations.model_fields)}
    Path("site.toml").write_text(SETTINGS.replace("run_s = 100", "\n".join(f"{k} = {v}" for k, v in values.items())))
    taken = makespan.Durations.from_values(solve.durations("site.toml"))
    pairs = [taken.run, taken.stop, taken.migrate, taken.suspend, taken.resume_local, taken.resume_remote]
    pairs += [taken.pause, taken.unpause]
    numbers = [pair.constant_s for pair in pairs] + [pair.s_per_mib for pair in pairs] + [taken.pipeline_s]
    assert sorted(number for number in numbers if number) == sorted(values.values())
    assert taken.resume_remote.constant_s == values["remote_resume_s"]
    assert taken.resume_local.s_per_mib == values["resume_s_per_mib"]


def test_durations_of_the_settings_decide_whether_a_switch_pays(capsys: pytest.CaptureFixture[str]) -> None:
    ahead = {"name": "a", "state": "waiting", "time_limit_s": 1000, "state_s": 0}
    behind = {"name": "b", "state": "running", "state_s": 10000}
    switch = {
        "nodes": [{"name": name, "cpu": 1, "memory_mib": 512} for name in ("n1", "n2")],
        "vjobs": [
            {**ahead, "vms": [{"name": f"a-{index}", "cpu": 1, "memory_mib": 512} for index in range(2)]},
            {**behind, "vms": [{"name": "b-0", "cpu": 1, "memory_mib": 512, "host": "n1"}]},
        ],
    }
    words = ("--policy", "mixed")
    assert planned(capsys, *words, instance=switch)["decision"]["b"]["state"] == "sleeping"
    Path("site.toml").write_text(SETTINGS + "suspend_s = 5000\n")
    told = planned(capsys, *words, "--config", "site.toml", instance=switch)
    assert told["decision"]["b"]["state"] == "running"


#: The example of the interface, word by word: n2 is allowed, and is not there.
INTERFACE = """{
  "nodes": [
    {"name": "n1", "cpu": 2, "memory_mib": 4096, "state": "up"}
  ],
  "vjobs": [
    {"name": "vjob1", "state": "running", "preemptible": true,
     "vms": [{"name": "vjob1-0", "cpu": 1, "memory_mib": 512, "host": "n1"}]},
    {"name": "vjob2", "state": "sleeping",
     "vms": [{"name": "vjob2-0", "cpu": 0.05, "memory_mib": 1024, "image": "n1"}]},
    {"name": "vjob3", "state": "waiting", "target": "running", "nodes": ["n1", "n2"],
     "vms": [{"name": "vjob3-0", "cpu": 1, "memory_mib": 2048}]}
  ]
}"""


@pytest.mark.parametrize("command", ["plan", "pack"])
def test_a_node_that_is_allowed_and_not_there_is_a_warning(capsys: pytest.CaptureFixture[str], command: str) -> None:
    Path("interface.json").write_text(INTERFACE)
    assert main([command, "--instance", "interface.json", "--json"]) == 0
    captured = capsys.readouterr()
    words = f"rmsplugin {command}: warning: vjob vjob3 may use node n2, but there is no such node\n"
    assert captured.err == words
    answer = answer_of(captured.out)
    if command == "plan":
        assert [d["state"] for d in answer["decision"].values()] == ["running", "sleeping", "running"]
        assert answer["target"]["vjob3-0"] == {"state": "running", "host": "n1"}
    else:
        assert answer["assignment"] == {"vjob1-0": "n1"}


def test_the_file_in_the_guide_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs/simulation/plan-and-pack.md").read_text()
    (shown,) = re.findall(r"```json\n(.*?)```", guide, re.DOTALL)
    answer = planned(capsys, instance=json.loads(shown))
    assert list(answer["decision"]) == ["vjob1", "vjob2", "vjob3"]
    documented = {key for words in re.findall(r"`([a-z_.]+)`", guide) for key in words.split(".")}
    actions = [action for pool in answer["plan"]["pools"] for action in pool]
    found = {key for part in (answer, answer["plan"], *actions, *answer["decision"].values()) for key in part}
    assert actions and found - documented == set()


# -- what cannot be done -------------------------------------------------------------------------------------------


def test_targets_that_do_not_fit_together_are_status_1_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    data = copy.deepcopy(SWITCH)
    for vjob in data["vjobs"]:
        vjob["target"] = "running"
    Path("i.json").write_text(json.dumps(data))
    status, out, err = call(capsys, "plan", "--instance", "i.json")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("rmsplugin plan: no decision: ")


def test_a_plan_that_the_checker_rejects_is_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def reject(*arguments: Any, **_: Any) -> list[Violation]:
        seen.append(arguments)
        return [Violation(Rule.COST, None, None, "it costs 2"), Violation(Rule.TARGET, None, None, "no")]

    monkeypatch.setattr(check, "check_plan", reject)
    status, out, err = call(capsys, "plan", "--instance", "switch.json", "--json", "--dot", "g.dot")
    said = "internal error: the plan is wrong: the plan: it costs 2 (and 1 more); please report it, with the file"
    assert (status, told(document_of(out), "errors"), answer_of(out)) == (1, [said], {})
    assert err == f"rmsplugin plan: {said}\n"
    assert not Path("g.dot").exists()
    ((source, target, pools, cost),) = seen
    assert set(target) == set(source.locations) and len(pools) == 2 and cost == 4608


def test_no_plan_is_status_1_with_the_explanation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(propose, "place", lambda *_, **__: Unreachable("n1 and n2 are full"))
    status, out, err = call(capsys, "plan", "--instance", "switch.json")
    assert (status, out, err) == (1, "", "rmsplugin plan: no plan: n1 and n2 are full\n")


# -- text ----------------------------------------------------------------------------------------------------------


def test_a_person_gets_a_sentence_the_vjobs_the_pools_and_what_it_is_worth(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "plan", "--instance", "switch.json")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "2 of 3 vjobs run: 1 resumes, 1 is suspended; 3 actions in 2 pools, cost 4608 MiB.",
        "",
        "VJOB NOW      STATE    REASON",
        "a    running  running  needs 2 CPUs and 2048 MiB in 2 VMs, which fit beside those ahead of it",
        "b    sleeping running  needs 2 CPUs and 2048 MiB in 1 VM, which fit beside those ahead of it",
        "c    running  sleeping needs 1 CPU and 512 MiB in 1 VM; 0 CPUs and 3072 MiB are free behind those ahead of it",
        "",
        "pool I: 2 actions, cost 1024 MiB",
        "  ACTION  VM  FROM TO COST NOTE",
        "  suspend c-0 n1   -   512 -",
        "  migrate a-0 n1   n2 1024 -",
        "",
        "pool II: 1 action, cost 2048 MiB",
        "  resume  b-0 n1   n1 2048 local",
        "",
        "cost      4608 MiB, proven lower bound 4608 MiB: optimal",
        "nodes     2 in use, proven lower bound 2",
        "makespan  about 2:03 pool by pool, 1:53 by dependencies alone",
    ]


def test_nothing_to_do_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("i.json").write_text(json.dumps({"nodes": SWITCH["nodes"], "vjobs": []}))
    status, out, _ = call(capsys, "plan", "--instance", "i.json")
    assert status == 0
    assert out.splitlines()[0].endswith("there is nothing to do.")
    assert "pool" not in out.partition("makespan")[0] and "optimal" in out


def test_a_gap_is_told_in_percent(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "plan", "--instance", "switch.json", "--heuristic", "ffd")
    assert status == 0
    (line,) = (line for line in out.splitlines() if line.startswith("cost "))
    found = re.fullmatch(r"cost +(\d+) MiB, proven lower bound (\d+) MiB: gap ([\d.]+) %", line)
    assert found is not None
    cost, bound = int(found[1]), int(found[2])
    assert found[3] == f"{100 * (cost - bound) / cost:.1f}"


def test_names_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    Path("i.json").write_text(json.dumps(SWITCH).replace('"b"', '"\\u001b[31m\\nb"'))
    _, out, _ = call(capsys, "plan", "--instance", "i.json")
    assert "\x1b" not in out and r"\x1b[31m\nb" in out


@pytest.mark.parametrize("command", ["plan", "pack"])
def test_nothing_that_is_printed_can_move_the_cursor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(text if command == "plan" else packing, "lines", lambda *_: ["a\x1b[31mb"])
    assert call(capsys, command, "--instance", "switch.json")[1] == "a\\x1b[31mb\n"


def test_progress_is_shown_on_a_terminal_and_nothing_in_a_pipe() -> None:
    master, terminal = pty.openpty()
    words = [PROGRAM, "plan", "--instance", "switch.json"]
    process = subprocess.Popen(
        words, env={**os.environ, "TERM": "xterm"}, stdout=subprocess.PIPE, stderr=terminal, text=True
    )
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while chunk := os.read(master, 65536):
            shown += chunk
    assert process.wait(timeout=PATIENCE_S) == 0
    assert b"placing" in shown
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == "" and "placing" not in done.stdout


#: Runs the command line, with solvers that print a line through the C library each time that they are asked.
_TALKATIVE = """
import ctypes, sys
from rmsplugin.cli import main
from rmsplugin.cli.plan import packing, solve

def talkative(function):
    def call(*arguments, **options):
        ctypes.CDLL(None).puts(b"tmpSolver.run();")
        return function(*arguments, **options)
    return call

solve.plan, packing.pack_running = talkative(solve.plan), talkative(packing.pack_running)
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["plan", "pack"])
def test_what_a_solver_prints_by_itself_does_not_get_into_the_answer(command: str) -> None:
    words = [sys.executable, "-c", _TALKATIVE, command, "--instance", "switch.json", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert answer_of(done.stdout)
    assert "tmpSolver" not in done.stdout + done.stderr


def test_an_interrupt_ends_a_search_at_once() -> None:
    """The terminal gets its cursor back, and a solver that takes the signal for itself prints no answer."""
    Path("i.json").write_text(json.dumps(crowded(200, 300)))
    master, terminal = pty.openpty()
    words = [PROGRAM, "plan", "--instance", "i.json", "--time-limit", str(4 * PATIENCE_S)]
    process = subprocess.Popen(
        words, env={**os.environ, "TERM": "xterm"}, stdout=subprocess.PIPE, stderr=terminal, text=True
    )
    os.close(terminal)
    shown = b""
    while b"placing" not in shown:
        shown += os.read(master, 65536)
    time.sleep(1.5)  # it is in the solver now
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):
        while chunk := os.read(master, 65536):
            shown += chunk
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, "")
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")


def test_what_waits_for_an_interrupt_leaves_signals_as_they_were() -> None:
    before, threads = signal.pthread_sigmask(signal.SIG_BLOCK, ()), threading.active_count()
    with ends_at_once(lambda: None):
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert (signal.pthread_sigmask(signal.SIG_BLOCK, ()), threading.active_count()) == (before, threads)


# -- --dot ---------------------------------------------------------------------------------------------------------


def test_the_graph_is_written_to_a_file_and_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "plan", "--instance", "switch.json", "--dot", "g.dot")
    assert status == 0 and out.startswith("2 of 3 vjobs run")
    graph = Path("g.dot").read_text()
    assert graph.startswith("digraph") and graph.rstrip().endswith("}") and "a-0" in graph
    assert call(capsys, "plan", "--instance", "switch.json", "--dot", "-") == (0, graph, "")
    assert sorted(os.listdir()) == ["g.dot", "switch.json"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (".", "--dot: . is a directory"),
        ("no/g.dot", "--dot: there is no directory"),
        ("/dev/null", "--dot: /dev/null is no regular file"),
        ("switch.json/g.dot", "--dot: "),
        ("x" * 300, "--dot: "),
        ("a\0b", "--dot: 'a\\x00b': "),
        ("loop", "--dot: "),
    ],
)
def test_where_no_graph_can_be_written_nothing_is_computed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, complaint: str
) -> None:
    Path("loop").symlink_to("loop")
    monkeypatch.setattr(solve, "plan", lambda *_, **__: pytest.fail("computed"))
    status, out, err = call(capsys, "plan", "--instance", "switch.json", "--dot", name)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"rmsplugin plan: {complaint}")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--instance", "given"), "--dot would replace the file of --instance"),
        (("--instance", "switch.json", "--energy", "given"), "--dot would replace the file of --energy"),
        (("--instance", "switch.json", "--config", "given"), "--dot would replace the settings"),
        (("--live", "--config", "given"), "--dot would replace the settings"),
    ],
)
def test_a_graph_replaces_nothing_that_is_read(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("given").write_text(json.dumps(SWITCH))
    os.link("given", "another")
    status, out, err = call(capsys, "plan", *words, "--dot", "another")
    assert (status, out) == (2, "") and message in err
    assert Path("another").read_text() == json.dumps(SWITCH)


def test_a_graph_replaces_a_file_as_a_whole_with_its_mode_and_through_links() -> None:
    Path("old").write_text("old")
    Path("old").chmod(0o640)
    Path("link").symlink_to("old")
    OutputFile("--dot", "link").write("new")
    assert Path("link").is_symlink()
    assert (Path("old").read_text(), Path("old").stat().st_mode & 0o777) == ("new", 0o640)


def test_a_graph_that_cannot_be_written_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("old").write_text("old")
    file = OutputFile("--dot", "old")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(RefusedError, match=r"^--dot: old: No space left on device$"):
        file.write("new")
    assert Path("old").read_text() == "old"
    assert sorted(os.listdir()) == ["old", "switch.json"]


def test_an_interrupt_of_writing_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("old").write_text("old")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        OutputFile("--dot", "old").write("new")
    assert Path("old").read_text() == "old"
    assert sorted(os.listdir()) == ["old", "switch.json"]


# -- pack ----------------------------------------------------------------------------------------------------------

#: What runs fits on one node, except that d may not go where a's VMs have to go.
PACK: dict[str, Any] = {
    "nodes": [
        {"name": "n0", "cpu": 9, "memory_mib": 9999, "state": "draining"},
        {"name": "n1", "cpu": 2, "memory_mib": 4096},
        {"name": "n2", "cpu": 4, "memory_mib": 4096},
        {"name": "n3", "cpu": 9, "memory_mib": 9999, "state": "down"},
    ],
    "vjobs": [
        {
            "name": "a",
            "state": "running",
            "vms": [
                {"name": "a-0", "cpu": 1, "memory_mib": 1024, "host": "n0"},
                {"name": "a-1", "cpu": 1, "memory_mib": 512, "host": "n2"},
            ],
        },
        {"name": "b", "state": "sleeping", "vms": [{"name": "b-0", "cpu": 2, "memory_mib": 2048, "image": "n1"}]},
        {"name": "c", "state": "waiting", "vms": [{"name": "c-0", "cpu": 2, "memory_mib": 2048}]},
    ],
}


def packed(capsys: pytest.CaptureFixture[str], instance: Mapping[str, Any], *words: str) -> dict[str, Any]:
    Path("i.json").write_text(json.dumps(instance))
    status, out, err = call(capsys, "pack", "--instance", "i.json", "--json", *words)
    assert (status, err) == (0, "")
    found: dict[str, Any] = answer_of(out)
    return found


def test_pack_packs_only_what_runs_on_nodes_that_are_up(capsys: pytest.CaptureFixture[str]) -> None:
    answer = packed(capsys, PACK)
    assert list(answer) == ["nodes_used", "lower_bound", "optimal", "ffd_nodes_used", "assignment", "seconds"]
    assert list(answer["assignment"]) == ["a-0", "a-1"]
    assert set(answer["assignment"].values()) in ({"n1"}, {"n2"})
    assert [answer[key] for key in ("nodes_used", "lower_bound", "optimal", "ffd_nodes_used")] == [1, 1, True, 1]
    assert isinstance(answer["seconds"], float)


def test_pack_respects_restrictions(capsys: pytest.CaptureFixture[str]) -> None:
    data = copy.deepcopy(PACK)
    data["vjobs"][0]["exclude"] = ["n2"]
    data["vjobs"].append(
        {
            "name": "d",
            "state": "running",
            "nodes": ["n2"],
            "vms": [{"name": "d-0", "cpu": 0, "memory_mib": 1, "host": "n2"}],
        }
    )
    answer = packed(capsys, data)  # but for these, one node would do
    assert answer["assignment"] == {"a-0": "n1", "a-1": "n1", "d-0": "n2"}
    assert (answer["nodes_used"], answer["optimal"]) == (2, True)


def test_pack_needs_fewer_nodes_than_ffd_where_that_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [4, 3, 3, 2, 2, 2]  # on nodes of 8: FFD makes it 4+3, 3+2+2, 2; but 4+2+2, 3+3+2 is better
    data = {
        "nodes": [{"name": f"n{i}", "cpu": 99, "memory_mib": 8} for i in range(6)],
        "vjobs": [
            {
                "name": "a",
                "state": "running",
                "vms": [
                    {"name": f"a-{i}", "cpu": 0, "memory_mib": size, "host": f"n{i}"} for i, size in enumerate(sizes)
                ],
            }
        ],
    }
    answer = packed(capsys, data)
    assert (answer["nodes_used"], answer["ffd_nodes_used"], answer["optimal"]) == (2, 3, True)


def test_pack_by_better_fit_takes_vms_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    answer = packed(capsys, ARRIVAL, "--heuristic", "better-fit")
    assert answer["assignment"] == {"a": "n1", "b": "n2", "c": "n1"}  # c takes the place of b
    assert (answer["nodes_used"], answer["lower_bound"], answer["ffd_nodes_used"]) == (2, 2, 2)


def test_no_packing_is_status_1_with_the_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    data = copy.deepcopy(PACK)
    data["vjobs"][0]["vms"][0]["cpu"] = 5  # only n0 is as large, and that one drains
    Path("i.json").write_text(json.dumps(data))
    status, out, err = call(capsys, "pack", "--instance", "i.json")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("rmsplugin pack: no packing: ") and "a-0" in err


def test_nothing_to_pack_needs_no_node(capsys: pytest.CaptureFixture[str]) -> None:
    answer = packed(capsys, {"nodes": PACK["nodes"], "vjobs": []})
    assert answer | {"seconds": 0} == {
        "nodes_used": 0,
        "lower_bound": 0,
        "optimal": True,
        "ffd_nodes_used": 0,
        "assignment": {},
        "seconds": 0,
    }


def test_pack_for_a_person_is_a_table_and_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    Path("i.json").write_text(json.dumps(PACK))
    status, out, _ = call(capsys, "pack", "--instance", "i.json")
    assert status == 0
    assert out.splitlines() == [
        "NODE VMS CPU MEMORY_MIB NAMES",
        "n1     2 2/2  1536/4096 a-0,a-1",
        "",
        "2 running VMs on 1 node: the fewest possible; First Fit Decreasing uses 1.",
    ]


def test_pack_is_the_same_for_the_same_seed(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (packed(capsys, PACK, "--deterministic-limit", "1", "--seed", "5") for _ in range(2))
    assert {**first, "seconds": 0} == {**second, "seconds": 0}


def test_a_node_that_a_vjob_may_use_and_that_is_not_there_is_a_warning_also_where_the_vjob_has_no_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    vms = [{"name": "v", "cpu": 2, "memory_mib": 512}]
    vjob = {"name": "j", "state": "waiting", "nodes": ["n1", "n9"], "vms": vms}
    Path("i.json").write_text(json.dumps({"nodes": [{"name": "n1", "cpu": 1, "memory_mib": 1024}], "vjobs": [vjob]}))
    for policy in ("rjsp", "rjsp-exact", "fcfs", "easy", "mixed", "slowdown"):
        status, out, err = call(capsys, "plan", "--instance", "i.json", "--policy", policy)
        assert (status, err) == (0, "rmsplugin plan: warning: vjob j may use node n9, but there is no such node\n")
        assert "j    waiting waiting needs 2 CPUs and 512 MiB in 1 VM; 1 CPU and 1024 MiB are free" in out


def test_a_graph_and_an_error_show_escapes_in_names(capsys: pytest.CaptureFixture[str]) -> None:
    Path("i.json").write_text(json.dumps(SWITCH).replace('"b-0"', '"\\u001b[31m\\nb"'))
    _, out, _ = call(capsys, "plan", "--instance", "i.json", "--dot", "-")
    assert "\x1b" not in out and r"\\x1b[31m\\nb" in out
    vms = [{"name": "\x1b[2J", "cpu": 9, "memory_mib": 1}]
    data = {
        "nodes": [{"name": "n1", "cpu": 1, "memory_mib": 1}],
        "vjobs": [{"name": "\x9b", "state": "waiting", "vms": vms}],
    }
    data["vjobs"][0]["target"] = "running"  # type: ignore[index]
    Path("i.json").write_text(json.dumps(data))
    status, _, err = call(capsys, "plan", "--instance", "i.json")
    assert status == 1 and err.isascii() and err.rstrip("\n").isprintable() and r"\x9b" in err
