"""The two nodes of the contract of hypervisors in a minicluster, with podman, runc and CRIU."""

from __future__ import annotations

import base64
import contextlib
import functools
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from contract.hypervisor.on_minicluster import VM_DIR, MiniclusterWorld
from contract.hypervisor.worlds import A, B, eventually
from patience import PATIENCE_S

from rmsplugin.adapters.guests.keys import KeyPair, dropbear_key, generate_keypair
from rmsplugin.adapters.nodes.ssh import NodeAgents
from rmsplugin.adapters.platform.base import Converge, VMSpec
from rmsplugin.adapters.platform.podman.platform import PodmanPlatform
from rmsplugin.errors import RmspluginError

#: As agents of the node run it: in the node's control groups, too.
PODMAN = ("nsenter", "--cgroup=/proc/1/ns/cgroup", "--", "podman", "--log-level", "error", "--runtime", "runc")
PODMAN += ("--cgroup-manager", "cgroupfs")
GROUP = "/sys/fs/cgroup/freezer/rmsplugin/{}/libpod-*"
_COMPUTES = "while :; do :; done"
_SLOW = '#!/bin/sh\nsleep 2\nexec /tmp/criu "$@"\n'


@functools.cache
def _keys() -> KeyPair:
    """Of all guests of the tests."""
    return generate_keypair()


class PodmanWorld(MiniclusterWorld):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.hypervisor = PodmanPlatform(self.nodes)

    @contextlib.contextmanager
    def of_epoch(self, epoch: int) -> Iterator[tuple[PodmanPlatform, NodeAgents]]:
        """The platform and the agents as an engine of this epoch has them; nodes know of none afterwards."""
        with contextlib.closing(self._agents(epoch)) as agents:
            try:
                yield PodmanPlatform(agents), agents
            finally:
                for node in (A, B):
                    self.on(node, "rm", "-f", f"{VM_DIR}/.epoch")

    def config(self, vm: VMSpec) -> bytes:
        lines = {
            "hostname": vm.name,
            "address": f"{vm.address}/16",
            "gateway": "10.77.0.1",
            "mac": vm.mac,
            "root_authorized_key": _keys().public,
            "dropbear_host_key": base64.b64encode(dropbear_key(_keys().private_openssh)).decode(),
        }
        return "".join(f"{key}={value}\n" for key, value in lines.items()).encode()

    def have_up(self, vm: VMSpec) -> None:
        """With memory that does not compress."""
        for node in (A, B):
            self.nodes.put_config(node, vm.name, self.config(vm))
        self.hypervisor.boot(A, vm, timeout_s=60)
        assert self.inside(A, vm.name, "head -c 20000000 /dev/urandom >/tmp/memory") == ""

    def compute(self, node: str, vm: str) -> None:
        """Have the container compute for good."""
        self.begin(node, vm, "while :; do :; done")

    def begin(self, node: str, vm: str, script: str) -> None:
        """Have a script go on in the container, as a child of its first process, which CRIU wants."""
        quoted = shlex.quote(script)
        self.inside(node, vm, f"setsid /bin/sh -c {quoted} </dev/null >/dev/null 2>&1 &")

    def file_of(self, node: str, vm: str, path: str) -> str:
        """The content of a file in the container, which may stand still; "" if there is none."""
        script = f"cat /proc/$(head -n 1 {GROUP.format(vm)}/cgroup.procs)/root{path} 2>/dev/null"
        return self.on(node, "sh", "-c", script).stdout.strip()

    def kills_agents(self, node: str, act: Callable[[], None], *, after_s: float) -> None:
        """Kill the processes of the node's agent some time after an act has begun."""

        def quietly() -> None:
            with contextlib.suppress(RmspluginError):
                act()

        thread = threading.Thread(target=quietly)
        thread.start()
        time.sleep(after_s)
        self.on(node, "pkill", "-KILL", "-f", "rmsplugin-node")
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        eventually(lambda: self.hypervisor.list_vms(node) is not None)  # a new one serves

    def left(self, node: str) -> list[str]:
        """What there is of containers on the node."""
        script = "ls /run/netns /run/rmsplugin-podman; ls /sys/class/net; ls /sys/fs/cgroup/freezer/rmsplugin; "
        script += " ".join(PODMAN) + " ps -aq; ls /var/lib/containers/storage/overlay-containers"
        return sorted(set(self.on(node, "sh", "-c", script).stdout.split()))

    @contextlib.contextmanager
    def replaced(self, node: str, program: str, other: str) -> Iterator[None]:
        """Another program of the node runs in the place of the program."""
        assert self.on(node, "mount", "--bind", other, program).returncode == 0
        try:
            yield
        finally:
            assert self.on(node, "umount", "--lazy", program).returncode == 0

    def inside(self, node: str, vm: str, script: str) -> str:
        """Run a script in the container; return what it has said."""
        done = self.on(node, *PODMAN, "exec", vm, "/bin/sh", "-c", script)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def damage(self, node: str, path: str, how: str) -> None:
        words = {
            "garbage": ("dd", "if=/dev/urandom", f"of={path}", "bs=1M", "count=2"),
            "header": ("truncate", "-s", "5000", path),
            "truncated": ("truncate", "-s", "-1000000", path),
        }
        done = self.on(node, *words[how])
        assert done.returncode == 0, done.stderr

    @contextlib.contextmanager
    def silenced(self, node: str) -> Iterator[None]:
        """Its agent does not answer."""
        daemons = self.on(node, "pgrep", "-x", "sshd|sshd-session").stdout.split()
        assert self.on(node, "kill", "-STOP", *daemons).returncode == 0
        try:
            yield
        finally:
            assert self.on(node, "kill", "-CONT", *daemons).returncode == 0

    @contextlib.contextmanager
    def ended(self, node: str) -> Iterator[None]:
        """Nobody reaches its agent."""
        assert self.minicluster("kill", node, "sshd").returncode == 0
        sessions = self.on(node, "pgrep", "-x", "sshd|sshd-session").stdout.split()
        if sessions:
            assert self.on(node, "kill", "-KILL", *sessions).returncode == 0
        try:
            yield
        finally:
            assert self.minicluster("restart", node, "sshd").returncode == 0
            eventually(lambda: self.hypervisor.host_info(node) is not None)

    def kill(self, node: str, vm: str) -> None:
        """End the first process of the container: the kernel ends the others."""
        assert self.on(node, "sh", "-c", f"kill -KILL $(head -n 1 {GROUP.format(vm)}/cgroup.procs)").returncode == 0

    def up(self, node: str, vm: str) -> bool:
        return True

    def fate(self, node: str, vm: str) -> str:
        """What tells how the VM ended, where it is not there."""
        return self.on(node, *PODMAN, "ps", "-a").stdout

    @contextlib.contextmanager
    def slow(self, node: str, vm: str) -> Iterator[None]:
        """Podman itself takes some tenths of a second for a start."""
        yield

    @contextlib.contextmanager
    def slow_save(self, node: str, vm: str) -> Iterator[None]:
        """CRIU takes its time before it begins."""
        script = f"cp /usr/sbin/criu /tmp/criu && printf '{_SLOW}' >/tmp/slow && chmod 755 /tmp/slow"
        script = script.replace("\n", "\\n")
        assert self.on(node, "sh", "-c", script).returncode == 0
        with self.replaced(node, "/usr/sbin/criu", "/tmp/slow"):
            yield

    def hunger(self, node: str, vm: str) -> None:
        raise AssertionError("no balloons here")

    def ate(self, node: str, vm: str) -> bool:
        raise AssertionError("no balloons here")

    def use(self, node: str, vm: str, mib: int, cpus: int) -> None:
        """The memory is that of a file, which lies in memory there."""
        self.inside(node, vm, f"head -c {mib << 20} /dev/zero >/tmp/used")
        for _ in range(cpus):
            self.begin(node, vm, _COMPUTES)

    def uses(self, node: str, vm: str) -> bool:
        """Whether the processes that compute are there."""
        script = f"cat $(sed 's:.*:/proc/&/cmdline:' {GROUP.format(vm)}/cgroup.procs)"
        return self.on(node, "sh", "-c", script).stdout.count(_COMPUTES) >= 2

    def ticks(self, node: str, vm: str) -> int:
        raise AssertionError("nobody migrates here")

    @contextlib.contextmanager
    def writing(self, node: str, vm: str, converge: Converge, *, at_once: bool = False) -> Iterator[float]:
        raise AssertionError("nobody migrates here")
        yield 0.0

    def close(self) -> None:
        self.nodes.close()
