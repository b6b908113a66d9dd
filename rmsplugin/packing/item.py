"""Item: what is packed. It needs no numpy, which the engine's process does without."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rmsplugin.model.elements import VM, VJob
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.rules import Rules


@made_at_once
@dataclass(frozen=True, slots=True)
class Item:
    """A VM to be packed, with its rules that do not depend on other VMs; VMs of one vjob should share them."""

    vm: VM
    rules: Rules = ()


def items_of(vjobs: Iterable[VJob]) -> list[Item]:
    """The VMs of vjobs, in the form for packing."""
    return [item for vjob in vjobs for item in items_of_one(vjob)]


def items_of_one(vjob: VJob) -> list[Item]:
    """The VMs of a vjob, in the form for packing."""
    own = vjob.own_rules
    return [Item(vm, own if vm.only is None else vjob.rules_of(vm)) for vm in vjob.vms]
