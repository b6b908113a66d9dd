"""Guest filter: rules of nftables that pin a VM's interface to the VM's addresses, made before the VM is created.

They are the same rules as those of a platform's own filter (``network_filter.py`` in its package), by one ``nft``
instead of some seventy processes. The table is of the family bridge. From an interface whose name begins with
TAP_PREFIX, only packets pass that the chain of that interface lets pass; to it, only IPv4 and ARP pass. So a VM
without a chain sends nothing.
Each change is one transaction: it holds, or nothing has changed.

The rules lie in files, too, one a VM, in a directory of the node's own. Whoever flushes the rules of the node can load
these again in the same transaction, as ``contrib/nftables`` does; else the next VM that comes brings them back.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rmsplugin.model.vm_names import TAP_PREFIX, parse_vm_name, tap_of
from rmsplugin.node_agent import files
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.node_agent.values import Guard

TABLE = "rmsplugin_guests"
#: The end of the files' names. Each makes the table, too: agents of two VMs would write at one file of its own.
_SUFFIX = ".nft"
_TIMEOUT_S = 20
_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"

#: From VMs, the rules act before all others; to VMs, after all others, where a platform's chains of ebtables are.
_BASE = f"""add table bridge {TABLE}
add map bridge {TABLE} guests {{ type ifname : verdict; }}
add chain bridge {TABLE} from {{ type filter hook prerouting priority -300; policy accept; }}
flush chain bridge {TABLE} from
add rule bridge {TABLE} from iifname vmap @guests
add rule bridge {TABLE} from iifname "{TAP_PREFIX}*" drop
add chain bridge {TABLE} into {{ type filter hook postrouting priority 300; policy accept; }}
flush chain bridge {TABLE} into
add rule bridge {TABLE} into oifname != "{TAP_PREFIX}*" accept
add rule bridge {TABLE} into ether type {{ ip, arp }} accept
add rule bridge {TABLE} into drop
"""

#: IPv4 and ARP from its own addresses; and a hypervisor's message to switches that the VM has moved: a RARP request, of
#: Ethernet and IPv4, that names its MAC address twice and 0.0.0.0 twice.
_GUEST = """add chain bridge {table} {tap}
flush chain bridge {table} {tap}
add rule bridge {table} {tap} ether saddr != {mac} drop
add rule bridge {table} {tap} ether type ip ip saddr {address} accept
add rule bridge {table} {tap} ether type arp arp htype 1 arp ptype ip arp saddr ether {mac} \
arp saddr ip {address} accept
add rule bridge {table} {tap} ether type 0x8035 ether daddr ff:ff:ff:ff:ff:ff @nh,0,64 0x0001080006040003 \
@nh,64,48 {number} @nh,112,32 0 @nh,144,48 {number} @nh,192,32 0 accept
add rule bridge {table} {tap} drop
add element bridge {table} guests {{ "{tap}" : jump {tap} }}
"""

#: Adding first avoids an error if an object does not exist.
_GONE = """add chain bridge {table} {tap}
add element bridge {table} guests {{ "{tap}" : jump {tap} }}
delete element bridge {table} guests {{ "{tap}" }}
flush chain bridge {table} {tap}
delete chain bridge {table} {tap}
"""


def rules(guards: Mapping[str, Guard]) -> str:
    """The input of ``nft`` that makes the table, with these VMs by their names; names and addresses are checked."""
    return _BASE + "".join(_chain(vm, guard) for vm, guard in guards.items())


def keep(directory: Path, vm: str, guard: Guard) -> None:
    """Pin the VM's interface, which need not exist yet, to its addresses.

    If the table is missing, it is made with the rules of all VMs in the directory: flushing the node's rules removes
    it, and a new table must not cut running VMs off their network.

    Args:
        directory: of the files of rules, on this node.
        vm: the name of the VM.
        guard: its addresses.

    Raises:
        AgentError: the interface cannot be filtered.
    """
    files.make_private(directory, 0o700)
    own = directory / f"{vm}{_SUFFIX}"
    files.write_whole(own, rules({vm: guard}).encode())
    if _nft(_chain(vm, guard)) == "":
        return
    if failed := _nft("".join(map(_content, directory.glob(f"*{_SUFFIX}")))):
        files.remove(own)  # what the node does not take must not keep its other rules from being loaded
        raise AgentError("failed", f"the interface of {vm} cannot be filtered: {failed}")


def drop(directory: Path, vm: str) -> None:
    """Forget the VM: if the table exists, nothing passes from its interface from now on. Raises AgentError."""
    tap = tap_of(vm)
    failed = _nft(_GONE.format(table=TABLE, tap=tap))
    if failed and is_kept(tap):
        raise AgentError("failed", f"the filter of {vm} stays: {failed}")
    files.remove(directory / f"{vm}{_SUFFIX}")


def unfiltered(directory: Path) -> list[str]:
    """The VMs here whose interfaces were pinned and are so no more: somebody has flushed the node's rules."""
    vms = sorted(path.stem for path in directory.glob(f"*{_SUFFIX}") if parse_vm_name(path.stem))
    here = {name for _, name in socket.if_nameindex()}
    return [vm for vm in vms if tap_of(vm) in here and not is_kept(tap_of(vm))]


def is_kept(tap: str) -> bool:
    """Whether the interface of this name is pinned, by a look at the kernel."""
    try:
        done = _run_nft(["get", "element", "bridge", TABLE, "guests", f'{{ "{tap}" }}'], "")
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _content(path: Path) -> str:
    """What the file says; "" if it is not there: its VM may be forgotten meanwhile."""
    with suppress(FileNotFoundError):
        return path.read_text()
    return ""


def _chain(vm: str, guard: Guard) -> str:
    number = "0x" + guard.mac.replace(":", "")
    return _GUEST.format(table=TABLE, tap=tap_of(vm), mac=guard.mac, address=guard.address, number=number)


def _nft(text: str) -> str:
    """The reason why the rules were not accepted; "" if they were."""
    try:
        done = _run_nft(["-f", "-"], text)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else f"nft: {' '.join(done.stderr.split())[:300]}"


def _run_nft(words: list[str], text: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("nft", path=_PATH)
    if program is None:
        raise FileNotFoundError("there is no nft on this node")
    return subprocess.run(
        [program, *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env={**os.environ, "LC_ALL": "C"},
    )
