"""`rmsplugin report` on a live cluster: its numbers of a job that slept are those of Slurm's accounting."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import pytest
from e2e.cluster import PROGRAM, Cluster
from e2e.engine_settings import configured
from e2e.queued import LOOP, SMALL

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

#: What Slurm and the ledger may differ by: Slurm counts the boot of the VMs (its prolog) as run time, and it is told
#: of a suspend and of a resume seconds after one and before the other.
_BOOT_S, _TOLD_S = 300.0, 20.0
_SLEEP_S = 15.0


def report(cluster: Cluster, *words: str) -> dict[str, Any]:
    result = cluster.plugin("report", "--json", *words)
    assert result.code == 0, result.err
    return json.loads(result.out)


def seconds(text: str) -> int:
    """Of sacct's HH:MM:SS."""
    hours, minutes, rest = map(int, text.split(":"))
    return (hours * 60 + minutes) * 60 + rest


def test_a_job_that_slept_has_the_times_that_slurm_has(cluster: Cluster) -> None:
    job = cluster.sbatch(LOOP, *SMALL, "-t", "5")
    cluster.wait_output(job, "up", 240)
    assert cluster.plugin("suspend", str(job)).code == 0
    asleep = report(cluster, "--job", str(job))["jobs"][0]
    assert (asleep["state"], asleep["end"], asleep["without"]["fcfs"]) == ("sleeping", None, None)
    time.sleep(_SLEEP_S)
    assert cluster.plugin("resume", str(job)).code == 0
    time.sleep(5)
    cluster.ok("scancel", str(job))
    cluster.wait_gone(job)
    [row] = cluster.wait(
        "the end in accounting",
        lambda: [row for row in cluster.sacct(job, "State,Elapsed,Suspended,Account") if row["State"] != "RUNNING"],
        60,
    )
    document = report(cluster, "--job", str(job))
    [told] = document["jobs"]
    assert (told["state"], told["user"], told["account"], told["limit_s"]) == ("ended", "alice", row["Account"], 300)
    assert told["slurm"]["run_s"] == seconds(row["Elapsed"]) and told["slurm"]["asleep_s"] == seconds(row["Suspended"])
    assert told["asleep_s"] == pytest.approx(seconds(row["Suspended"]), abs=_TOLD_S)
    assert told["asleep_s"] >= _SLEEP_S
    assert -_TOLD_S <= seconds(row["Elapsed"]) - told["run_s"] <= _BOOT_S
    assert (told["suspends"], told["resumes"]) == (1, 1)
    assert [each["state"] for each in told["intervals"]] == ["waiting", "running", "sleeping", "running"]
    assert all(each["nodes"] and each["nodes"][0] in cluster.nodes for each in told["intervals"][1::2])
    assert {node["name"] for node in document["nodes"]} == set(cluster.nodes)
    assert told["without"]["easy"]["end"] - told["without"]["easy"]["start"] == pytest.approx(told["run_s"], abs=0.2)
    assert document["costs"]["suspend"]["actions"] == document["costs"]["resume"]["actions"] == 1


def test_what_is_due_each_minute_is_done_and_shown(cluster: Cluster) -> None:
    jobs = ("ledger_backup", "ledger_retention", "calibration", "sweep", "gate")
    with configured(cluster, "schedule", *(f'{job} = "* * * * *"' for job in jobs)):

        def done() -> dict[str, Any] | None:
            rows = {row["job"]: row for row in (cluster.ask("/v1/schedule") or {"schedule": []})["schedule"]}
            ran = [row for row in rows.values() if row["state"] == "done"]
            return rows if len(ran) == len(jobs) else None

        rows = cluster.wait("all jobs of the schedule", done, 180, lambda: cluster.plugin("schedule").out)
        shown = cluster.plugin("schedule")
    assert shown.code == 0
    assert rows["report"]["state"] == "off"
    assert "gate lasts for" in rows["gate"]["result"] and "3 nodes: removed 0" in rows["sweep"]["result"], rows
    backup = rows["ledger-backup"]["result"].partition(":")[0]
    assert backup in shown.out or "running" in shown.out
    checked = cluster.plugin("ledger", "check", backup)
    assert checked.code == 0 and "is whole; its schema" in checked.out
    assert rows["ledger-backup"]["next"] % 60 == 0 and rows["ledger-backup"]["next"] > rows["ledger-backup"]["last"]


def _is_told_as_ended(cluster: Cluster, job: int) -> bool:
    [told] = report(cluster, "--job", str(job))["jobs"]
    return told["state"] == "ended" and told["slurm"] is not None and told["slurm"]["state"] == "COMPLETED"


def test_a_user_is_told_of_their_own_jobs_wherever_they_ask(cluster: Cluster) -> None:
    jobs = {user: cluster.sbatch("#!/bin/sh\nhostname\n", *SMALL, user=user) for user in ("alice", "bob")}
    for job in jobs.values():
        cluster.wait_job(job)
        cluster.wait_gone(job)
        cluster.wait("the end in accounting", lambda job=job: _is_told_as_ended(cluster, job), 180)
    time.sleep(1)
    # All reports are of the same time, so that they have the same replays.
    words = ("--job", str(jobs["bob"]), "--until", datetime.now().isoformat(timespec="seconds"))
    at_head = cluster.plugin("report", "--json", *words, user="bob")
    assert at_head.code == 0, at_head.err
    own, whole = json.loads(at_head.out), report(cluster, *words)
    assert own["jobs"] == whole["jobs"] and own["jobs"][0]["account"] and own["jobs"][0]["without"]["easy"]
    assert own["totals"] == whole["totals"] and own["switches"] == []
    on_a_front = cluster.run(str(PROGRAM), "report", "--json", *words, user="bob", host="front1")
    assert on_a_front.code == 0 and json.loads(on_a_front.out)["jobs"] == own["jobs"], on_a_front.err
    everything = cluster.plugin("report", "--json", user="bob")
    assert {job["user"] for job in json.loads(everything.out)["jobs"]} == {"bob"} and "alice" not in everything.out
    for asked in (("--job", str(jobs["alice"])), ("--user", "alice")):
        refused = cluster.plugin("report", *asked, user="bob")
        assert (refused.code, refused.out) == (2, "") and "your" in refused.err, refused
