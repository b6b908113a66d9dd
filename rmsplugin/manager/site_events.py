"""Site events: what each group's engine is asked for its part of the events, and up to where all have told. Pure.

Each ledger numbers its own events, in the order in which they were recorded. So a reader goes on from one number of
each group. One number of the site cannot do this: clocks of hosts differ, an engine may be slow, and one that does not
answer tells of its events later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmsplugin.model.event_cursor import LONGEST, EventCursor

Reply = dict[str, Any]

_SECOND_US = 1_000_000


def start(now: float) -> EventCursor:
    """The cursor of a reader who begins: a group that does not answer tells later what happened from now on."""
    return EventCursor(int(now * _SECOND_US))


def part_of(group: str, after: EventCursor | None, since: int, begin: float) -> str:
    """What is added to the question for the events of a group.

    Args:
        group: whose engine is asked.
        after: up to where the groups have told; None: it is not asked for.
        since: the number by which the site knows an event; 0: none.
        begin: the least time of an event, in seconds since the epoch.
    """
    begin = max(begin, since / _SECOND_US)
    number = None
    if after is not None:
        number = after.groups.get(group)
        begin = begin if number is not None else max(begin, after.number / _SECOND_US)
    return (f"&since={number}" if number is not None else "") + (f"&from={begin:.6f}" if begin else "")


def told(before: EventCursor, replies: Mapping[str, Reply]) -> str:
    """The cursor after these answers of engines; groups that did not answer stay where they were.

    It is empty if there are too many groups for one.
    """
    groups = dict(before.groups)
    for group, reply in replies.items():
        if last := reply.get("cursor") or max((each["id"] for each in reply["events"]), default=0):
            groups[group] = int(last)
    text = str(EventCursor(before.number, groups))
    return text if len(text) <= LONGEST else ""
