"""JSON file: a document that says something of some jobs of a workload, by their numbers: ``{"jobs": {"12": ...}}``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rmsplugin.errors import WorkloadError


def of_jobs(text: str) -> Iterator[tuple[int, Any, str]]:
    """The id of each job, what is said of it, and the place of that in the document.

    Raises:
        WorkloadError: the fault, with its place in the document.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"no JSON: {error}") from None
    for name, said in an_object(an_object(document, "the document").get("jobs"), "jobs").items():
        place = f"jobs.{name}"
        if not name.isascii() or not name.isdigit() or len(name) > 15:
            raise WorkloadError(f"{place}: {name!r} is not the number of a job")
        yield int(name), said, place


def an_object(value: Any, place: str) -> dict[str, Any]:
    """The value, which has to be an object.

    Raises:
        WorkloadError: it is none.
    """
    if not isinstance(value, dict):
        raise WorkloadError(f"{place}: has to be an object")
    return value
