"""What people see of the engine's decisions: the real commands, the real service, an engine on a simulated cluster."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenarios.world import World
from unit.cli.json_documents import answer_of
from unit.cli.test_cli import SETTINGS
from unit.served import Served

from rmsplugin.adapters.power.base import Measured, PowerReading, PowerState
from rmsplugin.cli.main import main
from rmsplugin.engine.context.cycle_report import CycleReport
from rmsplugin.engine.decide.deciding import Found
from rmsplugin.engine.ledger.rows import PlanState
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.node_action import NodeActionKind
from rmsplugin.model.vjob import VJobState

S = VJobState

as_root = pytest.mark.skipif(os.getuid() != 0, reason="the engine of these tests is root's")


@pytest.fixture
def directory() -> Iterator[Path]:
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as name:
        yield Path(name)


@pytest.fixture
def served(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(directory)
    path = directory / "rmsplugin.toml"
    path.write_text(SETTINGS.format(socket=served.socket))
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(path))
    yield served
    served.close()


@pytest.fixture
def world(served: Served) -> World:
    return served.world


class Said:
    """What commands print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.error = ""

    def __call__(self, *words: str, status: int = 0) -> str:
        try:
            found = main(words)
        except SystemExit as error:
            found = int(error.code or 0)
        captured = self._capsys.readouterr()
        self.error = captured.err
        assert found == status, captured
        return captured.out


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


def running(world: World, count: int = 3) -> list[int]:
    jobs = [world.submit(vms=1, cpus=2) for _ in range(count)]
    for job in jobs:
        world.until(job, S.RUNNING)
    return jobs


def arrived(world: World) -> int:
    """A vjob that a cycle has met, and not decided about yet."""
    job = world.submit(vms=1, cpus=2)
    world.cycle._first_sight.meet([world.rms.job(job)], {}, CycleReport())
    world.pass_time(1)
    return job


# -- plan --live -----------------------------------------------------------------------------------------------------


def test_the_next_cycle_does_what_the_preview_said_and_the_preview_does_nothing(world: World, said: Said) -> None:
    running(world, 1)
    waiting = arrived(world)
    before = world.context.ledger.events(limit=10_000)
    told = answer_of(said("plan", "--live", "--json"))
    assert told["decision"][str(waiting)]["state"] == "running"
    assert told["now"][str(waiting)] == "waiting"
    [step] = told["steps"]
    assert (step["kind"], step["vjob"]) == ("start", str(waiting))
    assert {action["to"] for pool in told["plan"]["pools"] for action in pool} == set(step["hosts"].values())
    assert (world.context.ledger.events(limit=10_000), world.state(waiting)) == (before, S.WAITING)
    world.tick()
    assert {vm.host for vm in world.context.ledger.vms(waiting)} == set(step["hosts"].values())


def test_a_job_that_no_cycle_has_met_is_not_held_by_a_preview(world: World, said: Said) -> None:
    world.tick()
    stranger = world.rms.submit(script="#!/bin/sh\n", user="nobody", uid=65534)
    told = answer_of(said("plan", "--live", "--json"))
    assert str(stranger) not in told["decision"]
    assert not world.rms.job(stranger).held, "the next cycle does that"


def test_a_preview_forgets_no_room_that_was_given_back(world: World) -> None:
    """Code that still looks at the cycle's older observation would put a VM there."""
    world.tick()
    seen = world.cycle.seen
    assert seen is not None
    assert world.placing.close("n1", lambda: False)
    world.pass_time(5)
    world.cycle.preview()
    assert "n1" in world.placing.closed(seen)


def test_who_is_left_out_is_told_with_the_reason_and_nobody_is_told_twice(world: World, said: Said) -> None:
    jobs = running(world)
    world.context.ledger.update_vjob(jobs[0], finished=True, finished_at=world.wall())
    told = answer_of(said("plan", "--live", "--json"))
    assert told["left_out"] == {str(jobs[0]): {"why": "unsettled", "reason": "its script has ended"}}
    assert set(told["decision"]) == {str(job) for job in jobs[1:]}, "what stands for vjob 1 is no vjob"
    assert not [name for name in (*told["decision"], *told["target"], *told["now"]) if "@" in name]
    lines = said("plan", "--live").splitlines()
    start = lines.index("nothing is decided about:")
    assert lines[start + 2].split(maxsplit=1) == [str(jobs[0]), "its script has ended"]
    assert not [line for line in lines if "@" in line]


def test_the_graph_of_a_live_plan(world: World, said: Said, directory: Path) -> None:
    running(world, 1)
    arrived(world)
    assert said("plan", "--live", "--dot", "-").startswith("digraph reconfiguration {")
    graph = directory / "graph.dot"
    assert "dot" not in answer_of(said("plan", "--live", "--json", "--dot", str(graph)))
    assert '-> "node n' in graph.read_text()


def test_a_preview_and_a_cycle_never_run_at_the_same_time(served: Served, world: World) -> None:
    world.tick()
    inside, go_on = threading.Event(), threading.Event()
    find, calls = world.cycle.deciding.find, []

    def slow(*arguments: object) -> Found:
        calls.append(arguments)
        if not inside.is_set():  # the preview; not the cycle, which decides, too
            inside.set()
            assert go_on.wait(PATIENCE_S)
        return find(*arguments)  # type: ignore[arg-type]

    world.cycle.deciding.find = slow  # type: ignore[method-assign]
    with served.send("GET", "/v1/plan"), served.send("GET", "/v1/plan"):
        assert inside.wait(PATIENCE_S)
        cycle = threading.Thread(target=world.cycle.run)
        before = world.cycle.report
        cycle.start()
        assert served.ask("GET", "/v1/vjobs")[0] == 200, "the service answers meanwhile"
        cycle.join(1.0)
        assert (cycle.is_alive(), world.cycle.report is before) == (True, True)
        go_on.set()
        cycle.join(PATIENCE_S)
    assert world.cycle.report is not before
    assert len(calls) == 2, "the cycle, and one preview for both who asked"


def test_whoever_asks_again_a_moment_later_gets_the_same_preview(served: Served, world: World) -> None:
    world.tick()
    times: list[object] = []
    preview = world.cycle.preview

    def counted() -> Found:
        times.append(1)
        return preview()

    world.cycle.preview = counted  # type: ignore[method-assign]
    answers = [served.ask("GET", "/v1/plan") for _ in range(3)]
    assert [status for status, _ in answers] == [200] * 3
    assert len(times) == 1, "an answer is given again for a while"


def test_where_nothing_can_be_decided_the_command_says_why_and_fails(world: World, said: Said) -> None:
    world.tick()
    world.rms.preempt_mode = "SUSPEND,GANG"
    said("plan", "--live", status=1)
    assert "gang scheduling" in said.error and "only observes" in said.error


@pytest.mark.parametrize(
    "words",
    [
        ("--live", "--instance", "x.json"),
        ("--live", "--policy", "rjsp"),
        ("--live", "--objective", "cost"),
        ("--live", "--heuristic", "ffd"),
        ("--live", "--time-limit", "5"),
        ("--live", "--workers", "1"),
        ("--live", "--seed", "0"),
        ("--live", "--deterministic-limit", "1"),
        (),
    ],
)
def test_options_that_make_no_sense_together_are_refused(said: Said, words: tuple[str, ...]) -> None:
    assert said("plan", *words, status=2) == ""
    assert "--instance" in said.error


# -- pause -----------------------------------------------------------------------------------------------------------


@as_root
def test_a_pause_is_told_everywhere_and_ends_with_unpause(world: World, said: Said) -> None:
    world.tick()
    assert "by root" in said("pause")
    assert said("pause").rstrip().endswith("already")
    assert "paused since" in said("status") and "by root" in said("status")
    job = world.submit(vms=1)
    world.tick()
    world.tick()
    assert world.state(job) is S.WAITING
    assert "paused by root" in said("vjobs", "--reason", str(job))
    assert "nothing of this is begun" in said("plan", "--live")
    assert said("unpause") == "the engine decides again\n"
    assert said("unpause") == "the engine is not paused\n"
    assert "paused" not in said("status")
    world.until(job, S.RUNNING)
    kinds = [event.kind for event in world.context.ledger.events(limit=10_000)]
    assert (kinds.count("paused"), kinds.count("unpaused")) == (1, 1), "what changes nothing is no event"


# -- cycles and decisions --------------------------------------------------------------------------------------------


def test_cycles_are_listed_with_what_they_cost_and_took(world: World, said: Said) -> None:
    running(world, 1)
    world.tick()
    [row] = answer_of(said("cycles", "--json"))["cycles"]
    assert (row["number"], row["state"], row["steps"], row["steps_done"], row["steps_open"]) == (1, "done", 1, 1, 0)
    assert (row["cost_mib"], row["lower_bound_mib"], row["error"], row["fallback"]) == (0, 0, "", "")
    assert row["took_s"] >= 0 and row["sentence"].startswith("1 of 1 vjob runs: 1 starts")
    assert said("cycles", "--noheader", "--format=number,state,steps,cost").split() == ["1", "done", "1/1", "0"]
    assert "context switch 1: done, 1 of 1 steps done" in said("status")
    world.submit(vms=1)
    world.tick()
    assert len(answer_of(said("cycles", "--limit", "1", "--json"))["cycles"]) == 1


def test_the_steps_of_a_cycle_are_shown_and_how_far_the_running_ones_are(world: World, said: Said) -> None:
    [job] = running(world, 1)
    shown = answer_of(said("cycles", "1", "--json"))
    [step] = shown["steps"]
    assert shown["cycle"]["number"] == 1
    assert (step["kind"], step["vjob"], step["state"], step["needs"], step["operation"]) == (
        "start",
        str(job),
        "done",
        [],
        None,
    )
    lines = said("cycles", "1").splitlines()
    assert lines[0].startswith("context switch 1: done, 1 of 1 steps done")
    assert lines[-1].split()[:3] == ["1", "start", str(job)]
    said("cycles", "9", status=1)
    assert "no cycle 9 is on record" in said.error
    said("cycles", "1", "--limit", "3", status=2)


def test_what_was_not_begun_is_listed_with_the_reason(world: World, said: Said) -> None:
    world.propose = _silent  # type: ignore[method-assign]
    world.submit(vms=1)
    world.tick()
    [row] = answer_of(said("cycles", "--json"))["cycles"]
    assert (row["state"], row["took_s"]) == (str(PlanState.NONE), None)
    assert "never answers" in row["error"]
    assert "never answers" in said("cycles")
    said("plan", "--live", status=1)
    assert "never answers" in said.error


def _silent(*_: object) -> object:
    from rmsplugin.proposer.proposer import Proposed
    from rmsplugin.proposing.proposal import Missing, NoProposal

    return Proposed(NoProposal(Missing.ANSWER, "it never answers"))


def test_decisions_of_a_vjob(world: World, said: Said) -> None:
    *_, first = running(world)
    last = world.submit(vms=1, cpus=2)
    world.tick()
    world.tick()
    [row] = answer_of(said("decisions", str(last), "--json"))["decisions"]
    assert (row["state"], row["vjob"]) == ("waiting", str(last)) and "2 CPUs" in row["reason"]
    world.rms.finish(first)
    world.until(last, S.RUNNING)
    words = ("--noheader", "--parsable2", "--format=state,code")
    shown = said("decisions", str(last), *words).splitlines()
    assert (shown[0].split("|")[0], shown[-1]) == ("waiting", "running|fits")
    assert all(one != another for one, another in pairwise(shown)), "a row is a change"
    said("decisions", "4711", status=1)
    assert "no vjob 4711" in said.error


# -- vjobs and events ------------------------------------------------------------------------------------------------


def test_reasons_say_why_a_vjob_runs_and_what_a_sleeping_one_waits_for(world: World, said: Said) -> None:
    by_hand, by_engine = running(world, 2)
    [row] = answer_of(said("vjobs", str(by_hand), "--json"))["vjobs"]
    assert row["reason"].startswith("all VMs answer; at its start: needs 2 CPUs")
    assert (row["resumes"], row["ran_s"] > 0) == (False, True)
    for job, resumes in ((by_hand, False), (by_engine, True)):
        ledger = world.context.ledger
        ledger.transition(job, S.SUSPENDING, "suspended by alice", resumes=resumes)
        ledger.transition(job, S.SLEEPING, "suspended by alice")
    rows = {row["job_id"]: row for row in answer_of(said("vjobs", "--json"))["vjobs"]}
    assert rows[by_hand]["reason"] == f"suspended by alice; `rmsplugin resume {by_hand}` wakes it"
    assert rows[by_engine]["reason"] == "suspended by alice; it resumes when its turn comes"
    assert (rows[by_hand]["resumes"], rows[by_engine]["resumes"]) == (False, True)


def test_each_step_that_ends_is_an_event_with_how_far_the_switch_is(world: World, said: Said) -> None:
    jobs = [world.submit(vms=1, cpus=2) for _ in range(2)]
    world.tick()
    world.tick()
    messages = [
        event["message"] for event in answer_of(said("events", "--json"))["events"] if event["kind"] == "step-done"
    ]
    assert sorted(message.split(",")[0] for message in messages) == [
        "context switch 1: 1 of 2 steps",
        "context switch 1: 2 of 2 steps",
    ]
    assert {message.split(", ")[1] for message in messages} == {f"start {job} done" for job in jobs}


def test_a_step_that_fails_is_an_event_with_the_reason(world: World, said: Said) -> None:
    [job] = running(world, 1)
    [vm] = world.context.ledger.vms(job)
    other = world.submit(vms=1, cpus=2)
    world.hypervisor.fail_next("boot", OperationFailedError("no bridge"))
    world.tick()
    world.tick()
    [message] = [event.message for event in world.context.ledger.events(limit=10_000) if event.kind == "step-failed"]
    assert message.startswith(f"context switch 2: 1 of 1 steps, start {other} failed: ") and "no bridge" in message
    assert vm.host


# -- the power of nodes ----------------------------------------------------------------------------------------------


@as_root
def test_switches_of_nodes_are_shown_beside_plans_and_cycles(world: World, said: Said, directory: Path) -> None:
    running(world, 1)
    power = world.context.ledger.power
    assert "POWERS" not in said("cycles")
    power.begin("n2", NodeActionKind.POWER_OFF, "nobody has used it for 600 s")
    assert "power-off n2" in said("cycles"), "shown by default"
    assert said("cycles", "--noheader", "--format=number,powers").split() == ["1", "power-off", "n2"]
    lines = said("cycles", "1").splitlines()
    assert [line.split()[:4] for line in lines if line.startswith("power-off")] == [["power-off", "n2", "-", "running"]]
    [line] = [line for line in said("plan", "--live").splitlines() if line.startswith("power-off")]
    assert line.split()[:3] == ["power-off", "n2", "running"]
    assert line.endswith("nobody has used it for 600 s")
    said("plan", "--live", "--dot", str(directory / "plan.dot"))
    assert '"power-off node n2"' in (directory / "plan.dot").read_text()
    power.forget(power.switches()["n2"], "a vjob needs it")
    assert "power-off n2 failed" in said("cycles")


@as_root
def test_sensors_are_columns_where_there_are_some(world: World, said: Said) -> None:
    world.tick()
    assert "TEMPERATURE" not in said("nodes")
    world.context.sensed.tell("n2", PowerReading(PowerState.ON, 1.0, Measured(120.4, 1.0), Measured(31.6, 1.0)))
    world.tick()
    header, *rows = said("nodes").splitlines()
    assert header.split()[-3:] == ["WATTS", "TEMPERATURE", "REASON"]
    assert [row.split()[0] for row in rows if row.split()[-3:] == ["120", "32", "-"]] == ["n2"]
    assert "TEMPERATURE" not in said("nodes", "--format=node,watts")


def test_an_expected_time_is_told_once_the_last_ones_were_right(world: World, said: Said) -> None:
    running(world)
    [row] = answer_of(said("cycles", "--limit", "1", "--json"))["cycles"]
    assert row["expected_known"] is False and "unknown" in said("cycles", "--limit", "1")
    assert "(expected: unknown)" in said("cycles", str(row["number"]))
    plans = world.context.ledger.plans
    [plan] = plans.plans(1)
    for _ in range(30):
        plans.add(replace(plan, estimate_s=100.0, time=1000.0, ended=1110.0, state=PlanState.DONE))
    assert said("cycles", "--limit", "1", "--noheader", "--format=expected,took").split() == ["1:40", "1:50"]
    # One that takes much longer than that was not expected rightly, whatever the last ones were.
    now = world.context.clock.now()
    plans.add(replace(plan, estimate_s=10.0, time=now - 15, ended=0.0, state=PlanState.RUNNING))
    assert said("cycles", "--limit", "1", "--noheader", "--format=expected").split() == ["0:10"]
    plans.add(replace(plan, estimate_s=10.0, time=now - 21, ended=0.0, state=PlanState.RUNNING))
    assert said("cycles", "--limit", "1", "--noheader", "--format=expected").split() == ["unknown"]
