"""A random day: users, operators, neighbours and the engine's own end by dice, in virtual time; one day for one seed.

An event names what it happens to by dice, taken among what there is then: so events can be left out, and the rest of
the day is still a day. Virtual time passes in the events' gaps and in what the engine does.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

from scenarios.interleaved import InterleavedWorld, one_thread
from scenarios.invariants import Watch
from scenarios.neighbours import Silence, Way

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow
from rmsplugin.engine.reconcile.brake import Held
from rmsplugin.errors import NotFoundError, OperationFailedError, RefusedError
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_names import vm_name
from rmsplugin.proposer.proposer import Proposed
from rmsplugin.proposing.parameters import ProposalParameters

S, K = VJobState, OperationKind

_DURATIONS_S = {"boot": 6.0, "save": 8.0, "restore": 8.0, "migrate": 6.0, "stop": 1.0}
_MEMORY_MIB = (64, 128, 256, 512, 896)
_WORK_S = (30.0, 120.0, 300.0, 900.0)
_PAUSE_LIMITS_S = (100.0, 1000.0, 100_000.0)
#: After the last event all has to have ended within so long.
_EVENING_S, _EVENING_TICKS = 200_000.0, 900

#: What happens how often.
WEIGHTS = {
    "submit": 30,
    "array": 3,
    "cancel": 3,
    "requeue": 3,
    "hold": 2,
    "release": 3,
    "slurm_suspend": 2,
    "slurm_resume": 3,
    "suspend": 2,
    "resume": 3,
    "migrate": 4,
    "drain": 2,
    "undrain": 4,
    "native": 4,
    "lose_node": 2,
    "revive_node": 4,
    "kill_engine": 8,
    "silence": 8,
    "fail": 6,
    "load": 4,
    "preemption": 2,
    "pause": 1,
    "unpause": 3,
    "wait": 8,
}


@dataclass(frozen=True, slots=True)
class Event:
    """Something happens so long after the event before it; to what, and how, say the dice."""

    after_s: float
    kind: str
    dice: tuple[int, int, int, int]

    def __str__(self) -> str:
        return f"Event({self.after_s}, {self.kind!r}, {self.dice})"


#: What happens besides where memory is observed.
OBSERVED = {**WEIGHTS, "grow": 20}
#: What happens besides where vjobs that make way are paused.
PAUSES = {**WEIGHTS, "submit": 60, "rouse": 4, "wake": 4, "save_paused": 2, "fail_pause": 4, "limit": 3}


def events_of(seed: int, count: int, weights: Mapping[str, int] = MappingProxyType(WEIGHTS)) -> list[Event]:
    """The events of a day."""
    random = Random(seed)
    kinds = random.choices(list(weights), list(weights.values()), k=count)
    return [
        Event(round(random.expovariate(1 / 60), 1), kind, tuple(random.randrange(1000) for _ in range(4)))  # type: ignore[arg-type]
        for kind in kinds
    ]


class Faults(logging.Handler):
    """Collects what the engine calls a bug of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, with the traceback."""
        self.found.append(logging.Formatter().format(record))


class Day:
    """One day of a world."""

    makes_world: type[InterleavedWorld] = InterleavedWorld
    makes_watch: type[Watch] = Watch

    def __init__(
        self,
        directory: Path,
        seed: int,
        events: Sequence[Event],
        *,
        solver: bool = False,
        observed: bool = False,
        pauses: bool = False,
    ) -> None:
        self._dice = Random(seed)
        self._observed = observed
        options: dict[str, Any] = {"rooms": "elastic", "room_idle_s": 60} if seed % 2 else {}
        if observed:
            options["memory"] = "observed"
        self.world = self.makes_world(directory, Random(seed + 1), urgent=True, shared=seed % 3 == 0, **options)
        self.world.hypervisor.actions.durations_s = dict(_DURATIONS_S)
        if pauses:
            self._decide(policy="slowdown" if seed % 2 else "mixed", pause_limit_s=_PAUSE_LIMITS_S[seed % 3])
            self.world.rms.preempt_exempt_s = 30.0
        self.world.happens = self._next_at_once
        self.world.looks = lambda: self.watch.look()
        if not solver:
            propose = self.world.propose

            def cheaply(configuration: Configuration, parameters: ProposalParameters) -> Proposed:
                return propose(configuration, parameters.without_solver())

            self.world.propose = cheaply  # type: ignore[method-assign]
        self.watch = self.makes_watch(self.world)
        self._left = deque(events)
        self.happened: list[str] = []
        self.cycles = 0
        self._work_s: dict[int, float] = {}
        self._ran_s: dict[int, float] = {}
        self.cancelled: set[int] = set()
        self._due = self.world.time

    # -- the course of the day -----------------------------------------------------------------------------------

    def live(self) -> None:
        """Live it. Raises AssertionError where something is wrong."""
        faults = Faults()
        log = logging.getLogger("rmsplugin")
        log.addHandler(faults)
        try:
            with one_thread():
                self._day()
                self._evening()
                self.world.close()
            assert not faults.found, faults.found[0]
        finally:
            log.removeHandler(faults)

    def _day(self) -> None:
        world = self.world
        while self._left:
            self._due += self._left[0].after_s
            while self._left and world.time < self._due:
                self._tick(min(30.0, max(1.0, self._due - world.time)))
            if self._left:
                self._happen(self._left.popleft())
                self.watch.look()

    def _next_at_once(self) -> None:
        """In the middle of an operation."""
        if self._left:
            self._happen(self._left.popleft())

    def _happen(self, event: Event) -> None:
        what = getattr(self, f"_{event.kind}")(event.dice)
        if what is not None:
            self.happened.append(f"{self.world.time:.0f} {event.kind}: {what}")

    def _tick(self, seconds: float) -> None:
        before = self.world.time
        self.world.tick(seconds)
        self.cycles += 1
        self.watch.wrappers()
        self.watch.look()
        self.watch.look_when_settled()
        self._compute(self.world.time - before)

    def _compute(self, seconds: float) -> None:
        """Scripts compute while their VMs run; at last they end, and their jobs with them."""
        world = self.world
        if world.life.dead:
            return
        for vjob in world.context.ledger.vjobs():
            job = world.rms._find(vjob.job_id)
            if vjob.state is not S.RUNNING or job.state is not JobState.RUNNING or not self.watch.runs(vjob):
                continue
            work_s = _WORK_S[vjob.job_id % len(_WORK_S)]
            self._ran_s[vjob.job_id] = self._ran_s.get(vjob.job_id, 0.0) + seconds
            if self._ran_s[vjob.job_id] >= work_s and vjob.job_id not in world.executor.busy():
                ends = {"finished": True, "finished_at": world.context.clock.now()}
                world.alive(lambda vjob=vjob, ends=ends: world.context.ledger.update_vjob(vjob.job_id, **ends))
                if not world.life.dead:
                    world.rms.finish(vjob.job_id)

    def _evening(self) -> None:
        """All trouble ends; all that was not cancelled runs and ends."""
        world = self.world
        world.neighbours.silence = None
        world.hypervisor.faults.failures.clear()
        world.life._kill_at = None
        for node in world.sizes:
            self._revive(node)
            world.rms.set_node(node, draining=False, reason="")
        for name in ("vjob", "urgent"):
            self._set_mode(name, "REQUEUE")
        if world.life.dead:
            world.start_engine()
        world.context.ledger.plans.clear_pause()
        end = world.time + _EVENING_S
        for tick in range(_EVENING_TICKS):
            self._tick(15.0 if tick % 20 < 10 else 150.0)
            if tick % 10 == 0:
                self._help()
            if self._over():
                break
            assert world.time < end
        self._check_over()

    def _help(self) -> None:
        """What waits for a person's word gets it; where nothing is proved, the person has looked for the VMs."""
        world = self.world

        def is_so(held: Held) -> bool:
            vms = world.context.ledger.vms(held.job_id)
            return held.proved or not any(world.hypervisor.where(vm.name) for vm in vms)

        world.cycle.brake.confirm(held.vjob for held in world.cycle.brake.held if is_so(held))
        for job in list(world.rms._jobs.values()):
            if job.state is JobState.PENDING and job.hold:
                world.rms.release(job.job_id)
        for vjob in world.context.ledger.vjobs():
            if vjob.state is S.SLEEPING and not vjob.resumes and vjob.job_id not in world.executor.busy():
                world.ask(vjob.job_id, K.RESUME)

    def _over(self) -> bool:
        ledger = self.world.context.ledger
        jobs = [job for job in self.world.rms.snapshot().jobs if job.partition in ("vjob", "urgent")]
        return not ledger.vjobs() and all(job.state is JobState.ENDED and not job.completing for job in jobs)

    def _check_over(self) -> None:
        world = self.world
        rest = [
            f"{vjob.display_id} {vjob.state} ({vjob.reason}), {world.rms._find(vjob.job_id).detail} "
            f"hold={world.rms._find(vjob.job_id).hold} gated={world.rms._find(vjob.job_id).gated}"
            for vjob in world.context.ledger.vjobs()
        ]
        assert self._over(), f"not over: {rest}; {world.cycle.report}"
        for _ in range(4):
            self._tick(30.0)
        ledger = world.context.ledger
        assert ledger.plans.open_steps() == []
        assert ledger.plans.running() == []
        assert world.leftovers() == []
        assert world.cycle.report.problems == []
        assert ledger.vms() == []
        self.watch.fits()
        for job in world.rms._jobs.values():
            if job.request.partition in ("vjob", "urgent") and job.job_id not in self.cancelled:
                assert job.detail in ("COMPLETED", "TIMEOUT"), f"job {job.display_id} ended as {job.detail}"
                assert self.watch.begun.get(job.job_id), f"job {job.display_id} ended and never ran"

    def _decide(self, **changes: Any) -> None:
        """From now on, by these settings; its engine, if it lives, is another one."""
        decision = self.world.settings.decision.model_copy(update=changes)
        self.world.settings = self.world.settings.model_copy(update={"decision": decision})
        object.__setattr__(self.world.context, "settings", self.world.settings)  # as if it had been started anew

    # -- what there is -------------------------------------------------------------------------------------------

    def _vjob(self, number: int, *states: VJobState) -> VJobRow | None:
        found = [vjob for vjob in self.world.context.ledger.vjobs() if not states or vjob.state in states]
        return found[number % len(found)] if found else None

    def _node(self, number: int) -> str:
        names = list(self.world.sizes)
        return names[number % len(names)]

    # -- users ---------------------------------------------------------------------------------------------------

    def _size(self, dice: tuple[int, int, int, int]) -> dict[str, object]:
        vms, cpus, memory_mib = 1 + dice[0] % 3, 1 + dice[1] % 2, _MEMORY_MIB[dice[2] % len(_MEMORY_MIB)]
        uneven = vms > 1 and cpus > 1 and dice[3] // 48 % 3 == 2
        return {
            "vms": vms,
            "cpus": cpus,
            "memory_mib": memory_mib,
            "small": (1, memory_mib // 2) if uneven else (0, 0),
            "partition": "urgent" if dice[3] % 4 == 0 else "vjob",
            "time_limit_s": (3600.0, 86400.0, 86400.0, 7 * 86400.0)[dice[3] // 4 % 4],
            "priority": 1 + dice[3] // 16 % 3,
        }

    def _submit(self, dice: tuple[int, int, int, int]) -> str:
        size = self._size(dice)
        job = self.world.submit(**size)  # type: ignore[arg-type]
        if self._observed:
            for index in range(int(size["vms"])):  # type: ignore[call-overload]
                memory_mib = size["small"][1] if index > 0 else 0  # type: ignore[index]
                self._need(vm_name(job, index), memory_mib or int(size["memory_mib"]), dice[index % 4])  # type: ignore[call-overload]
        return f"{job} {size}"

    def _grow(self, dice: tuple[int, int, int, int]) -> str | None:
        vms = self.world.context.ledger.live_vms()
        if not vms:
            return None
        vm = vms[dice[0] % len(vms)]
        return self._need(vm.name, self.world.context.ledger.vjob(vm.job_id).geometry.memory_mib_of(vm.idx), dice[1])

    def _need(self, vm: str, size_mib: int, dice: int) -> str:
        """From now on a VM needs some eighths of its memory."""
        needs_mib = size_mib * (1 + dice % 8) // 8
        self.world.hypervisor.set_working_set(vm, needs_mib)
        return f"{vm} needs {needs_mib} of {size_mib} MiB"

    def _array(self, dice: tuple[int, int, int, int]) -> str:
        size = {
            **self._size(dice),
            "vms": 1,
            "small": (0, 0),
            "array": range(2 + dice[0] % 3),
            "array_limit": dice[1] % 3,
        }
        return f"{self.world.submit(**size)} {size}"  # type: ignore[arg-type]

    def _cancel(self, dice: tuple[int, int, int, int]) -> str | None:
        if (vjob := self._vjob(dice[0])) is None:
            return None
        self.cancelled.add(vjob.job_id)
        self.world.rms.cancel(vjob.job_id)
        return vjob.display_id

    def _requeue(self, dice: tuple[int, int, int, int]) -> str | None:
        return self._scontrol(self._vjob(dice[0]), self.world.rms.requeue_by_admin)

    def _hold(self, dice: tuple[int, int, int, int]) -> str | None:
        return self._scontrol(self._vjob(dice[0]), self.world.rms.user_hold)

    def _release(self, dice: tuple[int, int, int, int]) -> str | None:
        return self._scontrol(self._vjob(dice[0]), self.world.rms.release)

    def _slurm_suspend(self, dice: tuple[int, int, int, int]) -> str | None:
        return self._scontrol(self._vjob(dice[0], S.RUNNING), self.world.rms.suspend)

    def _slurm_resume(self, dice: tuple[int, int, int, int]) -> str | None:
        return self._scontrol(self._vjob(dice[0], S.SLEEPING), self.world.rms.resume)

    def _scontrol(self, vjob: VJobRow | None, act: Callable[[int], object]) -> str | None:
        if vjob is None:
            return None
        calls = len(self.world.rms.calls)
        try:
            act(vjob.job_id)
        except (RefusedError, NotFoundError) as error:
            return f"refused: {error}"
        finally:
            del self.world.rms.calls[calls:]
        return vjob.display_id

    def _suspend(self, dice: tuple[int, int, int, int]) -> str | None:
        return self._ask(self._vjob(dice[0], S.RUNNING), K.SUSPEND)

    def _resume(self, dice: tuple[int, int, int, int]) -> str | None:
        return self._ask(self._vjob(dice[0], S.SLEEPING), K.RESUME)

    def _migrate(self, dice: tuple[int, int, int, int]) -> str | None:
        return self._ask(self._vjob(dice[0], S.RUNNING), K.MIGRATE)

    def _ask(self, vjob: VJobRow | None, kind: OperationKind) -> str | None:
        if vjob is None or self.world.cycle.seen is None or self.world.life.dead:
            return None
        self.world.ask(vjob.job_id, kind)
        return vjob.display_id

    # -- operators and neighbours --------------------------------------------------------------------------------

    def _drain(self, dice: tuple[int, int, int, int]) -> str:
        self.world.rms.set_node(self._node(dice[0]), draining=True, reason="a new fan")
        return self._node(dice[0])

    def _undrain(self, dice: tuple[int, int, int, int]) -> str:
        self.world.rms.set_node(self._node(dice[0]), draining=False, reason="")
        return self._node(dice[0])

    def _native(self, dice: tuple[int, int, int, int]) -> str:
        duration_s = 120.0 + 3 * dice[1]
        node = self._node(dice[0])
        cpus, memory_mib = self.world.sizes[node]
        job = self.world.rms.submit(
            partition="plain", node=node, cpus=cpus, memory_mib=memory_mib, time_limit_s=duration_s
        )
        return f"{job} on {node} for {duration_s:.0f} s"

    def _lose_node(self, dice: tuple[int, int, int, int]) -> str:
        node = self._node(dice[0])
        self.world.kill_node(node, slurm_notices=dice[1] % 2 == 0)
        return node

    def _revive_node(self, dice: tuple[int, int, int, int]) -> str | None:
        dead = sorted(self.world._dead_nodes)
        if not dead:
            return None
        self._revive(dead[dice[0] % len(dead)])
        return dead[dice[0] % len(dead)]

    def _revive(self, node: str) -> None:
        """Booted again: Slurm ends what it believed to run there."""
        if node in self.world._dead_nodes:
            self.world.rms.lose_node(node)
            self.world.revive_node(node)

    def _kill_engine(self, dice: tuple[int, int, int, int]) -> str:
        life = self.world.life
        life._kill_at = life.instants + 1 + dice[0] % 60
        return f"at instant {life._kill_at}"

    def _silence(self, dice: tuple[int, int, int, int]) -> str | None:
        neighbours = self.world.neighbours
        names = sorted(neighbours.calls)
        if not neighbours.over() or not names:
            return None
        name = names[dice[0] % len(names)]
        ways = [way for way in Way if way is not Way.BROKEN_OFF or name.startswith("hypervisor")]
        first = neighbours.calls[name] + 1 + dice[1] % 5
        neighbours.silence = Silence(name, first, (1, 4, 12, 40)[dice[2] % 4], ways[dice[3] % len(ways)])
        return str(neighbours.silence)

    def _fail(self, dice: tuple[int, int, int, int]) -> str:
        method = ("boot", "save", "restore", "migrate")[dice[0] % 4]
        self.world.hypervisor.fail_next(method, OperationFailedError(f"{method} fails"))
        return method

    def _fail_pause(self, dice: tuple[int, int, int, int]) -> str:
        method = ("pause", "unpause")[dice[0] % 2]
        self.world.hypervisor.fail_next(method, OperationFailedError(f"{method} fails"))
        return method

    def _rouse(self, dice: tuple[int, int, int, int]) -> str | None:
        """Somebody lets a VM run that is paused."""
        vjob = self._vjob(dice[0], S.PAUSED)
        vms = self.world.context.ledger.vms(vjob.job_id) if vjob else []
        for vm in vms[dice[1] % len(vms) :] if vms else []:
            guest = self.world.hypervisor.machines.vms[vm.host].get(vm.name)
            if guest is not None and not guest.job_running and len(self.world.hypervisor.where(vm.name)) == 1:
                self.world.hypervisor.machines.become(vm.host, vm.name, VMPower.RUNNING)
                self.watch.roused[vm.name] = self.world.time
                return vm.name
        return None

    def _wake(self, dice: tuple[int, int, int, int]) -> str | None:
        if dice[1] % 2:
            return self._scontrol(self._vjob(dice[0], S.PAUSED), self.world.rms.resume)
        return self._ask(self._vjob(dice[0], S.PAUSED), K.UNPAUSE)

    def _save_paused(self, dice: tuple[int, int, int, int]) -> str | None:
        return self._ask(self._vjob(dice[0], S.PAUSED), K.SUSPEND)

    def _limit(self, dice: tuple[int, int, int, int]) -> str:
        self._decide(pause_limit_s=(0.0, *_PAUSE_LIMITS_S)[dice[0] % 4])
        return str(self.world.settings.decision.pause_limit_s)

    def _load(self, dice: tuple[int, int, int, int]) -> str | None:
        vms = self.world.context.ledger.live_vms()
        if not vms:
            return None
        vm = vms[dice[0] % len(vms)].name
        self.world.hypervisor.set_demand(vm, dice[1] % 5 / 2)
        return f"{vm} {dice[1] % 5 / 2}"

    def _preemption(self, dice: tuple[int, int, int, int]) -> str:
        name, mode = ("vjob", "urgent")[dice[0] % 2], ("OFF", "REQUEUE", "SUSPEND")[dice[1] % 3]
        self._set_mode(name, mode)
        return f"{name} {mode}"

    def _set_mode(self, name: str, mode: str) -> None:
        partitions = self.world.rms.partitions
        partitions[name] = replace(partitions[name], preempt_mode=mode)

    def _pause(self, _: tuple[int, int, int, int]) -> str:
        self.world.alive(lambda: self.world.context.ledger.plans.set_pause("root"))
        return ""

    def _unpause(self, _: tuple[int, int, int, int]) -> str:
        self.world.alive(lambda: self.world.context.ledger.plans.clear_pause())
        return ""

    def _wait(self, dice: tuple[int, int, int, int]) -> str:
        self._due += 600.0 * (1 + dice[0] % 3)
        return ""
