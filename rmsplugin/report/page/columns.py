"""Columns: a report's document in the form that the page reads: a list for each field, a third of the size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

JOB_FIELDS = (
    *(
        "id",
        "user",
        "account",
        "partition",
        "state",
        "vms",
        "cpus",
        "submit",
        "start",
        "end",
        "wait_s",
        "run_s",
        "asleep_s",
    ),
    *("completion_s", "slowdown", "suspends", "resumes", "migrations"),
)
POINT_FIELDS = (
    *("t", "cpu_used", "cpu_booked", "cpu_demanded", "cpu_total"),
    *("mem_booked_mib", "mem_total_mib", "waiting", "asleep", "store_mib"),
)
SWITCH_FIELDS = (
    "number",
    "at",
    "state",
    "cost_mib",
    "seconds",
    "start",
    "suspend",
    "resume",
    "migrate",
    "pause",
    "unpause",
)

#: Parts that the page takes over as they are.
HEAD_FIELDS = (
    *(
        "kind",
        "policy",
        "others",
        "since",
        "until",
        "selection",
        "utilisation_step_s",
        "costs",
        "notes",
        "energy",
        "losses",
    ),
)

#: The page writes an interval's state as its place in this list.
STATES = ("waiting", "running", "sleeping")


def in_columns(document: Mapping[str, Any]) -> dict[str, Any]:
    """The page's data: the document (rmsplugin.report.document) with columns for rows, and nodes by their places."""
    jobs = document["jobs"]
    names = _node_names(document)
    others = document["others"]
    points = document["utilisation"]
    return {
        **{name: document[name] for name in HEAD_FIELDS},
        "nodes": names,
        "jobs": {
            **_columns(jobs, JOB_FIELDS),
            "without": {name: {"end": [_end(job["without"].get(name)) for job in jobs]} for name in others},
        },
        "intervals": _intervals(jobs, {name: place for place, name in enumerate(names)}),
        "utilisation": {
            **_columns(points, POINT_FIELDS),
            "without": {name: _known([point["without"].get(name) for point in points]) for name in others},
        },
        "switches": _columns(document["switches"], SWITCH_FIELDS),
    }


def _columns(rows: Iterable[Mapping[str, Any]], fields: Sequence[str]) -> dict[str, list[Any]]:
    return {field: [row[field] for row in rows] for field in fields}


def _end(schedule: Mapping[str, float] | None) -> float | None:
    return None if schedule is None else schedule["end"]


def _known(values: list[float | None]) -> list[float | None]:
    """The column, empty if all its values are empty."""
    return values if any(value is not None for value in values) else []


def _node_names(document: Mapping[str, Any]) -> list[str]:
    """All nodes: those of the document, and any others that jobs ran on, in the order of their names."""
    told = [node["name"] for node in document["nodes"]]
    ran_on = {name for job in document["jobs"] for interval in job["intervals"] for name in interval["nodes"]}
    return told + sorted(ran_on.difference(told), key=lambda name: (len(name), name))


def _intervals(jobs: Iterable[Mapping[str, Any]], places: Mapping[str, int]) -> dict[str, list[Any]]:
    """All intervals, job by job. Their nodes: place of a node, VMs on it, place of the next node, ..."""
    columns: dict[str, list[Any]] = {"job": [], "state": [], "from": [], "until": [], "nodes": []}
    for number, job in enumerate(jobs):
        for interval in job["intervals"]:
            columns["job"].append(number)
            columns["state"].append(STATES.index(interval["state"]))
            columns["from"].append(interval["from"])
            columns["until"].append(interval["until"])
            hosts = interval["nodes"]
            counts = {name: hosts.count(name) for name in hosts}
            columns["nodes"].append([part for name, vms in counts.items() for part in (places[name], vms)])
    return columns
