"""A large site: the real engine on simulated neighbours that are filled at once; real time, service and proposer."""

from __future__ import annotations

import asyncio
import threading
import time
import unittest.mock
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scenarios.world import AnsweringGuests

from bench.slurm_apart import SlurmApart
from rmsplugin.adapters.platform.base import KernelImage, VMSpec
from rmsplugin.adapters.rms.base import RmsNode, RmsPartition
from rmsplugin.adapters.simulated.hypervisor.files import SimulatedFiles
from rmsplugin.adapters.simulated.hypervisor.hypervisor import SimulatedHypervisor
from rmsplugin.adapters.simulated.nodes.agents import SimulatedNodes
from rmsplugin.adapters.simulated.rms.slurm import SimulatedRms
from rmsplugin.engine.assess.job_identity import script_digest
from rmsplugin.engine.capacity.memory_care import MemoryCare
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.decide.parameters import most_processes
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.execute.switch import Switch
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.serve.requests import Requests
from rmsplugin.engine.serve.service import Service
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.model.vm_names import vm_name
from rmsplugin.model.vm_phase import VMPhase
from rmsplugin.proposer.pool import Proposers
from rmsplugin.proposer.process import ProposerLimits
from rmsplugin.proposer.proposer import Proposed
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.settings import Settings

#: As nice as the engine: it is measured on machines that do other things, too.
_LIMITS = ProposerLimits(deadline_s=600, fallback_s=600, start_s=600, nice=0)
FRONT = "front"
MEMORY_MIB = 896  # of each VM; with its overhead one CPU's share of a node
WIDE = 16  # VMs of each vjob of the first quarter
_NODE_MIB_PER_CPU = 1024
_RUNS_S = 600.0  # the time that the running ones have run
_USER = {"user": "daemon", "uid": 1}


class Counted:
    """An adapter whose calls are counted by name, and their CPU seconds summed up: they are not the engine's."""

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter
        self.calls: Counter[str] = Counter()
        self.cpu_s = 0.0
        self.is_product = False  # it is the product's own: its CPU seconds are the engine's
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.adapter, name)

        def call(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return method(*arguments, **options)
            finally:
                with self._lock:
                    self.calls[name] += 1
                    self.cpu_s += 0.0 if self.is_product else time.thread_time() - began

        return call if callable(method) else method


class WithoutSolver:
    """Proposals of the real proposing process; without exact checks, where nothing has to move, no solver is asked."""

    def __init__(self, proposer: Proposers) -> None:
        self.proposer = proposer
        self.solver = False

    def propose(self, configuration: Configuration, parameters: ProposalParameters) -> Proposed:
        """See ``Proposes``."""
        if not self.solver:
            parameters = replace(parameters, decision=replace(parameters.decision, exact_checks=0))
        return self.proposer.propose(configuration, parameters)


class CountingLedger(Ledger):
    """Counts its transactions."""

    transactions = 0

    def _write(self):  # type: ignore[no-untyped-def]
        self.transactions += 1
        return super()._write()


class LargeSite:
    """``nodes`` full of ``running`` VMs, most of them vjobs of their own, and so many ``waiting`` vjobs of one VM."""

    def __init__(
        self,
        directory: Path,
        nodes: int,
        running: int,
        waiting: int,
        group_hosts: int | None = None,
        *,
        apart: bool = False,
        strewn: bool = False,
        rules: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Fill it.

        Args:
            directory: of the socket and the ledger.
            nodes: how many there are.
            running: VMs that run.
            waiting: vjobs of one VM that wait.
            group_hosts: hosts of each group; None: as the engine groups them by itself.
            apart: Slurm is a process of its own, whose texts the engine reads as at a site.
            strewn: the VMs of each vjob are on nodes of their own.
            rules: the site's placement rules, by name.
        """
        self.socket = str(directory / "engine.sock")
        self.settings = _settings(self.socket, nodes, group_hosts, rules or {})
        self._strewn = strewn
        cpus = running // nodes
        size = (cpus, cpus * _NODE_MIB_PER_CPU)
        self.durations_s: dict[str, float] = {}  # of the hypervisor's acting methods
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self._hypervisor = SimulatedHypervisor(
            dict.fromkeys(self.nodes, size),
            clock=time.time,
            sleep=time.sleep,
            files=SimulatedFiles(),
            durations_s=self.durations_s,
        )
        self._slurm = _slurm(self.nodes, size)
        self.guests = AnsweringGuests()
        self.rms, self.hypervisor = Counted(self._slurm), Counted(self._hypervisor)
        self.ledger = CountingLedger(directory / "ledger.sqlite")
        self.context = Context(
            settings=self.settings,
            ledger=self.ledger,
            rms=self.rms,  # type: ignore[arg-type]
            hypervisor=self.hypervisor,  # type: ignore[arg-type]
            nodes=SimulatedNodes(self._hypervisor.files),
            guests=self.guests,
            root_public_key="ssh-ed25519 AAAA",
        )
        self._fill(cpus, running, waiting)
        self.slurm_apart = SlurmApart(self._slurm) if apart else None
        if self.slurm_apart is not None:
            self.rms.adapter = self.slurm_apart.adapter()
            self.rms.is_product = True
        self.proposes = WithoutSolver(Proposers(_LIMITS, most_processes(self.settings)))
        self.executor = Executor(self.context, workers=self.settings.engine.workers, on_end=self._ended)
        self.memory_care = MemoryCare(self.context)
        self.placing = Placing(self.context, self.executor, self.memory_care)
        self.switch = Switch(self.context, self.executor, self.placing, self.memory_care)
        self.cycle = Cycle(self.context, self.memory_care, self.executor, self.placing, self.switch, self.proposes)
        self._serve()

    # -- what there is -------------------------------------------------------------------------------------------

    def _fill(self, per_node: int, running: int, waiting: int) -> None:
        now = float(int(time.time()))  # Slurm's times are whole seconds
        with self.ledger.transaction():
            with unittest.mock.patch.object(self._slurm, "_move_on"):  # once for all of them is enough
                for node in self.nodes:
                    self.rms.request_room(node, "vmhosts", time_limit_s=86400, time_min_s=86400)
            number = 0
            while number < running:
                vms = WIDE if number < running // 4 and number + WIDE <= running else 1
                job_id = self._submit(now - 2 * _RUNS_S, vms)
                self._enter(job_id, vms, VJobState.RUNNING, now - 2 * _RUNS_S, now - _RUNS_S)
                places = [number + each for each in range(vms)]
                at = [place % len(self.nodes) if self._strewn else place // per_node for place in places]
                self._run(job_id, [self.nodes[each] for each in at], number, now - _RUNS_S)
                number += vms
            for _ in range(waiting):
                self._enter(self._submit(now, 1), 1, VJobState.WAITING, now, now)

    def _submit(self, since: float, vms: int) -> int:
        job_id = self._slurm.submit(_script(vms), cpus=1, memory_mib=1, time_limit_s=86400.0, **_USER)
        job = self._slurm._jobs[str(job_id)]
        job.submit_time = job.since = since
        return job_id

    def _enter(self, job_id: int, vms: int, state: VJobState, submitted: float, since: float) -> None:
        """Into the ledger, as if the engine had met it before."""
        geometry, times = Geometry(vms, 1, MEMORY_MIB), {"state_since": since, "submitted": submitted}
        seen = {"seen_restarts": 0, "seen_submitted": submitted, "script_digest": script_digest(_script(vms))}
        row = VJobRow(
            job_id,
            str(job_id),
            **_USER,
            partition="vjob",
            geometry=geometry,
            state=state,
            reason="",
            **times,
            **seen,
            priority=1,
        )
        self.ledger.add_vjob(row)

    def _run(self, job_id: int, nodes: Sequence[str], first: int, since: float) -> None:
        """The job runs on the front and its VMs on the nodes, as if the engine had started it."""
        job = self._slurm._jobs[str(job_id)]
        job.gated = False
        job.begin(FRONT, 86400.0, since)
        job.run_script(since)
        vms = [_vm(job_id, index, node, first + index) for index, node in enumerate(nodes)]
        with self.ledger.transaction():
            self.ledger.set_vms(job_id, vms)
            for vm in vms:
                self.ledger.enter_phase(vm.name, VMPhase.BOOTING)
                self.ledger.enter_phase(vm.name, VMPhase.LIVE)
        for vm in vms:
            image = KernelImage("/vmlinuz", "/initrd", "")
            spec = VMSpec(vm.name, vm.uuid, 1, MEMORY_MIB, vm.mac, "br0", image, "/config", "/console")
            self._hypervisor.set_demand(vm.name, 1.0)
            self._hypervisor.boot(vm.host, spec, timeout_s=1.0)
            self.guests.add(vm.address, vm.host_key_public)

    # -- the engine ----------------------------------------------------------------------------------------------

    def _ended(self) -> None:
        self.switch.advance()

    def _serve(self) -> None:
        requests = Requests(self.context, self.executor, self.placing, self.cycle, lambda: None)
        self.service = Service(self.context, requests, self.cycle)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="event loop")
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.service.open(), self._loop).result(60)

    def signs_of_life(self) -> None:
        """Each wrapper says that it is there."""
        for vjob in self.ledger.vjobs():
            if vjob.state is VJobState.RUNNING:
                self.context.signs.heard(vjob.job_id, time.time())

    def change(self, count: int) -> None:
        """So many of the single VMs' jobs end, as their users' scripts do, and so many jobs arrive."""
        running = (vjob for vjob in self.ledger.vjobs() if vjob.state is VJobState.RUNNING and vjob.geometry.vms == 1)
        for vjob, _ in zip(running, range(count), strict=False):
            # Its wrapper has said so before: a script whose wrapper lives may still be about to end.
            self.ledger.update_vjob(vjob.job_id, finished=True, finished_at=time.time())
            self._act("finish", vjob.job_id)
        for _ in range(count):
            self._act("submit", _script(1), cpus=1, memory_mib=1, time_limit_s=86400.0, **_USER)

    def _act(self, method: str, *words: Any, **more: Any) -> None:
        """Something happens in Slurm that is not the engine's doing."""
        if self.slurm_apart is not None:
            self.slurm_apart.act(method, *words, **more)
        else:
            getattr(self._slurm, method)(*words, **more)

    def settle(self) -> None:
        """Wait until all that was begun has ended."""
        while self.executor.busy():
            time.sleep(0.05)

    def adapters_cpu_s(self) -> float:
        """CPU seconds that the simulated neighbours have taken."""
        return self.rms.cpu_s + self.hypervisor.cpu_s

    def close(self) -> None:
        """End the engine."""
        self.switch.close()
        self.proposes.proposer.close()
        asyncio.run_coroutine_threadsafe(self.service.close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()
        for pool in self.executor.pools:
            pool.shutdown(wait=True, cancel_futures=True)
        self.ledger.close()
        if self.slurm_apart is not None:
            self.slurm_apart.close()


def _script(vms: int) -> str:
    return f"#!/usr/bin/rmsplugin-job {Geometry(vms, 1, MEMORY_MIB)}\n#!/bin/sh\ntrue\n"


def _vm(job_id: int, index: int, node: str, number: int) -> VMRow:
    """VM number ``number`` of the site."""
    address = f"10.0.{number // 250}.{number % 250 + 1}"
    mac = f"52:54:00:{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
    name = vm_name(job_id, index)
    return VMRow(
        *(name, job_id, index, f"uuid-{name}", mac, address, node),
        host_key_public=f"key-{name}",
        memory_mib=MEMORY_MIB,
    )


def _settings(socket: str, nodes: int, group_hosts: int | None, rules: Mapping[str, Mapping[str, Any]]) -> Settings:
    firsts = range(1, nodes + 1, group_hosts) if group_hosts else ()
    groups = {f"g{at}": {"hosts": f"n[{at}-{min(nodes, at + (group_hosts or 0) - 1)}]"} for at in firsts}
    return Settings.model_validate(
        {
            "engine": {"user": "root", "socket": socket},
            "slurm": {"partitions": ["vjob"]},
            "partition": {"vjob": {"hosts": "vmhosts"}},
            "group": groups,
            "rule": rules,
            "nodes": {"store": "/store"},
            "network": {"pool": "10.0.0.1-10.0.255.250", "prefix_length": 16},
            "image": {"default": {"kind": "kernel", "kernel": "/vmlinuz", "initrd": "/initrd"}},
        }
    )


def _slurm(nodes: list[str], size: tuple[int, int]) -> SimulatedRms:
    slurm = SimulatedRms(
        time.time,
        [
            *(RmsNode(name, *size, True, False, "IDLE") for name in nodes),
            RmsNode(FRONT, 1 << 20, 1 << 30, True, False, "IDLE"),
        ],
        [
            RmsPartition("vjob", True, (FRONT,), "REQUEUE", 1, 0),
            RmsPartition("vmhosts", True, tuple(nodes), "CANCEL", 1, 60, exclusive=True, hidden=True),
        ],
        configuring_s=0.0,
        start_delay_s=0.0,
        user="root",
    )
    slurm.preempt_type = "preempt/partition_prio"
    return slurm
