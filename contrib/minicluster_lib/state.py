"""State: how the hosts and daemons of a running minicluster fare."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from minicluster_lib import hosts
from minicluster_lib.layout import Cluster, MiniclusterError


def daemon_states(cluster: Cluster) -> dict[str, Any]:
    """Return the hosts and their daemons, each with its PID on this machine and inside its host."""
    report: dict[str, Any] = {
        "directory": str(cluster.directory),
        "up": cluster.ready,
        "domain_type": cluster.domain_type,
        "hosts": {},
    }
    for host in cluster.hosts:
        init = cluster.init_pids.get(host.name)
        try:
            answer = hosts.request(host, op="status", timeout_s=10)
            daemons, power, up = answer["daemons"], answer["power"], True
        except MiniclusterError:
            daemons, power, up = {}, False, False
        outside = _outside_pids(init) if init and up else {}
        for state in daemons.values():
            state["inside_pid"] = state["pid"]
            state["pid"] = outside.get(state["pid"])
        report["hosts"][host.name] = {
            "address": host.address,
            "up": up,
            "power": "on" if power else "off",
            "init_pid": init,
            "daemons": daemons,
        }
        wanted = [state for state in daemons.values() if power or state["own_power"]]
        report["up"] = report["up"] and up and all(state["pid"] for state in wanted)
    return report


def _outside_pids(init: int) -> dict[int, int]:
    """Map the PIDs inside a host's PID namespace to those on this machine."""
    try:
        namespace = os.readlink(f"/proc/{init}/ns/pid")
    except OSError:
        return {}
    mapped = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.readlink(f"/proc/{name}/ns/pid") != namespace:
                continue
            for line in Path(f"/proc/{name}/status").read_text().splitlines():
                if line.startswith("NSpid:"):
                    mapped[int(line.split()[-1])] = int(name)
        except OSError:
            continue
    return mapped


def describe(cluster: Cluster) -> str:
    """Return one line about a running cluster."""
    kind = "KVM" if cluster.domain_type == "kvm" else "TCG"
    guests = f", guests under {kind}" if cluster.has_libvirt else ", guests in containers" if cluster.podman else ""
    return (
        f"head and {cluster.nodes} nodes of {cluster.cpus} CPUs and {cluster.memory_mib} MiB{guests}; "
        "try: minicluster exec head -- sinfo"
    )
