"""Agreement: what became of jobs on a cluster, beside a replay of its ledger with what was measured there."""

from __future__ import annotations

import csv
import json
import sqlite3
import tomllib
from collections.abc import Collection
from contextlib import closing
from statistics import fmean
from typing import Any

import pytest
from e2e.cluster import Cluster

from rmsplugin.settings.deciding import Decision

LEDGER = "/var/lib/rmsplugin/ledger.sqlite"
#: Of the cluster, as `minicluster` makes it for the test: its nodes, its cycle, PreemptExemptTime and the window.
SIZE = ("--cpus-per-node", "2", "--memory-per-node", "2048")
PERIODS = ("--cycle-s", "1", "--watch-s", "1")
TIMES = ("--cycle", "1", "--exempt", "10", "--demand-window", "6")


def the_simulator_agrees(cluster: Cluster, jobs: Collection[int]) -> None:
    """The replay takes as long as the cluster did, to within 15 %, and jobs end in the same order.

    What the engine takes to look and to decide is not the same each time, least of all on a busy machine: jobs whose
    ends lie closer together than that adds up to may change places. And whose start failed has less of a fair share,
    so that it is elsewhere in Slurm's queue from then on: that the ledger does not tell.
    """
    real, replayed = really(cluster, jobs), simulated(cluster, jobs)
    told = f"really {real}, replayed {replayed}"
    total_s = max(real.values())
    assert max(replayed.values()) == pytest.approx(total_s, rel=0.15), told
    close_s = 0.03 * total_s
    apart = [(one, other) for one in jobs for other in jobs if real[other] - real[one] > close_s]
    if not asked(
        cluster, jobs, "select 1 from operations where kind = 'start' and state = 'failed' and job_id in ({})"
    ):
        assert all(replayed[one] < replayed[other] for one, other in apart), told


def really(cluster: Cluster, jobs: Collection[int]) -> dict[int, float]:
    """When each job ended, in seconds since the first of them was submitted."""
    result = cluster.plugin("report", "--json")
    assert result.code == 0, result.err
    rows = {int(each["id"]): each for each in json.loads(result.out)["jobs"]}
    begin = min(rows[job]["submit"] for job in jobs)
    return {job: rows[job]["end"] - begin for job in jobs}


def simulated(cluster: Cluster, jobs: Collection[int]) -> dict[int, float]:
    """The same in the replay."""
    nodes = ("--nodes", str(len(cluster.nodes)), *SIZE)
    times = (*TIMES, "--look", f"{look_s(cluster, jobs):.3f}")
    words = ("--ledger", LEDGER, "--measured", *nodes, *times, "--policy", policy(cluster), "--jobs-out", "-")
    result = cluster.plugin("simulate", *words)
    assert result.code == 0, result.err
    rows = {int(row["job_id"]): row for row in csv.DictReader(result.out.splitlines())}
    begin = min(float(rows[job]["submit"]) for job in jobs)
    return {job: float(rows[job]["end"]) - begin for job in jobs}


def policy(cluster: Cluster) -> str:
    """By which the engine decides: as its settings say, or by the default."""
    with cluster.host_path("head", "/etc/rmsplugin/rmsplugin.toml").open("rb") as file:
        return str(tomllib.load(file).get("decision", {}).get("policy", Decision().policy))


def look_s(cluster: Cluster, jobs: Collection[int]) -> float:
    """What the engine took on average to look and to decide: from the end of a start or resume to the next decision."""
    sql = """
        select min(decisions.time) - ended from operations join decisions on vjob = job_id and decisions.time > ended
        where kind in ('start', 'resume') and operations.state = 'done' and job_id in ({}) group by operations.id"""
    return fmean(seconds for (seconds,) in asked(cluster, jobs, sql))


def asked(cluster: Cluster, jobs: Collection[int], sql: str) -> list[tuple[Any, ...]]:
    """What the ledger says of these jobs, whose ids are put into the statement."""
    with closing(sqlite3.connect(f"file:{cluster.host_path('head', LEDGER)}?mode=ro", uri=True)) as ledger:
        return ledger.execute(sql.format(",".join(map(str, jobs)))).fetchall()
