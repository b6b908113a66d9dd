"""QEMU hook: libvirt asks it before it starts or takes in a VM, and does not if the hook refuses.

The engine compares VMs with its own knowledge. But the XML of an incoming migration comes from the libvirt of its
source, and root there can have that libvirt say anything. So the node itself looks at the VM to be created. A VM of
ours has our shape (``vm_shape``), and its files where the settings of this node have them. The hook leaves VMs of other
names alone, unless they come from another node: only the engine migrates.

``hooks/qemu`` calls it. It refuses by its exit status; its standard error reaches the caller.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from rmsplugin.adapters.platform.libvirt.vm_shape import parse, strange
from rmsplugin.model.vm_names import TAP_PREFIX, parse_vm_name
from rmsplugin.node_agent.config import AgentConfig, load
from rmsplugin.node_agent.errors import AgentError

#: The moments before a VM is created; a restore comes to `prepare` as well.
_ASKED = {("prepare", "begin"), ("migrate", "begin")}
_LIMIT_BYTES = 1 << 20
_EMULATOR = re.compile(r"/usr/(bin|lib|libexec)/([A-Za-z0-9_.-]+/)*(qemu-system-x86_64|qemu-kvm|kvm)")


def run(arguments: Sequence[str]) -> int:
    """Answer libvirt, which calls with a VM's name, an operation and a part of it; the XML is on standard input."""
    name, operation, part = (*arguments, "", "", "")[:3]
    xml = sys.stdin.buffer.read(_LIMIT_BYTES + 1)
    if (operation, part) not in _ASKED:
        return 0
    try:
        wrong = (
            refusal(name, operation, xml.decode(), load(None)) if len(xml) <= _LIMIT_BYTES else "its XML is too long"
        )
    except (AgentError, ValueError) as error:
        wrong = str(error)
    if wrong:
        print(f"rmsplugin refuses {name[:80]}: {wrong}", file=sys.stderr)
    return 1 if wrong else 0


def refusal(name: str, operation: str, xml: str, config: AgentConfig) -> str:
    """The reason why the VM may not be created here; "" if it may.

    Raises:
        ValueError: the text is no XML.
    """
    if not name.isascii() or parse_vm_name(name) is None:
        return "no VM of ours comes from another node" if operation == "migrate" else ""
    if found := strange(xml):
        return f"it has what no VM of ours has: {found}"
    domain = parse(xml)
    if domain.findtext("name") != name:
        return f"its XML is that of {domain.findtext('name')}"
    return next(_misplaced(domain, name, config), "") or _unguarded(domain)


def _unguarded(domain: ElementTree.Element) -> str:
    """The fault of an interface that this node should filter, and does not; "" if there is none."""
    for target in domain.findall("devices/interface/target"):
        tap = target.get("dev", "")
        if tap.startswith(TAP_PREFIX):
            from rmsplugin.node_agent import guest_filter  # here, since other VMs need none of it

            if not guest_filter.is_kept(tap):
                return f"its interface {tap} is to be filtered here, and is not"
    return ""


def _misplaced(domain: ElementTree.Element, name: str, config: AgentConfig) -> Iterator[str]:
    """The files and interfaces of the node that are not where the settings have those of this VM."""
    own = os.path.join(config.vm_dir, name)
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
        if not _EMULATOR.fullmatch(emulator.text or ""):
            yield f"its emulator is {emulator.text}"
    for label in domain.findall("seclabel"):
        if label.get("type") != "dynamic":
            yield f"its security label is {label.get('type')}, not chosen by libvirt"
