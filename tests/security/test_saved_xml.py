"""The XML of a saved state comes from a node, and so from whoever is root there: nothing of his gets into a restore."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmsplugin.adapters.platform.base import DiskImage, KernelImage, VMSpec
from rmsplugin.adapters.platform.libvirt.domain_xml import (
    Machine,
    StrangeXMLError,
    domain_xml,
    require_ours,
    with_paths_of,
)
from rmsplugin.adapters.platform.libvirt.vm_shape import _DOMAIN, _fits, _Shape, strange

SAVED = Path(__file__).parent / "saved"
SPEC = VMSpec(
    name="vjob9001-0",
    uuid="00000000-0000-4000-8000-0000000dbc04",
    cpus=1,
    memory_mib=96,
    mac="52:54:00:23:29:00",
    bridge="br0",
    image=KernelImage("/images/vmlinuz", "/images/initrd.img"),
    config_path="/vm/vjob9001-0.config",
    console_log="/vm/vjob9001-0.console",
)
DISKS = VMSpec(
    name="vjob9002-0",
    uuid="00000000-0000-4000-8000-0000000dbc68",
    cpus=1,
    memory_mib=96,
    mac="52:54:00:23:2a:00",
    bridge="br0",
    image=DiskImage("/vm/vjob9002-0.qcow2", "/vm/vjob9002-0.iso"),
    config_path="/vm/vjob9002-0.config",
    console_log="",
)


def saved(name: str) -> str:
    return (SAVED / f"{name}.xml").read_text()


def in_devices(more: str) -> tuple[str, str]:
    return "</devices>", f"{more}</devices>"


def in_domain(more: str) -> tuple[str, str]:
    return "</domain>", f"{more}</domain>"


QEMU = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"
CONSOLE = "/var/lib/rmsplugin/vm/vjob9001-0.console"

#: What is written over what, in the XML that libvirt 9.0 saved of a VM of ours.
EVIL: dict[str, tuple[str, str]] = {
    "a disk of the host's": in_devices(
        "<disk type='block' device='disk'><source dev='/dev/sda'/><target dev='sda' bus='sata'/></disk>"
    ),
    "a file as a disk": in_devices(
        "<disk type='file' device='disk'><source file='/etc/shadow'/><target dev='vda' bus='virtio'/></disk>"
    ),
    "a disk from the network": in_devices(
        "<disk type='network' device='disk'><source protocol='nbd' name='x'><host name='evil'/></source>"
        "<target dev='vda' bus='virtio'/></disk>"
    ),
    "a CD-ROM": in_devices(
        "<disk type='file' device='cdrom'><source file='/root/secret'/><target dev='vda' bus='virtio'/></disk>"
    ),
    "a directory by 9p": in_devices("<filesystem type='mount'><source dir='/'/><target dir='root'/></filesystem>"),
    "a directory by virtiofs": in_devices(
        "<filesystem type='mount'><driver type='virtiofs'/><binary path='/tmp/evil'/><source dir='/'/>"
        "<target dir='root'/></filesystem>"
    ),
    "options of QEMU": in_domain(f"<commandline {QEMU[6:].replace('qemu=', 'xmlns=')}><arg value='-S'/></commandline>"),
    "options of QEMU, by a prefix": (
        "</domain>",
        f"<qemu:commandline {QEMU}><qemu:arg value='-S'/></qemu:commandline></domain>",
    ),
    "an environment of QEMU": (
        "</domain>",
        f"<q:commandline {QEMU.replace(':qemu', ':q')}><q:env name='A' value='b'/></q:commandline></domain>",
    ),
    "another emulator's attribute": ("<emulator>", "<emulator evil='1'>"),
    "a second emulator": in_devices("<emulator>/tmp/evil</emulator>"),
    "a device of the host's": in_devices(
        "<hostdev mode='subsystem' type='pci'><source><address bus='0' slot='2'/></source></hostdev>"
    ),
    "a device of its USB": in_devices(
        "<hostdev mode='subsystem' type='usb'><source><vendor id='0x1'/><product id='0x2'/></source></hostdev>"
    ),
    "a second network interface": in_devices("<interface type='network'><source network='default'/></interface>"),
    "an interface of another kind": ("<interface type='bridge'>", "<interface type='direct'>"),
    "an interface with a script": ("<model type='virtio'/>", "<script path='/tmp/evil'/><model type='virtio'/>"),
    "a filter's other parameters": (
        "<model type='virtio'/>",
        "<filterref filter='clean-traffic'><parameter name='MAC' value='52:54:00:00:00:01'/></filterref>"
        "<model type='virtio'/>",
    ),
    "a filter with a second address": (
        "<model type='virtio'/>",
        "<filterref filter='clean-traffic'><parameter name='IP' value='10.0.0.1'/>"
        "<parameter name='IP' value='10.0.0.2'/></filterref><model type='virtio'/>",
    ),
    "another MAC address": ("52:54:00:23:29:00", "52:54:00:23:29:01"),
    "a serial port in a file": ("<serial type='pty'>", "<serial type='file'><source path='/root/.bashrc'/>"),
    "a serial port from the network": ("<serial type='pty'>", "<serial type='tcp'>"),
    "a serial port of the host's": (
        "<serial type='pty'>",
        "<serial type='pty'><source path='/etc/cron.d/evil'/>",
    ),
    "a second serial port": in_devices("<serial type='file'><source path='/etc/passwd'/></serial>"),
    "a second console": in_devices("<console type='file'><source path='/etc/passwd'/></console>"),
    "a channel": in_devices("<channel type='unix'><source path='/run/x'/><target type='virtio' name='x'/></channel>"),
    "a parallel port": in_devices("<parallel type='dev'><source path='/dev/mem'/></parallel>"),
    "a random device that is a file": ("/dev/urandom", "/etc/shadow"),
    "a random device from a daemon": ("<backend model='random'>", "<backend model='egd'>"),
    "shared memory": in_devices("<shmem name='x'><size unit='M'>4</size></shmem>"),
    "memory of a file": in_domain("<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>"),
    "plugged memory": in_devices("<memory model='nvdimm'><source><path>/etc/shadow</path></source></memory>"),
    "a TPM": in_devices("<tpm model='tpm-tis'><backend type='passthrough'><device path='/dev/sda'/></backend></tpm>"),
    "a screen for everybody": in_devices("<graphics type='vnc' port='5901' listen='0.0.0.0'/>"),
    "sound in a file": ("<audio id='1' type='none'/>", "<audio id='1' type='file' path='/etc/passwd'/>"),
    "a crypto device": in_devices("<crypto model='virtio' type='qemu'><backend model='lkcf'/></crypto>"),
    "a lease": in_devices("<lease><lockspace>x</lockspace><key>y</key><target path='/etc/shadow'/></lease>"),
    "a vsock": in_devices("<vsock model='virtio'><cid auto='yes'/></vsock>"),
    "firmware of his": ("<kernel>", "<loader type='rom'>/tmp/evil</loader><kernel>"),
    "firmware's memory": ("<kernel>", "<nvram template='/etc/shadow'>/tmp/x</nvram><kernel>"),
    "a table of ACPI": ("<kernel>", "<acpi><table type='slic'>/etc/shadow</table></acpi><kernel>"),
    "a device tree": ("<kernel>", "<dtb>/etc/shadow</dtb><kernel>"),
    "a second kernel": ("<kernel>", "<kernel>/etc/shadow</kernel><kernel>"),
    "no confinement": in_domain("<seclabel type='none' model='dac'/><seclabel type='none' model='evil'/>"),
    "a label of SELinux's with more": in_domain("<seclabel type='dynamic' model='selinux'><evil/></seclabel>"),
    "another user's memory": ("<memory unit='KiB'>98304</memory>", "<memory unit='KiB'>9830400</memory>"),
    "memory in pages": ("<memory unit='KiB'>98304</memory>", "<memory unit='GiB'>98304</memory>"),
    "more CPUs": ("<vcpu placement='static'>1</vcpu>", "<vcpu placement='static'>64</vcpu>"),
    "CPUs pinned": in_domain("<cputune><vcpupin vcpu='0' cpuset='0'/></cputune>"),
    "I/O threads": in_domain("<iothreads>1000</iothreads>"),
    "a group of control of the host's": ("<partition>/machine</partition>", "<partition>/../machine/ x</partition>"),
    "a start over after a crash": ("<on_crash>destroy</on_crash>", "<on_crash>coredump-restart</on_crash>"),
    "an action on a lost lock": in_domain("<on_lockfailure>ignore</on_lockfailure>"),
    "more files for the firmware": ("</sysinfo>", "<entry name='opt/evil' file='/etc/shadow'/></sysinfo>"),
    "another kind of sysinfo": ("<sysinfo type='fwcfg'>", "<sysinfo type='smbios'>"),
    "a launch of SEV": in_domain("<launchSecurity type='sev'><dhCert>x</dhCert></launchSecurity>"),
    "another kind of VM": ("<domain type='qemu'>", "<domain type='xen'>"),
    "a key wrapped": in_domain("<keywrap><cipher name='aes' state='on'/></keywrap>"),
    "an entity": ("<domain ", "<!DOCTYPE domain [<!ENTITY x SYSTEM 'file:///etc/shadow'>]><domain "),
    "a word between": ("</devices>", "</devices>evil"),
    "a controller of another kind": (
        "<controller type='usb' index='0' model='none'/>",
        "<controller type='scsi' index='0' model='lsilogic'/>",
    ),
    "a pipe as a controller's": (
        "<controller type='usb' index='0' model='none'/>",
        "<controller type='usb' index='0' model='none' evil='/x'/>",
    ),
}


@pytest.mark.parametrize("what", EVIL)
def test_a_saved_state_with_more_than_ours_is_refused(what: str) -> None:
    xml = saved("kernel")
    changed = xml.replace(*EVIL[what], 1)
    assert changed != xml, "the attack changed nothing"
    with pytest.raises(ValueError) as refusal:
        with_paths_of(changed, SPEC)
    if what != "an entity":
        assert isinstance(refusal.value, StrangeXMLError), "it would be taken for lost"


@pytest.mark.parametrize("what", ["a second disk", "another disk", "no seed"])
def test_disks_of_a_saved_state_are_those_of_its_vm(what: str) -> None:
    xml = saved("disks")
    [_, seed] = re.findall("<disk.*?</disk>", xml, re.DOTALL)
    evil = {
        "a second disk": xml.replace(seed, seed + seed),
        "another disk": xml.replace(seed, seed.replace("vdb", "sdb")),
        "no seed": xml.replace(seed, ""),
    }[what]
    with pytest.raises(StrangeXMLError):
        with_paths_of(evil, DISKS)


@pytest.mark.parametrize(("name", "spec"), [("kernel", SPEC), ("disks", DISKS)])
def test_what_is_not_compared_is_not_taken_over(name: str, spec: VMSpec) -> None:
    """Paths and labels may be anybody's: they are replaced, or left to libvirt."""
    evil = (
        re.sub("(file=')/[^']*", r"\1/etc/shadow", saved(name))
        .replace("/usr/bin/qemu-system-x86_64", "/etc/shadow")
        .replace("<backingStore/>", "<backingStore type='file'><source file='/etc/shadow'/></backingStore>")
        .replace("</domain>", "<seclabel type='static' model='dac'><label>+0:+0</label></seclabel></domain>")
    )
    restored = with_paths_of(re.sub("<(kernel|initrd)>[^<]*", r"<\1>/etc/shadow", evil), spec)
    for word in ("shadow", "seclabel", "emulator", "backingStore"):
        assert word not in restored


def test_what_libvirt_makes_of_our_vms_is_taken_as_it_is() -> None:
    for path in sorted(SAVED.glob("*.xml")):
        assert strange(path.read_text()) == "", path.name
    for machine in (Machine("qemu", "pc-q35-7.2"), Machine("kvm", "pc-q35-10.0")):
        for spec in (SPEC, DISKS):
            require_ours(domain_xml(spec, machine), spec)


def patterns(shape: _Shape) -> set[str]:
    """All that the table says of attributes and texts, at any depth."""
    return {shape.text, *shape.attributes.values()}.union(*map(patterns, shape.children.values()))


@pytest.mark.parametrize("pattern", sorted(patterns(_DOMAIN)))
def test_words_are_compared_as_the_pattern_that_they_are(pattern: str) -> None:
    words = [pattern, *pattern.split("|"), "", "|", "0", "0x1", "virtio", "/etc/shadow"]
    for value in [*words, *(f"{word}\n" for word in words), *(word.upper() for word in words)]:
        assert _fits(pattern, value) == (re.fullmatch(pattern, value) is not None), value
