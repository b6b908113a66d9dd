"""The process of an engine that may lead, in a simulated world: its lease, its ledger, and its ways to its neighbours.

It is put together as the daemon does it: an election, a lease that is asked before each act, nodes that are made to
obey, a ledger of each epoch on a shared directory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from journal.journal import Act
from scenarios.interleaved import AtOnce, Later
from scenarios.world import KilledError, Life, Mortal, MortalLedger

from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.lease.clocked import ClockedLease
from rmsplugin.engine.capacity.memory_care import MemoryCare
from rmsplugin.engine.context.acts import Acts, only_led
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.context.steady_clock import SteadyClock
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.execute.switch import Switch
from rmsplugin.engine.ledger.takeover import take_over
from rmsplugin.engine.turn import obeyed_by_all
from rmsplugin.errors import DeposedError, RmspluginError, UnavailableError

if TYPE_CHECKING:
    from scenarios.controllers import ControllersWorld

SESSION_S, ACT_S = 6.0, 10.0
#: So long an engine stands still at most whose lease has run out, and is not lost.
STILL_S = 30.0
#: Seconds after which a process that has ended is started again.
RESTART_S = 5.0

_LOOKS = {
    *("host_info", "list_vms", "has_vm", "statistics", "template_key", "close"),
    *("stat", "verify", "verify_aside", "list_files", "space", "check", "mounts", "reach", "await_guest"),
    *("snapshot", "leaf_switches", "pulse", "job", "jobs", "ended", "batch_script", "geometry"),
    *("wait_ready", "used", "script_ended"),
}
_OF_VM = re.compile(r"vjob(\d+)-\d+")


class Process(Life):
    """The life of one engine's process on a host; it stands by at first."""

    def __init__(self, world: ControllersWorld, host: str, number: int) -> None:
        super().__init__(None)
        self.world, self.host, self.name = world, host, f"{host}-{number}"
        self.stopped = False
        self.cut: set[str] = set()  # kinds of neighbours that do not hear it, nor it them
        self.halts: dict[int, float] = {}  # by instant, how many seconds it is stopped there
        self.queue: list[Callable[[], object]] = []
        self.tree = world.ensemble.open(SESSION_S)
        candidate = Candidate(self.name, "the shared directory", SESSION_S, ACT_S)
        self.lease = ClockedLease(Elected(self.tree, "/rmsplugin", candidate, world.now), world.now)
        self.elected = self.lease._coordination
        self.epoch = 0
        self.asked_at = 0.0  # when the lease was last asked whether it may act
        self.until = 0.0  # until when it might, by that look
        self.held_at = 0.0  # when the lease was last renewed
        self.context: Context | None = None
        self._dead_since: float | None = None

    def step(self) -> None:
        """See Life; it may be stopped here, or wait for somebody who does not answer."""
        before = self.instants
        super().step()
        if self.instants != before and (seconds := self.halts.pop(self.instants, 0.0)):
            self.world.stop(self, seconds)

    def lead(self) -> None:
        """Begin to lead, with the ledger of the one before."""
        world = self.world
        self.epoch = self.lease.epoch
        self._note_lead()
        acts = self.acts = Acts(
            self._may_act, self._deposed, lost=self.lease.lost, pause=lambda: world.stand_still(self)
        )
        steady = SteadyClock(wall=world.wall, monotonic=world.now)
        rms, agents = (
            self._led("rms", world.rms, acts),
            self._led("agent", world.nodes.of_epoch(self.epoch, acts.one), acts),
        )
        obeyed_by_all(world.settings, rms, agents)
        world.reach_directory(self)
        path = take_over(world.shared, self.epoch, leads=self.lease.held)
        ledger = SharedLedger(path, clock=steady.now, exclusive=True)
        steady.not_before(ledger.newest_time())
        self.context = Context(
            settings=world.settings,
            ledger=ledger,
            rms=rms,
            hypervisor=self._led("hypervisor", world.hypervisor, acts),
            nodes=agents,
            guests=self._led("guests", world.guests, acts),
            root_public_key="ssh-ed25519 AAAA",
            epoch=self.epoch,
            acts=acts,
            clock=Clock(steady.now, world.pass_time, world._wait, steady.ahead_s, steady.problem),
        )
        self.executor = Executor(self.context, workers=world.workers, on_end=self._operation_ended)
        self.executor._groups = {name: Later(self.queue) for name in self.executor._groups}
        self.executor._aborts = AtOnce(1)
        self.memory_care = MemoryCare(self.context)
        self.placing = Placing(self.context, self.executor, self.memory_care)
        self.switch = Switch(self.context, self.executor, self.placing, self.memory_care)
        self.cycle = Cycle(self.context, self.memory_care, self.executor, self.placing, self.switch, world)
        ledger.life = self
        world.face(self)
        self.executor.adopt()

    def _led(self, kind: str, adapter: Any, acts: Acts) -> Any:
        journaled = Journaled(kind, adapter, self)
        return only_led(Mortal(kind, journaled, self, self.world.neighbours), acts)

    def _may_act(self) -> bool:
        self.asked_at, self.until = self.world.time, self.lease.held_until()
        return self.lease.held()

    def _deposed(self, why: str) -> None:
        self.dead = True
        raise KilledError(why)

    def _operation_ended(self) -> None:
        self.switch.advance()

    # -- its thread that looks after the lease -------------------------------------------------------------------

    def campaign(self) -> None:
        """Renew the lease, or try to get it; a leader that has lost it, or stood still for long, ends."""
        if self.dead or self.stopped:
            return
        self.tree.live()
        if self.epoch:
            try:
                self.lease.renew()
                self._note_lead()
            except RmspluginError:
                self.dead = self.lease.lost() or self.world.time - self.held_at >= STILL_S
            return
        with suppress(UnavailableError):
            self.lease.acquire()
        if self.lease.held():
            self.world.begin(self)

    def _note_lead(self) -> None:
        self.held_at = self.world.time
        self.world.journal.lead(self.name, self.epoch, self.elected.valid_until())

    def to_be_replaced(self) -> bool:
        """Whether it has been dead for so long that it is started again."""
        if self.dead and self._dead_since is None:
            self._dead_since = self.world.time
        return self._dead_since is not None and self.world.time >= self._dead_since + RESTART_S


class SharedLedger(MortalLedger):
    """The ledger of a leader on the shared directory, which may be silent, or fail."""

    @contextmanager
    def _write(self):  # type: ignore[no-untyped-def]
        if self.life is not None:
            self.life.world.reach_directory(self.life)  # type: ignore[attr-defined]
        with super()._write() as database:
            yield database


class Journaled:
    """An adapter of one engine: the gate of the nodes, faults of its ways, and the journal of what it does there."""

    def __init__(self, kind: str, adapter: Any, process: Process) -> None:
        self._kind, self._adapter, self._process = kind, adapter, process

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._adapter, name)
        if not callable(method):
            return method

        def call(*words: Any, **options: Any) -> Any:
            if name in _LOOKS:
                self._arrive(words)
                return method(*words, **options)
            return self._act(name, method, words, options)

        return call

    def _arrive(self, words: tuple[Any, ...]) -> None:
        """Raise if the neighbour is not reached, or lets no deposed engine pass."""
        world, process = self._process.world, self._process
        if self._kind in process.cut or world.silent(self._kind):
            raise UnavailableError(f"{self._kind} does not answer {process.name}")
        nodes = [word for word in words if isinstance(word, str) and word in world.sizes]
        for node in nodes if self._kind in ("agent", "hypervisor") else ():
            if world.heard_by.get(node, process.host) != process.host:
                raise UnavailableError(f"{node} does not answer {process.name}")
        if self._kind == "hypervisor":
            for node in nodes:
                epochs = world.hypervisor.machines.epochs
                if process.epoch < epochs.get(node, 0):
                    raise DeposedError(f"{node}: the turn of this engine (epoch {process.epoch}) is over")
                self._show(node)
                epochs[node] = process.epoch

    def _show(self, node: str) -> None:
        """Show the node that the engine leads, if it asks for that."""
        self._process.world.nodes.of_epoch(self._process.epoch, self._process.acts.one)._show(node)

    def _act(self, name: str, method: Callable[..., Any], words: tuple[Any, ...], options: Any) -> Any:
        world, process = self._process.world, self._process
        vm, vjob = _whom(self._kind, words)
        nodes = [word for word in words if isinstance(word, str) and word in world.sizes]
        act = world.journal.act(process.name, process.epoch, self._kind, name, vm, vjob, nodes)
        act.fields["asked"] = process.asked_at
        world.halt(process, name, "before")
        while self._kind == "rms" and world.time >= process.until:
            self._not_begun(act)
        if self._kind in world.unanswered and world.silent(self._kind):
            world.unanswered.discard(self._kind)
            self._carried_out(act, name, vm, lambda: method(*words, **options))
        try:
            self._arrive(words)
            for node in nodes if self._kind == "agent" else ():
                self._show(node)  # one that does not lead ends here: nothing was begun
        except DeposedError:
            act.refused(world.time)
            raise
        except RmspluginError:
            act.ended(world.time, "unheard")
            raise
        return self._carried_out(act, name, vm, lambda: method(*words, **options))

    def _not_begun(self, act: Act) -> None:
        """As a command of Slurm's that looks at the clock and is too late: its engine asks its lease anew."""
        try:
            with self._process.acts.one():
                pass
        except BaseException:
            act.refused(self._process.world.time)
            raise

    def _carried_out(self, act: Act, name: str, vm: str, do: Callable[[], Any]) -> Any:
        world = self._process.world
        act.accepted(world.time)
        if self._kind == "hypervisor" and vm:
            world.asked_by[name, vm] = (self._process, act)
        try:
            answer = do()
        except RmspluginError as error:
            if isinstance(error, DeposedError) or "the turn of the engine" in str(error):
                act.refused(world.time)
            elif act.fields["outcome"] == "done":
                return None  # its engine was stopped meanwhile, and the hypervisor has ended it
            elif (name, vm) not in world.hypervisor.actions.pending:
                act.ended(world.time, "failed")
            raise
        act.ended(world.time, "done")
        world.halt(self._process, name, "after")
        return answer


def _whom(kind: str, words: tuple[Any, ...]) -> tuple[str, int | None]:
    """The VM and the vjob that an act concerns."""
    if kind == "rms":
        return "", next((word for word in words if isinstance(word, int)), None)
    for word in words:
        if found := _OF_VM.fullmatch(str(getattr(word, "name", word))):
            return found[0], int(found[1])
    return "", None
