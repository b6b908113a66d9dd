"""Managers on a simulated ensemble with a virtual clock, each of which may be unfit."""

from __future__ import annotations

from contract.coordinations import VirtualClock

from rmsplugin.adapters.coordination.assignments import Assignments
from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.coordination.members import Member, Members
from rmsplugin.adapters.coordination.words_of_managers import FITNESS, WordsOfManagers
from rmsplugin.adapters.lease.clocked import ClockedLease
from rmsplugin.adapters.simulated.ensemble import SimulatedEnsemble, SimulatedTree
from rmsplugin.errors import UnavailableError
from rmsplugin.manager.fitness import TELL_S, TEST_S, Fitness, patience_s
from rmsplugin.manager.site import Site

SESSION_S = 4.0
GROUPS = {f"g{number}": (f"n{number}",) for number in range(4)}
#: A command of Slurm takes no time here.
WHILE_S = patience_s(0.0)


class Managers:
    """Managers that take turns each half second, each with a session of its own."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.ensemble = SimulatedEnsemble(self.clock)
        self.sites: dict[str, Site] = {}
        self.trees: dict[str, SimulatedTree] = {}
        self.fitness: dict[str, Fitness] = {}
        self.ills: dict[str, str] = {}  # by manager, what keeps it from doing its work

    def join(self, name: str, ledger: str = "m1") -> Site:
        """``ledger``: the newest step of the schema that it knows."""
        tree = self.trees[name] = self.ensemble.open(SESSION_S)
        candidate = Candidate(name, "shared", SESSION_S, 0.0)
        elected = Elected(tree, "/r/site", candidate, self.clock, own_session=False)
        members = Members(tree, "/r/managers", Member(name, {"url": f"http://{name}:6", "ledger": ledger}))
        words = WordsOfManagers(tree, "/r", FITNESS)
        fitness = Fitness(lambda: self.require_fit(name), words, name, WHILE_S, self.clock)
        site = Site(
            name,
            members,
            ClockedLease(elected, self.clock),
            Assignments(tree, "/r/assigned"),
            lambda: next(iter(elected.members()), ""),
            self.clock,
            passed_over=fitness.passed_over,
            doubted=fitness.doubted,
            clock=self.clock,
        )
        self.sites[name], self.fitness[name] = site, fitness
        return site

    def require_fit(self, name: str) -> None:
        if why := self.ills.get(name):
            raise UnavailableError(why)

    def kill(self, name: str) -> None:
        """It is heard of no more; the service notices by itself."""
        del self.sites[name]

    def turns(self, seconds: float) -> None:
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += 0.5
            for name in self.sites:
                if not self.trees[name].cut:
                    self.trees[name].live()
            self.ensemble.pass_time()
            for name, site in list(self.sites.items()):
                self._look_at_itself(name)
                site.turn()
                if site.lease.held():
                    site.set_groups(GROUPS)

    def _look_at_itself(self, name: str) -> None:
        """Test and tell, each manager at moments of its own: one notices up to ``TEST_S`` after another."""
        late_s = (ord(name) - ord("a")) * 1.5
        if name in self.fitness and (self.clock.now - late_s) % TEST_S == 0:
            self.fitness[name].test()
        if name in self.fitness and self.clock.now % TELL_S == 0:
            self.fitness[name].tell()

    def leader(self) -> Site:
        (found,) = [site for site in self.sites.values() if site.lease.held()]
        return found

    def owners(self) -> dict[str, str]:
        return {name: each.manager for name, each in self.leader().assignments.items()}
