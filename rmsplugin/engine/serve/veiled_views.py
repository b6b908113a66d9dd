"""Veiled views: what is left of an answer for a caller who is not told of all jobs, or of no node. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rmsplugin.engine.ledger.rows import Event
from rmsplugin.engine.serve.privacy import Sight
from rmsplugin.model.vm_names import parse_vm_name

View = dict[str, Any]


def vjob(view: View, sight: Sight) -> View:
    """A vjob that he is told of, with a reason that names no other."""
    return {**view, "reason": sight.sentence(view["reason"], (view["display_id"], str(view["job_id"])))}


def vjobs(page: View, sight: Sight) -> View:
    """A page of vjobs that he is told of."""
    return {**page, "vjobs": [vjob(view, sight) for view in page["vjobs"]]}


def decisions(views: Sequence[View], sight: Sight) -> list[View]:
    """Decisions about vjobs that he is told of."""
    return [{**view, "reason": sight.sentence(view["reason"], (view["vjob"],))} for view in views]


def events(found: Sequence[Event], sight: Sight) -> list[View]:
    """Events of vjobs that he is told of."""
    return [{**asdict(event), "message": sight.sentence(event.message, _jobs_of(event))} for event in found]


def _jobs_of(event: Event) -> list[str]:
    of_vm = parse_vm_name(event.vm)
    return [event.vjob, *([str(of_vm[0])] if of_vm else [])]


def nodes(views: Sequence[View], sight: Sight) -> list[View]:
    """The nodes, without VMs and jobs that have to do with them."""
    if not sight.nodes:
        return []
    if sight.all_jobs:
        return [*views]
    return [
        {
            **view,
            "reason": sight.sentence(view["reason"], ()),
            "pressed": sight.sentence(view["pressed"], ()),
            "reserved_for": None,
            "reserved_since": None,
            "guests": [],
            "rests": [{**rest, "error": sight.sentence(rest["error"], ())} for rest in view["rests"]],
        }
        for view in views
    ]


def cycle(view: View, sight: Sight) -> View:
    """A context switch, without the sentences, which name vjobs."""
    if sight.all_jobs and sight.nodes:
        return view
    powers = [{**each, "error": ""} for each in view["powers"]] if sight.nodes else []
    return {**view, "sentence": "", "error": "", "fallback": "", "powers": powers}


def steps(views: Sequence[View], sees: Callable[[str], bool], sight: Sight) -> list[View]:
    """The steps of vjobs that he is told of; ``sees``: whether he is told of one with this display id."""
    if sight.all_jobs:
        return [*views]
    own = [view for view in views if sees(view["vjob"])]
    numbers = {view["number"] for view in own}
    return [
        {
            **view,
            "needs": [each for each in view["needs"] if each in numbers],
            "reason": sight.sentence(view["reason"], (view["vjob"],)),
            "error": sight.sentence(view["error"], (view["vjob"],)),
        }
        for view in own
    ]


def status(reply: View, sees: Callable[[str], bool], sight: Sight) -> View:
    """The engine, without what it says of jobs."""
    if sight.all_jobs and sight.nodes:
        return reply
    last = reply["last_plan"]
    return {
        **reply,
        "last_cycle": {**reply["last_cycle"], "sentence": ""},
        "problems": [],
        "held": [each for each in reply["held"] if sees(each["vjob"])],
        "power": reply["power"] if sight.nodes else None,
        "lateness": reply["lateness"] if sight.nodes else None,
        "last_plan": None if last is None else cycle(last, sight),
    }


def preview(view: View, sees: Callable[[str], bool], sight: Sight) -> View:
    """The next context switch, as far as it is about vjobs that he is told of."""
    if sight.all_jobs and sight.nodes:
        return view
    own = {name for name in view["now"] if sees(name)} if not sight.all_jobs else set(view["now"])

    def only_own(values: Mapping[str, Any]) -> View:
        return {name: value for name, value in values.items() if name in own}

    def told(values: Mapping[str, View]) -> View:
        return {
            name: {**value, "reason": sight.sentence(value["reason"], (name,))}
            for name, value in only_own(values).items()
        }

    return {
        **{key: view[key] for key in ("policy", "time", "paused")},
        **dict.fromkeys(("sentence", "fault", "fallback", "summary"), ""),
        "decision": {name: {**value, "numbers": {}} for name, value in told(view["decision"]).items()},
        "target": {},
        "plan": None,
        "now": only_own(view["now"]),
        "steps": [{**step, "needs": [], "hosts": {}} for step in view["steps"] if step["vjob"] in own],
        "powers": [],
        "left_out": told(view["left_out"]),
        "out_of_reach": {},
        **({"starts": only_own(view["starts"])} if "starts" in view else {}),
    }
