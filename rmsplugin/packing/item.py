"""Item: what is packed. It needs no numpy, which the engine's process does without."""

from __future__ import annotations

from dataclasses import dataclass

from rmsplugin.model.elements import VM
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.rules import Rules


@made_at_once
@dataclass(frozen=True, slots=True)
class Item:
    """A VM to be packed, with its allowed nodes; VMs of one vjob should share the rules."""

    vm: VM
    rules: Rules = ()
