"""``rmsplugin check`` on what somebody who breaks out of a VM has on its node: QEMU's account, and its confinement."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.check_facts import fault, faults, settings
from unit.cli.test_cli_check import AGENT, NODE

from rmsplugin.adapters.platform.base import HostInfo
from rmsplugin.adapters.platform.libvirt.values import confined_by, qemu_uid
from rmsplugin.cli.check.nodes import judge_node
from rmsplugin.finding import Finding, Level

UID = 64055


def judged(uid: int | None, confined: str | None, **changes: object) -> list[Finding]:
    assert isinstance(NODE.hypervisor, HostInfo)
    info = replace(NODE.hypervisor, account_uid=uid, confined_by=confined)
    facts = replace(NODE, hypervisor=info, agent=replace(AGENT, **changes))  # type: ignore[arg-type]
    return faults(judge_node(settings(), facts))


@pytest.mark.parametrize("model", ["apparmor", "selinux"])
def test_qemu_confined_and_with_an_account_of_its_own_is_in_order(model: str) -> None:
    assert judged(UID, model, writable_images=frozenset({"/k"})) == []


def test_a_node_that_does_not_tell_is_not_blamed() -> None:
    assert judged(None, None, writable_images=frozenset({"/k"}), hidden_vm_dir="/var") == []


def test_qemu_as_root_is_told() -> None:
    found = fault(judged(0, "apparmor"), Level.WARNING, "QEMU runs as root")
    assert 'user = "libvirt-qemu"' in found.remedy


def test_qemu_that_nothing_confines_is_told() -> None:
    found = fault(judged(UID, ""), Level.WARNING, "neither AppArmor nor SELinux")
    assert "security_driver" in found.remedy


def test_a_directory_that_qemu_cannot_pass_is_an_error() -> None:
    found = fault(
        judged(UID, "apparmor", hidden_vm_dir="/var/lib/rmsplugin"), Level.ERROR, "cannot pass /var/lib/rmsplugin"
    )
    assert found.remedy == "chmod o+x /var/lib/rmsplugin on this node"
    assert len(judged(0, "apparmor", hidden_vm_dir="/var/lib/rmsplugin")) == 1  # root passes


@pytest.mark.parametrize("closed", [True, False, None])
def test_a_device_of_kvm_that_qemu_may_not_open_is_told(closed: bool | None) -> None:
    found = judged(UID, "apparmor", kvm_closed=closed)
    if closed:
        assert "usermod -a -G kvm" in fault(found, Level.WARNING, "cannot open /dev/kvm").remedy
    else:
        assert found == []
    assert len(judged(0, "apparmor", kvm_closed=closed)) == 1  # root may


def test_images_that_one_vm_may_write_and_the_next_one_boots_are_told() -> None:
    found = judged(UID, "", writable_images=frozenset({"/k", "/i"}))
    assert "libvirt gives /i, /k to QEMU's account" in found[-1].what
    assert "read-only" in found[-1].remedy


CAPABILITIES = """<capabilities><host>{}<secmodel><model>dac</model><doi>0</doi><baselabel type='kvm'>{}</baselabel>
<baselabel type='qemu'>{}</baselabel></secmodel></host></capabilities>"""
APPARMOR = "<secmodel><model>apparmor</model><doi>0</doi></secmodel>"
NONE = "<secmodel><model>none</model><doi>0</doi></secmodel>"


@pytest.mark.parametrize(
    ("models", "label", "uid", "confined"),
    [
        (APPARMOR, "+64055:+64055", 64055, "apparmor"),
        (NONE, "+0:+0", 0, ""),
        ("<secmodel><model>selinux</model><doi>0</doi></secmodel>", "107:107", 107, "selinux"),
    ],
)
def test_libvirts_capabilities_say_whom_qemu_runs_as(models: str, label: str, uid: int, confined: str) -> None:
    text = CAPABILITIES.format(models, label, label)
    assert (qemu_uid(text), confined_by(text)) == (uid, confined)


def test_capabilities_without_security_models_say_nothing_of_qemu() -> None:
    # An unprivileged libvirtd: QEMU has its account.
    assert qemu_uid("<capabilities><host/></capabilities>") is None
    assert confined_by("<capabilities><host/></capabilities>") == ""
