"""Scenes: puts together what the live page shows, of what the engine has in memory and in its ledger.

Slurm, libvirt and nodes are asked nothing.
"""

from __future__ import annotations

import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rmsplugin import __version__
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.controllers.controllers import Controllers
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.serve import plan_views, views
from rmsplugin.engine.serve.ills import ills
from rmsplugin.engine.serve.privacy import JOBS, NODES
from rmsplugin.engine.serve.standings import Standings
from rmsplugin.engine.serve.unmet import unmet_views
from rmsplugin.engine.serve.wanted_vjobs import ALL
from rmsplugin.live_page.scene import Act, Machine, Node, Row, Scene, Switch
from rmsplugin.live_page.words import several
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState

#: Context switches of the past that are shown.
_SWITCHES = 10
#: The most jobs that the ledger does not know yet, of all that Slurm has.
_UNMET = 1000
_RESTS = (VJobState.WAITING, VJobState.PAUSED, VJobState.SLEEPING)


class Scenes:
    """Puts scenes together."""

    def __init__(
        self,
        capacities: Capacities,
        cycle: Cycle,
        standings: Standings,
        controllers: Controllers | None,
        epoch: int,
    ) -> None:
        """``controllers``: the engines that stand by; None for one that is alone; ``epoch``: this engine's own."""
        self._capacities, self._cycle, self._standings = capacities, cycle, standings
        self._controllers, self._epoch = controllers, epoch
        self._settings, self._ledger, self._clock = capacities.settings, capacities.ledger, capacities.clock
        self._started, self._host = self._clock.now(), socket.gethostname()

    def scene(self, number: int) -> Scene:
        """All that there is now, with this number. Reads the ledger; several threads may call.

        Raises:
            LedgerUnavailableError: the ledger cannot be read.
        """
        seen, report = self._cycle.seen, self._cycle.report
        vjobs = {vjob.job_id: vjob for vjob in self._ledger.vjobs()}
        vms = self._ledger.live_vms_by_job()
        nodes = self._nodes(seen, vjobs, vms)
        rows = [self._row(vjob, vms.get(vjob.job_id, ())) for vjob in vjobs.values() if _rests(vjob)]
        queue = [*(row for row in rows if row.state == VJobState.WAITING), *self._unmet()]
        return Scene(
            number=number,
            time=self._clock.now(),
            version=__version__,
            host=self._host,
            group=self._settings.territory,
            leader=self._leader(),
            cycle=report.sentence,
            cycle_time=report.time,
            notices=tuple(self._notices()),
            energy=tuple(self._energy(nodes)),
            nodes=nodes,
            acts=tuple(self._acts(vjobs)),
            queue=_in_order(queue),
            paused=_in_order(row for row in rows if row.state == VJobState.PAUSED),
            sleeping=_in_order(row for row in rows if row.state == VJobState.SLEEPING),
            switches=tuple(self._switches()),
            # Before the first look nobody knows what Slurm keeps private.
            private=seen is None or JOBS in seen.rms.private,
            nodes_private=seen is None or NODES in seen.rms.private,
        )

    # -- the engine ----------------------------------------------------------------------------------------------

    def _leader(self) -> str:
        if self._controllers is None:
            return f"The engine on {self._host} is alone."
        standbys = ", ".join(each["host"] for each in self._controllers.view()["standbys"]) or "nobody"
        return f"The engine on {self._host} leads, with epoch {self._epoch}. Standing by: {standbys}."

    def _notices(self) -> Iterator[str]:
        report, quiet, pause = self._cycle.report, self._cycle.deciding.quiet(), self._ledger.plans.pause
        if pause is not None:
            yield f"Context switches are paused by {pause.by}"
        if quiet is not None:
            yield quiet.sentence
        yield from ills(self._cycle, self._started, self._clock.now(), self._settings.engine.cycle_s)
        yield from report.problems
        for each in self._cycle.brake.held:
            yield f"vjob {each.vjob} is not touched: {each.directive.reason}; see `rmsplugin confirm`"

    def _energy(self, nodes: Iterable[Node]) -> Iterator[str]:
        watts = [node.watts for node in nodes if node.watts is not None]
        if watts:
            yield f"Measured: {sum(watts)} W on {several(len(watts), 'node')}."
        if sentence := views.power_sentence(self._ledger):
            yield f"Power: {sentence}."

    def _switches(self) -> Iterator[Switch]:
        for view in reversed(plan_views.cycles_view(self._ledger, self._clock, _SWITCHES)):
            yield Switch(
                number=view["number"],
                time=view["time"],
                state=view["state"],
                sentence=view["error"] or view["sentence"],
                cost_mib=view["cost_mib"],
                bound_mib=view["lower_bound_mib"],
                expected_s=view["expected_s"] if view["expected_known"] else None,
                took_s=view["took_s"],
                steps_done=view["steps_done"],
                steps=view["steps"],
            )

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _nodes(
        self, seen: Observation | None, vjobs: Mapping[int, VJobRow], vms: Mapping[int, list[VMRow]]
    ) -> tuple[Node, ...]:
        if seen is None:
            return ()
        hosts = self._capacities.hosts(seen)
        machines: defaultdict[str, list[Machine]] = defaultdict(list)
        saved: Counter[str] = Counter()
        for job_id, of_job in vms.items():
            vjob = vjobs.get(job_id)
            if vjob is None:
                continue  # it came after ``vjobs`` was read, and is in the next scene
            for vm in of_job:
                if vm.phase.in_file:
                    saved[vm.image_node] += 1
                for node in (vm.host, vm.destination) if vm.host else ():  # a saved state may move, too
                    if node in hosts and (has := hosts[node].parts.get(vm.name)) is not None:
                        machines[node].append(_machine(vjob, vm, node, has))
        found = views.views_of_hosts(self._ledger, hosts, seen, self._cycle.memory_care.pressed)
        return tuple(_node(view, tuple(machines[view["name"]]), saved[view["name"]]) for view in found)

    # -- vjobs ---------------------------------------------------------------------------------------------------

    def _row(self, vjob: VJobRow, vms: Iterable[VMRow]) -> Row:
        (position, told), geometry = self._standings.position_and_why(vjob, vms), vjob.geometry
        places = {vm.host or vm.image_node for vm in vms}
        return Row(
            vjob=vjob.display_id,
            user=vjob.user,
            name=vjob.job_name,
            partition=vjob.partition,
            state=str(vjob.state),
            position=position,
            cpus=geometry.total_cpus,
            memory_mib=geometry.total_memory_mib,
            since=vjob.submitted if vjob.state is VJobState.WAITING else vjob.state_since,
            code=told.code,
            reason=told.sentence,
            nodes=tuple(sorted(places - {""})),
            size_bytes=sum(vm.image_bytes for vm in vms),
        )

    def _unmet(self) -> Iterator[Row]:
        """Jobs that Slurm has and the engine has not met, elements of an array in one row."""
        for view in unmet_views(self._standings, ALL, "", after=0, most=_UNMET)["vjobs"]:
            yield Row(
                vjob=view["display_id"],
                user=view["user"],
                name=view["name"],
                partition=view["partition"],
                state=view["state"],
                position=view["position"],
                cpus=0,
                memory_mib=0,
                since=view["submitted"],
                code=view["code"],
                reason=view["reason"],
                elements=view["elements"],
            )

    def _acts(self, vjobs: Mapping[int, VJobRow]) -> Iterator[Act]:
        for operation in self._ledger.running_operations():
            vjob = vjobs.get(operation.job_id)
            if vjob is None:
                continue
            for action in self._ledger.actions(operation.id):
                if action.state == "running":
                    part = action.bytes_done / action.bytes_total if action.bytes_total else None
                    yield Act(
                        vjob=vjob.display_id,
                        user=vjob.user,
                        kind=action.kind,
                        vm=action.vm,
                        source=action.source,
                        destination=action.destination,
                        part=None if part is None else min(1.0, part),
                        since=action.created,
                    )


def _rests(vjob: VJobRow) -> bool:
    return vjob.state in _RESTS


def _machine(vjob: VJobRow, vm: VMRow, node: str, has: Resources) -> Machine:
    """The VM as it is drawn at one node: at its host; while it migrates, at its destination, too."""
    state, other, needs_cpus, needs_mib = str(vjob.state), "", None, None
    if vm.destination:
        state, other = ("leaving", vm.destination) if node == vm.host else ("arriving", vm.host)
    elif vjob.state is VJobState.RUNNING:  # of others nobody knows what they need
        needs_cpus = None if vm.centi_cpus is None else vm.centi_cpus / 100
        needs_mib = vm.memory_demand_mib
    return Machine(
        vjob.display_id,
        vjob.user,
        vjob.job_name,
        float(has.cpus),
        int(has.memory_mib),
        state,
        other,
        needs_cpus,
        needs_mib,
    )


def _in_order(rows: Iterable[Row]) -> tuple[Row, ...]:
    """By position in the queue; those that have none come last, the oldest first."""
    return tuple(sorted(rows, key=lambda row: (row.position is None, row.position or 0, row.since)))


def _node(view: Mapping[str, Any], machines: tuple[Machine, ...], saved: int) -> Node:
    return Node(
        name=view["name"],
        state=view["state"],
        usable=not view["reason"],
        reason=view["reason"],
        cpus=float(view["cpus"]),
        memory_mib=int(view["memory_mib"]),
        machines=machines,
        watts=view["watts"],
        celsius=view["temperature_c"],
        saved=saved,
    )
