"""What has to hold of the simulated world at any time (I1-I5), and what has to hold once all trouble has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from scenarios.world import World

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import ROOM_NAME, JobState
from rmsplugin.engine.assess.assess import Among
from rmsplugin.engine.assess.members import KeptMembers
from rmsplugin.engine.ledger.rows import StepState, VJobRow
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_names import parse_vm_name

S = VJobState

#: A step that did not begin within so long, and three times what its plan was expected to take, is skipped (switch.py);
#: it is noticed by the next cycle, which may come late.
_STEP_BEGINS_S = 600.0 + 300.0
#: What the engine may ask of Slurm for a job.
_ASKED = {"open_gate", "close_gate", "hold", "suspend", "resume", "requeue", "cancel", "extend_room", "split"}
#: States of a job in Slurm that fit that of a vjob with which nobody does anything.
_FITTING = {
    S.WAITING: {JobState.PENDING},
    S.RUNNING: {JobState.RUNNING},
    S.PAUSED: {JobState.SUSPENDED, JobState.PENDING},
    S.SLEEPING: {JobState.SUSPENDED, JobState.PENDING},
    S.TERMINATED: {JobState.ENDED},
}


class Watch:
    """Watches a world from its beginning; breaches are AssertionErrors."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._booted: Counter[str] = Counter()  # by VM
        self._killed: Counter[int] = Counter()  # by job, how many of its VMs died by another hand than the engine's
        self.begun: dict[int, set[int]] = {}  # by job, the boots in which its script began
        self._dead: set[tuple[str, int]] = set()  # VMs that were killed, and in which boot
        self.roused: dict[str, float] = {}  # VMs that somebody let run, and when
        self._wrap("boot", self._boots)
        self._wrap("kill_vm", self._dies)
        self._wrap("crash_node", lambda node: [self._dies(vm) for vm in list(world.hypervisor.machines.vms[node])])

    def _wrap(self, method: str, before: Callable[..., object]) -> None:
        act = getattr(self._world.hypervisor, method)

        def wrapped(*words: Any, **options: Any) -> Any:
            before(*words)
            return act(*words, **options)

        setattr(self._world.hypervisor, method, wrapped)

    def _boots(self, node: str, spec: Any) -> None:
        if not self._world.hypervisor.where(spec.name):
            self._booted[spec.name] += 1

    def _dies(self, vm: str) -> None:
        parsed = parse_vm_name(vm)
        if parsed is not None and self._world.hypervisor.where(vm):
            self._killed[parsed[0]] += 1
            self._dead.add((vm, self._booted[vm]))

    # -- wrappers ------------------------------------------------------------------------------------------------

    def wrappers(self) -> None:
        """The wrapper of each running job attaches; where the script has not begun it does (I5)."""
        world = self._world
        if world.life.dead:
            return
        for vjob in world.context.ledger.vjobs():
            job = world.rms._find(vjob.job_id)
            if vjob.state is not S.RUNNING or job.state is not JobState.RUNNING or vjob.finished:
                continue
            boot, known = self._booted[f"vjob{vjob.job_id}-0"], self.begun.setdefault(vjob.job_id, set())
            if vjob.script_started or (f"vjob{vjob.job_id}-0", boot) in self._dead:
                continue
            assert boot not in known, f"I5: the script of {vjob.display_id} would begin twice in one VM"
            known.add(boot)
            world.alive(lambda vjob=vjob: world.context.ledger.update_vjob(vjob.job_id, script_started=True))
            if world.life.dead:  # it was not told that it may begin
                known.discard(boot)
                return
            assert len(known) == vjob.losses + 1, f"I5: {vjob.display_id} begins {len(known)} times, {vjob.losses} lost"

    def runs(self, vjob: VJobRow) -> bool:
        """Whether its script computes: it has begun in these VMs, all of which run."""
        vms = self._world.context.ledger.vms(vjob.job_id)
        boot = self._booted[f"vjob{vjob.job_id}-0"]
        return bool(vms) and boot in self.begun.get(vjob.job_id, ()) and all(self._power(vm.name) for vm in vms)

    def _power(self, vm: str) -> list[str]:
        machines = self._world.hypervisor.machines
        with machines.lock:
            return [node for node, vms in machines.vms.items() if vm in vms and vms[vm].power is VMPower.RUNNING]

    # -- at any time ---------------------------------------------------------------------------------------------

    def look(self) -> None:
        """All that holds at any time."""
        world = self._world
        assert world.hypervisor.violations == []
        for node, vms in world.hypervisor.machines.seen().items():
            firm = [guest.spec.memory_mib for guest in vms.values() if not guest.spec.bounded]
            bound = world.nodes.bounds.set.get(node, 0) if len(firm) < len(vms) else 0
            assert sum(firm) + bound <= world.sizes[node][1], f"I3: {sum(firm)} MiB on {node}, others may take {bound}"
            for vm in vms:
                assert len(self._power(vm)) <= 1, f"I1: {vm} runs on {self._power(vm)}"
        for vjob in world.context.ledger.vjobs():
            assert vjob.losses <= self._killed[vjob.job_id], f"{vjob.display_id} began anew, and no VM of it had died"
            if vjob.script_started and not vjob.finished and vjob.state in (S.RUNNING, S.PAUSED, S.SLEEPING):
                self._is_whole(vjob)

    def _is_whole(self, vjob: VJobRow) -> None:
        """I2: of each VM there is the VM, or its newest saved state, unless it was killed."""
        world = self._world
        if world.rms._find(vjob.job_id).state is JobState.ENDED:
            return
        for vm in world.context.ledger.vms(vjob.job_id):
            if world.hypervisor.where(vm.name) or (vm.name, self._booted[vm.name]) in self._dead:
                continue
            states = [
                found
                for (_, path), found in world.files.seen().items()
                if path.startswith(f"{world.context.settings.nodes.states}/{vm.name}.state")
                and found.complete
                and found.intact
            ]
            newest = world.hypervisor.serials.get(vm.name, 0)
            assert any(found.serial == newest for found in states), f"I2: {vm.name} is nowhere, and has no saved state"

    def look_when_settled(self) -> None:
        """What holds of vjobs on which nothing is under way, right after a cycle whose operations have all ended."""
        world = self._world
        if world.life.dead:
            return
        ledger, busy = world.context.ledger, world.executor.busy()
        running = {operation.job_id for operation in ledger.running_operations()}
        assert running <= busy, f"operations on {running - busy} are under way and nobody carries them out"
        for vjob in ledger.vjobs(ended=True):
            if vjob.job_id not in busy and not world.neighbours.broken_off:
                self._agrees(vjob)
        for step in ledger.plans.open_steps():
            plan = ledger.plans.plan(step.plan_id)
            assert plan is not None
            bound_s = _STEP_BEGINS_S + 3 * plan.estimate_s
            late = step.state is StepState.PLANNED and world.time - plan.time > bound_s
            assert not late, f"step {step} of {plan} is overdue"
        self._asks_only_for_its_own()
        self._assesses_as_anew()

    def _assesses_as_anew(self) -> None:
        """What is kept of VMs from assessment to assessment is what an engine that has just begun would find."""
        switch, seen = self._world.switch, self._world.cycle.seen
        if seen is None:
            return
        kept, found = switch._members, switch.assess(seen, ())
        switch._members = KeptMembers(self._world.context.settings)
        anew, switch._members = switch.assess(seen, ()), kept
        assert found == anew, "an assessment with what was kept differs from one without"
        queue = list(switch._queue.values())
        for number, vjob in enumerate(switch.assess(seen, queue).configuration.vjobs):
            if not vjob.in_transit:  # each with a node of its own; it is compared with an assessment of all
                nodes = list(seen.rms.nodes)
                switch.assess(seen, queue, Among({vjob.name}, {nodes[number % len(nodes)]}))

    def _agrees(self, vjob: VJobRow) -> None:
        """I4: all VMs of a vjob are in its state."""
        world = self._world
        for vm in world.context.ledger.vms(vjob.job_id):
            places, power = world.hypervisor.where(vm.name), self._power(vm.name)
            dead = (vm.name, self._booted[vm.name]) in self._dead
            if vjob.state is S.RUNNING and not dead:
                # With a destination in the ledger nobody who can be asked knows where it is.
                there = power == [vm.host] or (power and vm.destination)
                assert there, f"I4: {vm.name} of {vjob.display_id} (running on {vm.host}) is on {places}"
            elif vjob.state is S.PAUSED and not dead:
                there = places == [vm.host] or (places and vm.destination)
                assert there, f"I4: {vm.name} of {vjob.display_id} (paused on {vm.host}) is on {places}"
                unseen = world.cycle.seen is None or self.roused.get(vm.name, -1.0) >= world.cycle.seen.taken
                assert not power or unseen, f"I4: {vm.name} of {vjob.display_id}, which is paused, runs on {power}"
            elif vjob.state is S.SLEEPING:
                assert not places, f"I4: {vm.name} of {vjob.display_id}, which sleeps, is on {places}"

    def _asks_only_for_its_own(self) -> None:
        """I6: no job of a native partition is asked for."""
        native = {
            job.job_id
            for job in list(self._world.rms._jobs.values())
            if job.request.partition == "plain" and job.request.name != ROOM_NAME
        }
        touched = {number for what, number in self._world.rms.calls if what in _ASKED} & native
        assert not touched, f"I6: native jobs {touched} were touched"

    # -- at the end ----------------------------------------------------------------------------------------------

    def fits(self) -> None:
        """Slurm's books say of each vjob what the ledger says; nothing is open."""
        world = self._world
        for vjob in world.context.ledger.vjobs(ended=True):
            state = world.rms.job(vjob.job_id).state
            assert state in _FITTING[vjob.state], f"vjob {vjob.display_id} is {vjob.state}, its job {state}"
            if vjob.state is S.TERMINATED:
                assert len(self.begun.get(vjob.job_id, ())) <= vjob.losses + 1
