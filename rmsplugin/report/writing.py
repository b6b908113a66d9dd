"""Writing: a report's document as JSON, job by job, so that a million jobs are never held at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rmsplugin.report.document import Head, Job


def job_json(job: Job) -> dict[str, Any]:
    """One job of the document."""
    values = {name: getattr(job, name) for name in Job.__slots__}
    values["intervals"] = [
        {"state": each.state, "from": each.begin, "until": each.until, "nodes": list(each.nodes)}
        for each in job.intervals
    ]
    values["slurm"] = None if job.slurm is None else asdict(job.slurm)
    values["without"] = {
        name: None if there is None else {"start": there.start, "end": there.end} for name, there in job.without.items()
    }
    return values


def whole(head: Head, jobs: Iterable[Job]) -> dict[str, Any]:
    """The document as a value, for the page: of as many jobs as fit into the memory."""
    return {**_first(head), "jobs": [job_json(job) for job in jobs], **_last(head)}


def json_text(head: Head, jobs: Iterable[Job]) -> Iterator[str]:
    """The document as text, in pieces; a line for each job."""
    yield json.dumps(_first(head), indent=1, allow_nan=False)[:-2] + ',\n "jobs": ['
    separator = "\n  "
    for job in jobs:
        yield separator + json.dumps(job_json(job), allow_nan=False)
        separator = ",\n  "
    yield "\n ],\n" + json.dumps(_last(head), indent=1, allow_nan=False)[2:] + "\n"


def _first(head: Head) -> dict[str, Any]:
    """What stands before the jobs."""
    values = asdict(head)
    return {name: values[name] for name in _FIRST}


def _last(head: Head) -> dict[str, Any]:
    return {name: value for name, value in asdict(head).items() if name not in _FIRST}


_FIRST = ("kind", "policy", "others", "made", "since", "until", "selection", "nodes")
