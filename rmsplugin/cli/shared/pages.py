"""Pages: lists that the engine tells a part at a time, however many vjobs there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmsplugin.errors import UnavailableError

if TYPE_CHECKING:
    from rmsplugin.client import EngineClient


def part_of(answer: Mapping[str, Any], key: str) -> Any:
    """A part of an answer.

    Raises:
        UnavailableError: it has none.
    """
    if key not in answer:
        raise _without(key)
    return answer[key]


def rows_of(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The rows of an answer.

    Raises:
        UnavailableError: it has none.
    """
    rows = answer.get(key)
    if not isinstance(rows, list):
        raise _without(key)
    return rows


def _without(key: str) -> UnavailableError:
    return UnavailableError(f"the engine answered without {key!r}; are engine and command of the same version?")


def read_pages(client: EngineClient, path: str, key: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All rows of a list, read page by page; and the first answer, for what else it says."""
    first = answer = client.request("GET", path)
    rows = list(rows_of(answer, key))
    last = 0
    while (following := answer.get("next")) and following > last:  # or it would have no end
        last = following
        answer = client.request("GET", f"{path}{'&' if '?' in path else '?'}after={following}")
        rows += rows_of(answer, key)
    return rows, first


def read_older(client: EngineClient, first: dict[str, Any], most: int) -> tuple[list[dict[str, Any]], bool]:
    """The vjobs that have ended and are older than those of a first page, until ``most`` are told; are there more?"""
    rows: list[dict[str, Any]] = []
    told, answer = int(first.get("ended") or 0), first
    while (before := answer.get("older")) and told < most:
        answer = client.request("GET", f"/v1/vjobs?ended=1&before={before}&limit={most - told}")
        page = rows_of(answer, "vjobs")
        if not page:
            break  # or it might have no end
        rows += page
        told += len(page)
    return rows, bool(answer.get("more"))
