"""Comparing: a switch whose assessments of some vjobs and nodes are compared with those of all, each time."""

from __future__ import annotations

from collections.abc import Sequence

from rmsplugin.decision.outgrown import bearable
from rmsplugin.engine.assess.assess import Among, Assessment
from rmsplugin.engine.assess.queue import Waiting
from rmsplugin.engine.execute.switch import Switch
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, Node, VJob
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import alone


class ComparingSwitch(Switch):
    """What a plan depends on is the same in an assessment of a part as in one of all."""

    def assess(self, seen: Observation, queue: Sequence[Waiting], among: Among | None = None) -> Assessment:
        """See ``Switch``."""
        found = super().assess(seen, queue, among)
        if among is not None:
            whole = super().assess(seen, queue)
            part, all_of_it = (told(bearable(each.configuration), among) for each in (found, whole))
            assert part == all_of_it, f"an assessment of {among} differs from one of all: {part} {all_of_it}"
        return found


def told(configuration: Configuration, among: Among) -> tuple[list[Node], list[object], dict[str, Resources]]:
    """What an assessment tells of some vjobs and nodes."""
    nodes = [node for node in configuration.nodes if node.name in among.nodes]
    vjobs: list[object] = []
    for vjob in configuration.vjobs:
        at = {vm.name: configuration.locations[vm.name] for vm in vjob.vms}
        if vjob.name in among.vjobs:
            vjobs.append(_facts(vjob, at))
        else:
            vjobs += [(vm, at[vm.name]) for vm in vjob.vms if _is_there(at[vm.name], among)]
    return nodes, vjobs, {node.name: configuration.free(node.name) for node in nodes}


def _facts(vjob: VJob, at: dict[str, Location]) -> object:
    return vjob.name, vjob.vms, vjob.preemptible, vjob.lost, vjob.target, alone(vjob.rules), at


def _is_there(at: Location, among: Among) -> bool:
    return at.state.holds_memory and at.node in among.nodes
