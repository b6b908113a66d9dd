"""ae. Handing down: what a reading of Slurm costs the manager that leads, and an engine, beside reading it oneself.

CPU seconds of one process each. The texts are of the length that Slurm prints; the commands themselves, and what
slurmctld does for them, are left out, so the engine's own reading costs more than is shown.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bench.measure import Report, median, progress, ratio
from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_reading import SlurmTexts, unpacked
from rmsplugin.adapters.rms.slurm_text import JOB_FIELDS
from rmsplugin.manager.readings import Reading

T = TypeVar("T")

#: Nodes, jobs, and rounds.
SIZES: Mapping[str, tuple[int, int, int]] = {"full": (1000, 6000, 15), "quick": (500, 3000, 5), "tiny": (4, 8, 2)}

_NODE = (
    "NodeName=n{0} Arch=x86_64 CoresPerSocket=16 CPUAlloc={1} CPUEfctv=32 CPUTot=32 CPULoad={1}.07 AvailableFeatures="
    "(null) ActiveFeatures=(null) Gres=(null) NodeAddr=n{0} NodeHostName=n{0} Port=6818 Version=22.05.8 OS=Linux "
    "6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 RealMemory=128000 AllocMem=96000 FreeMem={2} Sockets=2 "
    "Boards=1 State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=vmhosts,vjob "
    "BootTime=1795250000 SlurmdStartTime=1795250060 LastBusyTime=1795253000 CfgTRES=cpu=32,mem=125G,billing=32 "
    "AllocTRES=cpu={1},mem=96000M CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 "
    "ExtSensorsTemp=n/s\n"
)
_SITE = (
    "PreemptMode = REQUEUE\nSLURM_VERSION = 22.05.8\nStateSaveLocation = /var/spool/slurmctld\n"
    "PartitionName=vjob State=UP Nodes=front PreemptMode=OFF PriorityTier=1 GraceTime=0\n"
)


def run(sizes: tuple[int, int, int], report: Report) -> None:
    """Measure both sides by turns; one job in twenty has changed since the round before."""
    nodes, jobs, rounds = sizes
    report.title("ae", f"a reading of Slurm handed down: {nodes} nodes, {jobs} jobs")
    engine, alone = SlurmCli(), SlurmCli()
    for turn in range(rounds):
        progress(f"ae: round {turn + 1} of {rounds}")
        texts = _texts(nodes, jobs, turn)
        raw = len(texts.site) + len(texts.queue)
        reading = Reading(0.0, RmsSnapshot(()), texts)
        parts = _record(report, "leader packs it", lambda reading=reading: reading.parts, turn)
        _record(report, "leader writes one answer", lambda parts=parts: [_answer(part) for part in parts], turn)
        handed = _record(report, "engine unpacks it", lambda parts=parts: unpacked(_joined(parts)), turn)
        found = _record(report, "engine makes a snapshot", lambda handed=handed: engine.snapshot_of(handed), turn)
        same = _record(report, "engine alone makes one", lambda texts=texts: alone.snapshot_of(texts), turn)
        if found != same:
            raise RuntimeError("what was handed down is another snapshot")
        report.record(way="bytes", raw=raw, packed=sum(map(len, parts)), size_s=0.0)
    progress("")
    ways = list(dict.fromkeys(row["way"] for row in report.of() if row["way"] != "bytes"))
    costs = {way: median([row["cpu_s"] for row in report.of(way=way) if row["turn"]]) for way in ways}
    report.table(["", "ms of CPU"], [[way, 1000 * cost] for way, cost in costs.items()])
    sizes_of = report.of(way="bytes")[-1]
    report.say(f"{sizes_of['raw']} bytes of text travel as {sizes_of['packed']}")
    leader = costs["leader packs it"] + costs["leader writes one answer"]
    report.ratio("CPU of a snapshot / of the leader for one engine", ratio(leader, costs["engine alone makes one"]))
    handed_s = costs["engine unpacks it"] + costs["engine makes a snapshot"]
    report.ratio("CPU of an engine alone / with a handed reading", ratio(handed_s, costs["engine alone makes one"]))


def _record(report: Report, way: str, act: Callable[[], T], turn: int) -> T:
    began = time.process_time()
    found = act()
    report.record(way=way, cpu_s=time.process_time() - began, turn=turn)
    return found


def _answer(part: str) -> bytes:
    return json.dumps({"nonce": "0" * 32, "status": 200, "body": {"epoch": 1, "data": part}}).encode()


def _joined(parts: list[str]) -> bytes:
    return base64.b64decode("".join(parts), validate=True)


def _texts(nodes: int, jobs: int, turn: int) -> SlurmTexts:
    site = "".join(_NODE.format(each, each % 32, 30000 + each * 7 + turn) for each in range(nodes)) + _SITE
    token = f"{turn:032d}"
    return SlurmTexts(site, "".join(f"{_row(each, turn)}\x1f{token}\n" for each in range(jobs)), token)


def _row(job: int, turn: int) -> str:
    changed = job % 20 == turn % 20
    number = str(1_000_000 + job)
    values: dict[str, Any] = {
        **dict.fromkeys(("JobArrayID", "JobID", "ArrayJobID"), number),
        "State": "RUNNING",
        "Partition": "vjob",
        "UserName": f"user{job % 300}",
        "UserID": str(2000 + job % 300),
        "Account": f"account{job % 40}",
        "PriorityLong": str(429_490_000 + job + (turn if changed else 0)),
        "MinMemory": "4000M",
        "TimeLimit": "1-00:00:00",
        "SubmitTime": str(1_795_250_000 + job),
        "StartTime": str(1_795_251_000 + job),
        "NodeList": f"n{job % 1000}",
        "BatchHost": "front",
        "Licenses": "(null)",
        "ArrayTaskID": "N/A",
        "Name": f"a job of user {job % 300}",
    }
    return "\x1f".join(values.get(word, "0") for word in JOB_FIELDS.values())
