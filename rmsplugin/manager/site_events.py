"""Site events: what each group's engine is asked for its part of the events, and up to where all have told. Pure.

Each ledger numbers its own events, in the order in which they were recorded. So a reader goes on from one number of
each group. One number of the site cannot do this: clocks of hosts differ, an engine may be slow, and one that does not
answer tells of its events later.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any

from rmsplugin.errors import RmspluginError
from rmsplugin.model.event_cursor import LEAST_TIME, LONGEST, EventCursor

Reply = dict[str, Any]

_SECOND_US = 1_000_000
#: Clocks of controllers are no further apart, or munge would refuse what they say to each other; in seconds.
_CLOCKS_S = 300.0
#: The HTTP status of a question that is not of the right form.
_NOT_UNDERSTOOD = 400


def start(now: float, since: int, begin: float) -> EventCursor:
    """The cursor of a reader who begins. A group that does not answer tells later what happens from then on.

    Args:
        now: in seconds since the epoch, by the clock of this host: that of the group's host may be behind.
        since: the number by which the site knows an event; 0: none.
        begin: the least time of an event that the reader wants; 0: none. It wants the newest ones.
    """
    begin = max(begin, since / _SECOND_US)
    return EventCursor(max(LEAST_TIME, int(min(begin or now - _CLOCKS_S, now) * _SECOND_US)))


def part_of(group: str, after: EventCursor | None, since: int, begin: float) -> str:
    """What is added to the question for the events of a group.

    Args:
        group: whose engine is asked.
        after: up to where the groups have told; None: it is not asked for.
        since: the number by which the site knows an event; 0: none.
        begin: the least time of an event, in seconds since the epoch.
    """
    begin = max(begin, since / _SECOND_US)
    if after is None:
        return _from(begin)
    place = after.groups.get(group)
    return _all_from(after, begin) if place is None else f"&after={place}{_from(begin)}"


def once_more(
    after: EventCursor, replies: Mapping[str, Reply], errors: Mapping[str, RmspluginError], since: int, begin: float
) -> dict[str, str]:
    """By group, what is added to a second question, which takes the place of the first one.

    Args:
        after: up to where the groups had told.
        replies: answers to the first question.
        errors: those of the other groups.
        since: as of ``part_of``.
        begin: as of ``part_of``.
    """
    begin = max(begin, since / _SECOND_US)
    found = {}
    for group, error in errors.items():
        if error.status == _NOT_UNDERSTOOD:  # an engine of an older release has no ``after``
            place = after.groups.get(group)
            begins = max(begin, after.number / _SECOND_US) if place is None else begin
            found[group] = ("" if place is None else f"&since={place.number}") + _from(begins)
    for group, reply in replies.items():
        place = after.groups.get(group)
        if place is not None and place.ledger and (now := _place(reply)) is not None and now.ledger != place.ledger:
            # The group has another ledger. It may begin as a copy, with events from long before.
            found[group] = _all_from(after, begin)
    return found


def oldest(replies: Mapping[str, Reply], limit: int) -> dict[str, Reply]:
    """The answers with the oldest ``limit`` events of all, each with the cursor behind the last one that is left in it.

    Of each group the first ones stay, in the order of its ledger: clocks may go back.
    """
    rows = ([(each["time"], group) for each in reply["events"]] for group, reply in replies.items())
    counts = Counter(group for _, group in islice(heapq.merge(*rows, key=lambda row: float(row[0])), limit))
    return {group: _cut(reply, counts[group]) for group, reply in replies.items()}


def told(before: EventCursor, replies: Mapping[str, Reply]) -> str:
    """The cursor after these answers of engines; groups that did not answer stay where they were.

    It is empty if there are too many groups for one.
    """
    groups = {**before.groups}
    for group, reply in replies.items():
        if (place := _place(reply)) is not None:
            groups[group] = place
    text = str(EventCursor(before.number, groups=groups))
    return text if len(text) <= LONGEST else ""


def _cut(reply: Reply, count: int) -> Reply:
    """The answer with its first ``count`` events."""
    events, place = reply["events"], _place(reply)
    if count == len(events) or place is None:
        return reply
    cursor = str(EventCursor(events[count - 1]["id"], place.ledger)) if count else ""
    return {**reply, "events": events[:count], "cursor": cursor}


def _place(reply: Reply) -> EventCursor | None:
    """Up to where an engine has told; None: not any further than before."""
    if "cursor" in reply:
        return EventCursor.parse(reply["cursor"]) if reply["cursor"] else None
    # An engine of an older release.
    return EventCursor(max(each["id"] for each in reply["events"])) if reply["events"] else None


def _all_from(after: EventCursor, begin: float) -> str:
    """The question of a reader who has no place in the ledger of a group."""
    return f"&after=0{_from(max(begin, after.number / _SECOND_US))}"


def _from(begin: float) -> str:
    return f"&from={begin:.6f}" if begin else ""
