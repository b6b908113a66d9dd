"""Cuts: rules for a host's own network that drop what a daemon hears and says. Nothing is refused: it is silent."""

from __future__ import annotations

from collections.abc import Sequence

CLIENTS, PEERS = 2181, (2888, 3888)

#: By daemon: the ports that it listens on.
PORTS = {
    "zookeeper": (CLIENTS, *PEERS),
    "nfs": (2049,),
    "slurmctld": (6817,),
    "slurmd": (6818,),
    "sshd": (22,),
}
_TABLE = "live_campaign"


def of_daemon(name: str) -> str:
    """Rules under which nobody reaches the daemon; a ZooKeeper server does not reach others, either."""
    heard = [f"tcp dport {port} drop" for port in PORTS[name]]
    said = [f"tcp sport {port} drop" for port in PORTS[name]]
    if name == "zookeeper":
        heard += [f"tcp sport {port} drop" for port in PEERS]
        said += [f"tcp dport {port} drop" for port in PEERS]
    return _table(heard, said)


def of_engine() -> str:
    """Rules under which the host's engine reaches no server of the ensemble; the host's own server serves on."""
    return _table([f"tcp sport {CLIENTS} drop"], [f"tcp dport {CLIENTS} drop"])


def of_host() -> str:
    """Rules under which the host hears and says nothing. VMs on it have a network of their own (a bridge)."""
    return _table(['iifname != "lo" drop'], ['oifname != "lo" drop'])


def no_more() -> str:
    """What takes any of these rules away, and does nothing where there are none."""
    return f"table inet {_TABLE}\ndelete table inet {_TABLE}\n"


def _table(heard: Sequence[str], said: Sequence[str]) -> str:
    chains = ""
    for hook, rules in (("input", heard), ("output", said)):
        lines = "".join(f"    {rule}\n" for rule in rules)
        chains += f"  chain {hook} {{\n    type filter hook {hook} priority -200\n{lines}  }}\n"
    return f"table inet {_TABLE} {{\n{chains}}}\n"
