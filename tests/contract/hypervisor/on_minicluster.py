"""The two nodes of the contract of hypervisors in a minicluster, whatever platform they have."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

from contract.hypervisor.worlds import NOBODY, A, B, deposed, set_up_stores
from minicluster_lib import hosts
from minicluster_lib.layout import Cluster as Layout
from patience import PATIENCE_S

from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.nodes.ssh import NodeAgents
from rmsplugin.model.epochs import FIRST_EPOCH

VM_DIR = "/var/lib/rmsplugin/vm"
REPOSITORY = Path(__file__).resolve().parents[3]


class MiniclusterWorld:
    """What all platforms have there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes = self._agents(FIRST_EPOCH)
        set_up_stores(self.nodes)

    def _agents(self, epoch: int, permit: Permit = contextlib.nullcontext) -> NodeAgents:
        etc = self.directory / "hosts/head/etc/rmsplugin"
        return NodeAgents("root", f"{etc}/agent_key", f"{etc}/known_hosts", epoch=epoch, permit=permit)

    @contextlib.contextmanager
    def several_engines(self, epoch: int) -> Iterator[tuple[Nodes, Nodes]]:
        files = [self.directory / "hosts" / node / "etc/rmsplugin/rmsplugin.toml" for node in (A, B)]
        before = [file.read_text() for file in files]
        with (
            contextlib.closing(self._agents(epoch)) as engine,
            contextlib.closing(self._agents(epoch, deposed)) as stranger,
        ):
            for file, text in zip(files, before, strict=True):
                file.write_text(f'{text}\n[cluster]\ncoordination = "zookeeper"\nservers = ["c1:2181"]\n')
            try:
                yield engine, stranger
            finally:
                for node, file, text in zip((A, B), files, before, strict=True):
                    file.write_text(text)
                    self.boot_without_memory(node)

    def boot_without_memory(self, node: str) -> None:
        script = f"rm -f {VM_DIR}/.epoch {VM_DIR}/.owned-*"
        assert self.on(node, "sh", "-c", script).returncode == 0

    @contextlib.contextmanager
    def turn(self, epoch: int) -> Iterator[None]:
        with contextlib.closing(self._agents(epoch)) as agents:
            for node in (A, B):
                agents.drop_config(node, NOBODY)
        try:
            yield
        finally:
            for node in (A, B):
                assert self.on(node, "rm", f"{VM_DIR}/.epoch").returncode == 0

    def minicluster(self, *words: str) -> subprocess.CompletedProcess[str]:
        command, *rest = words
        return self._run([str(REPOSITORY / "contrib/minicluster"), command, "--dir", str(self.directory), *rest])

    @staticmethod
    def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)

    def on(self, node: str, *command: str) -> subprocess.CompletedProcess[str]:
        # What `minicluster exec` runs, without starting a Python for it.
        cluster = Layout.load(self.directory)
        assert cluster is not None
        return self._run(hosts.enter_command(cluster, cluster.host(node), command))

    def state_path(self, vm: str) -> str:
        return f"/var/lib/rmsplugin/store/{vm}.state"

    def exists(self, node: str, path: str) -> bool:
        return self.on(node, "test", "-e", path).returncode == 0

    @contextlib.contextmanager
    def leave_room(self, node: str, mib: int) -> Iterator[None]:
        store = "/var/lib/rmsplugin/store"
        assert self.on(node, "mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=700", "none", store).returncode == 0
        try:
            self.nodes.init_store(node, uuid.uuid4().hex)  # it is the store for the time being
            yield
        finally:
            assert self.on(node, "umount", store).returncode == 0
