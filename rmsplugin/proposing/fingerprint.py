"""Fingerprint: a digest of all that a plan depends on, so that a plan is refused when its facts have changed.

A plan depends on the nodes that its actions leave or enter (their state and capacity, and which VMs run there with
which demands), and on the vjobs whose VMs it touches (each VM's place and demand, the vjob's rights). Rules about VMs
beside each other are not in it: a job that comes, or ends, changes them, and most plans obey them still. It does not
depend on the rest of the cluster, nor on the time that a vjob has been in its state: a job that arrives meanwhile,
or the mere passing of time, makes no plan stale.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VJob
from rmsplugin.planning.plan import Plan

_DIGEST_BYTES = 16


def fingerprint(configuration: Configuration, plan: Plan) -> str:
    """The digest, in hexadecimal; the same in every process and release for the same facts."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for name, fact in sorted(facts(configuration, plan).items()):
        for text in (name, fact):  # with its length: no name can look like a part of another fact
            data = text.encode(errors="surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def moved(then: Configuration, now: Configuration, plan: Plan) -> list[str]:
    """The facts of a plan for ``then`` that are different ``now``: a sentence each, by name."""
    before, after = facts(then, plan), facts(now, plan)
    return [
        f"{name}: was {before.get(name, 'not there')}, is {after.get(name, 'not there')}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def facts(configuration: Configuration, plan: Plan) -> dict[str, str]:
    """All facts of a plan, in words by name of node, vjob and VM; a node, vjob or VM that is gone has none."""
    nodes = nodes_of(plan)
    moving = {action.vm.name for action in plan.actions()}
    found: dict[str, str] = {}
    if not nodes and not moving:
        return found  # most cycles change nothing, and there may be a hundred thousand VMs
    for name in nodes:
        node = configuration.node_by_name.get(name)
        if node is not None:
            found[f"node {name}"] = f"{node.state}, {node.capacity.centi_cpus} cCPU and {node.capacity.memory_mib} MiB"
    vjobs = {vjob.name: vjob for vjob in map(configuration.vjob_by_vm.get, moving) if vjob is not None}
    found |= {f"vjob {name}": _vjob(vjob) for name, vjob in vjobs.items()}
    touched = {vm.name for vjob in vjobs.values() for vm in vjob.vms}
    locations = configuration.locations
    touched.update([name for name, at in locations.items() if at.node in nodes and at.state.holds_memory])
    for name in touched:
        demand = configuration.vm_by_name[name].demand
        found[f"VM {name}"] = f"{locations[name]}, demands {demand.centi_cpus} cCPU and {demand.memory_mib} MiB"
    return found


def nodes_of(plan: Plan) -> set[str]:
    """The nodes that its actions leave or enter, and those that it switches on or off."""
    ends = (end for action in plan.actions() for end in (action.source, action.destination))
    return {end for end in ends if end is not None and end != SHARED} | {action.node for action in plan.nodes}


def _vjob(vjob: VJob) -> str:
    parts: list[str] = [f"VMs {_listed(vm.name for vm in vjob.vms)}"]
    parts += [] if vjob.preemptible else ["not preemptible"]
    parts += ["lost"] if vjob.lost else []
    parts += [] if vjob.target is None else [f"target {vjob.target}"]
    parts += [] if vjob.preference is None else [f"preferred {vjob.preference}"]
    parts += map(str, vjob.own_rules)
    return ", ".join(parts)


def _listed(names: Iterable[str]) -> str:
    def quoted() -> Iterator[str]:
        for name in sorted(names):
            yield repr(name)

    return " ".join(quoted())
