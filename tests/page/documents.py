"""Documents of reports as large as one likes, with numbers that agree with each other."""

from __future__ import annotations

import random
from typing import Any

SINCE = 1_763_700_000.0

#: What a user may call a job, an account or a partition, and must stay text.
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>&amp;"


def document(jobs: int, nodes: int = 8, seed: int = 1) -> dict[str, Any]:
    """A report on so many jobs, of which some were suspended and some migrated."""
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(1, nodes + 1)]
    rows = [_job(rng, number, names) for number in range(jobs)]
    until = max([SINCE, *(row["intervals"][-1]["until"] for row in rows)])
    return {
        "kind": "report",
        "policy": "live",
        "others": ["fcfs", "easy"],
        "made": until,
        "since": SINCE,
        "until": until,
        "selection": {"users": [], "accounts": [], "partitions": [], "jobs": []},
        "nodes": [{"name": name, "cpus": 4, "memory_mib": 8192} for name in names],
        "jobs": rows,
        "totals": {},
        "utilisation_step_s": 900.0,
        "utilisation": [
            _point(rng, SINCE + 900 * step, 4 * nodes) for step in range(min(2000, int((until - SINCE) / 900)))
        ],
        "switches": [_switch(rng, number, until) for number in range(1, 2 + jobs // 10)],
        "costs": {"suspend": {"actions": 5, "vm_seconds": 71.0, "bytes": 1 << 30}},
        "energy": [
            {
                **{"policy": "live", "kwh": 12.5, "kwh_all_on": 20.25, "kwh_not_emptied": 13.0, "kwh_oracle": 11.75},
                **{"cost": 3.125, "co2_kg": None, "switched_off": 14},
                "nodes": [_share(name, kwh) for name, kwh in ((names[0], 4.5), (names[-1], 8.0))],
                "users": [_share(name, kwh) for name, kwh in (("", 4.5), (HOSTILE, 6.0), ("bob", 2.0))],
                "accounts": [_share(name, kwh) for name, kwh in (("", 4.5), ("physics", 8.0))],
            }
        ],
        "losses": [
            {"at": SINCE + 900.0 * number, "id": row["id"], "kind": kind, "sentence": f"vjob-0 is gone: {HOSTILE}"}
            for number, (row, kind) in enumerate(zip(rows[2:9], ("lost", "went-back") * 4, strict=False))
        ],
        "notes": [{"code": "running", "count": 1, "sentence": f"1 job has not ended: {HOSTILE}"}],
    }


def _share(name: str, kwh: float) -> dict[str, Any]:
    return {"name": name, "kwh": kwh, "cost": kwh / 4, "co2_kg": None}


def _job(rng: random.Random, number: int, names: list[str]) -> dict[str, Any]:
    submit = SINCE + 60.0 * number + rng.uniform(0, 600)
    wait, run, asleep = (
        rng.expovariate(1 / 1800),
        rng.lognormvariate(7, 1),
        rng.choice((0.0, 0.0, rng.uniform(300, 7200))),
    )
    hosts = rng.sample(names, k=rng.randint(1, min(4, len(names))))
    moved = [rng.choice(names), *hosts[1:]]
    start = submit + wait
    half, woken, end = start + run / 2, start + run / 2 + asleep, start + run + asleep
    pieces = [("waiting", submit, start, []), ("running", start, half, hosts)]
    if asleep:
        pieces.append(("sleeping", half, woken, []))
    pieces.append(("running", woken, end, moved))
    return {
        "id": HOSTILE if number == 3 else str(100 + number),
        "user": HOSTILE if number == 4 else rng.choice(["alice", "bob", "carol", "dave"]),
        "account": rng.choice(["physics", "chemistry"]),
        "partition": rng.choice(["vjob", "vlong"]),
        "state": "ended",
        "vms": len(hosts),
        "cpus": 1,
        "memory_mib": 1024,
        "submit": submit,
        "start": start,
        "end": end,
        "wait_s": wait,
        "run_s": run,
        "asleep_s": asleep,
        "completion_s": end - submit,
        "slowdown": max(1.0, (end - submit) / max(run, 10)),
        "suspends": int(asleep > 0),
        "resumes": int(asleep > 0),
        "migrations": int(not asleep and moved != hosts),
        "limit_s": None,
        "slurm": None,
        "intervals": [
            {"state": state, "from": begin, "until": until, "nodes": on} for state, begin, until, on in pieces
        ],
        "without": {
            name: {"start": start, "end": submit + (wait + run) * rng.uniform(0.5, 3)} for name in ("fcfs", "easy")
        },
    }


def _point(rng: random.Random, t: float, cpus: int) -> dict[str, Any]:
    used = rng.uniform(0.3, 0.6) * cpus
    booked = used + rng.uniform(0, 0.3) * cpus
    without = {"fcfs": 0.8 * booked, "easy": 0.9 * booked}
    demanded = {"cpu_demanded": 1.4 * cpus, "cpu_total": cpus}
    memory = {"mem_booked_mib": 900.0 * booked, "mem_total_mib": 2048.0 * cpus, "store_mib": rng.uniform(0, 512) * cpus}
    queue = {"waiting": rng.uniform(0, 20), "asleep": rng.uniform(0, 5)}
    return {"t": t, "cpu_used": used, "cpu_booked": booked, **demanded, "without": without, **memory, **queue}


def _switch(rng: random.Random, number: int, until: float) -> dict[str, Any]:
    cost = rng.choice((0, 512, 1024, 4096))
    return {
        "number": number,
        "at": rng.uniform(SINCE, until),
        "state": rng.choice(("done", "done", "failed")),
        "cost_mib": cost,
        "seconds": 5 + cost / 100 + rng.uniform(0, 20),
        "start": rng.randint(0, 2),
        "suspend": rng.randint(0, 2),
        "resume": rng.randint(0, 2),
        "migrate": rng.randint(0, 2),
        "pause": number % 3,
        "unpause": number % 2,
    }
