"""Item: what is packed. It needs no numpy, which the engine's process does without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rmsplugin.model.elements import VM, VJob
from rmsplugin.model.joint import Spread
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.rules import Rules


@made_at_once
@dataclass(frozen=True, slots=True)
class Item:
    """A VM to be packed, with its rules that do not depend on other VMs; VMs of one vjob should share them.

    ``apart``: no two VMs with the same one are on one node. Of those who pack, ``Repair`` heeds it.
    """

    vm: VM
    rules: Rules = ()
    apart: Spread | None = None


def items_of(vjobs: Iterable[VJob], apart: Mapping[str, Spread] | None = None) -> list[Item]:
    """The VMs of vjobs, in the form for packing; ``apart``: see ``Configuration.apart``."""
    if not apart:
        return [item for vjob in vjobs for item in items_of_one(vjob)]
    return [item for vjob in vjobs for item in items_of_one(vjob, apart.get(vjob.name))]


def items_of_one(vjob: VJob, apart: Spread | None = None) -> list[Item]:
    """The VMs of a vjob, in the form for packing."""
    own = vjob.own_rules
    return [Item(vm, own if vm.only is None else vjob.rules_of(vm), apart) for vm in vjob.vms]
