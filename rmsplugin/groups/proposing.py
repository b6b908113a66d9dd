"""Proposing by groups: assigns, splits, asks for a proposal of each part, and merges the proposals into one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmsplugin.decision.result import Reason, ReasonCode
from rmsplugin.groups.assignment import assign
from rmsplugin.groups.choosing import Assigned
from rmsplugin.groups.forming import Group
from rmsplugin.groups.merging import merge, parameters_of
from rmsplugin.groups.splitting import Part, split
from rmsplugin.model.configuration import Configuration
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import NoProposal, Proposal

#: A part of the cluster to be decided about, and how.
Request = tuple[Configuration, ProposalParameters]

#: Makes the proposal of each part; may do so side by side. The answers are in the order of the requests.
AskEach = Callable[[Sequence[Request]], Sequence[Proposal | NoProposal]]


@dataclass(frozen=True)
class Memory:
    """What the next cycle knows of this one.

    Attributes:
        before: the group of each vjob.
        refused: by vjob, the groups that had no room for it though their summaries told of some.
    """

    before: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Grouped:
    """The proposal for all groups, the group of each vjob, and what the next cycle has to know."""

    found: Proposal | NoProposal
    assignment: Mapping[str, Assigned]
    memory: Memory


def propose_by_groups(
    source: Configuration,
    groups: Sequence[Group],
    parameters: ProposalParameters,
    ask_each: AskEach,
    memory: Memory | None = None,
    processes: int | None = None,
) -> Grouped:
    """Propose one context switch for all groups; with one group, as if there were none.

    Args:
        source: the whole configuration.
        groups: all groups.
        parameters: how to decide, to place and to estimate.
        ask_each: makes the proposals of the parts.
        memory: of the cycle before.
        processes: how many parts are asked at the same time; None: all.
    """
    memory = memory or Memory()
    if len(groups) <= 1:
        name = groups[0].name if groups else ""
        (found,) = ask_each([(source, parameters)])
        return Grouped(
            found, dict.fromkeys((v.name for v in source.vjobs), Assigned(name, "there is one group")), Memory()
        )
    assignment = assign(source, groups, memory.before, memory.refused)
    everything = split(source, groups, assignment)
    parts = [part for part in everything if _has_work(part, parameters)]
    if len(everything) == 1 or not parts:
        (found,) = ask_each([(source, parameters)])
    else:
        turns = -(-len(parts) // (processes or len(parts)))
        requests = [(part.configuration, parameters_of(part, parameters, turns)) for part in parts]
        found = _merged(source, assignment, parts, _answers(requests, ask_each), parameters)
    if isinstance(found, Proposal):
        memory = remembered(assignment, found.decision.reasons, memory)
    return Grouped(found, assignment, memory)


def _answers(requests: Sequence[Request], ask_each: AskEach) -> list[Proposal | NoProposal]:
    """A proposal of each part; a part without one is asked again, without a solver: the others keep theirs."""
    answers = list(ask_each(requests))
    failed = [index for index, answer in enumerate(answers) if isinstance(answer, NoProposal)]
    if failed:
        again = ask_each([(requests[index][0], requests[index][1].without_solver()) for index in failed])
        for index, answer in zip(failed, again, strict=True):
            why = answers[index]
            if isinstance(answer, Proposal) and isinstance(why, NoProposal):
                answers[index] = replace(answer, fallback=answer.fallback or why.sentence)
    return answers


def _has_work(part: Part, parameters: ProposalParameters) -> bool:
    """Whether there is anything to decide in a part: vjobs, or nodes that are reserved."""
    held = parameters.shortage.before.nodes if parameters.shortage is not None else frozenset[str]()
    return bool(part.configuration.vjobs) or not held.isdisjoint(part.configuration.node_by_name)


def _merged(
    source: Configuration,
    assignment: Mapping[str, Assigned],
    parts: Sequence[Part],
    answers: Sequence[Proposal | NoProposal],
    parameters: ProposalParameters,
) -> Proposal | NoProposal:
    found: list[tuple[Part, Proposal]] = []
    for part, answer in zip(parts, answers, strict=True):
        if isinstance(answer, NoProposal):
            return NoProposal(answer.missing, f"group {'+'.join(part.groups)}: {answer.explanation}")
        found.append((part, answer))
    return merge(source, assignment, found, parameters)


def remembered(assignment: Mapping[str, Assigned], reasons: Mapping[str, Reason], memory: Memory) -> Memory:
    """What the next cycle has to know: a vjob that found no room where there was to be some tries another group.

    Args:
        assignment: the group of each vjob.
        reasons: the reason of each vjob's state, by its name.
        memory: of the cycle before; the groups that refused a vjob are known until it runs.
    """
    before = {name: assigned.group for name, assigned in assignment.items()}
    refused: dict[str, frozenset[str]] = {}
    for name, assigned in assignment.items():
        if not assigned.chosen or reasons[name].code is not ReasonCode.NO_ROOM:
            continue
        earlier = frozenset(memory.refused.get(name, ()))
        if assigned.by_room or earlier:
            refused[name] = earlier | {assigned.group} if assigned.by_room else earlier
    return Memory(before, refused)
