"""Root of one VM host attacks the others, on a real cluster: he has what runs, sleeps or is stored on his own host.

The attacks need a minicluster of two nodes and run in its head's network, where the engine would be: ``test_on_nodes``
brings one up (or takes the one in $RMSPLUGIN_TEST_MINICLUSTER) and runs this file again in there.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract import in_head
from contract.hypervisor.on_libvirt import LibvirtWorld
from contract.hypervisor.steps import have_up, power
from contract.hypervisor.worlds import INSIDE, eventually, spec

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.platform.libvirt import migration
from rmsplugin.errors import CorruptStateError, OperationFailedError

REPOSITORY = Path(__file__).resolve().parents[2]
MINICLUSTER = REPOSITORY / "contrib/minicluster"
A, B = "n1", "n2"
VM = "vjob9001-0"

inside = pytest.mark.skipif(not INSIDE, reason="runs in test_on_nodes")


@pytest.fixture
def world() -> Iterator[LibvirtWorld]:
    assert INSIDE
    world = LibvirtWorld(Path(INSIDE))
    try:
        yield world
    finally:
        for node in (A, B):
            for name in world.hypervisor.list_vms(node):
                world.hypervisor.stop(node, name, timeout_s=20)
            files = world.nodes.list_files(node)
            for name in files.configs:
                world.nodes.drop_config(node, name)
            for name in files.states | files.partials:
                world.nodes.drop_state(node, name)
        world.close()


# The door: libvirt of another node.

#: Directories of a certificate, its key and the authority, as libvirt's clients want them.
CERTIFICATES = {
    "libvirt": ("/etc/pki/libvirt/servercert.pem", "/etc/pki/libvirt/private/serverkey.pem"),
    "qemu": ("/etc/pki/qemu/client-cert.pem", "/etc/pki/qemu/client-key.pem"),
}

#: A VM of nobody's, whose disk is a file of the node's.
EVIL = """<domain type='qemu'><name>evil</name><memory unit='MiB'>16</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>
<devices><disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/etc/shadow'/>
<target dev='vda' bus='virtio'/></disk></devices></domain>"""


@inside
@pytest.mark.parametrize("certificate", CERTIFICATES)
def test_no_certificate_of_a_node_opens_libvirt_of_another(world: LibvirtWorld, certificate: str) -> None:
    certificate_path, key = CERTIFICATES[certificate]
    links = f"ln -sf {certificate_path} /tmp/clientcert.pem; ln -sf {key} /tmp/clientkey.pem"
    script = f"cp /etc/pki/CA/cacert.pem /tmp/; {links}; cat >/tmp/evil.xml <<E\n{EVIL}\nE\n"
    assert world.on(A, "sh", "-c", script).returncode == 0
    done = world.on(A, "virsh", "-c", f"qemu+tls://{B}/system?pkipath=/tmp", "create", "/tmp/evil.xml")
    try:
        assert done.returncode != 0, "root of n1 reads /etc/shadow of n2"
        assert "evil" not in world.on(B, "virsh", "list", "--name").stdout
        assert not world.nodes.reach(A, B).platform_open
    finally:
        world.on(B, "virsh", "destroy", "evil")


# What lies on his own host, and is resumed.


def add_to_state(path: Path, what: str) -> None:
    """Write something more into the XML of a saved state; libvirt keeps no digest of it."""
    content = path.read_bytes()
    magic, head, rest = content[:16], list(struct.unpack("=19I", content[16:92])), content[92:]
    length = head[1]
    xml, _, cookie = rest[:length].partition(b"\0")
    changed = xml.replace(b"</devices>", what.encode() + b"</devices>") + b"\0" + cookie
    head[4] += (len(changed) - length) * bool(head[4])  # where the cookie begins
    head[1] = len(changed)
    path.write_bytes(magic + struct.pack("=19I", *head) + changed + rest[length:])


@inside
def test_a_saved_state_in_which_he_adds_a_disk_of_the_host_is_refused_and_kept(world: LibvirtWorld) -> None:
    have_up(world)
    path = world.state_path(VM)
    world.hypervisor.save(A, VM, path, timeout_s=60)
    file = world.directory / "hosts" / A / path.lstrip("/")
    assert world.on(A, "cp", path, f"{path}.as-it-was").returncode == 0
    add_to_state(
        file,
        "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/etc/shadow'/>"
        "<target dev='vda' bus='virtio'/></disk>",
    )
    try:
        assert "/etc/shadow" in world.on(A, "virsh", "save-image-dumpxml", path).stdout
        with pytest.raises(OperationFailedError, match=r"refused, for somebody else has changed it.*disk") as refusal:
            world.hypervisor.restore(A, spec(), path, timeout_s=60)
        assert not isinstance(refusal.value, CorruptStateError), "what was tampered with is not lost"
        assert world.hypervisor.list_vms(A) == {}
        assert world.exists(A, path)
        assert world.on(A, "mv", f"{path}.as-it-was", path).returncode == 0
        world.hypervisor.restore(A, spec(), path, timeout_s=60)
    finally:
        world.on(A, "rm", "-f", f"{path}.as-it-was")


# Migrations, which the engine leads.

EVIL_FILE = "/root/written-by-root-of-another-node"


@inside
def test_a_vm_to_which_he_added_a_file_of_the_host_is_moved_by_no_engine_and_taken_by_no_node(
    world: LibvirtWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_up(world)
    xml = world.on(A, "virsh", "dumpxml", "--migratable", "--security-info", VM).stdout
    evil = xml.replace(
        "</devices>",
        f"<serial type='file'><source path='{EVIL_FILE}'/><target type='isa-serial' port='1'/></serial></devices>",
    )
    world.hypervisor.stop(A, VM, timeout_s=20)
    # His own node does what he wants.
    with world.replaced(A, "/etc/libvirt/hooks/qemu", "/bin/true"):
        script = f"cat >/tmp/evil.xml <<'E'\n{evil}\nE\nvirsh create /tmp/evil.xml"
        assert world.on(A, "sh", "-c", script).returncode == 0
        with pytest.raises(OperationFailedError, match="somebody has changed it"):
            world.hypervisor.migrate(VM, A, B, timeout_s=60)
        # And his libvirt may show the engine something else than it sends.
        monkeypatch.setattr(migration, "require_ours", lambda xml: None)
        with pytest.raises(OperationFailedError, match=r"rmsplugin refuses .*devices/serial"):
            world.hypervisor.migrate(VM, A, B, timeout_s=60)
        assert power(world, A) is VMPower.RUNNING
        assert world.hypervisor.list_vms(B) == {}
        assert not world.exists(B, EVIL_FILE), "root of n1 writes files of n2"


#: Migrates a VM as the engine does, and is killed by SIGKILL when it has come as far as it was told.
_ENGINE = """
import os, signal, sys
from pathlib import Path
from contract.hypervisor.on_libvirt import LibvirtWorld
from contract.hypervisor.worlds import INSIDE
world = LibvirtWorld(Path(INSIDE))
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "arrived":
    world.hypervisor._vms.unpause = die
print("goes", flush=True)
world.hypervisor.migrate("{vm}", "{source}", "{to}", timeout_s=60, progress=die if sys.argv[1] == "sending" else None)
"""


def _engine(until: str) -> subprocess.Popen[str]:
    code = _ENGINE.format(vm=VM, source=A, to=B)
    search = os.pathsep.join([str(REPOSITORY / "tests"), str(REPOSITORY / "contrib")])
    return subprocess.Popen(
        [sys.executable, "-c", code, until],
        env={**os.environ, "PYTHONPATH": search},
        stdout=subprocess.PIPE,
        text=True,
    )


@inside
@pytest.mark.parametrize("until", ["prepared", "sending", "arrived"])
def test_a_vm_runs_once_whenever_the_engine_is_killed_in_its_migration(world: LibvirtWorld, until: str) -> None:
    have_up(world)
    if until != "arrived":
        world.on(A, "virsh", "migrate-setspeed", VM, "8")
    with _engine(until) as engine:
        assert engine.stdout is not None and engine.stdout.readline() == "goes\n"
        if until == "prepared":
            eventually(lambda: world.hypervisor.has_vm(B, VM))
            engine.kill()
        assert engine.wait(90) == -signal.SIGKILL
    if until == "arrived":  # it stands still at its destination until the engine is there again (decision 0029)
        assert (power(world, A), power(world, B)) == (None, VMPower.PAUSED)
        world.hypervisor.unpause(B, VM, timeout_s=20)
        return
    # By itself, without an engine: what was prepared at the destination goes with the engine's connection.
    eventually(lambda: not world.hypervisor.has_vm(B, VM))
    eventually(lambda: power(world, A) is VMPower.RUNNING)
    assert not world.hypervisor.list_vms(A)[VM].job_running
    world.on(A, "virsh", "migrate-setspeed", VM, "1000")
    world.hypervisor.migrate(VM, A, B, timeout_s=60)
    assert (power(world, A), power(world, B)) == (None, VMPower.RUNNING)


# The other half.


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(bool(INSIDE), reason="this is the inside")
def test_on_nodes(tmp_path: Path) -> None:
    kept = os.environ.get("RMSPLUGIN_TEST_MINICLUSTER")
    if not kept and os.getuid() != 0:
        pytest.skip("needs root, to bring up a minicluster")
    directory = Path(kept) if kept else Path("/var/tmp") / f"rmsplugin-security-{os.getpid()}"
    options = ["--no-engine", "--nodes", "2", "--dir", str(directory), "--owner", str(os.getpid())]
    try:
        if not kept:
            subprocess.run([MINICLUSTER, "up", *options], check=True)
        done = in_head.run_pytest(directory, ["--durations=8", __file__], timeout_s=500)
    finally:
        if not kept:
            subprocess.run([MINICLUSTER, "down", "--dir", str(directory)], check=True)
    print(done.stdout)
    assert done.returncode == 0, "a door is open, see above"
