"""A simulated cluster with engines on two hosts, of which one leads: to be killed, stopped, cut off, and watched.

All goes on in one thread. An engine that is stopped keeps its place on the stack, in the middle of whatever it was
doing, while the others live on; then it is let go on there. What hypervisors were doing for an engine that is stopped
or dead they end by themselves. A journal says what all of them did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from journal.journal import Act, Journal
from scenarios.engine_process import Process
from scenarios.interleaved import AtOnce, InterleavedWorld, one_thread
from scenarios.world import KilledError

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.simulated.ensemble import SimulatedEnsemble
from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.errors import LedgerUnavailableError, RmspluginError
from rmsplugin.model.vm_names import parse_vm_name

HOSTS = ("c1", "c2")
#: Seconds of a step of time: small where anything is wrong.
_STEP_S, _LONG_STEP_S = 0.5, 2.0
#: Whatever the fault, somebody leads within so many seconds.
_PATIENCE_S = 3000.0


@contextmanager
def in_one_thread() -> Iterator[None]:
    """As ``one_thread``, and a takeover asks nodes one after the other, too."""
    with one_thread(), mock.patch("rmsplugin.engine.turn.ThreadPoolExecutor", AtOnce):
        yield


class ControllersWorld(InterleavedWorld):
    """A world with two controllers. Its engine is the one that leads; the one that led last, if none does."""

    def __init__(self, directory: Path, dice: Random, **options: Any) -> None:
        self.shared = directory / "shared" / "groups" / "all"
        self.processes: dict[str, Process] = {}
        self.ended_with: list[str] = []  # what leaders said that ended by themselves
        self.asked_by: dict[tuple[str, str], tuple[Process, Act]] = {}  # by method and VM
        #: By call and whether before it, during it or after it: how long its engine is stopped there, next time.
        self.halts: dict[tuple[str, str], float] = {}
        #: After how many more acts an engine is stopped, before or after the next, and for how long.
        self.halt_at: tuple[int, str, float] | None = None
        self.heard_by: dict[str, str] = {}  # nodes that answer one host only
        self.mute_until: dict[str, float] = {}  # kinds of neighbours that are silent for all
        self.unanswered: set[str] = set()  # kinds of neighbours that do one act more, and do not say so
        self.hangs_until = self.fails_until = 0.0  # the shared directory
        #: Until when munge checks nothing for engines, and no sign of life of a wrapper comes.
        self.deaf_until = self.unheard_until = 0.0
        #: Lets the cluster live on for some seconds.
        self.lives: Callable[[float], object] = self.tick
        self._all: list[Process] = []
        self._agenda: list[tuple[float, Callable[[], object]]] = []
        self._alone: dict[tuple[str, str], float] = {}  # what hypervisors go on with by themselves, and until when
        self._runs: Process | None = None  # whose code is being executed
        self.booted_when_stopped = ""  # the node that loses power when an engine is stopped next, and comes up anew
        self.stood_still_s = 0.0  # for how long engines that go on later began nothing
        super().__init__(directory, dice, **options)

    def now(self) -> float:
        """Seconds that pass."""
        return self.time

    # -- processes -----------------------------------------------------------------------------------------------

    def start_engine(self, kill_at: int | None = None) -> None:
        """Wait until an engine leads."""
        if not self.processes:
            self._set_up()
        end = self.time + _PATIENCE_S
        while self.life.dead or not hasattr(self, "context"):
            assert self.time < end, f"nobody leads: {self.ended_with}"
            self._advance(_STEP_S)

    def _set_up(self) -> None:
        self.ensemble = SimulatedEnsemble(self.now)
        self.journal = Journal(self.now)
        machines = self.hypervisor.machines
        machines.owned = set()
        for method in ("place", "stand_still", "become", "remove"):
            _after(machines, method, lambda node, vm, *_: self._note_vm(node, getattr(vm, "name", vm)))
        _before(self.hypervisor, "settle", self._note_settled)
        _before(self.hypervisor, "kill_vm", lambda vm: [self._note_killed(node, vm) for node in machines.where(vm)])
        _before(self.hypervisor, "crash_node", lambda node: [self._note_killed(node, vm) for vm in machines.vms[node]])
        for host in HOSTS:
            self._begin_process(host)

    def _begin_process(self, host: str) -> None:
        self.processes[host] = Process(self, host, len(self._all) + 1)
        self._all.append(self.processes[host])

    def begin(self, process: Process) -> None:
        """Have a process lead that has won; if it cannot, it ends."""
        before, self._runs = self._runs, process
        try:
            process.lead()
        except KilledError:
            process.dead = True
        except RmspluginError as error:
            process.dead = True
            self.ended_with.append(f"{process.name}: {error}")
        finally:
            self._runs = before

    def face(self, process: Process) -> None:
        """From now on this is the engine of the world."""
        self.context, self.executor, self.memory_care = process.context, process.executor, process.memory_care
        self.placing, self.switch, self.cycle = process.placing, process.switch, process.cycle
        self.life, self._queue = process, process.queue

    def leader(self) -> Process | None:
        """The process that leads and lives, or None."""
        return self.life if isinstance(self.life, Process) and not self.life.dead else None

    def other(self, process: Process) -> Process:
        """The process on the other host."""
        return next(self.processes[host] for host in HOSTS if host != process.host)

    def alive(self, act: Callable[[], object]) -> None:
        """See World."""
        life, before = self.life, self._runs
        self._runs = life if isinstance(life, Process) else None
        try:
            act()
        except KilledError:
            life.dead = True
        finally:
            self._runs = before

    def close(self) -> None:
        """See World."""
        for process in self._all:
            process.dead = True
            if process.context is not None:
                for pool in process.executor.pools:
                    pool.shutdown(wait=True)
                process.context.ledger.close()

    # -- time ----------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """See World; processes renew their leases, end, and are started again."""
        self._advance(seconds)
        self._end_if_dead()
        super().pass_time(0.0)
        self._end_if_dead()

    def _end_if_dead(self) -> None:
        if self._runs is not None and self._runs.dead:
            raise KilledError

    def _advance(self, seconds: float) -> None:
        end = self.time + seconds
        while (left := end - self.time) > 1e-6:
            with self._time_lock:
                self.time += min(left, _LONG_STEP_S if self._all_is_well() else _STEP_S)
            self.life.changed()
            self._live()

    def _all_is_well(self) -> bool:
        processes = self.processes.values()
        wrong = self._agenda or self._alone or not self.ensemble.quorum
        return not wrong and self.leader() is not None and not any(p.dead or p.stopped for p in processes)

    def _live(self) -> None:
        due = [what for when, what in self._agenda if when <= self.time]
        self._agenda = [each for each in self._agenda if each[0] > self.time]
        for act in due:
            act()
        self.ensemble.pass_time()
        for host, process in list(self.processes.items()):
            process.campaign()
            if process.to_be_replaced():
                self._begin_process(host)
        self._test_hearing()
        self._end_what_goes_on_alone()

    def _test_hearing(self) -> None:
        """Each engine that runs tests its hearing, as its ears do."""
        self.wrappers_answer = self.time >= self.unheard_until
        why = "munged does not answer" if self.time < self.deaf_until else ""
        for process in self.processes.values():
            if process.context is not None and not (process.dead or process.stopped):
                hearing, now = process.context.hearing, process.context.clock.now()
                hearing.test_begins(now)
                hearing.test_ends(now, why)

        leader = self.leader()
        if leader is not None and not leader.stopped:
            self._give_signs_of_life()  # wrappers do not wait for the end of a cycle

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Do something after so long."""
        self._agenda.append((self.time + seconds, act))

    def _end_what_goes_on_alone(self) -> None:
        for key in list(self.hypervisor.actions.pending):
            process, _ = self.asked_by.get(key, (None, None))
            if process is None or not (process.dead or process.stopped):
                self._alone.pop(key, None)
                continue
            due = self._alone.setdefault(key, self.time + self.hypervisor.actions.durations_s.get(key[0], 0.0))
            # A leader that goes on in time has the answer then.
            if self.time >= due and (process.dead or not process.lease.held()):
                del self._alone[key]
                self.hypervisor.settle(key[1], succeed=self._dice.random() < 0.7)

    # -- faults --------------------------------------------------------------------------------------------------

    def stop(self, process: Process, seconds: float) -> None:
        """SIGSTOP, now, while its code is executed; SIGCONT after so long. It may end at once then, or go on first."""
        process.stopped = True
        if node := self.booted_when_stopped:
            self.booted_when_stopped = ""
            self.hypervisor.crash_node(node)
            self.hypervisor.set_reachable(node, True)
            self.hypervisor.machines.boot_anew(node)
        self._meanwhile(process, seconds)
        process.stopped = False
        if process.dead or (not process.lease.held() and self._dice.random() < 0.3):
            process.dead = True
            raise KilledError

    def halt(self, process: Process, call: str, when: str) -> None:
        """Stop the process here, if that is planned."""
        seconds = self.halts.pop((call, when), 0.0)
        if self.halt_at is not None and self.halt_at[1] == when:
            left, _, later = self.halt_at
            self.halt_at = (left - 1, when, later) if left else None
            seconds = seconds if left else max(seconds, later)
        if seconds > 0:
            self.stop(process, seconds)

    def plan_halt(self, call: str, when: str, seconds: float) -> None:
        """Have the engine stopped that makes this call next: ``before`` it, ``during`` it or ``after`` it."""
        self.halts[call, when] = seconds
        if when == "during":

            def halt() -> None:
                if self._runs is not None:
                    self.halt(self._runs, call, when)

            self.hypervisor.hook_next(call, Point.DURING, halt)

    def _meanwhile(self, process: Process, seconds: float) -> None:
        """Live on without this process, whose code waits."""
        kept = self._depth, self._in_cycle, self._runs
        self._depth, self._in_cycle, self._runs = 0, False, None
        end = self.time + seconds
        while (left := end - self.time) > 1e-6 and not process.dead:
            leader = self.leader()
            if leader is None or leader is process or leader.stopped:
                self._advance(min(_STEP_S, left))
            else:
                self.lives(min(1.0, left))
        self._depth, self._in_cycle, self._runs = kept

    def reach_directory(self, process: Process) -> None:
        """Wait for the shared directory, as a process does whose mount is hard. Raises where it gives an error."""
        while (self.time < self.hangs_until or "directory" in process.cut) and not process.dead:
            self._meanwhile(process, _STEP_S)
        if process.dead:
            raise KilledError
        if self.time < self.fails_until:
            raise LedgerUnavailableError("the ledger cannot be used now: disk I/O error")

    def stand_still(self, process: Process) -> None:
        """Live on for a moment in which this process begins nothing, for its lease has run out."""
        self.stood_still_s += _STEP_S
        self._meanwhile(process, _STEP_S)
        if process.dead:
            raise KilledError

    def silent(self, kind: str) -> bool:
        """Whether neighbours of this kind answer nobody."""
        return self.time < self.mute_until.get(kind, 0.0)

    def mend(self) -> None:
        """End all trouble."""
        for act in [act for _, act in self._agenda]:
            act()
        self._agenda.clear()
        self.mute_until.clear()
        self.unanswered.clear()
        self.heard_by.clear()
        self.halts.clear()
        self.halt_at = None
        self.hangs_until = self.fails_until = 0.0
        self.ensemble.quorum = True
        for process in self.processes.values():
            process.halts.clear()
            process._kill_at = None

    # -- the journal ---------------------------------------------------------------------------------------------

    def _note_vm(self, node: str, vm: str) -> None:
        guest, parsed = self.hypervisor.machines.vms[node].get(vm), parse_vm_name(vm)
        if parsed is not None:
            now = "gone" if guest is None else "running" if guest.power is VMPower.RUNNING else "standing"
            self.journal.vm(parsed[0], vm, node, now)

    def _note_killed(self, node: str, vm: str) -> None:
        if (parsed := parse_vm_name(vm)) is not None:
            self.journal.vm(parsed[0], vm, node, "killed")

    def _note_settled(self, vm: str, *, succeed: bool) -> None:
        key = next(key for key in self.hypervisor.actions.pending if key[1] == vm)
        if key in self.asked_by:
            self.asked_by[key][1].ended(self.time, "done" if succeed else "failed")


def _after(owner: object, method: str, tell: Callable[..., object]) -> None:
    act = getattr(owner, method)

    def wrapped(*words: Any, **options: Any) -> Any:
        answer = act(*words, **options)
        tell(*words)
        return answer

    setattr(owner, method, wrapped)


def _before(owner: object, method: str, tell: Callable[..., object]) -> None:
    act = getattr(owner, method)

    def wrapped(*words: Any, **options: Any) -> Any:
        tell(*words, **options)
        return act(*words, **options)

    setattr(owner, method, wrapped)
