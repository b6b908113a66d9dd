"""Candidates: engines that may lead, what each says of itself in the line, and which of them are there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmsplugin.adapters.coordination.line import Line
from rmsplugin.adapters.coordination.tree import Tree


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine that may lead."""

    name: str
    place: str  # where its ledger is: HOST:DIRECTORY, or the name of a shared one. All that may lead have the same
    session_s: float  # a leader that does not answer for so long has lost
    act_s: float  # the longest that one act, once begun, takes
    about: Mapping[str, str] = field(default_factory=dict)  # more about it, for others to read
    late_is_harmless: bool = False  # nothing that a leader does when another one leads harms: it waits for none


@dataclass(frozen=True, slots=True)
class Standing:
    """An engine in the line, as it says."""

    node: str  # the name of the node of its place
    name: str
    place: str
    about: Mapping[str, str]
    ahead_s: float | None  # its clock less that of the service; None: its release does not say
    next: str  # the node of the engine that is to lead next: those before that one go to the end. Empty: the next one


def said(candidate: Candidate, time_s: float, next_node: str) -> bytes:
    """What a candidate says of itself at this time of its clock."""
    words = {"name": candidate.name, "place": candidate.place, "about": {**candidate.about}}
    return json.dumps({**words, "time": time_s, "next": next_node}).encode()


def understood(node: str, data: bytes, written_s: float = 0.0) -> Standing:
    """What an engine, also of another release, has said of itself."""
    try:
        found = json.loads(data)
        name, place = str(found["name"]), str(found["place"])
        about = {str(key): str(value) for key, value in found.get("about", {}).items()}
        time_s = found.get("time")
        ahead_s = None if time_s is None else float(time_s) - written_s
        return Standing(node, name, place, about, ahead_s, str(found.get("next", "")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Standing(node, "an unknown engine", "an unknown place", {}, None, "")


def standing(tree: Tree, folder: str) -> list[Standing]:
    """The engines that are there, that which leads first. Raises UnavailableError."""
    return [understood(each.node, each.data, each.written_s) for each in Line(tree, line_of(folder)).waiting()]


def line_of(folder: str) -> str:
    """The path of the line."""
    return f"{folder}/line"


def turn_of(folder: str) -> str:
    """The path of the node with the last turn."""
    return f"{folder}/turn"
