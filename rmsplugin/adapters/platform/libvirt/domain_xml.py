"""Domain XML: the XML that libvirt gets for a VM. Pure; every value goes through lxml, which escapes it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from lxml import etree

from rmsplugin.adapters.platform.base import NODE_FILTER, ContainerImage, DiskImage, KernelImage, VMSpec
from rmsplugin.adapters.platform.libvirt.vm_shape import strange
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.model.vm_names import parse_vm_name, tap_of

#: Namespace of our own elements in a domain's <metadata>.
NAMESPACE = "urn:rmsplugin:vjob:1"
FW_CFG_NAME = "opt/org.rmsplugin/config"

#: The node's control group for VMs whose memory is observed, by libvirt's name; the node agent makes it.
PARTITION = "/rmsplugin"

#: The demand metrics need the guest's own memory statistics; QEMU asks the balloon driver this often.
_BALLOON_PERIOD_S = 5

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
#: A kernel that panics resets the machine at once, which ends the VM (on_reboot): otherwise it would stand still for
#: ever. A disk image has its own command line, and gets this from its seed. On a busy node an emulated timer looks
#: broken to the kernel, whose check of it ends in a panic; under KVM the kernel makes no such check.
_CMDLINE = "console=ttyS0 panic=-1 no_timer_check"
_ADDRESS = re.compile(r"([0-9]{1,3}(\.[0-9]{1,3}){3})?")
_FILTER = re.compile(r"[A-Za-z0-9._-]{0,60}")
_INTERFACE = re.compile(r"[A-Za-z0-9._-]{1,15}")


class StrangeXMLError(ValueError):
    """The XML of a VM has more than ours: another program has written it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The virtual hardware of all VMs of a site.

    A saved state and a live migration need the same hardware on both sides, so a site's nodes share one of these.
    """

    domain_type: Literal["kvm", "qemu"]
    type: str  # with its version: plain q35 is another machine in each release of QEMU
    cpu_model: str = ""  # "" = the host's own under KVM, and qemu64, which TCG can emulate on any host, otherwise


def domain_xml(spec: VMSpec, machine: Machine) -> str:
    """The XML that creates the VM.

    Raises:
        ValueError: a value of the spec is impossible for a VM of ours.
    """
    check_spec(spec)
    domain = etree.Element("domain", type=machine.domain_type, nsmap={"rmsplugin": NAMESPACE})
    _add(domain, "name", spec.name)
    _add(domain, "uuid", spec.uuid)
    # libvirt chooses the genid, anew at each restore: the guest's kernel then gives out no random number twice.
    _add(domain, "genid")
    identity = parse_vm_name(spec.name)
    assert identity is not None
    vjob = etree.SubElement(_add(domain, "metadata"), f"{{{NAMESPACE}}}vjob")
    vjob.set("job", str(identity[0]))
    vjob.set("index", str(identity[1]))
    _add(domain, "memory", str(spec.memory_mib), unit="MiB")
    _add(domain, "vcpu", str(spec.cpus))
    _add(domain, "sysinfo", type="fwcfg")
    system = _add(domain, "os")
    _add(system, "type", "hvm", arch="x86_64", machine=machine.type)
    if isinstance(spec.image, KernelImage):
        for name in ("kernel", "initrd", "cmdline"):
            _add(system, name)
    else:
        _add(system, "boot", dev="hd")
    features = _add(domain, "features")
    _add(features, "acpi")
    _add(features, "apic")
    _add_cpu(domain, machine)
    _add(domain, "clock", offset="utc")
    # A guest that ends, in whatever way, is gone: the engine decides the next step.
    for event in ("on_poweroff", "on_reboot", "on_crash"):
        _add(domain, event, "destroy")
    _add_devices(domain, spec)
    set_paths(domain, spec)
    _set_epoch(domain, spec.epoch)
    _set_bounded(domain, spec.bounded)
    return etree.tostring(domain, encoding="unicode", pretty_print=True)


def neutral(spec: VMSpec) -> VMSpec:
    """The VM without the parts that may differ in a restored one."""
    image = spec.image if isinstance(spec.image, KernelImage) else DiskImage("/vda", "/vdb")
    return replace(
        spec,
        name="vjob0-0",
        uuid="00000000-0000-4000-8000-000000000000",
        mac="52:54:00:00:00:00",
        address="",
        network_filter="",
        image=image,
        config_path="/config",
        console_log="/console",
        epoch=FIRST_EPOCH,
        bounded=False,
    )


def with_paths_of(saved_xml: str, spec: VMSpec) -> str:
    """The XML of a saved state, with the paths, bridge and command line of ``spec``.

    Not a fresh ``domain_xml``: the saved one has the exact machine version, the expanded CPU and the device addresses
    that the state was made with, and a state can be loaded into nothing else, whatever this node would choose today.

    Nothing else that could name an object of the host is taken over: see ``vm_shape``.

    Raises:
        StrangeXMLError: the state's XML has parts that no VM of ours has, or others than this VM.
        ValueError: the state is another VM's.
    """
    check_spec(spec)
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_blank_text=True)
    try:
        domain = etree.fromstring(saved_xml.encode(), parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"no domain XML: {error}") from None
    if (domain.findtext("name"), domain.findtext("uuid")) != (spec.name, spec.uuid):
        raise ValueError(f"it is the state of {domain.findtext('name')}, not of {spec.name}")
    require_ours(saved_xml, spec)
    # Parts that libvirt finds, or chooses, anew.
    for parent, tag in (("devices", "emulator"), ("devices/disk", "backingStore"), (".", "seclabel")):
        for element in domain.findall(parent):
            for child in element.findall(tag):
                element.remove(child)
    set_paths(domain, spec)
    _set_epoch(domain, spec.epoch)
    _set_bounded(domain, spec.bounded)
    return etree.tostring(domain, encoding="unicode")


def require_ours(xml: str, spec: VMSpec | None = None) -> None:
    """Refuse a VM's XML from libvirt that has more than we write and libvirt adds, or does not fit ``spec``.

    Raises:
        StrangeXMLError: with the first difference.
        ValueError: the text is no XML.
    """
    if found := strange(xml):
        raise StrangeXMLError(f"it has something that no VM of ours has: {found}")
    if spec is None:
        return
    domain = etree.fromstring(xml.encode())
    mac = domain.find("devices/interface/mac")
    for what, has, is_to_have in (
        ("CPUs", domain.findtext("vcpu"), str(spec.cpus)),
        ("KiB of memory", str(_kib(domain.find("memory"))), str(spec.memory_mib * 1024)),
        ("as MAC address", "" if mac is None else mac.get("address", "").lower(), spec.mac),
        ("disks", len(domain.findall("devices/disk")), 2 if isinstance(spec.image, DiskImage) else 0),
        ("kernels", len(domain.findall("os/kernel")), 1 if isinstance(spec.image, KernelImage) else 0),
    ):
        if has != is_to_have:
            raise StrangeXMLError(f"it has {has} {what}, and {spec.name} has {is_to_have}")


def _kib(memory: etree._Element | None) -> int:
    if memory is None or not memory.text:
        return 0
    return int(memory.text) * (1024 if memory.get("unit") == "MiB" else 1)


def epoch_of(xml: str) -> int:
    """The epoch of the engine that created the VM of this XML, restored or migrated it last; the first if none did."""
    vjob = etree.fromstring(xml.encode()).find(f"metadata/{{{NAMESPACE}}}vjob")
    return FIRST_EPOCH if vjob is None else int(vjob.get("epoch", FIRST_EPOCH))


def with_epoch(xml: str, epoch: int) -> str:
    """The XML of the VM with this epoch."""
    domain = etree.fromstring(xml.encode())
    _set_epoch(domain, epoch)
    return etree.tostring(domain, encoding="unicode")


def is_bounded(xml: str) -> bool:
    """Whether the VM of this XML, ours or libvirt's, should run in the node's bounded control group if there is one.

    The XML itself says so: a VM that was started on a node without the group still belongs into that of the next node.
    """
    return etree.fromstring(xml.encode()).find(f"metadata/{{{NAMESPACE}}}vjob[@bounded='yes']") is not None


def with_partition(xml: str, partition: str | None) -> str:
    """The XML of the VM in another partition; None for libvirt's own choice, which every node has."""
    domain = etree.fromstring(xml.encode())
    _set_partition(domain, partition)
    return etree.tostring(domain, encoding="unicode")


def has_disks(running_xml: str) -> bool:
    """Whether the domain of this XML, which is libvirt's own, has disks."""
    return etree.fromstring(running_xml.encode()).find("devices/disk") is not None


def balloon_gives_back(running_xml: str) -> bool:
    """Whether the balloon of the VM of this XML, which is libvirt's own, gives back before its guest kills processes.

    Balloons of VMs that an older release has made do not, and stay so in saved states and migrations.
    """
    return etree.fromstring(running_xml.encode()).find("devices/memballoon[@autodeflate='on']") is not None


def snapshot_xml(path: str) -> str:
    """The XML of a snapshot of a VM without disks: its memory, in a file as a save writes it."""
    snapshot = etree.Element("domainsnapshot")
    _add(snapshot, "memory", snapshot="external", file=path)
    return etree.tostring(snapshot, encoding="unicode")


def check_spec(spec: VMSpec) -> None:
    """Refuse values that are impossible for a VM of ours; libvirt would take some of them.

    Raises:
        ValueError: names the value.
    """
    if not spec.name.isascii() or parse_vm_name(spec.name) is None:
        raise ValueError(f"not the name of a VM: {spec.name!r}")
    for value, pattern, what in (
        (spec.uuid, _UUID, "UUID"),
        (spec.mac, _MAC, "MAC address"),
        (spec.bridge, _INTERFACE, "name of a bridge"),
        (spec.network_filter, _FILTER, "name of a filter"),
        (spec.address, _ADDRESS, "address"),
    ):
        if not pattern.fullmatch(value):
            raise ValueError(f"not a {what}: {value!r}")
    if spec.cpus < 1 or spec.memory_mib < 1:
        raise ValueError(f"{spec.name} needs a CPU and memory, not {spec.cpus} and {spec.memory_mib} MiB")
    image = spec.image
    if isinstance(image, ContainerImage):
        raise ValueError(f"{spec.name} is a container, which libvirt does not run")
    paths = [image.kernel, image.initrd] if isinstance(image, KernelImage) else [image.overlay, image.seed]
    for path in (*paths, spec.config_path, *([spec.console_log] if spec.console_log else [])):
        if not path.startswith("/") or not path.isprintable():
            raise ValueError(f"not an absolute path: {path!r}")
        # QEMU's own option syntax; libvirt doubles commas, but not in every place of every version.
        if "," in path:
            raise ValueError(f"a path with a comma: {path!r}")
    if isinstance(image, KernelImage) and not image.cmdline.isprintable():
        raise ValueError(f"not a kernel command line: {image.cmdline!r}")


def set_paths(domain: etree._Element, spec: VMSpec) -> None:
    """Set all parts that may differ between two nodes or two lives of the VM.

    Raises:
        ValueError: the domain has no device for one of the paths.
    """
    sysinfo = _find(domain, "sysinfo[@type='fwcfg']")
    for child in list(sysinfo):
        sysinfo.remove(child)
    # The value goes by file: in the XML it would be on QEMU's command line, for everybody to read.
    _add(sysinfo, "entry", name=FW_CFG_NAME, file=spec.config_path)
    if isinstance(spec.image, KernelImage):
        _find(domain, "os/kernel").text = spec.image.kernel
        _find(domain, "os/initrd").text = spec.image.initrd
        _find(domain, "os/cmdline").text = f"{_CMDLINE} {spec.image.cmdline}".strip()
    elif isinstance(spec.image, DiskImage):
        _find(domain, "devices/disk/target[@dev='vda']/../source").set("file", spec.image.overlay)
        _find(domain, "devices/disk/target[@dev='vdb']/../source").set("file", spec.image.seed)
    _find(domain, "devices/interface/source").set("bridge", spec.bridge)
    _set_filter(_find(domain, "devices/interface"), spec)
    for port in domain.findall("devices/serial") + domain.findall("devices/console"):
        for log in port.findall("log"):
            port.remove(log)
        if spec.console_log and port.tag == "serial":
            _add(port, "log", file=spec.console_log, append="on")


def _set_filter(interface: etree._Element, spec: VMSpec) -> None:
    """Pin the interface to the VM's address; a VM of an older release has it from its next start on."""
    for element in interface.findall("filterref") + interface.findall("target"):
        interface.remove(element)
    if spec.network_filter == NODE_FILTER:
        _find(interface, "source").addnext(etree.Element("target", dev=tap_of(spec.name)))
    elif spec.network_filter:
        reference = etree.Element("filterref", filter=spec.network_filter)
        if spec.address:
            _add(reference, "parameter", name="IP", value=spec.address)
        _find(interface, "mac").addnext(reference)


def _set_epoch(domain: etree._Element, epoch: int) -> None:
    vjob = _find(domain, f"metadata/{{{NAMESPACE}}}vjob")
    if epoch > FIRST_EPOCH:
        vjob.set("epoch", str(epoch))
    elif "epoch" in vjob.attrib:  # hooks of older releases know no epoch, and accept VMs without one
        del vjob.attrib["epoch"]


def _set_bounded(domain: etree._Element, bounded: bool) -> None:
    vjob = _find(domain, f"metadata/{{{NAMESPACE}}}vjob")
    if bounded:
        vjob.set("bounded", "yes")
    elif "bounded" in vjob.attrib:
        del vjob.attrib["bounded"]
    # Also for an unbounded VM: libvirt writes its own choice into a saved state, and takes it for ours afterwards.
    _set_partition(domain, PARTITION if bounded else None)


def _set_partition(domain: etree._Element, partition: str | None) -> None:
    for resource in domain.findall("resource"):
        domain.remove(resource)
    if partition is not None:
        resource = etree.Element("resource")
        _add(resource, "partition", partition)
        _find(domain, "vcpu").addnext(resource)


def _add_cpu(domain: etree._Element, machine: Machine) -> None:
    if machine.cpu_model in ("", "host-model") and machine.domain_type == "kvm":
        _add(domain, "cpu", mode="host-model")
    else:
        cpu = _add(domain, "cpu", mode="custom", match="exact", check="none")
        _add(cpu, "model", machine.cpu_model or "qemu64", fallback="forbid")


def _add_devices(domain: etree._Element, spec: VMSpec) -> None:
    devices = _add(domain, "devices")
    if isinstance(spec.image, DiskImage):
        disk = _add(devices, "disk", type="file", device="disk")
        # Without the host's cache, else libvirt refuses live migration as unsafe.
        _add(disk, "driver", name="qemu", type="qcow2", cache="none", discard="unmap")
        _add(disk, "source")
        _add(disk, "target", dev="vda", bus="virtio")
        # A virtio disk, not a CD-ROM: the kernels of cloud images lack drivers for SATA and IDE.
        seed = _add(devices, "disk", type="file", device="disk")
        _add(seed, "driver", name="qemu", type="raw", cache="none")
        _add(seed, "source")
        _add(seed, "target", dev="vdb", bus="virtio")
        _add(seed, "readonly")
    # libvirt gives a domain a USB controller unless it is told not to.
    _add(devices, "controller", type="usb", model="none")
    interface = _add(devices, "interface", type="bridge")
    _add(interface, "mac", address=spec.mac)
    _add(interface, "source")
    _add(interface, "model", type="virtio")
    # The guest never boots from the network; a migration would need the same ROM file on the other node.
    _add(interface, "rom", enabled="no")
    serial = _add(devices, "serial", type="pty")
    _add(serial, "target", type="isa-serial", port="0")
    console = _add(devices, "console", type="pty")
    _add(console, "target", type="serial", port="0")
    # The host gets back memory that the guest frees; the guest gets back the balloon's memory before it kills for it.
    balloon = _add(devices, "memballoon", model="virtio", autodeflate="on", freePageReporting="on")
    _add(balloon, "stats", period=str(_BALLOON_PERIOD_S))
    rng = _add(devices, "rng", model="virtio")
    _add(rng, "backend", "/dev/urandom", model="random")


def _add(parent: etree._Element, tag: str, text: str | None = None, **attributes: str) -> etree._Element:
    element = etree.SubElement(parent, tag, attrib=attributes)
    element.text = text
    return element


def _find(domain: etree._Element, path: str) -> etree._Element:
    element = domain.find(path)
    if element is None:
        raise ValueError(f"the domain has no {path}")
    return element
