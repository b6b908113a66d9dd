"""Year: a generated ledger of a year on a busy cluster, with the schema of the real one; no two jobs alike."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from rmsplugin.engine.ledger.ledger_file import open_database

YEAR_S = 365 * 86400.0
BEGINS = 1735689600.0  # 2025-01-01, UTC
PROCESSORS = 4096
NODES = 256

#: Jobs of so many shapes, CPUs first; and how long they run, in seconds, around which median.
_SHAPES = ((1, 1), (1, 1), (1, 2), (2, 1), (4, 1), (2, 4), (8, 2))
_MEMORY_MIB = 1024
_INSERTED = 20_000

Rows = list[tuple[Any, ...]]


def make_year(path: Path, jobs: int, samples: int = 1, seed: int = 1) -> None:
    """Write a ledger in which so many jobs ran in a year; every tenth slept for a while, every tenth moved.

    Args:
        path: of the ledger.
        jobs: how many.
        samples: how many of each VM, unless its job is too short for them.
        seed: of all that is random.
    """
    open_database(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma synchronous = off")
        numbers = itertools.count(1)
        lives = _lives(jobs, samples, Random(seed), numbers)
        while batch := list(itertools.islice(lives, max(1, _INSERTED // samples))):
            with connection:
                for table, columns in _COLUMNS.items():
                    rows = [row for life in batch for row in life[table]]
                    if table == "events":
                        rows.sort()
                    marks = ",".join("?" * (columns.count(",") + 1))
                    connection.executemany(f"insert into {table} ({columns}) values ({marks})", rows)
        connection.execute("pragma wal_checkpoint(truncate)")


_COLUMNS = {
    "vjobs": "job_id,display_id,user,uid,partition,geometry,state,reason,submitted,state_since,script_started,finished,"
    "losses,restarts,wrapper_seen,private_key,public_key,ran_s",
    "operations": "id,job_id,kind,state,requested_by,arguments,error,created,ended",
    "actions": "operation_id,vm,kind,source,destination,state,bytes_done,bytes_total,error,created,ended",
    "events": "time,vjob,vm,node,kind,message",
    "samples": "vm,time,centi_cpus,memory_rss_kib",
}


def _lives(jobs: int, samples: int, random: Random, numbers: Iterator[int]) -> Iterator[dict[str, Rows]]:
    apart_s = YEAR_S / jobs
    # So that the cluster is full for nine tenths.
    mean_s = 0.9 * PROCESSORS * apart_s * len(_SHAPES) / sum(vms * cpus for vms, cpus in _SHAPES)
    for number in range(jobs):
        submit = BEGINS + (number + random.random()) * apart_s
        yield _life(number + 1, submit, random.expovariate(1 / mean_s) + 30, samples, random, numbers)


def _life(
    job_id: int, submit: float, run_s: float, samples: int, random: Random, numbers: Iterator[int]
) -> dict[str, Rows]:
    vms, cpus = random.choice(_SHAPES)
    rows: dict[str, Rows] = {table: [] for table in _COLUMNS}
    names = [f"vjob{job_id}-{index}" for index in range(vms)]

    def operation(kind: str, created: float, took_s: float, action: str) -> float:
        operation_id = next(numbers)
        rows["operations"].append(
            (operation_id, job_id, kind, "done", "engine", '{"reason": "its turn"}', "", created, created + took_s)
        )
        moved = _MEMORY_MIB << 20
        for name in names:
            node = f"n{random.randrange(NODES) + 1}"
            span = (created + 0.1, created + took_s - 0.1)
            rows["actions"].append((operation_id, name, action, node, node, "done", moved, moved, "", *span))
        rows["events"].append(
            (created, str(job_id), "", "", f"vjob-{kind}", "the turn of the vjob has come, says the engine")
        )
        rows["events"].append((created + took_s, str(job_id), "", "", f"vjob-{kind}-done", "all its VMs answer"))
        return created + took_s

    now = operation("start", submit + random.expovariate(1 / 600), 8.0, "run")
    # All in the first half, after which some sleep.
    seen = range(int(now) + 1, int(now + run_s / 2), max(1, int(run_s / 2 / samples)))[:samples] or [int(now) + 1]
    rows["samples"] += [(name, at, random.randrange(1, 100 * cpus), None) for name in names for at in seen]
    if job_id % 10 == 3:
        now = operation("suspend", now + run_s / 2, 20.0, "suspend")
        now = operation("resume", now + random.expovariate(1 / 3600), 25.0, "resume") + run_s / 2
    elif job_id % 10 == 7:
        now = operation("migrate", now + run_s / 2, 10.0, "migrate") + run_s / 2 - 10
    else:
        now += run_s
    now = operation("stop", now, 3.0, "stop")
    geometry = f"vms={vms},cpus={cpus},memory={_MEMORY_MIB},ntasks={vms},cpus_per_task={cpus},image=default"
    user = random.randrange(200)
    rows["vjobs"].append(
        (
            *(job_id, str(job_id), f"user{user}", 2000 + user, random.choice(("vjob", "vlong")), geometry),
            *("terminated", "nothing of it is left", submit, now, 1, 1, 0, 0, now, "", "", run_s),
        )
    )
    return rows
