"""Views: vjobs, VMs, nodes and operations as JSON, to be shown by the service and the commands. No secrets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rmsplugin.adapters.power.base import PowerReading, PowerState
from rmsplugin.decision.reservation import Reservation
from rmsplugin.engine.capacity.capacity import Capacities, HostCapacity
from rmsplugin.engine.capacity.traffic import NetworkBytes, Traffic
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.decide.emptying import ENERGY
from rmsplugin.engine.ledger.checkpoints import Checkpoint
from rmsplugin.engine.ledger.failures import NodeRest
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.node_book import FenceFailures, Gone
from rmsplugin.engine.ledger.power_book import NodeSwitch, SwitchState
from rmsplugin.engine.ledger.rows import Operation, Outcome, SetAsideState, VJobRow, VMRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.reconcile.brake import Held
from rmsplugin.engine.serve.standings import remembered
from rmsplugin.engine.serve.wanted_vjobs import ALL, WantedVJobs
from rmsplugin.model.job_names import parse
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase

#: Whether a caller is told of a vjob.
Sees = Callable[[VJobRow], bool]
#: Tells of a vjob and its VMs what ``standings`` has of them.
StandingOf = Callable[[VJobRow, Sequence[VMRow]], dict[str, Any]]
#: The most ended vjobs, or other vjobs, or VMs, or saved states in one answer.
MOST_AT_ONCE = 1000
#: The most nodes that a sentence names.
_NODES_TOLD = 8
_NOTHING_SENSED = PowerReading(PowerState.UNKNOWN, 0.0)
_POWER_WORDS = {
    SwitchState.OFF: "switched off",
    SwitchState.GOING_OFF: "that go off",
    SwitchState.COMING_ON: "that come on",
    SwitchState.FAILED: "that did not come on",
}


def vjob_view(
    ledger: Ledger,
    clock: Clock,
    vjob: VJobRow,
    vms: list[VMRow],
    operation: Operation | None,
    checkpoint: Checkpoint | None,
    standing: StandingOf = remembered,
) -> dict[str, Any]:
    """One vjob."""
    return {
        "job_id": vjob.job_id,
        "display_id": vjob.display_id,
        "user": vjob.user,
        "partition": vjob.partition,
        "state": vjob.state,
        **standing(vjob, vms),
        "vms": vjob.geometry.vms,
        "cpus": vjob.geometry.cpus,
        "memory_mib": vjob.geometry.memory_mib,
        "nodes": sorted({vm.host for vm in vms} - {""}),
        "submitted": vjob.submitted,
        "state_since": vjob.state_since,
        "resumes": vjob.resumes,
        "preference": vjob.preference,
        "resized_cpus": vjob.resized_cpus or None,
        "resized_memory_mib": vjob.resized_memory_mib or None,
        "ran_s": round(vjob.ran_by(clock.now()), 1),
        "losses": vjob.losses,
        "returns": vjob.returns,
        "repeated_s": round(vjob.repeated_s, 1),
        "checkpoint": _checkpoint_view(clock, checkpoint) if checkpoint else None,
        "operation": progress_view(ledger, operation) if operation else None,
    }


def _checkpoint_view(clock: Clock, checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "number": checkpoint.id,
        "time": checkpoint.taken,
        "age_s": round(max(0.0, clock.now() - checkpoint.taken), 1),
        "bytes": checkpoint.size_bytes,
        "nodes": sorted({node for vm in checkpoint.vms for node in vm.nodes}),
    }


def vjob_views(
    ledger: Ledger,
    clock: Clock,
    *,
    ended: bool,
    limit: int,
    after: int = 0,
    wanted: WantedVJobs = ALL,
    standing: StandingOf = remembered,
    sees: Sees = lambda vjob: True,
) -> dict[str, Any]:
    """A page of the vjobs that have not ended; with the first page, if wanted, a page of the newest ended ones.

    The page has the next vjobs by job id, in order of first submission. ``next``: the next page has the vjobs ``after``
    this job id; None: there is none. ``more``, ``older`` and ``ended`` as of ``ended_vjob_views``. Of vjobs that have
    not ended only those are told that are ``wanted``. ``sees``: whether the caller is told of a vjob.
    """
    old, told = (
        _ended(ledger, limit, sees=sees) if ended and not after else ([], {"ended": 0, "older": None, "more": False})
    )
    found: list[dict[str, Any]] = []
    following: int | None = after
    while following is not None and len(found) < MOST_AT_ONCE:
        page = ledger.vjobs_after(following, MOST_AT_ONCE + 1)
        following = page[MOST_AT_ONCE - 1].job_id if len(page) > MOST_AT_ONCE else None
        rows = [*filter(sees, page[:MOST_AT_ONCE])]
        found += filter(wanted.takes, _views(ledger, clock, rows, standing))
    if len(found) > MOST_AT_ONCE:
        found = found[:MOST_AT_ONCE]
        following = found[-1]["job_id"]
    if old:
        found += _views(ledger, clock, old, standing)
    found.sort(key=lambda view: (view["submitted"], view["job_id"]))
    return {"vjobs": found, **told, "next": following}


def ended_vjob_views(
    ledger: Ledger,
    clock: Clock,
    *,
    limit: int,
    before: int,
    at_us: int = 0,
    sees: Sees = lambda vjob: True,
) -> dict[str, Any]:
    """A page of at most ``limit`` vjobs that have ended, and that were submitted before the vjob ``before``.

    ``at_us``: when that was, in microseconds, where another ledger has it. ``sees``: whether the caller is told of a
    vjob; a page has fewer then.

    ``ended``: their number on this page. ``more``: there are older ones, ``before`` the vjob called ``older``.
    """
    rows, told = _ended(ledger, limit, before, at_us, sees=sees)
    return {"vjobs": _views(ledger, clock, rows), **told, "next": None}


def _ended(
    ledger: Ledger, limit: int, before: int = 0, at_us: int = 0, *, sees: Sees
) -> tuple[list[VJobRow], dict[str, Any]]:
    most = min(limit, MOST_AT_ONCE)
    found = ledger.newest_ended(most + 1, before, at_us)
    rows = found[-most:] if most else []
    more = len(found) > most
    told = [*filter(sees, rows)]
    return told, {"ended": len(told), "older": rows[0].job_id if more and rows else None, "more": more}


def named_vjob_views(
    ledger: Ledger,
    clock: Clock,
    name: str,
    *,
    after: int = 0,
    standing: StandingOf = remembered,
    sees: Sees = lambda vjob: True,
) -> dict[str, Any]:
    """A page of the vjobs with this name, ended or not: one, or elements of an array. None at all is no error."""
    rows = sorted(filter(sees, ledger.named(parse(name))), key=lambda row: row.job_id)
    page = [row for row in rows if row.job_id > after][: MOST_AT_ONCE + 1]
    following = page[MOST_AT_ONCE - 1].job_id if len(page) > MOST_AT_ONCE else None
    return {"vjobs": _views(ledger, clock, page[:MOST_AT_ONCE], standing), "more": False, "next": following}


def _views(
    ledger: Ledger, clock: Clock, rows: Sequence[VJobRow], standing: StandingOf = remembered
) -> list[dict[str, Any]]:
    vms = ledger.vms_among(row.job_id for row in rows)
    operations = {operation.job_id: operation for operation in ledger.running_operations()}
    newest = ledger.checkpoints.newest()
    return [
        vjob_view(
            *(ledger, clock, row, vms.get(row.job_id, [])),
            *(operations.get(row.job_id), newest.get(row.job_id), standing),
        )
        for row in rows
    ]


def one_vjob_view(ledger: Ledger, clock: Clock, vjob: VJobRow, standing: StandingOf = remembered) -> dict[str, Any]:
    """One vjob of the ledger."""
    operation = next((each for each in ledger.running_operations() if each.job_id == vjob.job_id), None)
    newest = ledger.checkpoints.newest().get(vjob.job_id)
    return vjob_view(ledger, clock, vjob, ledger.vms(vjob.job_id), operation, newest, standing)


def vm_views(
    ledger: Ledger, traffic: Traffic, *, after: int = 0, name: str = "", sees: Sees = lambda vjob: True
) -> dict[str, Any]:
    """A page of the VMs of vjobs that have not ended, by job id; ``next`` and ``sees`` as of ``vjob_views``.

    A vjob's VMs are on one page, which ends with the vjob that fills it. ``name``: only VMs of vjobs of this name.
    """
    page = ledger.vjobs_after(after, MOST_AT_ONCE + 1)
    if name:
        alive = (vjob for vjob in ledger.named(parse(name)) if vjob.state is not VJobState.TERMINATED)
        page = sorted((vjob for vjob in alive if vjob.job_id > after), key=lambda vjob: vjob.job_id)
    vjobs: dict[int, VJobRow] = {}
    told, last = 0, after
    for vjob in page[:MOST_AT_ONCE]:
        if told >= MOST_AT_ONCE:
            break
        last = vjob.job_id
        if sees(vjob):
            vjobs[vjob.job_id] = vjob
            told += vjob.geometry.vms
    following = last if page and last != page[-1].job_id else None
    vms = ledger.vms_among(vjobs)
    rows = [
        {
            "name": vm.name,
            "vjob": vjobs[vm.job_id].display_id,
            "state": _vm_state(vjobs[vm.job_id], vm),
            "node": vm.host,
            "address": vm.address,
            "image_node": vm.image_node,
            "image_bytes": vm.image_bytes,
            "cpus": vjobs[vm.job_id].geometry.cpus_of(vm.idx),
            "memory_mib": vm.memory_mib,
            "cpus_demand": None if vm.centi_cpus is None else vm.centi_cpus / 100,
            "memory_demand_mib": vm.memory_demand_mib,
            **_traffic_view(traffic.rate(vm.name)),
        }
        for job_id in vjobs
        for vm in vms.get(job_id, ())
    ]
    return {"vms": rows, "next": following}


def _traffic_view(rate: NetworkBytes | None) -> dict[str, int | None]:
    received, sent = (None, None) if rate is None else (round(rate.received), round(rate.sent))
    return {"received_bytes_s": received, "sent_bytes_s": sent}


def _vm_state(vjob: VJobRow, vm: VMRow) -> str:
    return "migrating" if vjob.state is VJobState.RUNNING and vm.phase is VMPhase.MIGRATING else str(vjob.state)


def node_views(
    ledger: Ledger, capacities: Capacities, seen: Observation | None, pressed: Mapping[str, tuple[int, str]]
) -> list[dict[str, Any]]:
    """All VM hosts, as last seen, each with its room. Times are seconds since the epoch; None if there is none."""
    return [] if seen is None else views_of_hosts(ledger, capacities.hosts(seen), seen, pressed)


def views_of_hosts(
    ledger: Ledger, hosts: Mapping[str, HostCapacity], seen: Observation, pressed: Mapping[str, tuple[int, str]]
) -> list[dict[str, Any]]:
    """The same of VM hosts whose room is known."""
    rests: dict[str, list[NodeRest]] = {}
    for rest in ledger.failures.node_rests():
        rests.setdefault(rest.node, []).append(rest)
    gone, unfenced, switches = ledger.nodes.gone(), ledger.nodes.fence_failures(), ledger.power.switches()
    reserved = {each.node: each for each in ledger.reservations.read().held}
    views = []
    for name, host in hosts.items():
        view = _node_view(seen, name, host, rests.get(name, []))
        view |= _reservation_view(reserved.get(name), pressed.get(name))
        view["reason"] = view["reason"] or _reserved_sentence(view)
        view |= _power_view(switches.get(name))
        view |= _standing(gone.get(name), unfenced.get(name))
        views.append(view)
    return views


def _reservation_view(held: Reservation | None, pressed: tuple[int, str] | None) -> dict[str, Any]:
    """The VM for which a node is reserved; and why fewer VMs are planned there, if VMs wait for memory."""
    return {
        "reserved_for": held.vm if held else None,
        "reserved_since": held.since_s if held else None,
        "guests": sorted(held.guests) if held else [],
        "pressed": pressed[1] if pressed else "",
    }


def _reserved_sentence(view: Mapping[str, Any]) -> str:
    if view["reserved_for"]:
        until = f"until {', '.join(view['guests'])} has ended" if view["guests"] else "waits for room"
        return f"reserved for {view['reserved_for']}: {until}"
    return f"has to lose a VM: {view['pressed']}" if view["pressed"] else ""


def _power_view(switch: NodeSwitch | None) -> dict[str, Any]:
    """Whether the engine has switched the node, since when, and why."""
    if switch is None:
        return {"power": "on", "power_since": None, "power_why": ""}
    told = {"power": str(switch.state), "power_since": switch.since, "power_why": switch.why}
    return told | {"state": str(switch.state), "reason": switch.sentence}


def _some(nodes: Sequence[str]) -> str:
    more = len(nodes) - _NODES_TOLD
    return ", ".join(nodes[:_NODES_TOLD]) + (f" and {more} more" if more > 0 else "")


def power_sentence(ledger: Ledger, seen: Observation | None = None) -> str | None:
    """The nodes that are not simply on, are being emptied, hot or capped, in a sentence; None: there is none."""
    nodes: dict[SwitchState, list[str]] = {}
    for switch in ledger.power.switches().values():
        if seen is None or switch.node in seen.rms.nodes:  # else it is another group's by now
            nodes.setdefault(switch.state, []).append(switch.node)
    told = [f"{words}: {_some(nodes[state])}" for state, words in _POWER_WORDS.items() if state in nodes]
    switched = [f"nodes {'; '.join(told)}"] if told else []
    emptied = [plan.sentence.partition("; ")[0] for plan in ledger.plans.running() if plan.policy == ENERGY]
    hot = [f"{each.node} ({each.celsius:g} °C)" for each in ledger.sensors.hot().values()]
    too_hot = [f"nodes that are hot: {_some(hot)}"] if hot else []
    capped = seen.capped if seen is not None else {}
    closed = [f"nodes that take no VM: {_some([*capped])}: {next(iter(capped.values()))}"] if capped else []
    return "; ".join([*switched, *emptied, *too_hot, *closed]) or None


def _standing(gone: Gone | None, unfenced: FenceFailures | None) -> dict[str, Any]:
    """The operator's word about the node, or the outcome of fencing it."""
    standing: dict[str, Any] = {"gone_since": gone.since if gone else None, "gone_by": gone.by if gone else None}
    if gone is not None:
        standing |= {"state": "gone", "reason": gone.sentence}
    elif unfenced is not None:
        standing["reason"] = f"could not be fenced ({unfenced.failures} times): {unfenced.error}"
    return standing


def _node_view(seen: Observation, name: str, host: HostCapacity, rests: list[NodeRest]) -> dict[str, Any]:
    node, room = seen.rms.nodes[name], seen.rooms.by_node.get(name)
    readings, sensed = node.readings, seen.sensed.get(name, _NOTHING_SENSED)
    return {
        "name": name,
        "state": "unreachable" if name in seen.unreachable else node.state.lower(),
        "cpus": host.capacity.cpus,
        "cpus_used": host.used.cpus,
        "memory_mib": host.capacity.memory_mib,
        "memory_used_mib": host.used.memory_mib,
        "cpu_load": readings.cpu_load,
        "memory_free_mib": readings.memory_free_mib,
        "watts": readings.watts if sensed.watts is None else round(sensed.watts.value),
        "temperature_c": readings.temperature_c if sensed.temperature_c is None else round(sensed.temperature_c.value),
        "hot": name in seen.hot,
        "vms": len(host.parts),
        "room": str(room.state) if room and room.job_id else "none",  # jobs without VMs need none
        "room_job": room.job_id if room and room.job_id else None,
        "since": room.since if room and room.since else None,
        "until": room.until if room and room.since and room.until < math.inf else None,
        "features": list(node.features),
        "reason": host.why_not or "; ".join(rest.sentence for rest in rests),
        "rests": [
            {"kind": rest.kind, "until": rest.until, "failures": rest.failures, "error": rest.error} for rest in rests
        ],
    }


def held_view(held: Held) -> dict[str, Any]:
    """The act that is held back for one vjob."""
    return {"vjob": held.vjob, "what": held.directive.what, "reason": held.directive.reason, "proved": held.proved}


def aside_view(aside: SetAsideState) -> dict[str, Any]:
    """Saved states that were put aside."""
    saved = [vm for vm in aside.vms if vm.phase.in_file]
    return {
        "number": aside.id,
        "vjob": aside.display_id,
        "user": aside.user,
        "time": aside.time,
        "vms": len(aside.vms),
        "states": len(saved),
        "nodes": sorted({vm.image_node for vm in saved}),
        "bytes": sum(vm.image_bytes for vm in saved),
        "reason": aside.reason,
    }


def operation_view(ledger: Ledger, operation: Operation) -> dict[str, Any]:
    """One operation with its actions."""
    actions = [asdict(action) for action in ledger.actions(operation.id)]
    return {
        "vjob": ledger.vjob(operation.job_id).display_id,
        "state": operation.state,
        "error": operation.error,
        "actions": actions,
        **progress_view(ledger, operation),
    }


def progress_view(ledger: Ledger, operation: Operation) -> dict[str, Any]:
    """The progress of an operation, in short."""
    actions = ledger.actions(operation.id)
    return {
        "id": operation.id,
        "kind": operation.kind,
        "bytes_done": sum(action.bytes_done for action in actions),
        "bytes_total": sum(action.bytes_total for action in actions),
        "ended": operation.state is not Outcome.RUNNING,
    }
