"""Network: one Ethernet segment for the hosts and their guests, all of it inside the hosts' network namespaces.

The bridge that joins the hosts is in the head. Each host has a bridge br0 that holds its address; guests plug in there.
"""

from __future__ import annotations

import re
import subprocess

from minicluster_lib.layout import PREFIX_LENGTH, REPOSITORY, Cluster, Host, MiniclusterError

BRIDGE = "br0"
POOL = "10.77.1.10-10.77.1.250"

_RULES = REPOSITORY / "contrib/nftables/rmsplugin-guests.nft"


def connect(cluster: Cluster) -> None:
    """Make the bridges and the cables between the hosts."""
    head_commands = _bridge_commands(cluster, cluster.head)
    for node in cluster.hosts[1:]:
        # The far end is made in the node's namespace: the machine's own namespace never holds either end.
        head_commands += [
            f"link add {node.name} type veth peer name uplink netns {cluster.init_pids[node.name]}",
            f"link set {node.name} master {BRIDGE}",
            f"link set {node.name} up",
        ]
    _batch(cluster, cluster.head, head_commands)
    for node in cluster.hosts[1:]:
        _batch(
            cluster, node, [*_bridge_commands(cluster, node), f"link set uplink master {BRIDGE}", "link set uplink up"]
        )
    rules = re.sub(r"(define rmsplugin_guests =) \S+", rf"\1 {POOL}", _RULES.read_text())
    for host in cluster.hosts:
        _in_network(cluster, host, ["nft", "-f", "-"], rules)


def _bridge_commands(cluster: Cluster, host: Host) -> list[str]:
    last_two = [int(part) for part in host.address.split(".")[2:]]
    return [
        f"link add {BRIDGE} type bridge forward_delay 0 stp_state 0",
        # A fixed address: otherwise it changes when a guest with a lower one is plugged in.
        f"link set {BRIDGE} address 52:54:00:4d:{last_two[0]:02x}:{last_two[1]:02x}",
        f"address add {host.address}/{PREFIX_LENGTH} dev {BRIDGE}",
        # A node's BMC is reached while the node is not.
        *([f"address add {host.bmc_address}/{PREFIX_LENGTH} dev {BRIDGE}"] if cluster.power_saving else []),
        f"link set {BRIDGE} up",
    ]


def _batch(cluster: Cluster, host: Host, commands: list[str]) -> None:
    _in_network(cluster, host, ["ip", "-batch", "-"], "\n".join(commands) + "\n")


def _in_network(cluster: Cluster, host: Host, command: list[str], given: str) -> None:
    # Entered by the network namespace only: the PID of the peer's namespace is one of the machine.
    result = subprocess.run(
        ["nsenter", f"--net=/proc/{cluster.init_pids[host.name]}/ns/net", "--", *command],
        input=given,
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        raise MiniclusterError(f"network of {host.name}: {result.stderr.strip()}")
