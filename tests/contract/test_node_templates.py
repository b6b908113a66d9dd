"""The contract of ``adapters.nodes.base.Nodes`` on templates: simulated, and on the real agent, run without sshd."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
from contract.test_nodes import LocalAgents
from patience import PATIENCE_S

from rmsplugin.adapters.nodes.base import Nodes, Template, TemplateUse
from rmsplugin.adapters.simulated.hypervisor.files import SimulatedFiles, SimulatedState
from rmsplugin.adapters.simulated.nodes.agents import SimulatedNodes
from rmsplugin.errors import CorruptStateError, NotFoundError, OperationFailedError
from rmsplugin.node_agent import files as node_files

NODE, FIRST, OTHER = "n1", "vjob12-0", "vjob13-1"
UUID, MAC = "00000000-0000-4000-8000-00000000000d", "52:54:00:00:00:0d"
TEMPLATE = Template("0" * 32, "default")
#: Of an image whose VMs have disks.
OF_DISKS = Template("0" * 32, "debian")
STREAM = b"\1QEVM" * 1000
XML = """<domain type='qemu'><name>{name}</name><uuid>00000000-0000-4000-8000-00000000000c</uuid><metadata>
<rmsplugin:vjob xmlns:rmsplugin="urn:rmsplugin:vjob:1" job="12" index="0"/></metadata>
<devices><interface type='bridge'><mac address='52:54:00:00:00:0c'/></interface></devices></domain>"""


def saved(
    name: str, *, version: int = 2, spare: int = 1024, cookie: bytes = b"<cookie/>\0", gzipped: bytes = b""
) -> bytes:
    """A file as libvirt writes it: head, XML, cookie, NULs, the stream, which may be compressed."""
    xml = XML.format(name=name).encode() + b"\0"
    data = xml + cookie + bytes(spare)
    head = struct.pack("=16s 5I 56x", b"LibvirtQemudSave", version, len(data), 1, bool(gzipped), len(xml))
    return head + data + (gzipped or STREAM)


@dataclass
class World:
    """A node, and what libvirt and guests do there."""

    nodes: Nodes
    save: Callable[[str], None]  # the state of a VM, in the place for it
    says_waiting: Callable[[str], None]  # the guest of a VM says so
    damage: Callable[[], None]  # the templates
    copy: Callable[[str], str | None]  # whose state it is that the VM has
    write: Callable[[str, str], None]  # onto the disk of a VM, over all that it holds
    read: Callable[[str], str | None]  # the whole disk of a VM; None if it has none

    def make(self, vm: str = FIRST, template: Template = TEMPLATE) -> None:
        """Make a template."""
        assert self.use(vm, template) is TemplateUse.MAKE
        if template.image == OF_DISKS.image:
            self.write(vm, f"as {vm} was saved")
        self.save(vm)
        if template.image == OF_DISKS.image:
            self.nodes.keep_disk(NODE, vm, template)
            self.write(vm, f"of a {vm} that runs")
        assert self.nodes.settle_template(NODE, vm, template)

    def use(self, vm: str, template: Template = TEMPLATE) -> TemplateUse:
        """Ask for it."""
        return self.nodes.use_template(NODE, vm, template, UUID, MAC, b"key=value\n", b"a seed")


def simulated() -> World:
    files = SimulatedFiles()
    nodes = SimulatedNodes(files, vm_dir="/vm")

    def save(vm: str) -> None:
        files.put(NODE, f"/vm/{vm}.template", SimulatedState(vm, 5, 1))

    def copy(vm: str) -> str | None:
        state = files.get(NODE, f"/vm/{vm}.template")
        return state.vm if state else None

    def wait(vm: str) -> None:
        nodes.templates.guests_wait = True

    def write(vm: str, content: str) -> None:
        nodes.templates.disks[NODE, vm] = content

    nodes.templates.guests_wait = False
    disks = nodes.templates.disks
    return World(nodes, save, wait, lambda: nodes.templates.damage(NODE), copy, write, lambda vm: disks.get((NODE, vm)))


class RealNode:
    """An agent and its directories."""

    def __init__(self, directory: Path, **start: int) -> None:
        self.directory, self.vms, self.templates = directory, directory / "vm", directory / "templates"
        config = directory / "rmsplugin.toml"
        settings = "".join(f"{key} = {value}\n" for key, value in start.items())
        for name in ("vmlinuz", "initrd.img", "debian.qcow2"):
            (directory / name).write_text(name)
        config.write_text(
            f'[nodes]\nvm_dir = "{self.vms}"\n[start]\ntemplate_dir = "{self.templates}"\n{settings}[image.default]\n'
            f'kind = "kernel"\nkernel = "{directory}/vmlinuz"\ninitrd = "{directory}/initrd.img"\n'
            f'[image.debian]\nkind = "qcow2"\nbase = "{directory}/debian.qcow2"\n'
        )
        self.vms.mkdir(mode=0o711)
        self.world = World(
            LocalAgents(config), self._save, self._says_waiting, self._damage, self._copy, self._write, self._read
        )

    def _save(self, vm: str) -> None:
        (self.vms / f"{vm}.template").write_bytes(saved(vm))

    def _says_waiting(self, vm: str) -> None:
        (self.vms / f"{vm}.console").write_text("booting\nrmsplugin-guest: waiting\n")

    def _damage(self) -> None:
        for path in self.templates.glob("*.state"):
            path.write_bytes(saved(FIRST, version=3))

    def _copy(self, vm: str) -> str | None:
        path = self.vms / f"{vm}.template"
        return self.domain(vm).findtext("name") if path.exists() else None

    def _write(self, vm: str, content: str) -> None:
        (self.vms / f"{vm}.qcow2").write_text(content)

    def _read(self, vm: str) -> str | None:
        path = self.vms / f"{vm}.qcow2"
        return path.read_text() if path.exists() else None

    def domain(self, vm: str) -> ElementTree.Element:
        """What the head of the VM's copy says."""
        content = (self.vms / f"{vm}.template").read_bytes()
        return ElementTree.fromstring(content[92:].partition(b"\0")[0])


@pytest.fixture(params=["simulated", "agent"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return simulated() if request.param == "simulated" else RealNode(tmp_path).world


def test_the_first_vm_makes_the_template_and_later_ones_have_copies_of_their_own(world: World) -> None:
    world.make(FIRST)
    assert world.copy(FIRST) is None, "it has moved"
    assert [world.use(OTHER), world.use("vjob14-0")] == [TemplateUse.COPIED] * 2
    assert [world.copy(OTHER), world.copy("vjob14-0")] == [OTHER, "vjob14-0"]
    assert not world.nodes.settle_template(NODE, OTHER, TEMPLATE)
    assert world.copy(OTHER) is None
    world.nodes.drop_config(NODE, "vjob14-0")
    assert world.copy("vjob14-0") is None, "it goes when the VM goes"
    assert world.use(OTHER) is TemplateUse.COPIED


def test_one_vm_at_a_time_makes_a_template_and_the_others_boot(world: World) -> None:
    assert [world.use(FIRST), world.use(OTHER), world.use(FIRST)] == ["make", "boot", "make"]
    assert world.use(OTHER, Template("1" * 32, "default")) is TemplateUse.MAKE, "of another kind"


def test_a_template_that_failed_is_gone_and_none_is_made_for_a_while(world: World) -> None:
    world.make()
    world.use(OTHER)
    world.nodes.refuse_template(NODE, OTHER, TEMPLATE)
    assert world.copy(OTHER) is None
    assert [world.use(OTHER), world.use(FIRST)] == [TemplateUse.BOOT] * 2


def test_a_damaged_template_is_told(world: World) -> None:
    world.make()
    world.damage()
    with pytest.raises(CorruptStateError):
        world.use(OTHER)


def test_a_guest_that_says_that_it_waits_is_heard_and_one_that_does_not_is_not(world: World) -> None:
    world.use(FIRST)
    assert not world.nodes.await_guest(NODE, FIRST, TEMPLATE, timeout_s=1)
    world.says_waiting(FIRST)
    assert world.nodes.await_guest(NODE, FIRST, TEMPLATE, timeout_s=1)
    with pytest.raises(NotFoundError):
        world.nodes.await_guest(NODE, OTHER, TEMPLATE, timeout_s=1)


def test_a_copy_comes_with_the_disk_as_it_was_when_the_template_was_saved(world: World) -> None:
    world.make(FIRST, OF_DISKS)
    assert world.read(FIRST) == f"of a {FIRST} that runs", "its own"
    assert world.use(OTHER, OF_DISKS) is TemplateUse.COPIED
    kept = world.read(OTHER) or ""
    assert f"as {FIRST} was saved" in kept
    world.write(OTHER, "of its own")
    assert not world.nodes.settle_template(NODE, OTHER, OF_DISKS)
    assert world.read(OTHER) == "of its own"
    assert world.use("vjob14-0", OF_DISKS) is TemplateUse.COPIED
    assert world.read("vjob14-0") == kept


def test_a_template_whose_disk_was_not_kept_is_none(world: World) -> None:
    assert world.use(FIRST, OF_DISKS) is TemplateUse.MAKE
    world.write(FIRST, "as it was saved")
    world.save(FIRST)
    assert not world.nodes.settle_template(NODE, FIRST, OF_DISKS)
    assert world.use(OTHER, OF_DISKS) is TemplateUse.MAKE


def test_only_the_disk_of_the_vm_that_makes_the_template_is_kept(world: World) -> None:
    world.use(FIRST, OF_DISKS)
    world.write(OTHER, "of a VM that knows who it is")
    with pytest.raises(NotFoundError):
        world.nodes.keep_disk(NODE, OTHER, OF_DISKS)


def test_a_vm_whose_template_failed_boots_from_another_disk(world: World) -> None:
    world.make(FIRST, OF_DISKS)
    world.use(OTHER, OF_DISKS)
    world.nodes.refuse_template(NODE, OTHER, OF_DISKS)
    assert world.read(OTHER) is None
    world.write(FIRST, "of an attempt that broke off")
    assert world.use(FIRST, OF_DISKS) is TemplateUse.BOOT
    assert world.read(FIRST) is None


def test_what_a_guest_said_in_an_earlier_life_does_not_count(tmp_path: Path) -> None:
    world = RealNode(tmp_path).world
    world.says_waiting(FIRST)
    world.use(FIRST)
    assert not world.nodes.await_guest(NODE, FIRST, TEMPLATE, timeout_s=1)


def test_a_copy_has_the_names_of_its_vm_and_all_else_of_the_template(tmp_path: Path) -> None:
    node = RealNode(tmp_path)
    node.world.make(FIRST)
    node.world.use(OTHER)
    domain, content = node.domain(OTHER), (node.vms / f"{OTHER}.template").read_bytes()
    vjob = domain.find("metadata/{urn:rmsplugin:vjob:1}vjob")
    mac = domain.find("devices/interface/mac")
    assert vjob is not None and mac is not None
    assert (domain.findtext("uuid"), mac.get("address"), vjob.attrib) == (UUID, MAC, {"job": "13", "index": "1"})
    assert FIRST.encode() not in content
    magic, version, length, running, compression, cookie_at = struct.unpack_from("=16s 5I", content)
    assert (magic, version, running, compression) == (b"LibvirtQemudSave", 2, 1, 0)
    assert content[92 + cookie_at :].startswith(b"<cookie/>\0")
    assert content[92 + length :] == STREAM
    assert len(content) == len(saved(FIRST))


def test_a_copy_from_which_a_vm_has_started_is_the_next_vms_and_only_one_vms(tmp_path: Path) -> None:
    node = RealNode(tmp_path)
    node.world.make(FIRST)
    node.world.use(OTHER)
    used = (node.vms / f"{OTHER}.template").stat().st_ino
    assert not node.world.nodes.settle_template(NODE, OTHER, TEMPLATE)
    assert [path.name for path in node.vms.glob(f"{OTHER}.template*")] == []
    assert [node.world.use("vjob1234-56"), node.world.use(FIRST)] == [TemplateUse.COPIED] * 2
    assert [(node.vms / f"{vm}.template").stat().st_ino == used for vm in ("vjob1234-56", FIRST)] == [True, False]
    assert [node.world.copy(vm) for vm in ("vjob1234-56", FIRST)] == ["vjob1234-56", FIRST]
    content = (node.vms / "vjob1234-56.template").read_bytes()
    assert OTHER.encode() not in content and content.endswith(STREAM) and len(content) == len(saved(FIRST))


def test_a_copy_of_a_template_that_was_replaced_is_nobodys(tmp_path: Path) -> None:
    node = RealNode(tmp_path)
    node.world.make(FIRST, OF_DISKS)
    node.world.use(OTHER, OF_DISKS)
    for path in node.templates.glob("[!.]*"):
        path.unlink()
    node.world.make("vjob14-0", OF_DISKS)
    assert not node.world.nodes.settle_template(NODE, OTHER, OF_DISKS)
    assert not list(node.templates.glob("*.spare"))
    assert node.world.use(OTHER, OF_DISKS) is TemplateUse.COPIED
    assert "as vjob14-0 was saved" in (node.world.read(OTHER) or "")


def test_a_spare_goes_with_its_template_and_before_any_other_template(tmp_path: Path) -> None:
    node = RealNode(tmp_path, template_mib=1)
    first, second = Template("1" * 32, "default"), Template("2" * 32, "default")
    for template, kib in ((first, 300), (second, 500)):
        assert node.world.use(FIRST, template) is TemplateUse.MAKE
        (node.vms / f"{FIRST}.template").write_bytes(saved(FIRST) + bytes(kib << 10))
        assert node.world.nodes.settle_template(NODE, FIRST, template)
        assert node.world.use(OTHER, template) is TemplateUse.COPIED
        assert not node.world.nodes.settle_template(NODE, OTHER, template)
    assert sorted(path.suffix for path in node.templates.glob("[!.]*")) == [".state", ".state"], "no room for a spare"
    node.world.use(OTHER, first)
    assert not node.world.nodes.settle_template(NODE, OTHER, first)
    node.world.use(OTHER, first)
    node.world.nodes.refuse_template(NODE, OTHER, first)
    assert sorted(path.suffix for path in node.templates.glob("[!.]*")) == [".refused", ".state"]


def test_with_a_copy_come_the_other_files_of_the_vm_and_else_nothing(tmp_path: Path) -> None:
    node = RealNode(tmp_path)
    assert node.world.use(FIRST) is TemplateUse.MAKE
    assert not [path.name for path in node.vms.iterdir() if path.suffix in (".config", ".iso")]
    node.world.save(FIRST)
    assert node.world.nodes.settle_template(NODE, FIRST, TEMPLATE)
    assert node.world.use(OTHER) is TemplateUse.COPIED
    others = sorted(path for path in node.vms.glob(f"{OTHER}.*") if not path.suffix.startswith(".template"))
    assert [path.suffix for path in others] == [".config", ".console", ".iso"]
    assert [path.read_bytes() for path in others] == [b"key=value\n", b"", b"a seed"]
    assert {path.stat().st_mode & 0o777 for path in others} == {0o600}
    assert node.world.nodes.use_template(NODE, FIRST, TEMPLATE, UUID, MAC, b"key=value\n") is TemplateUse.COPIED
    assert (node.vms / f"{FIRST}.config").exists() and not (node.vms / f"{FIRST}.iso").exists()
    with pytest.raises(OperationFailedError):
        node.world.nodes.use_template(NODE, FIRST, TEMPLATE, UUID, MAC, b"", b"a seed")


def test_a_template_is_kept_without_its_compression(tmp_path: Path) -> None:
    node = RealNode(tmp_path)
    assert node.world.use(FIRST) is TemplateUse.MAKE
    (node.vms / f"{FIRST}.template").write_bytes(saved(FIRST, gzipped=gzip.compress(STREAM)))
    assert node.world.nodes.settle_template(NODE, FIRST, TEMPLATE)
    assert next(node.templates.glob("*.state")).read_bytes() == saved(FIRST)


def test_a_template_that_cannot_be_unpacked_is_none_and_the_next_vm_makes_one(tmp_path: Path) -> None:
    node = RealNode(tmp_path)
    assert node.world.use(FIRST) is TemplateUse.MAKE
    (node.vms / f"{FIRST}.template").write_bytes(saved(FIRST, gzipped=b"torn"))
    with pytest.raises(OperationFailedError, match="gzip cannot unpack"):
        node.world.nodes.settle_template(NODE, FIRST, TEMPLATE)
    assert not [path for path in node.templates.glob("[!.]*") if path.suffix in (".state", ".partial")]
    assert node.world.use(OTHER) is TemplateUse.MAKE


@pytest.mark.parametrize(
    "content",
    [
        saved(FIRST, version=3),
        saved(FIRST)[:50],
        saved(FIRST)[:300],
        saved(FIRST, spare=0, cookie=b"\0"),
        saved(FIRST).replace(b"LibvirtQemudSave", b"LibvirtQemudPart"),
        saved(FIRST).replace(b"<interface ", b"<interfake "),
    ],
    ids=["a newer version", "no whole head", "cut short", "no room", "not complete", "not a VM of ours"],
)
def test_what_is_not_of_the_known_form_is_refused(tmp_path: Path, content: bytes) -> None:
    node = RealNode(tmp_path)
    node.world.make()
    next(node.templates.glob("*.state")).write_bytes(content)
    with pytest.raises(CorruptStateError):
        node.world.use("vjob1234567890-123456")


@pytest.mark.parametrize("changed", ["vmlinuz", "initrd.img"])
def test_a_template_of_an_image_that_was_changed_is_removed(tmp_path: Path, changed: str) -> None:
    node = RealNode(tmp_path)
    node.world.make()
    (tmp_path / changed).write_text("another release")
    assert node.world.use(OTHER) is TemplateUse.MAKE
    assert not list(node.templates.glob("*.state"))


def test_templates_made_with_another_qemu_are_removed_whatever_their_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = RealNode(tmp_path)
    qemu = tmp_path / "bin/qemu-system-x86_64"
    qemu.parent.mkdir()
    monkeypatch.setenv("PATH", str(qemu.parent), prepend=":")
    for release in ("7.2", "10.0.2"):
        qemu.write_text(release)
        qemu.chmod(0o755)
        node.world.make(FIRST, Template("1" * 32, "default"))
    node.world.make(FIRST, Template("2" * 32, "default"))
    assert len(list(node.templates.glob("*.state"))) == 2
    qemu.write_text("11")
    assert node.world.use(OTHER, Template("3" * 32, "default")) is TemplateUse.MAKE
    assert not list(node.templates.glob("*.state"))


def test_the_least_recently_used_template_makes_room(tmp_path: Path) -> None:
    node = RealNode(tmp_path, template_number=2)
    first, second, third = (Template(digit * 32, "default") for digit in "123")
    for template in (first, second):
        node.world.make(FIRST, template)
    assert node.world.use(OTHER, first) is TemplateUse.COPIED
    node.world.make(FIRST, third)
    uses = [node.world.use(OTHER, template) for template in (first, third, second)]
    assert uses == [TemplateUse.COPIED, TemplateUse.COPIED, TemplateUse.MAKE]


def test_templates_take_no_more_room_than_they_may(tmp_path: Path) -> None:
    node = RealNode(tmp_path, template_mib=1)
    keys = [Template(digit * 32, "default") for digit in "123"]
    for template in keys[:2]:
        assert node.world.use(FIRST, template) is TemplateUse.MAKE
        (node.vms / f"{FIRST}.template").write_bytes(saved(FIRST) + bytes(600 << 10))
        assert node.world.nodes.settle_template(NODE, FIRST, template)
    assert len(list(node.templates.glob("*.state"))) == 1
    assert node.world.use(FIRST, keys[2]) is TemplateUse.MAKE
    (node.vms / f"{FIRST}.template").write_bytes(saved(FIRST) + bytes(2 << 20))
    assert not node.world.nodes.settle_template(NODE, FIRST, keys[2])
    assert node.world.copy(FIRST) is None and not list(node.templates.glob("*.partial"))
    assert node.world.use(OTHER, keys[1]) is TemplateUse.COPIED, "it did not have to go for one that never fits"


def test_disks_of_templates_count_and_go_with_them(tmp_path: Path) -> None:
    node = RealNode(tmp_path, template_mib=1)
    for digit in "12":
        template = Template(digit * 32, "debian")
        assert node.world.use(FIRST, template) is TemplateUse.MAKE
        node.world.write(FIRST, digit * (600 << 10))
        node.world.save(FIRST)
        node.world.nodes.keep_disk(NODE, FIRST, template)
        assert node.world.nodes.settle_template(NODE, FIRST, template)
    assert sorted(path.suffix for path in node.templates.glob("[!.]*")) == [".disk", ".state"]
    assert node.world.nodes.check(NODE).templates == (1, (600 << 10) + len(saved(FIRST)))
    (tmp_path / "debian.qcow2").write_text("another release")
    assert node.world.use(OTHER, Template("2" * 32, "debian")) is TemplateUse.MAKE
    assert [path.suffix for path in node.templates.glob("[!.]*")] == [".claim"]


@pytest.mark.parametrize(
    "call", ["use-template {} {} debian {} {} 10", "refuse-template {} {} debian", "drop-config {}"]
)
def test_a_call_that_has_become_late_does_not_touch_the_disk_of_a_vm_that_runs(tmp_path: Path, call: str) -> None:
    node = RealNode(tmp_path)
    node.world.make(FIRST, OF_DISKS)
    assert node.world.use(OTHER, OF_DISKS) is TemplateUse.COPIED
    with node_files.lock(node.vms, (13, 1), still=node_files.require_listener):
        late = subprocess.Popen(
            [sys.executable, "-m", "rmsplugin.node_agent.main", "--config", str(tmp_path / "rmsplugin.toml")],
            env={**os.environ, "SSH_ORIGINAL_COMMAND": call.format(OTHER, OF_DISKS.key, UUID, MAC)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert late.stdin and late.stdout
        late.stdin.write(b"key=value\na seed")
        late.stdin.close()
        # Its caller has given it up, and started the VM in another way.
        late.stdout.close()
        node.world.write(OTHER, "what the guest has written")
    assert late.wait(PATIENCE_S) == 1
    assert node.world.read(OTHER) == "what the guest has written"


def test_a_node_that_keeps_no_templates_makes_none(tmp_path: Path) -> None:
    assert RealNode(tmp_path, template_mib=0).world.use(FIRST) is TemplateUse.BOOT
