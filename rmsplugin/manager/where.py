"""Where: whose engine answers each kind of request. Pure."""

from __future__ import annotations

import enum


class Where(enum.Enum):
    """Who answers a request."""

    OWNER = "the engine of the vjob that its path names"
    NODE = "the engine of the node that its path names"
    NODE_IN_BODY = "the engine of the node that its body names"
    NUMBER = "the engine whose number it is"
    ALL = "all engines: it is an order to each of them"
    MERGED = "all engines: their answers are put together"
    VJOBS = "the engines of the vjobs that its body names"
    STORE = "the engine of the node whose store it is; all if they share it"
    GROUP = "the engine of the group that its query names; else all engines: the live page is put together"
    FIRST = "the engine of the first group: it answers for all of them"
    MANAGER = "the manager itself"


#: By the name of the route.
WHERE = {
    **dict.fromkeys(
        ("nodes", "groups", "vjobs", "unmet", "vms", "events", "cycles", "plan", "states", "schedule"), Where.MERGED
    ),
    **dict.fromkeys(("vjob", "usage", "decisions", "suspend", "resume", "migrate", "prefer", "resize"), Where.OWNER),
    **dict.fromkeys(("access", "started", "attached", "finished", "requeued"), Where.OWNER),
    **dict.fromkeys(("prolog", "account", "epilog"), Where.OWNER),
    **dict.fromkeys(("operation", "take_back", "drop_states", "cycle", "report"), Where.NUMBER),
    **dict.fromkeys(("pause", "unpause"), Where.ALL),
    **dict.fromkeys(("node_gone", "node_fence", "node_back"), Where.NODE),
    **dict.fromkeys(("page", "page_news"), Where.GROUP),
    **dict.fromkeys(("status", "openapi", "config", "handover", "summary"), Where.MANAGER),
    "begin_report": Where.FIRST,
    "room_report": Where.NODE_IN_BODY,
    "confirm": Where.VJOBS,
    "new_store": Where.STORE,
}
