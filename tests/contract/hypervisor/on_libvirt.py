"""The two nodes of the contract of hypervisors in a minicluster, with libvirt and QEMU."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from contract.hypervisor.on_minicluster import VM_DIR, MiniclusterWorld
from contract.hypervisor.worlds import (
    CONFIG,
    MACHINE,
    READY,
    UP,
    USERFAULTFD,
    A,
    B,
    eventually,
    spec,
)

from rmsplugin.adapters.nodes.ssh import NodeAgents
from rmsplugin.adapters.platform.base import Converge, VMSpec
from rmsplugin.adapters.platform.libvirt import migration

if TYPE_CHECKING:
    from rmsplugin.adapters.platform.libvirt.platform import LibvirtPlatform
    from rmsplugin.adapters.platform.libvirt.ways import Way


class LibvirtWorld(MiniclusterWorld):
    def __init__(self, directory: Path) -> None:
        from rmsplugin.adapters.platform.libvirt.ways import ByUri

        super().__init__(directory)
        etc = directory / "hosts/head/etc/rmsplugin"
        self.hypervisor = self._by(ByUri(f"qemu+tls://{{node}}/system?pkipath={etc}/pki"))

    @staticmethod
    def _by(way: Way) -> LibvirtPlatform:
        from rmsplugin.adapters.platform.libvirt.platform import LibvirtPlatform

        return LibvirtPlatform(
            way,
            domain_type="qemu",
            machine_type=MACHINE,
            # A busy machine may take seconds to answer; a silent one is given up in time all the same.
            connect_timeout_s=8,
            call_timeout_s=8,
        )

    @contextlib.contextmanager
    def of_epoch(self, epoch: int) -> Iterator[tuple[LibvirtPlatform, NodeAgents]]:
        """The platform and the agents as an engine of this epoch has them; nodes know of none afterwards."""
        from rmsplugin.adapters.nodes.passages import Passages
        from rmsplugin.adapters.nodes.ssh_link import Target
        from rmsplugin.adapters.platform.libvirt.ways import ThroughAgents

        etc = self.directory / "hosts/head/etc/rmsplugin"
        passages = Passages(Target("root", f"{etc}/agent_key", f"{etc}/known_hosts", 8), epoch)
        with contextlib.closing(self._agents(epoch)) as agents:
            platform = self._by(ThroughAgents(passages))
            try:
                yield platform, agents
            finally:
                platform.close()
                for node in (A, B):
                    self.on(node, "rm", "-f", f"{VM_DIR}/.epoch")

    @contextlib.contextmanager
    def letting_through(self) -> Iterator[None]:
        """Nodes let engines through to their platforms."""
        files = [self.directory / "hosts" / node / "etc/rmsplugin/rmsplugin.toml" for node in (A, B)]
        before = [file.read_text() for file in files]
        for file, text in zip(files, before, strict=True):
            file.write_text(text.replace("[hypervisor]\n", '[hypervisor]\nconnect = "agent"\n'))
        try:
            yield
        finally:
            for file, text in zip(files, before, strict=True):
                file.write_text(text)

    def config(self, vm: VMSpec) -> bytes:
        return CONFIG

    def have_up(self, vm: VMSpec) -> None:
        self.have_up_when(vm, lambda: self.idles(A, vm.name))

    def have_up_when(self, vm: VMSpec, is_up: Callable[[], bool]) -> None:
        """Have it up as it was when the first test wanted it: a restore takes tenths of the CPU time of a boot."""
        state = self.kept_state(vm)
        for node in (A, B):
            self.nodes.put_config(node, vm.name, CONFIG)
        if not self.exists(A, state):
            self.hypervisor.boot(A, vm, timeout_s=30)
            eventually(is_up)
            self.hypervisor.save(A, vm.name, f"{state}.partial", timeout_s=60)
            assert self.on(A, "mv", f"{state}.partial", state).returncode == 0
        self.hypervisor.restore(A, vm, state, timeout_s=60)
        self.hypervisor.unpause(A, vm.name, timeout_s=20)

    def damage(self, node: str, path: str, how: str) -> None:
        size = "5000" if how == "header" else "-20M"
        if how == "garbage":
            done = self.on(node, "dd", "if=/dev/urandom", f"of={path}", "bs=1M", "count=2")
        else:
            done = self.on(node, "truncate", "-s", size, path)
        assert done.returncode == 0, done.stderr

    @contextlib.contextmanager
    def silenced(self, node: str) -> Iterator[None]:
        assert self.minicluster("kill", node, "libvirtd", "--signal", "STOP").returncode == 0
        try:
            yield
        finally:
            assert self.minicluster("kill", node, "libvirtd", "--signal", "CONT").returncode == 0

    @contextlib.contextmanager
    def ended(self, node: str) -> Iterator[None]:
        assert self.minicluster("kill", node, "libvirtd").returncode == 0
        try:
            yield
        finally:
            assert self.minicluster("restart", node, "libvirtd").returncode == 0
            eventually(lambda: self.hypervisor.host_info(node) is not None)

    @contextlib.contextmanager
    def qemu_conf(self, node: str, **values: str) -> Iterator[None]:
        """Restart the node's libvirtd with other values in qemu.conf."""
        file = self.directory / "hosts" / node / "etc/libvirt/qemu.conf"
        before = file.read_text()
        # Of several lines for one key libvirt takes the first.
        file.write_text("".join(f'{key} = "{value}"\n' for key, value in values.items()) + before)
        try:
            with self.ended(node):
                pass
            yield
        finally:
            file.write_text(before)
            with self.ended(node):
                pass

    @contextlib.contextmanager
    def without(self, node: str, program: str) -> Iterator[None]:
        """Nobody can run the program on the node."""
        with self.replaced(node, program, "/dev/null"):
            yield

    @contextlib.contextmanager
    def replaced(self, node: str, program: str, other: str) -> Iterator[None]:
        """Another program of the node runs in the place of the program."""
        assert self.on(node, "mount", "--bind", other, program).returncode == 0
        try:
            yield
        finally:
            # A shell may still be reading it.
            assert self.on(node, "umount", "--lazy", program).returncode == 0

    def kill(self, node: str, vm: str) -> None:
        assert self.on(node, "sh", "-c", f"kill -KILL $(cat /run/libvirt/qemu/{vm}.pid)").returncode == 0

    def starts_of_libvirtd(self, node: str) -> int:
        status = json.loads(self.minicluster("status", "--json").stdout)
        return int(status["hosts"][node]["daemons"]["libvirtd"]["starts"])

    def up(self, node: str, vm: str) -> bool:
        console = self.directory / "hosts" / node / spec(vm).console_log.lstrip("/")
        return console.exists() and UP.encode() in console.read_bytes()

    def idles(self, node: str, vm: str) -> bool:
        """Whether the guest has come to the end of its boot, and all that it does afterwards."""
        if READY.encode() not in self._console(node, vm):
            return False
        before = self.hypervisor.statistics(node)[vm].cpu_time_ns or 0
        time.sleep(0.5)
        return (self.hypervisor.statistics(node)[vm].cpu_time_ns or 0) - before < 0.1e9

    @staticmethod
    def kept_state(vm: VMSpec) -> str:
        """Where the state of this VM, as it is once it is up, is kept on a node as long as the cluster is there."""
        return f"/var/tmp/{vm.name}-{hashlib.sha256(repr(vm).encode()).hexdigest()[:16]}.state"

    def fate(self, node: str, vm: str) -> str:
        log = self.on(node, "tail", "-n", "5", f"/var/log/libvirt/qemu/{vm}.log")
        return f"{log.stdout}{log.stderr}{self._console(node, vm)[-400:]!r}"

    def hunger(self, node: str, vm: str) -> None:
        """The guest feels it by itself."""

    def ate(self, node: str, vm: str) -> bool:
        said = self._console(node, vm)
        assert b"Killed process" not in said
        return b"ate all" in said

    def use(self, node: str, vm: str, mib: int, cpus: int) -> None:
        raise AssertionError("nothing is bounded here")

    def uses(self, node: str, vm: str) -> bool:
        raise AssertionError("nothing is bounded here")

    def ticks(self, node: str, vm: str) -> int:
        return self._console(node, vm).count(b"tick")

    def _console(self, node: str, vm: str) -> bytes:
        return (self.directory / "hosts" / node / spec(vm).console_log.lstrip("/")).read_bytes()

    @contextlib.contextmanager
    def slow(self, node: str, vm: str) -> Iterator[None]:
        # Slows migrations only; a boot, and a restore of a booted guest, take some tenths of a second.
        self.on(node, "virsh", "migrate-setspeed", vm, "8")
        yield

    @contextlib.contextmanager
    def slow_save(self, node: str, vm: str) -> Iterator[None]:
        """For saves that never come to their end: what is written is of no use."""
        script = "printf '#!/bin/sh\\nsleep 2\\nexec cat\\n' >/tmp/slow && chmod 755 /tmp/slow"
        assert self.on(node, "sh", "-c", script).returncode == 0
        with self.replaced(node, f"/usr/bin/{self.nodes.check(node).save_format}", "/tmp/slow"):
            yield

    @contextlib.contextmanager
    def writing(self, node: str, vm: str, converge: Converge, *, at_once: bool = False) -> Iterator[float]:
        """Send memory more slowly than the VM writes it; yields a time in which all could be sent once, not more.

        With ``at_once`` a migration goes over to post-copy in its first round, and has some half a minute to go then.
        """
        migrations = self.hypervisor._migrations
        migrations.manner = replace(migrations.manner, converge=converge, emulated="live")
        assert self.on(node, "virsh", "migrate-setspeed", vm, "16").returncode == 0
        assert self.on(node, "virsh", "migrate-setspeed", "--postcopy", vm, "2").returncode == 0
        with contextlib.ExitStack() as stack:
            if at_once:
                stack.enter_context(patch.object(migration, "_POSTCOPY_ITERATION", 1))
            if converge == "post-copy" and USERFAULTFD.read_text().strip() != "1":
                # It is the whole machine's, and not ours to set. Without it root alone can take such a VM in.
                stack.enter_context(self.qemu_conf(B, user="root", group="root"))
            yield 6.0

    def close(self) -> None:
        self.hypervisor.close()
        self.nodes.close()
