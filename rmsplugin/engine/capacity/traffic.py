"""Traffic: the bytes that VMs receive and send over the network, by the readings of cycles. It decides nothing.

The counters are of a hypervisor process: after a migration, or a resume, they begin anew. So what a process has counted
before the first reading of it is not known, nor what it counts after the last one. A look without counters, of a node
that does not answer or gives none, loses nothing: the next reading has the bytes of the whole time in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmsplugin.adapters.platform.base import VMStatistics
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.model.made_at_once import made_at_once

#: Events start cycles early. Fewer seconds say little of a rate, so readings are at least so far apart.
_LEAST_APART_S = 5.0


@made_at_once
@dataclass(frozen=True, slots=True)
class NetworkBytes:
    """Bytes, or bytes a second, of VMs."""

    received: float = 0.0
    sent: float = 0.0


@made_at_once
@dataclass(frozen=True, slots=True)
class _Reading:
    """The counters of one VM on one node at a time, and the rate up to then; None: it is the first reading."""

    uuid: str
    time_s: float
    counted: NetworkBytes
    rate: NetworkBytes | None = None


class Traffic:
    """Taken in once a cycle by its thread; read by any thread."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._readings: Mapping[tuple[str, str], _Reading] = {}  # by node and VM
        self._rates: Mapping[str, NetworkBytes] = {}
        self.total = NetworkBytes()  # of all VMs since this engine began to lead

    def rate(self, vm: str) -> NetworkBytes | None:
        """The bytes a second of a VM between its last two readings; None: there are not two of it where it is."""
        return self._rates.get(vm)

    def take(self, seen: Observation) -> None:
        """Take in the counters of one observation."""
        readings: dict[tuple[str, str], _Reading] = {}
        for node, all_statistics in seen.statistics.items():
            there, time_s = seen.vms.get(node, {}), seen.sampled[node]
            for name, statistics in all_statistics.items():
                found, counted = there.get(name), _counted(statistics)
                if found is not None and counted is not None:
                    at = (node, name)
                    before = self._readings.get(at)
                    goes_on = before if before is not None and before.uuid == found.uuid else None
                    readings[at] = self._after(goes_on, _Reading(found.uuid, time_s, counted))
        for at, reading in self._readings.items():
            if at not in readings and _may_go_on(seen, *at, reading.uuid):
                readings[at] = reading
        self._readings = readings
        self._rates = {
            name: reading.rate
            for (node, name), reading in readings.items()
            if reading.rate is not None and seen.only_node(name) == node
        }

    def _after(self, before: _Reading | None, now: _Reading) -> _Reading:
        """The reading that counts from now on."""
        if before is None or now.time_s < before.time_s:
            return now
        apart_s = now.time_s - before.time_s
        if apart_s < _LEAST_APART_S:
            return before
        more = _since(before.counted, now.counted)
        self.total = NetworkBytes(self.total.received + more.received, self.total.sent + more.sent)
        rate = NetworkBytes(more.received / apart_s, more.sent / apart_s)
        return _Reading(now.uuid, now.time_s, now.counted, rate)


def _may_go_on(seen: Observation, node: str, name: str, uuid: str) -> bool:
    """Whether a VM that was read on a node may be there still: the node has it, or does not answer."""
    if node not in seen.vms:
        return node in seen.unreachable
    found = seen.vms[node].get(name)
    return found is not None and found.uuid == uuid


def _counted(statistics: VMStatistics) -> NetworkBytes | None:
    """The counters; None: the node gives none."""
    received, sent = statistics.received_bytes, statistics.sent_bytes
    return None if received is None or sent is None else NetworkBytes(received, sent)


def _since(before: NetworkBytes, now: NetworkBytes) -> NetworkBytes:
    """The bytes in between; counters that fell began anew in between."""
    if now.received < before.received or now.sent < before.sent:
        return now
    return NetworkBytes(now.received - before.received, now.sent - before.sent)
