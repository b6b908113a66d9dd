"""A course of faults with managers: leaders and groups' engines fail by dice while vjobs are given; one for one seed.

Elections, assignments, texts, leaders and engines are the product's; the ensemble, nodes, Slurm and time are simulated.
A manager that is stopped stays on the stack where it is; the others live on above it, and it goes on with what it did.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from journal.check import Findings, check
from journal.journal import Journal
from scenarios.two_groups import HOSTS, GroupEngine, Site

from rmsplugin.adapters.coordination.assignments import Assignments
from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.coordination.epoch_files import EpochFiles
from rmsplugin.adapters.coordination.members import Member, Members
from rmsplugin.adapters.coordination.turns import Seen
from rmsplugin.adapters.coordination.words_of_managers import DEAF, FITNESS, WordsOfManagers
from rmsplugin.adapters.lease.clocked import ClockedLease
from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.adapters.simulated.ensemble import SimulatedEnsemble
from rmsplugin.engine.context.hearing import Hearing
from rmsplugin.engine.controllers.deaf_entries import DeafEntries
from rmsplugin.engine.serve.summary_view import summary_view
from rmsplugin.errors import RmspluginError
from rmsplugin.groups.forming import Formed, Group
from rmsplugin.groups.given import read
from rmsplugin.groups.giving import Heard
from rmsplugin.groups.told import heard
from rmsplugin.manager import site as manager_site
from rmsplugin.manager.deafness import Deafness
from rmsplugin.manager.fitness import Fitness, require_fit
from rmsplugin.manager.leader import Leader
from rmsplugin.manager.queue import SlurmQueue
from rmsplugin.manager.watching import GroupTurns
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_names import parse_vm_name

S = VJobState

NAMES = ("one", "two", "three")
SESSION_S, ACT_S = 4.0, 5.0
#: Seconds between two turns of a manager, and before one that was killed is there again.
STEP_S, AGAIN_S = 0.5, 9.0
#: How long a manager is stopped or cut off: within a lease, around a session, far beyond.
_LENGTHS_S = (1.0, 3.0, 5.0, 8.0, 20.0)
#: For how long munge of a manager's host stands still; and a wrapper whose sign was lost speaks again within so long.
_DEAF_S, _LOST_S = (20.0, 60.0, 200.0), 20.0
#: One that is deaf for so long, by the clock of managers, neither leads nor has groups.
_UNFIT_S = 1.0
#: Where a leader is stopped: while it asks engines, before and after it writes, within a request to the ensemble.
_PLACES = ("hear", "before write", "after write", "early", "late")
#: A group of a manager that died has to act again within that.
ACTS_AGAIN_S = SESSION_S + ACT_S + 5.0

FORMED = Formed(tuple(Group(name, hosts) for name, hosts in HOSTS.items()))


class Files(EpochFiles):
    """The texts as one manager writes them."""

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager.day.site.directory / "site", "given")
        self._manager = manager

    def _put(self, epoch: int, text: str) -> None:
        manager = self._manager
        manager.day.halt(manager, "before write")
        super()._put(epoch, text)
        if text:
            manager.day.note_given(manager.name, epoch, text)
        manager.day.halt(manager, "after write")


class Seat:
    """The process of a group's engine at a manager, which stands by or leads."""

    def __init__(self, manager: Manager, group: str) -> None:
        day = manager.day
        self.name, self.group, self.manager = f"{manager.name}'s {group} {day.count()}", group, manager
        self.tree = day.ensemble.open(SESSION_S)
        candidate = Candidate(self.name, "the shared directory", SESSION_S, ACT_S)
        seen = Seen.of(manager.watched.told(group))
        self.elected = Elected(self.tree, folder_of(group), candidate, day.now, seen=seen)
        self.lease = ClockedLease(self.elected, day.now)

    def campaign(self) -> bool:
        """Whether the process lives on: one that has lost its lead ends."""
        led = self.lease.held() or self.elected._turn is not None
        self.tree.live()
        with contextlib.suppress(RmspluginError):
            self.lease.renew() if self.lease.held() else self.elected.campaign()
        if self.lease.held():
            self.manager.day.journal.lead(self.name, self.elected.epoch, self.elected.valid_until(), of=self.group)
        return not led or self.elected._turn is not None

    def end(self, *, in_order: bool) -> None:
        """End, as killed or in order."""
        if in_order:
            self.lease.release(at_rest=True)
        self.tree.cut = True
        self.manager.day.journal.ends(self.name)


class Manager:
    """A manager's process."""

    def __init__(self, day: ManagedDay, name: str) -> None:
        self.day, self.name = day, f"{name} {day.count()}"
        self.dead_at: float | None = None
        self.stopped = False
        self.passed_over = 0  # in how many of its turns it was
        self.halts: dict[str, float] = {}  # by place, for how long it is stopped there next
        self.tree = day.ensemble.open(SESSION_S)
        candidate = Candidate(self.name, "the shared directory", SESSION_S, 0.0, late_is_harmless=True)
        elected = Elected(self.tree, "/rmsplugin/site", candidate, day.now, own_session=False)
        self.elected, self.lease = elected, ClockedLease(elected, day.now)
        world = day.site.world
        deaf, fit = (WordsOfManagers(self.tree, "/rmsplugin", thing) for thing in (DEAF, FITNESS))
        self.deafness = Deafness(Hearing(), deaf, self.name, lambda: world.time)
        self.fitness = Fitness(partial(require_fit, self.deafness.why, bool), fit, self.name, _UNFIT_S, day.now)
        self.site = manager_site.Site(
            self.name,
            Members(self.tree, "/rmsplugin/managers", Member(self.name)),
            self.lease,
            Assignments(self.tree, "/rmsplugin/assigned"),
            lambda: next(iter(elected.members()), ""),
            day.now,
            passed_over=self.fitness.passed_over,
            doubted=self.fitness.doubted,
            clock=day.now,
        )
        self.watched = GroupTurns(self.tree, folder_of, day.now)
        self.seats: dict[str, Seat] = {}
        self.leader = Leader(
            self.lease,
            world.rms,
            cast(Any, SimpleNamespace(of=lambda seen: FORMED)),
            SlurmQueue(world.settings, world.rms),
            Files(self),
            partial(day.hear, self),
            self.site.set_groups,
            30.0,
        )

    @property
    def acts(self) -> bool:
        return self.dead_at is None and not self.stopped

    def turn(self) -> None:
        """What a manager does again and again; its engines have sessions of their own."""
        for place in ("early", "late"):
            if place in self.halts:
                setattr(self.tree, place, partial(self.day.halt, self, place))
        self.tree.live()
        self.site.turn()
        if not self.acts:
            return
        self.deafness.tell()
        self.fitness.test()
        self.fitness.tell()
        self.passed_over += self.name in self.fitness.passed_over()
        self.watched.note_turns(self.site.assignments)
        for group in self.site.own - self.seats.keys():
            self.seats[group] = Seat(self, group)
        for group in self.seats.keys() - self.site.own:
            if self.day.is_idle(group):
                self.seats.pop(group).end(in_order=True)
        self.leader.turn()

    def kill(self) -> None:
        """Kill it, and so its engines."""
        self.dead_at, self.tree.cut = self.day.now(), True
        for seat in self.seats.values():
            seat.end(in_order=False)
        self.seats.clear()


def folder_of(group: str) -> str:
    """Where the engines of a group are elected."""
    return f"/rmsplugin/groups/{group}"


class ManagedDay:
    """A course on a cluster with two groups and three managers."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.dice, self.happened = Random(seed), list[str]()
        self._now, self._count, self._depth = 1000.0, 0, 0
        self._busy = ""  # the group whose engine runs a cycle
        self.journal = Journal(self.now)
        self.ensemble = SimulatedEnsemble(self.now)
        self.site = Site(directory, is_parted=False)
        self.managers: dict[str, Manager] = {}
        self._leads: dict[str, Seat] = {}  # by group, whose engine acted last
        self.jobs: list[int] = []
        self.ends = [*HOSTS][seed % 2]  # by day vjobs end in one group only: those that wait in the other one move
        self.wishes: dict[str, str] = {}  # by group, where an operator wanted it last
        self._joined, self._eyes = set[str](), self.ensemble.open(1e9)
        self.deaf: tuple[Manager | None, float] = (None, 0.0)  # who cannot hear, until when by the cluster's clock
        self.unheard_until = 0.0  # by the same, no wrapper is heard
        self.stops = self.moved = 0  # how often a manager stood still, and how often a vjob went to another group
        for name in NAMES:
            self.managers[name] = Manager(self, name)
        self._note_machines()

    def now(self) -> float:
        """The clock of managers and of the ensemble."""
        return self._now

    def count(self) -> int:
        """A number for each process."""
        self._count += 1
        return self._count

    # -- time ----------------------------------------------------------------------------------------------------

    def step(self, *, cycles: bool = True) -> None:
        """Half a second of all that live; and perhaps a cycle of each group that has an engine."""
        self._now += STEP_S
        self.ensemble.pass_time()
        self._test_hearing()
        self._see_who_is_there()
        for name, manager in list(self.managers.items()):
            if manager.dead_at is not None and self._now >= manager.dead_at + AGAIN_S:
                self.managers[name] = Manager(self, name)
            elif manager.acts:
                manager.turn()
            for group, seat in list(manager.seats.items()):
                # An engine is a process of its own: it goes on while its manager is stopped.
                if not seat.campaign():
                    seat.end(in_order=False)
                    del manager.seats[group]
        if cycles and not self._busy:
            for group in HOSTS:
                self.cycle(group)
        self.look()

    def _see_who_is_there(self) -> None:
        """A manager whose session has ended, however short, is away for others, and an order for it ends."""
        self._eyes.live()
        with contextlib.suppress(RmspluginError):
            there = Members(self._eyes, "/rmsplugin/managers", Member("nobody")).all().keys()
            self._joined |= there
            away = self._joined - there
            self.wishes = {group: wish for group, wish in self.wishes.items() if wish not in away}

    def pass_s(self, seconds: float, *, cycles: bool = True) -> None:
        """Let time pass."""
        for _ in range(int(seconds / STEP_S)):
            self.step(cycles=cycles)

    def halt(self, manager: Manager, place: str) -> None:
        """SIGSTOP here, if that is planned, and SIGCONT later: the others live on meanwhile."""
        seconds = manager.halts.pop(place, 0.0)
        if not seconds or self._depth > 1 or self._busy:
            return
        self.happened.append(f"{self._now:.1f}: {manager.name} stands still for {seconds:g} s, {place}")
        manager.stopped = True
        self.stops += 1
        self._depth += 1
        self.pass_s(seconds)
        self._depth -= 1
        self._now += STEP_S / 8  # what it goes on with comes after all that was done
        manager.stopped = False

    # -- engines -------------------------------------------------------------------------------------------------

    def holder(self, group: str) -> Seat | None:
        """The engine that leads a group; there are not two."""
        found = [seat for each in self.managers.values() for seat in each.seats.values() if seat.group == group]
        leads = [seat for seat in found if seat.lease.held()]
        assert len(leads) <= 1, f"two engines lead group {group}: {[seat.name for seat in leads]}"
        return leads[0] if leads else None

    def is_idle(self, group: str) -> bool:
        """Whether no cycle of its engine is under way."""
        return self._busy != group

    def cycle(self, group: str) -> None:
        """A cycle of the engine that leads the group, if one does."""
        seat = self.holder(group)
        if seat is None:
            return
        self._busy = group
        if group not in self.site.engines:
            self._leads[group] = seat
            self.site.begin(group, self.site.directory / group / "ledger.sqlite")
            self._record(group)
        elif self._leads.get(group) is not seat:
            self._leads[group] = seat
            self.site.engines[group].start_engine()
        engine = self.site.engines[group]
        managers = WordsOfManagers(seat.tree, "/rmsplugin", DEAF)
        engine.alive(DeafEntries(managers, engine.context.hearing, engine.context.clock.now).note_deaf)
        engine.tick()
        territory = self.site.engines[group].territory
        if territory.is_told:
            self.journal.took(group, *territory.version)
        self._busy = ""
        self._finish(group)

    def _record(self, group: str) -> None:
        """Have the journal tell what the group's engine asks of nodes and Slurm for vjobs."""
        engine = self.site.engines[group]
        engine.outside = []
        tell = engine.neighbours._tell

        def asks(kind: str, name: str, arguments: tuple[Any, ...]) -> None:
            tell(kind, name, arguments)
            seat = self._leads[group]
            words = [each for each in arguments if isinstance(each, str)]
            vm = next((each for each in words if parse_vm_name(each) is not None), "")
            parsed = parse_vm_name(vm) if vm else None
            if kind in ("hypervisor", "agent") and parsed is not None:
                nodes = [each for each in words if each in self.site.world.sizes]
                act = self.journal.act(seat.name, seat.elected._turn.epoch, kind, name, vm, parsed[0], nodes, of=group)  # type: ignore[union-attr]
                act.accepted(self._now)
                act.ended(self._now, "done")

        engine.neighbours._tell = asks

    def hear(self, manager: Manager, groups: Collection[str]) -> dict[str, tuple[int, Heard]]:
        """What engines say; one of them may be silent."""
        self.halt(manager, "hear")
        silent = self.dice.choice([*HOSTS, "", "", "", ""])
        found: dict[str, tuple[int, Heard]] = {}

        def ask(name: str, engine: GroupEngine, epoch: int) -> None:
            context, decided = engine.context, engine.cycle.deciding.groups
            found[name] = heard(summary_view(context.ledger, context.territory, epoch, decided))

        for name in groups:
            seat, engine = self.holder(name), self.site.engines.get(name)
            if seat is None or engine is None or self._leads.get(name) is not seat or engine.life.dead:
                continue
            if name not in (silent, self._busy):
                engine.alive(partial(ask, name, engine, seat.elected.epoch))
        return found

    # -- what happens --------------------------------------------------------------------------------------------

    def live(self, events: int = 40) -> None:
        """Live it, and see that all ends well."""
        self.pass_s(6.0)
        acts: list[Callable[[], str]] = [*[self._submit] * 8, self._kill_engine, self._end_early, self._end_early]
        acts += [self._hand_over, self._hand_over, self._deafen]
        acts += [self._kill_leader, self._stop_leader, self._stop_leader, self._stop_any, self._cut, self._lose_quorum]
        for _ in range(events):
            self._now += STEP_S / 8  # what happens now happens after all that was done
            said = self.dice.choice(acts)()
            self.happened.append(f"{self._now:.1f}: {said}")
            self.pass_s(self.dice.choice((0.5, 1.0, 2.0, 3.0)))
        self._mend()
        for _ in range(600):
            if self.is_over():
                break
            self.step()
        assert self.is_over(), f"it does not end: {[(job, self.site.where(job)) for job in self.jobs]}"
        for _ in range(6):
            self.happened.append(f"{self._now:.1f}: {self._hand_over()}")
        self.pass_s(2 * SESSION_S)
        self._judge_wishes()
        self._judge_vjobs()

    def _judge_wishes(self) -> None:
        """Each group is where an operator wants it, as long as that manager is there; and no wish outlives it."""
        for name, manager in self.managers.items():
            for group, given in manager.site.assignments.items():
                assert given.kept in ("", *manager.site.members), f"{name} knows a wish for {given.kept}, which is gone"
                assert given.kept in ("", given.manager), f"{group} is at {given.manager}, and is to be at {given.kept}"
        kept = {group: given.kept for group, given in self.managers[NAMES[0]].site.assignments.items()}
        for group, wish in self.wishes.items():
            said = f"the last order for {group} was {wish}, and {kept.get(group)} is kept"
            assert not wish or kept.get(group) == wish, said

    def _judge_vjobs(self) -> None:
        for job in self.jobs:
            self.journal.vjob(job, "submitted")
            self.journal.vjob(job, "ended")
            assert len(self.site.where(job)) == 1, f"vjob {job}: {self.site.where(job)}"
            assert self.site.world.rms.job(job).restarts == 0, f"vjob {job} was requeued"
            assert len(self.site.booted(job)) == 1, f"the VM of vjob {job} was booted {self.site.booted(job)}"
        assert self.site.world.leftovers() == []
        self.journal.over()

    def is_over(self) -> bool:
        """Whether all vjobs have ended, in the ledger of one group."""
        return all(self.site.ended(job) and {*self.site.where(job).values()} == {S.TERMINATED} for job in self.jobs)

    def close(self) -> None:
        """End all."""
        self.site.close()

    def counted(self) -> dict[str, int]:
        """What happened, in numbers."""
        killed = sum(", which leads, is killed" in line for line in self.happened)
        return {"leaders killed": killed, "stops": self.stops, "moves": self.moved}

    def judged(self) -> Findings:
        """What its journal shows, by the program that shares no code with the engine."""
        return check(self.journal.lines())

    def look(self) -> None:
        """What holds at any time."""
        world = self.site.world
        assert world.hypervisor.violations == []
        for name, engine in self.site.engines.items():
            wrong = [each for each in engine.outside if each.startswith("a room") or " at {" in each]
            assert wrong == [], f"the engine of {name} asked for {wrong}"

    def note_given(self, who: str, epoch: int, text: str) -> None:
        """A leader has written."""
        given = read(text, epoch=epoch, name="given")
        places = {str(job): [place.group, place.to] for job, place in given.vjobs.items()}
        self.journal.given(who, *given.version, places)
        if given.version > self.site.given.version:
            before, self.site.given = self.site.given, given
            for job, place in given.vjobs.items():
                self.moved += job in before.vjobs and before.vjobs[job].group != place.group

    def _note_machines(self) -> None:
        for method in ("boot", "stop", "restore", "save", "pause", "unpause", "migrate"):
            act = getattr(self.site.world.hypervisor, method)

            def noted(*words: Any, act: Callable[..., Any] = act, **options: Any) -> Any:
                answer = act(*words, **options)
                self._note_vms()
                return answer

            setattr(self.site.world.hypervisor, method, noted)
        self._vms: dict[tuple[str, str], str] = {}

    def _note_vms(self) -> None:
        machines = self.site.world.hypervisor.machines.seen()
        there = {(node, vm): guest.power for node, vms in machines.items() for vm, guest in vms.items()}
        for node, vm in self._vms.keys() - there.keys():
            self._note_vm(node, vm, "gone")
        for (node, vm), power in there.items():
            self._note_vm(node, vm, "running" if power is VMPower.RUNNING else "standing")

    def _note_vm(self, node: str, vm: str, now: str) -> None:
        parsed = parse_vm_name(vm)
        if parsed is None or self._vms.get((node, vm), "gone") == now:
            return
        self._vms[node, vm] = now
        if now == "gone":
            del self._vms[node, vm]
        owner = next(name for name, hosts in HOSTS.items() if node in hosts)
        self.journal.vm(parsed[0], vm, node, now, of=owner)

    def _finish(self, group: str) -> None:
        """A script of the group ends, now and then."""
        engine = self.site.engines[group]
        if engine.life.dead or self.dice.randrange(3) or self.ends not in ("", group):
            return
        for vjob in engine.context.ledger.vjobs():
            if vjob.state is S.RUNNING and self.site.world.rms.job(vjob.job_id).state is JobState.RUNNING:
                if not vjob.script_started:
                    engine.alive(partial(engine.context.ledger.update_vjob, vjob.job_id, script_started=True))
                    self.journal.script(vjob.job_id, "begins")
                self.site.world.rms.finish(vjob.job_id)
                self.journal.script(vjob.job_id, "ends")
                return

    # -- faults --------------------------------------------------------------------------------------------------

    def _submit(self) -> str:
        job = self.site.world.submit(vms=1, cpus=self.dice.choice((1, 2)))
        self.jobs.append(job)
        return f"vjob {job} is submitted"

    def _leader(self) -> Manager | None:
        leads = [each for each in self.managers.values() if each.acts and each.lease.held()]
        return leads[-1] if leads else None

    def _hand_over(self) -> str:
        """An operator asks a manager to have a group given to one, or to any again."""
        asked, group = self.dice.choice(list(self.managers.values())), self.dice.choice([*HOSTS])
        to = self.dice.choice([*asked.site.members, ""])
        if not asked.acts or not asked.site.members:
            return f"{asked.name} does not answer"
        try:
            asked.site.keep_at(group, to, "root")
        except RmspluginError as error:
            return f"{group} is not handed over: {error}"
        self.wishes[group] = to
        return f"{asked.name} has written that {group} is to be at {to or 'any'}"

    def _deafen(self) -> str:
        """Munge of a manager's host checks nothing for a while, and all wrappers ask that manager."""
        manager, seconds = self.dice.choice(list(self.managers.values())), self.dice.choice(_DEAF_S)
        self.deaf = manager, self.site.world.time + seconds
        return f"{manager.name} cannot hear for {seconds:g} s of the cluster's"

    def _test_hearing(self) -> None:
        manager, until = self.deaf
        world = self.site.world
        is_deaf = manager is not None and manager.acts and not manager.tree.cut and world.time < until
        if manager is not None and is_deaf:
            manager.deafness.note("munged does not answer")
            self.unheard_until = world.time + _LOST_S
        for engine in self.site.engines.values():
            engine.wrappers_answer = world.time >= self.unheard_until

    def _kill_leader(self) -> str:
        if (leader := self._leader()) is None:
            return "nobody leads"
        leader.kill()
        return f"{leader.name}, which leads, is killed"

    def _stop_leader(self) -> str:
        if (leader := self._leader()) is None:
            return "nobody leads"
        place, seconds = self.dice.choice(_PLACES), self.dice.choice(_LENGTHS_S)
        leader.halts[place] = seconds
        return f"{leader.name}, which leads, is to stand still for {seconds:g} s, {place}"

    def _stop_any(self) -> str:
        manager = self.dice.choice(list(self.managers.values()))
        manager.halts[self.dice.choice(_PLACES)] = seconds = self.dice.choice(_LENGTHS_S)
        return f"{manager.name} is to stand still for {seconds:g} s"

    def _cut(self, manager: Manager | None = None) -> str:
        manager, seconds = manager or self.dice.choice(list(self.managers.values())), self.dice.choice(_LENGTHS_S)
        trees = [manager.tree, *(seat.tree for seat in manager.seats.values())]
        for tree in trees:
            tree.cut = True
        self.pass_s(seconds)
        for tree in trees if manager.dead_at is None else ():
            if not tree.closed:
                tree.cut = False
        return f"{manager.name} was cut off from the ensemble for {seconds:g} s"

    def _end_early(self) -> str:
        """The ensemble ends the sessions of a manager that is cut off, and of its engines, sooner than it promised."""
        leader = self._leader()
        manager = leader if leader and self.dice.randrange(2) else self.dice.choice(list(self.managers.values()))
        if manager.dead_at is not None:
            return f"{manager.name} is dead"
        for other in self.managers.values():
            if other is not manager and self.dice.randrange(2):
                other.halts["before write"] = self.dice.choice(_LENGTHS_S[:3])
        for tree in (manager.tree, *(seat.tree for seat in manager.seats.values())):
            tree.end()
        return f"the sessions ended early, and {self._cut(manager)}"

    def _lose_quorum(self) -> str:
        seconds = self.dice.choice(_LENGTHS_S)
        self.ensemble.quorum = False
        self.pass_s(seconds)
        self.ensemble.quorum = True
        return f"there was no quorum for {seconds:g} s"

    def _kill_engine(self) -> str:
        group = self.dice.choice(list(HOSTS))
        if self.holder(group) is None or group not in self.site.engines:
            return f"group {group} has no engine"
        self.site.engines[group].life._kill_at = self.site.engines[group].life.instants + self.dice.randrange(1, 60)
        return f"the engine of {group} is to be killed"

    def _mend(self) -> None:
        self.ends = ""
        self.deaf = None, 0.0  # who is deaf gets no group, whatever anybody wishes
        for manager in self.managers.values():
            manager.halts.clear()
        for engine in self.site.engines.values():
            engine.life._kill_at = None
