"""A course of faults: engines, services and ways fail by dice in the middle of context switches; one for one seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from journal.check import Findings, check
from scenarios.controllers import ControllersWorld, in_one_thread
from scenarios.engine_process import ACT_S, SESSION_S, Process
from scenarios.invariants import Watch
from scenarios.random_day import Day, Event

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.model.vjob import VJobState

S = VJobState

#: Faults, each of which happens in the middle of a switch; the most telling one most often.
FAULTS = (
    "kill_leader",
    "stop_leader",
    "stop_in_call",
    "stop_in_call",
    "stop_unheard",
    "cut_leader",
    "kill_both",
    "lose_other",
    "lose_server",
    "lose_quorum",
    "hang_directory",
    "fail_directory",
    "lose_slurmctld",
)
#: Those that leave the other host all that it needs to lead; and for how long nobody leads after one of them, at most.
_OF_LEADERS = {"kill_leader", "stop_leader", "stop_in_call", "stop_unheard", "cut_leader", "lose_slurmctld"}
_GAP_S = 2 * SESSION_S + ACT_S
#: Seconds: within a lease, around it, around a session and a wait, far beyond.
_LENGTHS_S = (1.0, 4.0, 7.0, 23.0, 40.0, 60.0, 120.0)
_STOPS_S = (4.0, 23.0, 40.0, 60.0, 120.0)
#: What hypervisors do for a while, and what they, node agents and Slurm do at once.
_LONG_CALLS = ("boot", "save", "restore", "migrate", "unpause", "stop")
_CALLS = (
    *_LONG_CALLS,
    *("put_config", "seal", "send", "drop_state", "drop_config"),
    *("open_gate", "close_gate", "hold", "suspend", "resume", "requeue"),
)
#: For how long munge stands still, in seconds; and a wrapper says something again within so many.
_DEAF_S, _SIGN_S = (4.0, 11.0, 25.0, 40.0, 90.0), 19
#: Apart from the seeds of courses.
_DEAF_SEEDS = 1_000_000
#: After a fault all goes on for so long before the next one, or the end.
_AFTER_S = 120.0


def course_of(seed: int) -> list[Event]:
    """Vjobs that run and sleep, a switch that suspends, resumes and migrates, a fault in its middle, and once more."""
    random = Random(seed)

    def event(after_s: float, kind: str) -> Event:
        return Event(after_s, kind, tuple(random.randrange(1000) for _ in range(4)))  # type: ignore[arg-type]

    # Dice of their own: what a seed did before there was deafness it does still.
    deaf = Random(seed + _DEAF_SEEDS)
    events = [event(1.0, "submit") for _ in range(5)]
    events += [event(60.0, "suspend"), event(30.0, "suspend")]
    faults = [FAULTS[seed % len(FAULTS)]] + [random.choice(FAULTS) for _ in range(random.randrange(2))]
    for fault in faults:
        events += [event(40.0, "resume"), event(0.0, "submit")]
        orders = ["suspend", "resume", "migrate", "migrate", "submit", random.choice(("drain", "cancel", "requeue"))]
        random.shuffle(orders)
        events += [event(0.0, order) for order in orders]
        if deaf.randrange(2):
            before_s = deaf.choice((0.0, 5.0, 20.0))
            events += [Event(before_s, "deafen", tuple(deaf.randrange(1000) for _ in range(4)))]  # type: ignore[arg-type]
        events += [event(0.0, fault), event(_AFTER_S, "undrain"), event(5.0, "undrain")]
    return events


class CarefulWatch(Watch):
    """A watch whose wrappers are told to begin by an engine that leads, or not at all."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._unanswered: set[tuple[str, Any]] = (
            set()
        )  # boots whose wrapper was answered nothing by an engine that ended

    def wrappers(self) -> None:
        """See Watch."""
        world: Any = self._world
        leader = world.leader()
        if leader is None:
            return
        for vjob in world.context.ledger.vjobs():
            if world.leader() is not leader or world.context is not leader.context:
                return
            if vjob.state is S.RUNNING and not vjob.finished and self._asks(vjob):
                self._answered(leader, vjob)

    def _asks(self, vjob: VJobRow) -> bool:
        """Whether its wrapper asks whether the script may begin."""
        vm, job = f"vjob{vjob.job_id}-0", self._world.rms._find(vjob.job_id)
        dead = (vm, self._booted[vm]) in self._dead
        # A wrapper asks again until it is answered.
        unanswered = not vjob.script_started or (vm, self._booted[vm]) in self._unanswered
        return job.state is JobState.RUNNING and unanswered and not dead

    def _answered(self, leader: Process, vjob: VJobRow) -> None:
        world: Any = self._world
        vm = f"vjob{vjob.job_id}-0"
        boot = self._booted[vm]
        world.alive(lambda: leader.context.ledger.update_vjob(vjob.job_id, script_started=True))
        if leader.dead or not leader.lease.held():
            self._unanswered.add((vm, boot))
            return
        self._unanswered.discard((vm, boot))
        known = self.begun.setdefault(vjob.job_id, set())
        assert boot not in known, f"I5: the script of {vjob.display_id} would begin twice in one VM"
        known.add(boot)
        world.journal.script(vjob.job_id, "begins")


class FaultyDay(Day):
    """A course on a cluster with two controllers."""

    makes_world = ControllersWorld
    makes_watch = CarefulWatch
    world: ControllersWorld

    def __init__(self, directory: Path, seed: int, events: Sequence[Event]) -> None:
        super().__init__(directory, seed, events)
        self.world.lives = self._tick
        self._faults = [event.kind for event in events if event.kind in FAULTS]

    def live(self) -> None:
        """See Day."""
        with in_one_thread():
            super().live()

    def longest_gap_s(self) -> float:
        """For how long nobody may lead; for any time where both hosts may be without what an engine needs."""
        return _GAP_S if len(self._faults) == 1 and set(self._faults) <= _OF_LEADERS else math.inf

    def judged(self) -> Findings:
        """What its journal shows, by the program that shares no code with the engine."""
        return check(self.world.journal.lines())

    def _tick(self, seconds: float) -> None:
        if self.world.leader() is None:
            self.world.start_engine()
        super()._tick(seconds)

    def _compute(self, seconds: float) -> None:
        before = {job.job_id for job in list(self.world.rms._jobs.values()) if job.state is JobState.ENDED}
        super()._compute(seconds)
        for job in list(self.world.rms._jobs.values()):
            if job.job_id not in before and job.state is JobState.ENDED and job.detail == "COMPLETED":
                self.world.journal.script(job.job_id, "ends")

    def _check_over(self) -> None:
        super()._check_over()
        silent = [said for said in self.world.events() if "has been silent" in said]
        assert silent == [], f"no wrapper was: {silent}"
        journal = self.world.journal
        for job in list(self.world.rms._jobs.values()):
            if job.request.partition not in ("vjob", "urgent"):
                continue
            journal.vjob(job.job_id, "submitted")
            if job.job_id in self.cancelled:
                journal.vjob(job.job_id, "cancelled")
            elif job.detail == "COMPLETED":
                journal.vjob(job.job_id, "ended")
        journal.over()

    def _evening(self) -> None:
        self.world.mend()
        super()._evening()

    # -- faults --------------------------------------------------------------------------------------------------

    def _length_s(self, number: int) -> float:
        return _LENGTHS_S[number % len(_LENGTHS_S)]

    def _leader(self) -> Process:
        self.world.start_engine()
        leader = self.world.leader()
        assert leader is not None
        return leader

    def _deafen(self, dice: tuple[int, int, int, int]) -> str:
        """Munge of the controllers checks no sign of life for a while; each wrapper speaks again some time after."""
        world, seconds = self.world, _DEAF_S[dice[0] % len(_DEAF_S)]
        world.deaf_until = world.time + seconds
        world.unheard_until = world.deaf_until + dice[1] % _SIGN_S
        return f"for {seconds:g} s, and no sign of life until {world.unheard_until:.0f}"

    def _kill_leader(self, dice: tuple[int, int, int, int]) -> str:
        leader = self._leader()
        leader._kill_at = leader.instants + 1 + dice[0] % 80
        return f"{leader.name} at instant {leader._kill_at}"

    def _kill_both(self, dice: tuple[int, int, int, int]) -> str:
        """The next leader, too, at an instant of its takeover or soon after it."""
        other = self.world.other(self._leader())
        other._kill_at = other.instants + 1 + dice[1] % 60
        return f"{self._kill_leader(dice)}, {other.name} at instant {other._kill_at}"

    def _stop_leader(self, dice: tuple[int, int, int, int]) -> str:
        leader, seconds = self._leader(), self._length_s(dice[1])
        instant = leader.instants + 1 + dice[0] % 80
        leader.halts[instant] = seconds
        return f"{leader.name} for {seconds:g} s at instant {instant}"

    def _stop_in_call(self, dice: tuple[int, int, int, int]) -> str:
        """Right before or after an act, or in the middle of what a hypervisor does; mostly until another one leads."""
        call, seconds = _CALLS[dice[0] % len(_CALLS)], _STOPS_S[dice[1] % len(_STOPS_S)]
        when = ("before", "after", "during")[dice[2] % (3 if call in _LONG_CALLS else 2)]
        if dice[3] % 2 and when != "during":
            self.world.halt_at = (dice[0] % 16, when, seconds)
            return f"{when} act {dice[0] % 16} from now, for {seconds:g} s"
        self.world.plan_halt(call, when, seconds)
        return f"{call}, {when}, for {seconds:g} s"

    def _stop_unheard(self, dice: tuple[int, int, int, int]) -> str:
        """A stop before a call, while a node answers this engine only."""
        said, node = self._stop_in_call((dice[0], 4, 0, dice[2])), self._node(dice[3])
        self.world.heard_by[node] = self._leader().host
        self.world.later(_LENGTHS_S[-1] + dice[1] % 60, self.world.heard_by.clear)
        return f"{said}, {node} answers {self.world.heard_by[node]} only"

    def _boot_unheard(self, dice: tuple[int, int, int, int]) -> str:
        """As ``_stop_unheard``; the node loses power while the engine stands still, and has forgotten all engines."""
        said, node = self._stop_unheard(dice), self._node(dice[3])
        self.world.booted_when_stopped = node
        return f"{said}, and is booted anew"

    def _cut_leader(self, dice: tuple[int, int, int, int]) -> str:
        """From the ensemble, or from all that is not on its host."""
        leader, seconds = self._leader(), self._length_s(dice[1])
        wholly = dice[0] % 2 == 0
        kinds = {"rms", "hypervisor", "agent", "guests", "directory"} if wholly else set()
        leader.tree.cut = True
        leader.cut |= kinds

        def mend() -> None:
            leader.tree.cut = leader.tree.closed
            leader.cut -= kinds

        self.world.later(seconds, mend)
        return f"{leader.name} for {seconds:g} s from {'all' if wholly else 'the ensemble'}"

    def _lose_other(self, dice: tuple[int, int, int, int]) -> str:
        """The engine that stands by is killed, stopped, or cut off from the ensemble."""
        other, seconds = self.world.other(self._leader()), self._length_s(dice[1])
        how = ("killed", "stopped", "cut off")[dice[0] % 3]
        if how == "killed":
            other.dead = True
        elif how == "stopped":
            other.stopped = True
            self.world.later(seconds, lambda: setattr(other, "stopped", False))
        else:
            other.tree.cut = True
            self.world.later(seconds, lambda: setattr(other.tree, "cut", other.tree.closed))
        return f"{other.name} {how} for {seconds:g} s"

    def _lose_server(self, dice: tuple[int, int, int, int]) -> str:
        """A server of the ensemble dies: its clients lose answers, and reach another one a moment later."""
        processes = list(self.world.processes.values())
        for number, process in enumerate(processes):
            if dice[0] >> number & 1 or dice[0] % 4 == 0:
                process.tree.answers_lost = 1 + dice[1] % 3
                process.tree.cut = dice[2] % 2 == 0
                tree = process.tree
                self.world.later(1.0 + dice[3] % 3, lambda tree=tree: setattr(tree, "cut", tree.closed))
        return str(dice)

    def _lose_quorum(self, dice: tuple[int, int, int, int]) -> str:
        seconds = self._length_s(dice[1])
        self.world.ensemble.quorum = False
        self.world.later(seconds, lambda: setattr(self.world.ensemble, "quorum", True))
        return f"for {seconds:g} s"

    def _hang_directory(self, dice: tuple[int, int, int, int]) -> str:
        self.world.hangs_until = self.world.time + self._length_s(dice[1])
        return f"until {self.world.hangs_until:.0f}"

    def _fail_directory(self, dice: tuple[int, int, int, int]) -> str:
        self.world.fails_until = self.world.time + self._length_s(dice[1])
        return f"until {self.world.fails_until:.0f}"

    def _lose_slurmctld(self, dice: tuple[int, int, int, int]) -> str:
        """Until its backup has taken over; what was asked of it last may have been done."""
        seconds = self._length_s(dice[1])
        self.world.mute_until["rms"] = self.world.time + seconds
        if dice[0] % 2:
            self.world.unanswered.add("rms")
        return f"for {seconds:g} s"
