"""Merging: the answers of the engines of all groups, put together to one answer of the same form. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from rmsplugin.manager.numbers import Numbers

Reply = dict[str, Any]
#: By group, the answer of its engine.
Replies = Mapping[str, Reply]
Merge = Callable[[Replies, int], Reply]

#: Why a group has no plan, where its engine names no fault.
_UNDECIDED = "nothing could be decided"


def of_site(route: str, group: str, reply: Reply, numbers: Numbers) -> Reply:
    """The answer of one engine, with the numbers by which the site knows what it names."""

    def site(number: int) -> int:
        return numbers.site(group, number)

    def vjob(view: Reply) -> Reply:
        operation = view.get("operation")
        return view if operation is None else {**view, "operation": {**operation, "id": site(operation["id"])}}

    if route == "vjob":
        return {**reply, "vjob": vjob(reply["vjob"])}
    if route == "vjobs":
        return {**reply, "vjobs": [vjob(each) for each in reply["vjobs"]]}
    if "operation" in reply and route in ("suspend", "resume", "migrate", "take_back"):
        return {**reply, "operation": site(reply["operation"])}
    if route == "begin_report":
        return {**reply, "report": site(reply["report"])}
    if route == "operation":
        actions = [
            {**each, "id": site(each["id"]), "operation_id": site(each["operation_id"])} for each in reply["actions"]
        ]
        return {**reply, "id": site(reply["id"]), "actions": actions}
    if route == "decisions":
        decisions = [
            each if each["cycle"] is None else {**each, "cycle": site(each["cycle"])} for each in reply["decisions"]
        ]
        return {**reply, "decisions": decisions}
    if route == "cycle":
        steps = [vjob(step) for step in reply["steps"]]
        return {**reply, "cycle": {**reply["cycle"], "number": site(reply["cycle"]["number"])}, "steps": steps}
    if route == "events":
        return {**reply, "events": [{**each, "id": event_number(each["time"])} for each in reply["events"]]}
    if route in ("cycles", "states"):
        return {**reply, route: [{**each, "number": site(each["number"])} for each in reply[route]]}
    if route == "status" and reply["last_plan"] is not None:
        return {**reply, "last_plan": {**reply["last_plan"], "number": site(reply["last_plan"]["number"])}}
    return reply


def is_remembered(reply: Reply) -> bool:
    """Whether the ledger of the engine that gives this answer about a job has it; else it says what Slurm says."""
    if isinstance(vjob := reply.get("vjob"), dict):
        return "vms" in vjob
    return bool(reply.get("decisions", True))


def of_nobody(reply: Reply) -> Reply:
    """What an engine says of a job that it has never met, for a site of which no group has it."""
    if not isinstance(reply.get("vjob"), dict):
        return reply
    if reply["vjob"]["state"] == "terminated":
        return {**reply, "vjob": {**reply["vjob"], "reason": "it ended before a group had it"}}
    reason = "no group has it yet: the leader gives it to one as soon as it has seen it in Slurm"
    return {**reply, "vjob": {**reply["vjob"], "reason": reason}}


def event_number(time: float) -> int:
    """The number by which the site knows an event: microseconds. Numbers of all groups then grow with time."""
    return int(time * 1e6)


def merged(route: str, replies: Replies, limit: int) -> Reply:
    """The answers of all groups to a list, put together; as of ``of_site``, and not empty; ``limit``: the most rows."""
    return _MERGES[route](replies, limit)


def _all(key: str) -> Merge:
    def join(replies: Replies, limit: int) -> Reply:
        return {key: [row for reply in replies.values() for row in reply[key]]}

    return join


def _newest(key: str) -> Merge:
    def join(replies: Replies, limit: int) -> Reply:
        rows = sorted((row for reply in replies.values() for row in reply[key]), key=lambda row: float(row["time"]))
        return {key: rows[max(0, len(rows) - limit) :]}

    return join


def _vjobs(replies: Replies, limit: int) -> Reply:
    following = _next(replies)
    rows = [row for reply in replies.values() for row in reply["vjobs"]]
    live = [row for row in rows if row["state"] != "terminated" and (following is None or row["job_id"] <= following)]
    told: Reply = {"more": any(reply["more"] for reply in replies.values())}
    ended = sorted((row for row in rows if row["state"] == "terminated"), key=_submitted)
    if any("ended" in reply for reply in replies.values()):
        # The newest of each group are here, so the newest of all are.
        told["more"] |= len(ended) > limit
        ended = ended[max(0, len(ended) - limit) :]
        told |= {"ended": len(ended), "older": ended[0]["job_id"] if told["more"] and ended else None}
    return {"vjobs": sorted([*ended, *live], key=_submitted), **told, "next": following}


def _vms(replies: Replies, limit: int) -> Reply:
    following = _next(replies)
    rows = [row for reply in replies.values() for row in reply["vms"]]
    if following is not None:
        rows = [row for row in rows if _job_of_vm(row["name"]) <= following]
    return {"vms": sorted(rows, key=lambda row: _job_of_vm(row["name"])), "next": following}


def _unmet(replies: Replies, limit: int) -> Reply:
    following = _next(replies)
    rows = [row for reply in replies.values() for row in reply["vjobs"]]
    rows = [row for row in rows if following is None or row["job_id"] <= following]
    return {"vjobs": sorted(rows, key=lambda row: int(row["job_id"])), "next": following}


def _next(replies: Replies) -> int | None:
    """All pages reach as far as this job id: the next pages begin after it."""
    return min((reply["next"] for reply in replies.values() if reply["next"] is not None), default=None)


def _job_of_vm(name: str) -> int:
    return int(name.removeprefix("vjob").partition("-")[0])


def _submitted(row: Reply) -> tuple[float, int]:
    return row["submitted"], row["job_id"]


def _states(replies: Replies, limit: int) -> Reply:
    rows = [row for reply in replies.values() for row in reply["states"]]
    return {"states": sorted(rows, key=lambda row: row["time"]), "next": None}


def _schedule(replies: Replies, limit: int) -> Reply:
    """One row of each job: that of the group where it failed, or is due first."""
    found: dict[tuple[str, str], Reply] = {}
    for reply in replies.values():
        for row in reply["schedule"]:
            key = row["job"], row["cron"]
            if key not in found or row["failures"] > found[key]["failures"]:
                found[key] = row
    return {"schedule": list(found.values())}


def _plan(replies: Replies, limit: int) -> Reply:
    """The previews side by side; the numbers of steps are those of their groups."""
    if len(replies) == 1:
        return next(iter(replies.values()))
    found: Reply = {**next(iter(replies.values()))}
    for key in ("decision", "target", "now", "left_out", "out_of_reach"):
        found[key] = {name: value for reply in replies.values() for name, value in reply[key].items()}
    found["steps"], found["powers"], found["plan"] = [], [], _plans([reply["plan"] for reply in replies.values()])
    for reply in replies.values():
        # The steps of one group wait for each other, and for those of no other.
        first = max((step["id"] for step in found["steps"]), default=-1) + 1
        found["steps"] += [
            {**step, "id": step["id"] + first, "needs": [each + first for each in step["needs"]]}
            for step in reply["steps"]
        ]
        found["powers"] += [
            {**power, "needs": [each + first for each in power["needs"]]} for power in reply.get("powers", [])
        ]
    for key in ("sentence", "fallback", "summary"):
        found[key] = "; ".join(f"{group}: {reply[key]}" for group, reply in replies.items() if reply[key])
    without = {group: reply["fault"] or _UNDECIDED for group, reply in replies.items() if reply["plan"] is None}
    if found["plan"] is None:
        faults = without
    else:
        faults = {group: reply["fault"] for group, reply in replies.items() if reply["fault"] and group not in without}
        found |= {"undecided": without} if without else {}
    found["fault"] = "; ".join(f"{group}: {why}" for group, why in faults.items())
    for key in ("nodes_used", "nodes_lower_bound"):
        found[key] = sum(reply.get(key, 0) for reply in replies.values())
    found["paused"] = next((reply["paused"] for reply in replies.values() if reply["paused"]), None)
    found["time"] = min(reply["time"] for reply in replies.values())
    if any("starts" in reply for reply in replies.values()):
        found["starts"] = {name: at_s for reply in replies.values() for name, at_s in reply.get("starts", {}).items()}
    found.pop("seconds", None)
    if graphs := [reply["dot"] for reply in replies.values() if "dot" in reply]:
        found["dot"] = "".join(graphs)  # Graphviz draws each of several graphs
    return found


def _plans(plans: Sequence[Reply | None]) -> Reply | None:
    """The plans of groups, which share no node, as one: pool by pool beside each other. None: no group has one."""
    of_all = [plan for plan in plans if plan is not None]
    if not of_all:
        return None
    together = zip_longest(*(plan["pools"] for plan in of_all), fillvalue=())
    found: Reply = {
        "pools": [[action for pool in pools for action in pool] for pools in together],
        "cost": sum(plan["cost"] for plan in of_all),
        "lower_bound": sum(plan["lower_bound"] for plan in of_all),
        "optimal": all(plan["optimal"] for plan in of_all),
        "makespan_s": {key: max(plan["makespan_s"][key] for plan in of_all) for key in ("pools", "dependencies")},
    }
    if nodes := [action for plan in of_all for action in plan.get("nodes", ())]:
        found["nodes"] = nodes
    return found


def status(replies: Replies, own: Reply) -> Reply:
    """What `status` tells of the site.

    Args:
        replies: the status of each engine that answers; may be empty.
        own: what the manager says itself: release, start, host, epoch, cluster and problems.
    """
    cycles = [reply["last_cycle"] for reply in replies.values()]
    plans = [reply["last_plan"] for reply in replies.values() if reply["last_plan"] is not None]
    oldest = min(cycles, key=lambda each: each["time"], default={"time": 0, "seconds": 0.0, "sentence": ""})
    return {
        **own,
        "last_cycle": oldest,
        "cycles": {
            "number": sum(reply["cycles"]["number"] for reply in replies.values()),
            "seconds": sum(reply["cycles"]["seconds"] for reply in replies.values()),
        },
        "ills": [f"group {group}: {each}" for group, reply in replies.items() for each in reply.get("ills", ())],
        "problems": [
            *own["problems"],
            *(f"group {group}: {each}" for group, reply in replies.items() for each in reply["problems"]),
        ],
        "quiet": next((reply["quiet"] for reply in replies.values() if reply["quiet"]), None),
        "power": "; ".join(reply["power"] for reply in replies.values() if reply.get("power")) or None,
        "lateness": _latest(replies),
        "durations": list(_most_measured(replies).values()),
        "held": [each for reply in replies.values() for each in reply["held"]],
        "paused": next((reply["paused"] for reply in replies.values() if reply["paused"]), None),
        "last_plan": max(plans, key=lambda each: each["time"], default=None),
    }


def _latest(replies: Replies) -> Reply | None:
    """The lateness of the group whose vjobs are the latest ones: each keeps the bound for itself."""
    told = {group: each for group, reply in replies.items() if (each := reply.get("lateness"))}
    if not told:
        return None
    group = max(told, key=lambda name: float(told[name]["share"]))
    words = f"group {group}: " if len(replies) > 1 else ""
    return {**told[group], "sentence": words + told[group]["sentence"]}


def _most_measured(replies: Replies) -> dict[str, Reply]:
    """By action, what the engine that has measured it most often says of it: each reads the ledgers of all groups."""
    found: dict[str, Reply] = {}
    for reply in replies.values():
        for each in reply.get("durations", ()):
            if each["count"] > found.get(each["action"], {"count": 0})["count"]:
                found[each["action"]] = each
    return found


def measured_values(replies: Replies) -> Reply:
    """By key, the measured value that engines use, of the one that has measured it most often."""
    found: Reply = {}
    for reply in replies.values():
        for key, each in reply.get("measured", {}).items():
            if each["count"] > found.get(key, {"count": 0})["count"]:
                found[key] = each
    return found


def orders(replies: Sequence[Reply]) -> Reply:
    """The answers to a pause of all groups, or to its end."""
    return {
        "changed": any(reply["changed"] for reply in replies),
        "paused": next((reply["paused"] for reply in replies if reply["paused"]), None),
    }


_MERGES: Mapping[str, Merge] = {
    "nodes": _all("nodes"),
    "groups": _all("groups"),
    "vjobs": _vjobs,
    "unmet": _unmet,
    "vms": _vms,
    "events": _newest("events"),
    "cycles": _newest("cycles"),
    "plan": _plan,
    "states": _states,
    "schedule": _schedule,
}
