"""Situations of a few VMs under placement rules, and what is proposed in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rmsplugin.instance import parse
from rmsplugin.model.configuration import Configuration
from rmsplugin.packing.search import Search
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose

PARAMETERS = ProposalParameters("rjsp", search=Search(time_limit_s=3600, deterministic_limit=0.2))


def size(vm: str, cpu: int = 1) -> dict[str, Any]:
    """A VM, of one CPU unless another number is said."""
    return {"name": vm, "cpu": cpu, "memory_mib": 512}


def situation(
    hosts: Mapping[str, list[str]],
    *rules: Any,
    waiting: tuple[str, ...] = (),
    cpu: int | Mapping[str, int] = 4,
    targets: Mapping[str, str] | None = None,
    demands: Mapping[str, int] | None = None,
    preemptible: tuple[str, ...] = (),
) -> Configuration:
    """Running vjobs of one VM each, by node; and waiting ones behind them.

    Args:
        hosts: the VMs that run, by node.
        rules: in the form of an instance.
        waiting: VMs that want to run.
        cpu: the CPUs of each node, or those of all.
        targets: fixed states, by VM.
        demands: the CPUs of the VMs that have other than one.
        preemptible: the running VMs that may be suspended.
    """
    fixed, cpus = targets or {}, demands or {}

    def vjob(vm: str, **more: Any) -> dict[str, Any]:
        target = {"target": fixed[vm], "preemptible": True} if vm in fixed else {}
        return {"name": f"j{vm}", **more, **target}

    def sized(vm: str) -> dict[str, Any]:
        return size(vm, cpus.get(vm, 1))

    vjobs = [
        vjob(vm, state="running", preemptible=vm in preemptible, vms=[{**sized(vm), "host": node}])
        for node, vms in hosts.items()
        for vm in vms
    ]
    vjobs += [vjob(vm, state="waiting", vms=[sized(vm)]) for vm in waiting]
    each = cpu if isinstance(cpu, Mapping) else dict.fromkeys(hosts, cpu)
    nodes = [{"name": node, "cpu": each[node], "memory_mib": 4096} for node in hosts]
    return parse(json.dumps({"nodes": nodes, "vjobs": vjobs, "rules": list(rules)}), "situation")


def planned(source: Configuration, parameters: ProposalParameters = PARAMETERS) -> Proposal:
    """The proposal, without a fault."""
    found = propose(source, parameters)
    assert isinstance(found, Proposal), found
    assert check(source, found) == []
    return found


def pools(source: Configuration) -> list[list[str]]:
    """The actions of its plan in words."""
    return [[str(action) for action in pool] for pool in planned(source).plan.pools]


def hosts_after(source: Configuration) -> dict[str, str | None]:
    """The node of each VM in the end."""
    return {name: at.node for name, at in planned(source).target.items() if at.node is not None}
