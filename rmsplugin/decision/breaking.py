"""Breaking: the rules about VMs beside each other that places break, each in a sentence.

It asks what each rule says of whole configurations (``Rule.broken``), and nothing by which VMs are placed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.joint import Joint, Root
from rmsplugin.model.rules import Held


def rules_broken(configuration: Configuration, placement: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each rule about VMs beside each other that VMs break which come to these nodes.

    VMs that stay where they have memory break none, whatever has become of their rules and nodes.

    Args:
        configuration: nodes, queue, and where VMs are; its ``joint`` are the rules.
        placement: node by VM name, of all VMs that shall run, and of those that are to be paused.
    """
    known, homes = configuration.vjob_by_vm, configuration.homes
    came = {vm: node for vm, node in placement.items() if vm in known and homes.get(vm) != node}
    for rule in configuration.joint if came else ():
        theirs = _among(rule, came)
        reason = rule.broken(_held(rule, configuration, placement), theirs) if theirs else None
        if reason is not None:
            yield f"vjob {_vjob(configuration, reason, theirs)} is placed against a rule: {reason}"


def _among(rule: Joint, places: Mapping[str, str]) -> list[Held]:
    """Those of some places that can break a rule."""
    names = rule.names
    if names is None:
        return list(places.items())
    return [(vm, places[vm]) for vm in names if vm in places]


def _held(rule: Joint, configuration: Configuration, placement: Mapping[str, str]) -> list[Held]:
    """The places about which a rule is asked; of one that bars migrations, those from which VMs come, too."""
    held = _among(rule, placement)
    return [*held, *_among(rule, configuration.homes)] if isinstance(rule, Root) else held


def _vjob(configuration: Configuration, reason: str, came: Collection[Held]) -> str:
    """The vjob of the VM with whose name the reason begins."""
    named = [vm for vm, _ in came if reason.startswith(f"{vm} ")]
    return configuration.vjob_by_vm[max(named, key=len)].name
