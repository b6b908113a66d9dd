"""Creation: libvirt's hook ``qemu`` asks before libvirt starts or takes in a VM; it does not if it is refused.

The engine compares VMs with its own knowledge. But the XML of an incoming migration comes from the libvirt of its
source, and root there can have that libvirt say anything. So the node itself looks at the VM to be created. A VM of
ours has our shape (``vm_shape``), and its files where the settings of this node have them. The hook leaves VMs of other
names alone, unless they come from another node: only the engine migrates. It is also the last obstacle to an engine
whose turn is over. A VM that it boots, restores or migrates has its epoch: lower than one that has acted here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from rmsplugin.adapters.platform.libvirt.vm_shape import METADATA, parse, strange
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.model.vm_names import TAP_PREFIX, parse_vm_name

if TYPE_CHECKING:
    from rmsplugin.adapters.platform.node_base import Facts, NodeSettings

#: The moments before a VM is created; a restore comes to `prepare` as well.
_ASKED = {("prepare", "begin"), ("migrate", "begin")}
_EMULATOR = r"/usr/(bin|lib|libexec)/([A-Za-z0-9_.-]+/)*(qemu-system-x86_64|qemu-kvm|kvm)"


def is_asked(words: Sequence[str]) -> bool:
    """Whether libvirt, which gives a VM's name, an operation and a part of it, is about to create the VM."""
    return tuple(words[1:3]) in _ASKED


def refusal(name: str, operation: str, xml: str, config: NodeSettings, facts: Facts) -> str:
    """See ``Creation``.

    Raises:
        ValueError: the text is no XML.
    """
    if not name.isascii() or parse_vm_name(name) is None:
        return "no VM of ours comes from another node" if operation == "migrate" else ""
    if found := strange(xml):
        return f"it has something that no VM of ours has: {found}"
    domain = parse(xml)
    if domain.findtext("name") != name:
        return f"its XML is that of {domain.findtext('name')}"
    wrong = next(_misplaced(domain, name, config), "")
    return wrong or _deposed(domain, facts) or _unguarded(domain, facts.is_filtered)


def _deposed(domain: ElementTree.Element, facts: Facts) -> str:
    """The fault of a VM whose engine's turn is over, or may be; "" if it is not."""
    vjob = domain.find(f"metadata/{METADATA}")
    epoch = int(vjob.get("epoch", FIRST_EPOCH)) if vjob is not None else FIRST_EPOCH
    if epoch < facts.epoch:
        return (
            f"the turn of the engine that creates it (epoch {epoch}) is over: one of epoch {facts.epoch} has acted here"
        )
    return "" if facts.knows_leader else "no engine has shown since this node was booted that it leads"


def _unguarded(domain: ElementTree.Element, is_filtered: Callable[[str], bool]) -> str:
    """The fault of an interface that this node should filter, and does not; "" if there is none."""
    for target in domain.findall("devices/interface/target"):
        tap = target.get("dev", "")
        if tap.startswith(TAP_PREFIX) and not is_filtered(tap):
            return f"its interface {tap} is to be filtered here, and is not"
    return ""


def _misplaced(domain: ElementTree.Element, name: str, config: NodeSettings) -> Iterator[str]:
    """The files and interfaces of the node that are not where the settings have those of this VM."""
    own = os.path.join(config.vm_path, name)
    images = frozenset(config.images)
    for path, attribute, allowed in (
        ("os/kernel", "", images),
        ("os/initrd", "", images),
        ("sysinfo/entry", "file", {f"{own}.config"}),
        ("devices/disk/source", "file", {f"{own}.qcow2", f"{own}.iso"}),
        ("devices/disk//backingStore/source", "file", config.bases),
        ("devices/serial/log", "file", {f"{own}.console"}),
        ("devices/console/log", "file", {f"{own}.console"}),
        ("devices/interface/source", "bridge", {config.bridge}),
    ):
        for element in domain.findall(path):
            value = element.get(attribute) if attribute else element.text
            if value not in allowed:
                yield f"{path} is {value}, which no setting of this node allows"
    for emulator in domain.findall("devices/emulator"):
        if not re.fullmatch(_EMULATOR, emulator.text or ""):
            yield f"its emulator is {emulator.text}"
    for label in domain.findall("seclabel"):
        if label.get("type") != "dynamic":
            yield f"its security label is {label.get('type')}, not chosen by libvirt"
