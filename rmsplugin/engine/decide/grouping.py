"""Grouping: the groups of the VM hosts as Slurm is now, and a proposal for each of them at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.engine.context.beside import each_beside
from rmsplugin.engine.decide.parameters import most_processes
from rmsplugin.groups.choosing import Assigned
from rmsplugin.groups.forming import MOST_HOSTS, Formed, Group, form
from rmsplugin.groups.proposing import Memory, Request, propose_by_groups
from rmsplugin.model.configuration import Configuration
from rmsplugin.proposer.proposer import Proposed
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import NoProposal, Proposal
from rmsplugin.settings import Settings

#: Makes one proposal; may be called by several threads at the same time.
Propose = Callable[[Configuration, ProposalParameters], Proposed]

#: The hosts of each leaf switch.
Switches = Sequence[Sequence[str]]


class Grouping:
    """Forms the groups; anew only when a hosts partition has other nodes. Asks for switches only to split one."""

    def __init__(self, settings: Settings, switches: Callable[[], Switches]) -> None:
        self._switches = switches
        self._partitions, self._territory = settings.hosts_partitions, settings.territory
        self._named = {name: group.names for name, group in settings.group.items()}
        self._formed: tuple[Mapping[str, Sequence[str]], Formed] = ({}, Formed())

    def of(self, rms: RmsSnapshot) -> Formed:
        """The groups, and the faults of the settings of groups.

        Raises:
            UnavailableError: a partition is to be split, and the RMS does not tell its switches.
        """
        known = {
            name: tuple(node for node in rms.partitions[name].nodes if node in rms.nodes)
            for name in self._partitions
            if name in rms.partitions
        }
        if self._territory:
            # What Slurm shows to the engine of one group are its hosts.
            hosts = dict.fromkeys(name for nodes in known.values() for name in nodes)
            return Formed((Group(self._territory, tuple(hosts)),))
        if known != self._formed[0]:
            large = sum(map(len, known.values())) > MOST_HOSTS
            self._formed = (known, form(known, self._named, self._switches() if large else (), MOST_HOSTS))
        return self._formed[1]


@dataclass
class Asking:
    """The proposals of one decision, which may be asked for several times: each time for all groups.

    Attributes:
        before: what the cycle before knew of its groups.
        memory: what the next cycle has to know.
        assignment: the group of each vjob, as last proposed.
        seconds: how long the proposals took, as far as they did not run beside each other.
        solver_s: how long solvers took for them, all together.
    """

    formed: Formed
    settings: Settings
    propose: Propose
    before: Memory
    memory: Memory = field(default_factory=Memory)
    assignment: Mapping[str, Assigned] = field(default_factory=dict)
    seconds: float = 0.0
    solver_s: float = 0.0

    def ask(self, source: Configuration, parameters: ProposalParameters) -> Proposal | NoProposal:
        """One proposal for all groups."""
        groups, processes = self.formed.groups, most_processes(self.settings)
        found = propose_by_groups(source, groups, parameters, self._each, self.before, processes)
        self.assignment, self.memory = found.assignment, found.memory
        return found.found

    def _each(self, requests: Sequence[Request]) -> list[Proposal | NoProposal]:
        if len(requests) == 1:
            answers = [self.propose(*requests[0])]
        else:
            # One more than there are processes: a request is ready when a process is free again.
            threads_most = most_processes(self.settings) + 1
            answers = each_beside(requests, lambda request: self.propose(*request), threads_most, "proposal")
        took = [sum(answer.seconds.values()) for answer in answers]
        self.seconds += max(max(took), sum(took) / most_processes(self.settings)) if len(took) > 1 else sum(took)
        self.solver_s += sum(answer.solver_s for answer in answers)
        return [answer.found for answer in answers]
