"""AppArmor: libvirt's own profile of a VM has all that its QEMU opens, and nothing of another VM.

The kernel need not have AppArmor: the profile is made by libvirt's helper, and only parsed. So this sees which files
are in it, and not that the kernel goes by it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rmsplugin.adapters.platform.base import DiskImage, KernelImage, VMSpec
from rmsplugin.adapters.platform.libvirt.domain_xml import Machine, domain_xml

REPOSITORY = Path(__file__).resolve().parents[2]
HELPER = Path("/usr/lib/libvirt/virt-aa-helper")
PARSER = shutil.which("apparmor_parser", path="/usr/sbin:/sbin")
PROFILES = Path("/etc/apparmor.d")
UUID = "11111111-2222-4333-8444-555555555555"
VM, OTHER = "vjob12-0", "vjob12-1"

needs_helper = pytest.mark.skipif(not HELPER.exists(), reason="no virt-aa-helper (Debian: libvirt-daemon-system)")
needs_parser = pytest.mark.skipif(PARSER is None, reason="no apparmor_parser (Debian: apparmor)")


class Files:
    """What a node has for two VMs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("vmlinuz", "initrd.img", *(f"{vm}.{kind}" for vm in (VM, OTHER) for kind in self.KINDS)):
            (root / name).touch(mode=0o600)
        self._qcow2("base.qcow2")
        for vm in (VM, OTHER):
            self._qcow2(f"{vm}.qcow2", "-F", "qcow2", "-b", str(root / "base.qcow2"))

    KINDS = ("config", "iso", "console", "state.partial", "template")

    def _qcow2(self, name: str, *words: str) -> None:
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *words, str(self.root / name), "1M"], check=True)

    def __call__(self, name: str) -> str:
        return str(self.root / name)

    def xml(self, kind: str) -> str:
        """Of the VM, with a kernel or a disk."""
        kernel = KernelImage(self("vmlinuz"), self("initrd.img"), "")
        spec = VMSpec(
            name=VM,
            uuid=UUID,
            cpus=1,
            memory_mib=96,
            image=kernel if kind == "kernel" else DiskImage(self(f"{VM}.qcow2"), self(f"{VM}.iso")),
            mac="52:54:00:00:00:01",
            bridge="br0",
            config_path=self(f"{VM}.config"),
            console_log=self(f"{VM}.console"),
        )
        return domain_xml(spec, Machine("qemu", "pc-q35-7.2"))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def generated(xml: str, *words: str) -> str:
    """The rules that libvirt makes for the VM of this XML."""
    command = [HELPER, "--dryrun", "--replace", "--uuid", f"libvirt-{UUID}", *words]
    # It tells them where its errors go.
    return subprocess.run(command, input=xml, capture_output=True, text=True, check=True).stderr


def rules(text: str) -> dict[str, str]:
    """What is allowed, by path."""
    return dict(re.findall(r'^  "([^"]+)" ([a-z]+),$', text, re.MULTILINE))


@needs_helper
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("kernel", {"vmlinuz": "r", "initrd.img": "r", f"{VM}.config": "r"}),
        ("disk", {f"{VM}.qcow2": "rwk", "base.qcow2": "rk", f"{VM}.iso": "rk", f"{VM}.config": "r"}),
    ],
)
def test_a_vms_profile_has_what_its_qemu_opens_and_nothing_of_another(
    files: Files, kind: str, expected: dict[str, str]
) -> None:
    # Its console log is not in it: libvirtd, or virtlogd, opens that one.
    allowed = {path: how for path, how in rules(generated(files.xml(kind))).items() if path.startswith(files(""))}
    assert allowed == {files(name): how for name, how in expected.items()}


@needs_helper
def test_a_saved_state_is_in_the_profile_by_its_own_name(files: Files) -> None:
    # What libvirt says to its helper when it hands QEMU the file that it has opened, at a save, checkpoint or restore.
    allowed = rules(generated(files.xml("kernel"), "-f", files(f"{VM}.state.partial")))
    assert files(f"{VM}.state.partial") in allowed
    assert not any(OTHER in path for path in allowed)


@needs_helper
@needs_parser
@pytest.mark.parametrize("kind", ["kernel", "disk"])
def test_a_vms_profile_is_one_that_apparmor_takes(files: Files, tmp_path: Path, kind: str) -> None:
    text = generated(files.xml(kind))
    rules_text = "\n".join(line for line in text.splitlines() if line.startswith("  "))
    assert rules(rules_text)
    template = (PROFILES / "libvirt/TEMPLATE.qemu").read_text().replace("LIBVIRT_TEMPLATE", f"libvirt-{UUID}")
    before, closing, after = template.rpartition("}")
    parse(tmp_path / "profile", f"{before}{rules_text}\n{closing}{after}")


@needs_parser
@pytest.mark.skipif(not (PROFILES / "usr.sbin.libvirtd").exists(), reason="no profile of libvirtd")
def test_libvirtds_profile_lets_the_hook_start_the_node_agent(tmp_path: Path) -> None:
    profile = (PROFILES / "usr.sbin.libvirtd").read_text()
    ours = (REPOSITORY / "contrib/apparmor/usr.sbin.libvirtd").read_text()
    assert "PUx" in ours
    before, closing, after = profile.rpartition("}")
    parse(tmp_path / "profile", f"{before}{ours}{closing}{after}")
    # Why the line is needed: the program that the link in /usr/bin names is below none of these.
    executable = re.findall(r"^\s+(\S+) \S*[PUi][UX]?x,$", profile, re.MULTILINE)
    assert "/usr/bin/*" in executable
    assert not any(path.startswith(("/opt", "/**")) for path in executable)


def parse(path: Path, text: str) -> None:
    """Have AppArmor's compiler take the profile; nothing is loaded, and nothing kept."""
    path.write_text(text)
    assert PARSER
    command = [PARSER, "--skip-kernel-load", "--skip-cache", "--base", str(PROFILES), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
