"""Samples: so many configurations of a family, by seed; and what of them a packing problem consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Location, VMState
from rmsplugin.packing.item import Item

#: Of this many seeds for one sample the family does not exist with these sizes.
_MOST_SEEDS = 50


def samples(generate: Callable[[int], Configuration], count: int) -> Iterator[tuple[int, Configuration]]:
    """The first ``count`` seeds that give a configuration, each with its configuration.

    Some give none: at 400 VMs of 1 or 2 GiB on 200 nodes of 3 GiB, more than 200 VMs may be of 2 GiB.
    """
    found = 0
    for seed in range(count * _MOST_SEEDS):
        if found == count:
            return
        try:
            configuration = generate(seed)
        except ValueError:
            continue
        found += 1
        yield seed, configuration


def running_vms(configuration: Configuration) -> list[VM]:
    """The VMs that run."""
    return [
        vm for name, vm in configuration.vm_by_name.items() if configuration.locations[name].state is VMState.RUNNING
    ]


def items(vms: Iterable[VM]) -> list[Item]:
    """VMs that may be on every node, as the packing takes them."""
    return [Item(vm) for vm in vms]


def hosts(target: Mapping[str, Location]) -> dict[str, str]:
    """Of a target: the node of each VM that runs."""
    return {name: at.node for name, at in target.items() if at.state is VMState.RUNNING and at.node is not None}
