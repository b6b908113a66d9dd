"""Writing: writes a report's document as JSON, job by job, so that a million jobs are never held at once.

Pydantic writes the jobs, in a third of the time of the standard library: there may be a million, with three intervals
each. The text is ASCII, whatever the reader's locale.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from rmsplugin.report.document import Head, Job

#: One job of the document, as a value.
Row = dict[str, Any]


def job_json(job: Job) -> Row:
    """One job of the document."""
    values = job._asdict()
    values["intervals"] = [
        {"state": state, "from": begin, "until": until, "nodes": list(nodes)}
        for state, begin, until, nodes in job.intervals
    ]
    values["slurm"] = None if job.slurm is None else job.slurm._asdict()
    values["without"] = {name: None if there is None else there._asdict() for name, there in job.without.items()}
    return values


def whole(head: Head, rows: Iterable[Row]) -> dict[str, Any]:
    """The whole document as a value, for the page: its jobs have to fit into the memory."""
    return {**_first(head), "jobs": list(rows), **_last(head)}


def json_text(head: Head, rows: Iterable[Row], end: Mapping[str, Any]) -> Iterator[str]:
    """The document as text, in pieces, with the keys that it ends in; a line for each job."""
    yield json.dumps(_first(head), indent=1, allow_nan=False)[:-2] + ',\n "jobs": ['
    separator = "\n  "
    for row in rows:
        yield separator + _row_text(row)
        separator = ",\n  "
    yield "\n ],\n" + json.dumps({**_last(head), **end}, indent=1, allow_nan=False)[2:] + "\n"


def lines(head: Head, rows: Iterable[Row]) -> Iterator[str]:
    """The document as it goes from the engine to a user: a line with all but the jobs, and a line for each job."""
    yield json.dumps(asdict(head), allow_nan=False) + "\n"
    for row in rows:
        yield _row_text(row) + "\n"


def head_of(line: str) -> Head:
    """The document without jobs from the first of these lines. Raises ValueError where the line is none."""
    return TypeAdapter(Head).validate_json(line)


def _row_text(row: Row) -> str:
    """One job as JSON; there is no NaN in it (jobs.py)."""
    text = to_json(row).decode()
    return text if text.isascii() else json.dumps(row, allow_nan=False)


def _first(head: Head) -> dict[str, Any]:
    """The text before the jobs."""
    values = asdict(head)
    return {name: values[name] for name in _FIRST}


def _last(head: Head) -> dict[str, Any]:
    return {name: value for name, value in asdict(head).items() if name not in _FIRST}


_FIRST = ("kind", "policy", "others", "made", "since", "until", "selection", "nodes")
