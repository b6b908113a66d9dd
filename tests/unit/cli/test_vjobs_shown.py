"""`rmsplugin vjobs`: every job that Slurm has in our partitions, chosen and sorted, by the real command and service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scenarios.world import NODES
from unit.cli.json_documents import answer_of
from unit.cli.test_cli import SETTINGS
from unit.served import Served

from rmsplugin.cli.live import vjobs
from rmsplugin.cli.main import main
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.serve.standings import why_in_slurm
from rmsplugin.model.vjob import VJobState


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(tmp_path)
    path = tmp_path / "rmsplugin.toml"
    path.write_text(SETTINGS.format(socket=served.socket))
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(path))
    yield served
    served.close()


class Shown:
    """What the command shows."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.error = ""

    def __call__(self, *words: str, status: int = 0) -> str:
        assert main(["vjobs", *words]) == status
        out, self.error = self._capsys.readouterr()
        return out

    def rows(self, *words: str, status: int = 0) -> dict[str, dict[str, Any]]:
        found = answer_of(self("--json", *words, status=status))["vjobs"]
        return {row["display_id"]: row for row in found}


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    return Shown(capsys)


def test_pending_elements_of_an_array_are_one_row_and_can_be_named(served: Served, shown: Shown) -> None:
    array = served.world.submit(vms=1, memory_mib=128, array=range(6), array_limit=2)
    for _ in range(3):
        served.world.tick()
    rows = shown.rows()
    first = [name for name, row in rows.items() if row["state"] != "waiting"]
    assert sorted(first) == [f"{array}_0", f"{array}_1"]
    assert rows[f"{array}_[2-5]"]["position"] is None, "others of the array have to end first"
    assert (rows[f"{array}_[2-5]"]["elements"], rows[f"{array}_[2-5]"]["code"]) == (4, "JobArrayTaskLimit")
    assert list(shown.rows(f"{array}_[1-3]")) == [f"{array}_1", f"{array}_[2-3]"]
    assert list(shown.rows(str(array))) == [f"{array}_0", f"{array}_1", f"{array}_[2-5]"]
    assert list(shown.rows(f"{array}_4")) == [f"{array}_4"]
    assert list(shown.rows(f"{array}_[5-7]", status=1)) == [f"{array}_5"]
    assert shown.error == f"rmsplugin vjobs: no vjob {array}_[6-7]\n"


def test_a_job_that_slurm_keeps_has_slurms_own_reason(served: Served, shown: Shown) -> None:
    world = served.world
    before = world.submit(vms=1)
    waits, held = world.submit(depends_on=[before]), world.submit()
    world.rms.user_hold(held)
    world.tick()
    rows = shown.rows()
    assert [rows[str(job)]["code"] for job in (waits, held)] == ["Dependency", "JobHeldUser"]
    assert "scontrol release" in rows[str(held)]["reason"] and "next cycle" not in rows[str(waits)]["reason"]
    assert [rows[str(job)]["position"] for job in (waits, held)] == [None] * 2
    assert "JobHeldUser" in shown("--format=why") and "scontrol release" in shown("--reason")


def test_a_job_that_the_engine_holds_keeps_the_engines_reason(served: Served, shown: Shown) -> None:
    world = served.world
    job = world.submit(vms=1, cpus=200)
    world.tick()
    world.rms.hold(job)
    served.ledger.update_vjob(job, reason="lost eight times in a row")
    world.cycle.seen = world.cycle._observer.observe()
    row = shown.rows()[str(job)]
    assert row["code"] == "JobHeldAdmin" and row["reason"].endswith("; lost eight times in a row")


@pytest.mark.parametrize(
    ("word", "code"), [("BeginTime", "BeginTime"), ("Licenses", "None"), ("QOS Limit", "QOS_Limit")]
)
def test_slurms_word_is_told_unless_it_speaks_of_the_gate(served: Served, word: str, code: str) -> None:
    job = served.world.rms.job(served.world.submit())
    assert why_in_slurm(job) is None, "only the gate keeps it"
    told = why_in_slurm(replace(job, eligible=False, reason=word))
    assert told is not None and (told.code, "begin time" in told.sentence) == (code, code == "BeginTime")


def test_those_that_wait_for_their_turn_have_a_code_and_a_position(served: Served, shown: Shown) -> None:
    world = served.world
    first, second = (world.submit(vms=1, cpus=200, priority=each) for each in (10, 20))
    world.tick()
    rows = shown.rows("--sort", "position")
    assert [(name, row["position"], row["priority"]) for name, row in rows.items()] == [
        (str(second), 1, 20),
        (str(first), 2, 10),
    ]
    assert rows[str(second)]["code"] == "no-room"
    assert list(shown.rows("--sort=-position")) == [str(first), str(second)]


def test_vjobs_are_chosen_by_state_partition_user_account_node_and_name(served: Served, shown: Shown) -> None:
    world = served.world
    job = world.running()
    other = world.submit(vms=1, cpus=200, name="solver")
    world.tick()
    node = world.context.ledger.vms(job)[0].host
    ours = {"-t": "running", "-w": node, "-n": "sleeper,solver"}
    assert list(shown.rows("-t", "R")) == list(shown.rows("-w", ours["-w"])) == [str(job)]
    assert list(shown.rows("-t", "pd")) == list(shown.rows("-n", "solver")) == [str(other)]
    assert list(shown.rows("-u", "nobody", "-p", "vjob")) == [str(job), str(other)]
    assert shown.rows("-A", "physics") == {}
    world.rms.finish(job)
    world.until(job, VJobState.TERMINATED)
    assert list(shown.rows("-t", "terminated")) == [str(job)]
    assert list(shown.rows("-t", "all")) == [str(job), str(other)]


@pytest.mark.parametrize("words", [("-t", "flying"), ("--sort", "colour"), ("-w", "n[2-1]"), ("-p", "a,,b")])
def test_a_wrong_choice_is_wrong_usage(served: Served, words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["vjobs", *words])
    assert ended.value.code == 2


def test_the_engine_chooses_before_it_answers(served: Served) -> None:
    world = served.world
    for name in ("a", "b", "c"):
        world.submit(vms=1, cpus=200, name=name)
    world.tick()
    told = served.ask("GET", "/v1/vjobs?name=a,c&state=waiting")[1]["vjobs"]
    assert [row["name"] for row in told] == ["a", "c"]
    job = world.running()
    node = served.ledger.vms(job)[0].host
    assert [row["job_id"] for row in served.ask("GET", f"/v1/vjobs?node={node}")[1]["vjobs"]] == [job]


@pytest.mark.parametrize("path", ["/v1/vjobs", "/v1/unmet"])
def test_a_state_that_there_is_not_is_no_empty_list(served: Served, path: str) -> None:
    status, answer = served.ask("GET", f"{path}?state=running,flying")
    assert status == 400
    assert answer["error"].startswith("state has 'flying', which is none of waiting, starting, running, ")


def test_losses_have_a_column_where_there_are_any(served: Served, shown: Shown) -> None:
    job = served.world.running()
    assert "LOSSES" not in shown()
    served.ledger.update_vjob(job, losses=2)
    assert "LOSSES" in shown()


def test_a_vjob_on_a_silent_node_is_not_said_to_answer(served: Served, shown: Shown) -> None:
    world = served.world
    job = world.running()
    seen, node = world.cycle.seen, world.context.ledger.vms(job)[0].host
    assert seen is not None and "answer" in shown.rows()[str(job)]["reason"]
    world.cycle.seen = replace(seen, unreachable={node: "no route to it"})
    row = shown.rows()[str(job)]
    assert (row["code"], row["reason"]) == ("node-silent", f"its node {node} does not answer: no route to it")


def test_the_list_comes_again_until_it_is_interrupted(
    served: Served, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(vjobs.time, "sleep", sleep)
    assert shown("-i", "5", "--format=jobid", status=130).count("JOBID") == 2
    assert pauses == [5.0, 5.0]


def test_the_reason_of_one_that_runs_names_no_node_that_it_may_have_left(served: Served, shown: Shown) -> None:
    world = served.world
    job = world.running()
    here = world.host(job)
    assert f"starts on {here}: needs" in world.events("vjob-starting")[0], "while it starts, it is told where"
    world.ask(job, OperationKind.MIGRATE, next(node for node in ("n1", "n2") if node != here))
    world.tick()
    row = shown.rows(str(job))[str(job)]
    assert row["nodes"] != [here] and row["reason"].startswith("all VMs answer; at its start: needs")
    assert not any(node in row["reason"] for node in ("n1", "n2", "n3"))


def test_a_vjob_that_was_resumed_elsewhere_is_said_to_run_and_nothing_of_where(served: Served, shown: Shown) -> None:
    world = served.world
    job = world.sleeping()
    world.context.ledger.update_vjob(job, resumes=True)
    world.until(job, VJobState.RUNNING)
    assert "resumes on n" in world.events("vjob-resuming")[0]
    assert " on n" not in shown.rows(str(job))[str(job)]["reason"]


def test_start_says_when_each_that_waits_is_likely_to_run(served: Served, shown: Shown) -> None:
    world = served.world
    running = [world.submit(vms=1, cpus=2, memory_mib=512, time_limit_s=3600) for _ in NODES]
    for job in running:
        world.until(job, VJobState.RUNNING)
    waits = [world.submit(vms=1, cpus=2, memory_mib=512, time_limit_s=600) for _ in range(2)]
    unlimited = world.submit(vms=1, cpus=2, memory_mib=512 * 100)
    world.tick()
    rows = shown.rows("--start")
    assert set(rows) == {str(job) for job in (*waits, unlimited)}, "those that run are left out"
    left_s = [rows[str(job)]["start"] - world.context.clock.now() for job in waits]
    assert all(3500 < each <= 3600 for each in left_s)
    assert rows[str(unlimited)]["start"] is None
    header, *lines = shown("--start").splitlines()
    assert header.split()[5] == "START" and [line.split()[5] for line in lines].count("unknown") == 1
    world.rms.finish(running[0])
    world.until(running[0], VJobState.TERMINATED)
    assert "now" in shown("--start") or world.state(waits[0]) is not VJobState.WAITING


def test_expansion_is_the_whole_time_as_a_multiple_of_what_is_still_needed(served: Served, shown: Shown) -> None:
    world = served.world
    jobs = [world.submit(vms=1, cpus=2, memory_mib=512, time_limit_s=600) for _ in range(len(NODES) + 1)]
    for job in jobs[:-1]:
        world.until(job, VJobState.RUNNING)
    waited_s = world.context.clock.now() - shown.rows()[str(jobs[-1])]["submitted"]
    for _ in range(10):
        world.tick(10)
    told = shown.rows()
    assert told[str(jobs[-1])]["expansion"] == pytest.approx((100 + waited_s + 60) / 60, abs=0.2)
    assert told[str(jobs[0])]["expansion"] < told[str(jobs[-1])]["expansion"]
    world.rms.finish(jobs[0])
    world.until(jobs[0], VJobState.TERMINATED)
    assert shown.rows(str(jobs[0]))[str(jobs[0])]["expansion"] >= 1.0
    assert "EXPANSION" in shown("--format=jobid,expansion")
