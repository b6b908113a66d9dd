"""libvirt's hook on a node: what comes from a libvirt that lies is refused where it would be created."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import PATIENCE_S
from security.test_saved_xml import EVIL, saved

from rmsplugin.adapters.platform.libvirt.domain_xml import with_epoch
from rmsplugin.adapters.platform.libvirt.on_node import creation
from rmsplugin.adapters.platform.node_base import Facts
from rmsplugin.adapters.platform.node_factory import platform_on_node
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.model.vm_names import tap_of
from rmsplugin.node_agent import config, creation_hook, owner
from rmsplugin.node_agent.epoch import obey, of_node
from rmsplugin.node_agent.errors import AgentError

AGENT = Path(sys.executable).parent / "rmsplugin-node"
VM, DISKS = "vjob9001-0", "vjob9002-0"
SETTINGS = """
[nodes]
vm_dir = "/var/lib/rmsplugin/vm"
[image.default]
kind = "kernel"
kernel = "/var/lib/rmsplugin-images/vmlinuz"
initrd = "/var/lib/rmsplugin-images/initrd.img"
[image.debian]
kind = "qcow2"
base = "/images/debian.qcow2"
"""


def refusal(
    name: str,
    operation: str,
    xml: str,
    known: config.AgentConfig,
    filtered: frozenset[str] = frozenset(),
    epoch: int = FIRST_EPOCH,
) -> str:
    return creation.refusal(name, operation, xml, known, Facts(epoch, filtered.__contains__))


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "rmsplugin.toml"
    path.write_text(SETTINGS)
    return path


def disks() -> str:
    own = f"/var/lib/rmsplugin/vm/{DISKS}"
    xml = saved("disks").replace("/tmp/disk.qcow2", f"{own}.qcow2").replace("/tmp/seed.iso", f"{own}.iso")
    below = "<backingStore type='file'><format type='qcow2'/><source file='/images/debian.qcow2'/></backingStore>"
    return xml.replace("<backingStore/>", below, 1)


def test_our_vms_are_created(settings: Path) -> None:
    known = config.load(str(settings))
    for operation in ("prepare", "migrate"):
        assert refusal(VM, operation, saved("kernel"), known) == ""
        assert refusal(DISKS, operation, disks(), known) == ""


def test_a_directory_of_the_settings_may_be_written_in_other_ways(settings: Path) -> None:
    settings.write_text(SETTINGS.replace("/var/lib/rmsplugin/vm", "/var/lib//rmsplugin/./vm/"))
    known = config.load(str(settings))
    assert known.vm_dir == Path("/var/lib/rmsplugin/vm")
    assert refusal(VM, "prepare", saved("kernel"), known) == ""
    settings.write_text(SETTINGS.replace("/var/lib/rmsplugin/vm", "var/lib/rmsplugin/vm"))
    with pytest.raises(AgentError, match="var/lib/rmsplugin/vm is not an absolute path"):
        config.load(str(settings))


def test_a_vm_that_the_node_is_to_filter_is_created_only_when_it_does(settings: Path) -> None:
    known, tap = config.load(str(settings)), tap_of(VM)
    xml = re.sub("(<source bridge='br0'/>)", rf"\1<target dev='{tap}'/>", saved("kernel"), count=1)
    assert tap in xml
    for operation in ("prepare", "migrate"):
        assert "is to be filtered here, and is not" in refusal(VM, operation, xml, known)
        assert refusal(VM, operation, xml, known, frozenset({tap})) == ""


@pytest.mark.parametrize("operation", ["prepare", "migrate"])
def test_a_vm_whose_engine_is_deposed_is_not_created(settings: Path, operation: str) -> None:
    known = config.load(str(settings))
    for epoch, is_over in ((FIRST_EPOCH, True), (4, True), (5, False), (6, False)):
        found = refusal(VM, operation, with_epoch(saved("kernel"), epoch), known, epoch=5)
        over = f"the turn of the engine that creates it (epoch {epoch}) is over: one of epoch 5 has acted here"
        assert found == (over if is_over else "")


def test_the_program_knows_the_epoch_that_has_acted_here_and_learns_none_from_a_vm(tmp_path: Path) -> None:
    settings, own = tmp_path / "rmsplugin.toml", tmp_path / "vm"
    own.mkdir()
    settings.write_text(SETTINGS.replace("/var/lib/rmsplugin/vm", str(own)))
    ours = saved("kernel").replace("/var/lib/rmsplugin/vm", str(own))
    words = [VM, "prepare", "begin", "-"]
    assert hook(settings, words, with_epoch(ours, 9).encode()).returncode == 0
    assert hook(settings, words, ours.encode()).returncode == 0, "root of a node would have the engine refused"
    obey(of_node(own), 5)
    refused = hook(settings, words, with_epoch(ours, 4).encode())
    assert refused.returncode == 1
    assert b"(epoch 4) is over: one of epoch 5 has acted here" in refused.stderr
    (own / ".epoch").write_text("five\n")
    refused = hook(settings, words, with_epoch(ours, 5).encode())
    assert refused.returncode == 1 and b"holds no epoch" in refused.stderr


@pytest.mark.parametrize("operation", ["prepare", "migrate"])
def test_a_node_that_is_booted_anew_creates_nothing_before_an_engine_has_shown_that_it_leads(
    tmp_path: Path, operation: str
) -> None:
    settings, own = tmp_path / "rmsplugin.toml", tmp_path / "vm"
    own.mkdir()
    settings.write_text(SETTINGS.replace("/var/lib/rmsplugin/vm", str(own)))
    ours = with_epoch(saved("kernel").replace("/var/lib/rmsplugin/vm", str(own)), 5).encode()
    words = [VM, operation, "begin", "-"]
    assert hook(settings, words, ours).returncode == 0, "a single engine has nobody to be taken for"
    settings.write_text(settings.read_text() + '[cluster]\ncoordination = "zookeeper"\nservers = ["c1:2181"]\n')
    refused = hook(settings, words, ours)
    assert refused.returncode == 1
    assert b"no engine has shown since this node was booted that it leads" in refused.stderr
    assert hook(settings, [VM, "reconnect", "begin", "-"], ours).returncode == 0, "VMs that run are left to run"
    owner.keep(own, owner.Claim(owner.boot_id(), owner.now_ms() + 60_000))
    assert hook(settings, words, ours).returncode == 0
    obey(of_node(own), 6)
    assert b"(epoch 5) is over" in hook(settings, words, ours).stderr


def test_vms_of_other_names_are_none_of_our_business_and_come_from_no_other_node(settings: Path) -> None:
    known = config.load(str(settings))
    assert refusal("web", "prepare", saved("kernel").replace(VM, "web"), known) == ""
    assert "no VM of ours" in refusal("web", "migrate", saved("kernel").replace(VM, "web"), known)


#: The node does not know how large a VM is to be, nor its addresses.
_NOT_KNOWN = ("another user's memory", "more CPUs", "another MAC address")


@pytest.mark.parametrize("what", [what for what in EVIL if what not in _NOT_KNOWN])
def test_what_is_not_of_our_shape_is_refused(settings: Path, what: str) -> None:
    known = config.load(str(settings))
    try:
        assert refusal(VM, "prepare", saved("kernel").replace(*EVIL[what], 1), known)
    except ValueError:
        return


@pytest.mark.parametrize(
    ("pattern", "evil"),
    [
        ("<kernel>.*?</kernel>", "<kernel>/etc/shadow</kernel>"),
        ("<initrd>.*?</initrd>", "<initrd>/etc/shadow</initrd>"),
        ("file='[^']*config'", "file='/etc/rmsplugin/node_key'"),
        ("file='[^']*config'", "file='/var/lib/rmsplugin/vm/vjob9002-0.config'"),
        ("<log file='[^']*'", "<log file='/etc/cron.d/evil'"),
        ("<emulator>.*?</emulator>", "<emulator>/tmp/evil</emulator>"),
        ("<source bridge='br0'/>", "<source bridge='br-admin'/>"),
        ("</domain>", "<seclabel type='none' model='dac'/></domain>"),
        ("</domain>", "<seclabel type='static' model='dac'><label>+0:+0</label></seclabel></domain>"),
    ],
)
def test_files_that_are_not_the_vms_own_are_refused(settings: Path, pattern: str, evil: str) -> None:
    changed = re.sub(pattern, evil, saved("kernel"), count=1)
    assert refusal(VM, "prepare", changed, config.load(str(settings)))


@pytest.mark.parametrize(
    ("was", "evil"),
    [
        (f"/var/lib/rmsplugin/vm/{DISKS}.qcow2", "/etc/shadow"),
        (f"/var/lib/rmsplugin/vm/{DISKS}.iso", "/var/lib/rmsplugin/vm/vjob1-0.iso"),
        ("/images/debian.qcow2", "/etc/shadow"),
    ],
)
def test_disks_that_are_not_the_vms_own_are_refused(settings: Path, was: str, evil: str) -> None:
    assert was in disks()
    assert refusal(DISKS, "prepare", disks().replace(was, evil), config.load(str(settings)))


def hook(settings: Path, words: list[str], xml: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [AGENT, "--qemu-hook", *words],
        input=xml,
        capture_output=True,
        env={"RMSPLUGIN_CONFIG": str(settings)},
        timeout=PATIENCE_S,
    )


def test_the_program_refuses_by_its_status_and_says_why(settings: Path) -> None:
    ours, evil = saved("kernel").encode(), saved("kernel").replace(*EVIL["a disk of the host's"], 1).encode()
    assert hook(settings, [VM, "prepare", "begin", "-"], ours).returncode == 0
    refused = hook(settings, [VM, "prepare", "begin", "-"], evil)
    assert (refused.returncode, refused.stdout) == (1, b"")
    words = b"rmsplugin refuses vjob9001-0: it has something that no VM of ours has: domain/devices/disk"
    assert words in refused.stderr
    assert b"Traceback" not in refused.stderr


@pytest.mark.parametrize("xml", [b"", b"<domain/>", b"\xff\xfe", b"<" * 100, b"x" * (2 << 20)], ids=len)
def test_what_is_no_xml_is_refused_without_a_traceback(settings: Path, xml: bytes) -> None:
    refused = hook(settings, [VM, "prepare", "begin", "-"], xml)
    assert refused.returncode == 1 and b"Traceback" not in refused.stderr


def test_without_settings_nothing_of_ours_is_created(tmp_path: Path) -> None:
    refused = hook(tmp_path / "none", [VM, "prepare", "begin", "-"], saved("kernel").encode())
    assert refused.returncode == 1 and b"Traceback" not in refused.stderr


def test_what_creates_nothing_is_never_refused(settings: Path) -> None:
    for words in ([VM, "reconnect", "begin", "-"], [VM, "stopped", "end", "shutdown"], [VM, "started", "begin", "-"]):
        assert hook(settings, words, b"<evil/>").returncode == 0


def _as_a_directory(epoch: Path) -> None:
    epoch.mkdir()


def _as_a_link(epoch: Path) -> None:
    epoch.symlink_to(epoch.with_name("elsewhere"))


def _with_other_words(epoch: Path) -> None:
    epoch.write_text("the third\n")


@pytest.mark.parametrize("put", [_as_a_directory, _as_a_link, _with_other_words])
def test_an_epoch_that_cannot_be_read_refuses_in_one_sentence(
    settings: Path, tmp_path: Path, put: Callable[[Path], None]
) -> None:
    vms = tmp_path / "vms"
    vms.mkdir()
    settings.write_text(SETTINGS.replace("/var/lib/rmsplugin/vm", str(vms)))
    put(Path(of_node(vms)))
    xml = saved("kernel").replace("/var/lib/rmsplugin/vm", str(vms)).encode()
    refused = hook(settings, [VM, "prepare", "begin", "-"], xml)
    (line,) = refused.stderr.decode().splitlines()
    assert refused.returncode == 1 and line.startswith(f"rmsplugin refuses {VM}: ")


def test_a_disk_that_fails_under_the_epoch_refuses_in_one_sentence(
    settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(path: str) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(settings))
    monkeypatch.setattr(creation_hook.epoch, "highest", fails)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(saved("kernel").encode())))
    assert creation_hook.answer(platform_on_node("libvirt"), [VM, "prepare", "begin", "-"]) == 1
    where = of_node("/var/lib/rmsplugin/vm")
    assert capsys.readouterr().err == f"rmsplugin refuses {VM}: Input/output error: {where}\n"


@pytest.mark.parametrize("text", [b"[nodes]\nvm_dir = '\xff'", b"a = " + b"[" * 100_000], ids=["bytes", "brackets"])
def test_settings_that_are_no_toml_refuse_in_one_sentence(settings: Path, text: bytes) -> None:
    settings.write_bytes(text)
    refused = hook(settings, [VM, "prepare", "begin", "-"], saved("kernel").encode())
    (line,) = refused.stderr.decode().splitlines()
    assert refused.returncode == 1 and line.startswith(f"rmsplugin refuses {VM}: {settings}: ")
    told = subprocess.run([AGENT, "--config", settings, "list"], capture_output=True, timeout=PATIENCE_S)
    assert told.stderr == b"" and json.loads(told.stdout)["error"].startswith(f"{settings}: ")
