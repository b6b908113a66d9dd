"""Network: a container's own network namespace, with one interface in the node's bridge.

The namespace is made before the container and has its addresses before anything runs in it: connections that CRIU
restores need them. It is off the bridge whenever the container stands still. The interface's half on the node has the
name that the node's filter knows (``vm_names.tap_of``).
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from rmsplugin.adapters.platform.podman.on_node.program import environment
from rmsplugin.errors import OperationFailedError

NAMESPACES = Path("/run/netns")
#: The interface's name inside.
INSIDE = "eth0"
_TIMEOUT_S = 20
_IPV4 = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}"
_FORMS = {"mac": r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}", "address": rf"{_IPV4}/[0-9]{{1,2}}", "gateway": rf"(?:{_IPV4})?"}


class Link(NamedTuple):
    """A container's interface."""

    mac: str
    address: str  # with the length of its prefix
    gateway: str  # "" for none


def link_of(config: Path) -> Link:
    """The interface that the VM's configuration file names.

    Raises:
        OperationFailedError: it names none, or not in their forms.
    """
    try:
        lines = config.read_text().splitlines()
    except OSError as error:
        raise OperationFailedError(f"{config} cannot be read: {error.strerror}") from None
    said = dict(line.split("=", 1) for line in lines if "=" in line)
    for key, form in _FORMS.items():
        if not re.fullmatch(form, said.get(key, "")):
            raise OperationFailedError(f"{config} has no {key} of the right form")
    return Link(said["mac"], said["address"], said["gateway"])


def make(name: str, link: Link) -> Path:
    """Make the namespace, and its interface, which is in no bridge yet; return its path. What is left of an older goes.

    Raises:
        OperationFailedError: it cannot be made; nothing is left.
    """
    remove(name)
    inside = ["link set lo up", f"link set {INSIDE} address {link.mac} up", f"addr add {link.address} dev {INSIDE}"]
    inside += [f"route add default via {link.gateway}"] if link.gateway else []
    try:
        _ip(["netns", "add", name])
        _ip(["link", "add", name, "up", "type", "veth", "peer", "name", INSIDE, "netns", name])
        # A change of the address, also to the same one, is told to all neighbours then (``attach``).
        _ip(["netns", "exec", name, "sysctl", "-qw", f"net.ipv4.conf.{INSIDE}.arp_notify=1"])
        _ip(["-netns", name, "-batch", "-"], "\n".join([*inside, ""]))
    except OperationFailedError:
        remove(name)
        raise
    return NAMESPACES / name


def attach(name: str, bridge: str) -> None:
    """Plug the interface into the bridge, and tell its neighbours; without effect if it is in it.

    Raises:
        OperationFailedError: it cannot be.
    """
    if is_attached(name):
        return
    _ip(["link", "set", name, "master", bridge])
    shown = json.loads(_ip(["-netns", name, "-json", "link", "show", INSIDE]))
    _ip(["-netns", name, "link", "set", INSIDE, "address", shown[0]["address"]])


def is_attached(name: str) -> bool:
    """Whether the interface is in a bridge."""
    return Path("/sys/class/net", name, "brport").exists()


def counted(name: str, devices: Path = Path("/sys/class/net")) -> tuple[int, int] | tuple[None, None]:
    """The bytes that a container has received and sent; none of either if it has no interface now.

    The half on the node counts the other way round: what it sends, the container receives.
    """
    try:
        received, sent = ((devices / name / "statistics" / f"{way}_bytes").read_text() for way in ("tx", "rx"))
    except OSError:
        return None, None
    return int(received), int(sent)


def detach(name: str) -> None:
    """Take the interface out of its bridge: the kernel does not answer any more for processes that stand still.

    What it would acknowledge is in no state that was written before; and where sockets are not restored yet, it would
    refuse what arrives for them.

    Raises:
        OperationFailedError: it is still in it.
    """
    if is_attached(name):
        _ip(["link", "set", name, "nomaster"])


def remove(name: str) -> None:
    """Remove interface and namespace, as far as they are there."""
    if Path("/sys/class/net", name).exists():
        _ip(["link", "delete", name])
    if (NAMESPACES / name).exists():
        _ip(["netns", "delete", name])


def _ip(words: list[str], text: str = "") -> str:
    try:
        done = subprocess.run(
            ["ip", *words], input=text, capture_output=True, text=True, timeout=_TIMEOUT_S, env=environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OperationFailedError(f"ip {words[0]}: {error}") from None
    if done.returncode != 0:
        raise OperationFailedError(f"ip {' '.join(words)}: {' '.join(done.stderr.split())[:300]}")
    return done.stdout
