"""VM shape: the libvirt XML that a VM of ours can have, and nothing else. Pure.

A saved state carries the XML of its VM, and so does a migration. Root at its source can add parts to ours: a disk that
is a file of the host's, a directory, QEMU's own options. So the XML is compared with this table: the parts that we
write, and those that libvirt of the releases that we know adds by itself. Paths of files are not compared here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from xml.etree import ElementTree

#: Elements of which several may stand beside each other.
_MANY = ("feature", "disk", "controller", "input", "seclabel")
#: More than libvirt makes for a VM of ours, and less than would do harm.
_MOST = 64

_NUMBER, _HEX, _WORD, _PATH = "[0-9]{1,12}", "0x[0-9a-f]{1,8}", "[A-Za-z0-9._+-]{1,64}", "/[^,\0-\x1f]{1,1000}"
_ON_OFF, _MAC = "on|off", "[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}"
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_EPOCH = "[1-9][0-9]{0,17}"
_NOTHING = "(?!)"
#: The characters of a pattern, beside letters and digits, that has nothing but words and bars between them.
_OF_WORDS = str.maketrans("", "", "|-_")
#: The name of the element of ours in the metadata.
METADATA = "{urn:rmsplugin:vjob:1}vjob"


class _Shape(NamedTuple):
    """An element: its allowed attributes, its text, and its content."""

    attributes: Mapping[str, str]
    children: Mapping[str, _Shape]
    text: str


def _shape(text: str = "", /, children: Mapping[str, _Shape] | None = None, **attributes: str) -> _Shape:
    return _Shape({key.rstrip("_"): value for key, value in attributes.items()}, children or {}, text)


_ADDRESS = _shape(
    type="pci|isa",
    domain=_HEX,
    bus=_HEX,
    slot=_HEX,
    function=_HEX,
    multifunction=_ON_OFF,
    iobase=_HEX,
    irq=_HEX,
)
_ALIAS = _shape(name=_WORD)
_PLACED = {"address": _ADDRESS, "alias": _ALIAS}
_KIB = _shape(_NUMBER, unit="KiB|MiB")

#: The files below a disk's first one: libvirt looks for itself, and ignores the XML here.
_BELOW = _shape(
    type="file",
    index=_NUMBER,
    children={
        "format": _shape(type="qcow2|raw"),
        "source": _shape(file=_PATH, index=_NUMBER),
        "backingStore": _shape(
            type="file",
            index=_NUMBER,
            children={
                "format": _shape(type="qcow2|raw"),
                "source": _shape(file=_PATH, index=_NUMBER),
                "backingStore": _shape(),
            },
        ),
    },
)

_DISK = _shape(
    type="file",
    device="disk",
    children=_PLACED
    | {
        "driver": _shape(name="qemu", type="qcow2|raw", cache="none", discard="unmap"),
        "source": _shape(file=_PATH, index=_NUMBER),
        "backingStore": _BELOW,
        "target": _shape(dev="vda|vdb", bus="virtio"),
        "readonly": _shape(),
    },
)

_CONTROLLER = _shape(
    type="usb|sata|pci",
    index=_NUMBER,
    model="none|pcie-root|pcie-root-port|pcie-to-pci-bridge|pci-root|pci-bridge",
    children=_PLACED
    | {
        "model": _shape(name=_WORD),
        "target": _shape(chassis=_NUMBER, chassisNr=_NUMBER, port=_HEX, busNr=_NUMBER, hotplug=_ON_OFF),
    },
)

_INTERFACE = _shape(
    type="bridge",
    children=_PLACED
    | {
        "mac": _shape(address=_MAC),
        "source": _shape(bridge="[A-Za-z0-9._-]{1,15}"),
        "target": _shape(dev="[A-Za-z0-9._-]{1,15}"),
        "model": _shape(type="virtio"),
        "rom": _shape(enabled="no"),
        "filterref": _shape(
            filter="[A-Za-z0-9._-]{1,60}",
            children={"parameter": _shape(name="IP", value=r"[0-9]{1,3}(\.[0-9]{1,3}){3}")},
        ),
    },
)


def _port(**attributes: str) -> _Shape:
    return _shape(
        type="pty",
        tty="/dev/pts/[0-9]{1,6}",
        children=_PLACED
        | {
            "source": _shape(path="/dev/pts/[0-9]{1,6}"),
            "log": _shape(file=_PATH, append=_ON_OFF),
            "target": _shape(children={"model": _shape(name="isa-serial")}, **attributes),
        },
    )


_DEVICES = _shape(
    children={
        "emulator": _shape(_PATH),
        "disk": _DISK,
        "controller": _CONTROLLER,
        "interface": _INTERFACE,
        "serial": _port(type="isa-serial", port="0"),
        "console": _port(type="serial", port="0"),
        "input": _shape(type="mouse|keyboard", bus="ps2", children=_PLACED),
        "audio": _shape(id="1", type="none"),
        "watchdog": _shape(model="itco", action="reset", children=_PLACED),
        "memballoon": _shape(
            model="virtio",
            autodeflate=_ON_OFF,
            freePageReporting=_ON_OFF,
            children=_PLACED | {"stats": _shape(period=_NUMBER)},
        ),
        "rng": _shape(
            model="virtio",
            children=_PLACED | {"backend": _shape("/dev/u?random", model="random")},
        ),
    }
)

_CPU = _shape(
    mode="custom|host-model|host-passthrough",
    match="exact|minimum|strict",
    check="none|partial|full",
    migratable=_ON_OFF,
    children={
        "model": _shape(_WORD, fallback="allow|forbid", vendor_id=_WORD),
        "vendor": _shape(_WORD),
        "feature": _shape(policy="force|require|optional|disable|forbid", name=_WORD),
        "topology": _shape(sockets=_NUMBER, dies=_NUMBER, clusters=_NUMBER, cores=_NUMBER, threads=_NUMBER),
        "maxphysaddr": _shape(mode="emulate|passthrough", bits=_NUMBER, limit=_NUMBER),
    },
)

#: The labels by systemd, the security drivers and control groups, which we and libvirt set anew.
_LABELS = _shape(
    type="dynamic|static|none",
    model="dac|apparmor|selinux|none",
    relabel="yes|no",
    children={"label": _shape("[^\0-\x1f]{1,200}"), "imagelabel": _shape("[^\0-\x1f]{1,200}")},
)

_DOMAIN = _shape(
    type="kvm|qemu",
    id=_NUMBER,
    children={
        "name": _shape("vjob[0-9]{1,10}-[0-9]{1,6}"),
        "uuid": _shape(_UUID),
        "genid": _shape(_UUID),
        "metadata": _shape(children={METADATA: _shape(job=_NUMBER, index=_NUMBER, epoch=_EPOCH, bounded="yes")}),
        "memory": _KIB,
        "currentMemory": _KIB,
        "vcpu": _shape(_NUMBER, placement="static"),
        "resource": _shape(children={"partition": _shape("/[A-Za-z0-9._/-]{1,64}")}),
        "sysinfo": _shape(
            type="fwcfg", children={"entry": _shape(name=re.escape("opt/org.rmsplugin/config"), file=_PATH)}
        ),
        "os": _shape(
            children={
                "type": _shape("hvm", arch="x86_64", machine=_WORD),
                "kernel": _shape(_PATH),
                "initrd": _shape(_PATH),
                "cmdline": _shape("[^\0-\x1f]{0,4000}"),
                "boot": _shape(dev="hd"),
            }
        ),
        "features": _shape(children={"acpi": _shape(), "apic": _shape()}),
        "cpu": _CPU,
        "clock": _shape(offset="utc"),
        "on_poweroff": _shape("destroy"),
        "on_reboot": _shape("destroy"),
        "on_crash": _shape("destroy"),
        "devices": _DEVICES,
        "seclabel": _LABELS,
    },
)


def parse(xml: str) -> ElementTree.Element:
    """The domain of this XML.

    Raises:
        ValueError: the text is no domain.
    """
    if "<!" in xml:  # no document type and no entities: libvirt never writes them
        raise ValueError("no domain XML: it declares something")
    try:
        return ElementTree.fromstring(xml)
    except ElementTree.ParseError as error:
        raise ValueError(f"no domain XML: {error}") from None


def strange(xml: str) -> str:
    """The first part of a domain's XML that no VM of ours has; "" if there is none.

    Raises:
        ValueError: the text is no XML.
    """
    domain = parse(xml)
    if domain.tag != "domain":
        return f"<{domain.tag}>"
    return next(_strange(domain, _DOMAIN, "domain"), "") or _strange_disks(domain)


def _strange(element: Any, shape: _Shape, path: str) -> Iterator[str]:
    for name, value in element.attrib.items():
        if not _fits(shape.attributes.get(name, _NOTHING), value):
            yield f"{path}: {name}={value[:100]!r}"
    text = (element.text or "").strip()
    if text and not _fits(shape.text, text):
        yield f"{path}: {text[:100]!r}"
    seen: dict[str, int] = {}
    for child in element:
        where = f"{path}/{child.tag}"
        seen[child.tag] = seen.get(child.tag, 0) + 1
        if child.tag not in shape.children:
            yield where + _attributes(child)
        elif seen[child.tag] > (_MOST if child.tag in _MANY else 1):
            yield f"{where}, more than once"
        elif (child.tail or "").strip():
            yield f"{path}: {child.tail.strip()[:100]!r}"
        else:
            yield from _strange(child, shape.children[child.tag], where)


def _fits(pattern: str, value: str) -> bool:
    """Whether the whole value is of this pattern. Most are words between bars, for which Python compiles nothing."""
    if pattern.translate(_OF_WORDS).isalnum():
        return value in pattern.split("|")
    return re.fullmatch(pattern, value) is not None


def _attributes(element: Any) -> str:
    told = " ".join(f"{name}={value!r}" for name, value in element.attrib.items())
    return f" ({told[:100]})" if told else ""


def _strange_disks(domain: Any) -> str:
    targets = [target.get("dev") for target in domain.findall("devices/disk/target")]
    if targets not in ([], ["vda", "vdb"]) or len(domain.findall("devices/disk")) != len(targets):
        return f"domain/devices/disk: {len(domain.findall('devices/disk'))} disks, {targets}"
    return ""
