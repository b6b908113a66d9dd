"""Steps: a plan of VM actions as the engine carries it out, whole vjobs at a time, and which step waits for which.

Pure. The actions of one vjob that belong together are one step: all VMs of a start, of a suspend, of a resume; the
migrations of one pool. Where a cycle is broken by suspending a VM, its whole vjob sleeps meanwhile, for a distributed
application survives only together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VMState
from rmsplugin.model.operation import OperationKind
from rmsplugin.proposing.proposal import Proposal

_KINDS = {
    ActionKind.RUN: OperationKind.START,
    ActionKind.SUSPEND: OperationKind.SUSPEND,
    ActionKind.RESUME: OperationKind.RESUME,
    ActionKind.MIGRATE: OperationKind.MIGRATE,
    ActionKind.PAUSE: OperationKind.PAUSE,
    ActionKind.UNPAUSE: OperationKind.UNPAUSE,
}

#: Of a vjob's several steps in one pool, the order.
_ORDER = (
    OperationKind.PAUSE,
    OperationKind.MIGRATE,
    OperationKind.SUSPEND,
    OperationKind.UNPAUSE,
    OperationKind.RESUME,
    OperationKind.START,
)


class UnsuitableError(ValueError):
    """A plan has an action that no step can carry out."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step: an operation on a vjob.

    Attributes:
        vjob: its name.
        kind: start, suspend, resume, migrate, pause or unpause.
        hosts: by VM name, its node afterwards; none for a suspend or pause; for a migration the VMs that
            move, which are paused afterwards if they were before.
        needs: indices of the steps, all before this one, that must have succeeded before it begins.
    """

    vjob: str
    kind: OperationKind
    hosts: Mapping[str, str]
    needs: tuple[int, ...] = ()


@dataclass
class _Group:
    """Actions that become one step."""

    vjob: str
    kind: OperationKind
    pool: int
    hosts: dict[str, str] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)  # indices of actions
    needs: set[int] = field(default_factory=set)  # indices of actions

    @property
    def rank(self) -> tuple[int, int]:
        return self.pool, _ORDER.index(self.kind)


def steps_of(source: Configuration, proposal: Proposal) -> tuple[PlannedStep, ...]:
    """The steps of a proposal for ``source``, each after all that it waits for.

    Raises:
        UnsuitableError: the plan acts on a node, or stops a VM, or suspends a vjob to break a cycle that may not be
            preempted, or is paused in the end.
    """
    if proposal.plan.nodes:
        raise UnsuitableError(f'"{proposal.plan.nodes[0]}": the engine does not switch nodes on or off')
    pools = [number for number, pool in enumerate(proposal.plan.pools) for _ in pool]
    by_vjob: dict[str, list[int]] = {}
    for index, action in enumerate(proposal.order.actions):
        by_vjob.setdefault(source.vjob_by_vm[action.vm.name].name, []).append(index)
    groups = [group for vjob, own in by_vjob.items() for group in _groups(source, proposal, vjob, own, pools)]
    # Stable: groups of one rank keep the order of the plan.
    groups.sort(key=lambda group: group.rank)
    return tuple(_with_needs(groups))


def _groups(source: Configuration, proposal: Proposal, vjob: str, own: list[int], pools: list[int]) -> Iterable[_Group]:
    actions = proposal.order.actions
    for index in own:
        if actions[index].kind not in _KINDS:
            raise UnsuitableError(f'"{actions[index]}": the engine ends VMs only when their job has ended')
    sleeps = next((pools[i] for i in own if actions[i].kind is ActionKind.SUSPEND and actions[i].bypass), None)
    groups: dict[tuple[OperationKind, int], _Group] = {}
    for index in own:
        action, pool = actions[index], pools[index]
        if sleeps is not None and pool >= sleeps:
            continue
        kind = _KINDS[action.kind]
        # A start is one step whatever pools its VMs are in: all that waits for it waits for the last of them.
        key = (kind, 0 if kind is OperationKind.START else pool)
        group = groups.setdefault(key, _Group(vjob, kind, pool))
        group.pool = max(group.pool, pool)
        _add(group, index, action, proposal.order.needs[index])
    yield from groups.values()
    if sleeps is not None:
        yield from _detour(source, proposal, vjob, [i for i in own if pools[i] >= sleeps], pools)


def _add(group: _Group, index: int, action: Action, needs: Iterable[int]) -> None:
    group.members.append(index)
    group.needs |= set(needs)
    node = action.source if action.kind is ActionKind.UNPAUSE else action.demands
    if node is not None:
        group.hosts[action.vm.name] = node


def _detour(source: Configuration, proposal: Proposal, vjob: str, own: list[int], pools: list[int]) -> Iterable[_Group]:
    """The whole vjob sleeps from its first bypass by suspend on, and resumes where all its VMs end."""
    found = next(each for each in source.vjobs if each.name == vjob)
    if not found.preemptible:
        raise UnsuitableError(f"only a suspend of vjob {vjob}, which is not preemptible, would break a cycle")
    ends = {vm.name: proposal.target[vm.name] for vm in found.vms}
    if any(end.state is VMState.PAUSED for end in ends.values()):
        raise UnsuitableError(f"vjob {vjob}, which is to be paused, would be woken to break a cycle")
    suspend = _Group(vjob, OperationKind.SUSPEND, pools[own[0]], members=own)
    resume = _Group(vjob, OperationKind.RESUME, max(pools[index] for index in own))
    resume.hosts = {name: end.node or "" for name, end in ends.items() if end.state is VMState.RUNNING}
    resume.needs = {need for index in own for need in proposal.order.needs[index]} - set(own)
    yield suspend
    yield resume


def _with_needs(groups: list[_Group]) -> Iterable[PlannedStep]:
    """A step waits for the steps whose actions its own wait for, and for the step before on the same vjob.

    It does not wait for a start that comes after it: one VM of the start was to come before it, and another one after.
    A start gives nobody room, and no rule wants more VMs to run than do, so what was to follow it may go before it.
    """
    step_of = {index: number for number, group in enumerate(groups) for index in group.members}
    last: dict[str, int] = {}
    for number, group in enumerate(groups):
        needs = {step_of[index] for index in group.needs} - {number}
        if group.vjob in last:
            needs.add(last[group.vjob])
        last[group.vjob] = number
        later = {need for need in needs if need > number}
        needs -= later
        if any(groups[need].kind is not OperationKind.START for need in later):
            raise UnsuitableError(f"the {group.kind} of vjob {group.vjob} would wait for a step that comes after it")
        yield PlannedStep(group.vjob, group.kind, dict(group.hosts), tuple(sorted(needs)))
