"""Own RMS: stands between a group's engine and the RMS, so that the engine sees and changes only what is its own.

Nodes that are hosts of no group's partitions, jobs of other partitions, reservations and settings are seen as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, cast

from rmsplugin.adapters.rms.base import ROOM_NAME, Rms, RmsJob, RmsSnapshot
from rmsplugin.engine.territory.territory import Territory, number_of
from rmsplugin.errors import RefusedError
from rmsplugin.settings import Settings

#: Acts on the job whose id is the first argument.
_ACTS = frozenset(
    {
        "open_gate",
        "close_gate",
        "hold",
        "suspend",
        "resume",
        "requeue",
        "cancel",
        "tell_end",
        "comment",
        "extend_room",
        "batch_script",
        "geometry",
        "mail_wish",
    }
)
#: Acts on the node whose name is the first argument.
_ON_NODES = frozenset({"power_down", "power_up", "repair_node"})


def own_rms(rms: Rms, territory: Territory, settings: Settings) -> Rms:
    """The RMS as the engine of the territory sees it."""
    return rms if isinstance(rms, _OwnRms) else cast(Rms, _OwnRms(rms, territory, settings))


class _OwnRms:
    def __init__(self, rms: Rms, territory: Territory, settings: Settings) -> None:
        self._rms = rms
        self._territory = territory
        self._settings = settings
        self._lock = threading.Lock()
        self._jobs: frozenset[int] = frozenset()  # the ids of its own jobs and rooms, at the last look

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._rms, name)
        require = self._require_job if name in _ACTS else self._require_node if name in _ON_NODES else None
        if require is None:
            return method

        def act(of: Any, *arguments: Any, **options: Any) -> Any:
            require(of)
            return method(of, *arguments, **options)

        return act

    def snapshot(self) -> RmsSnapshot:
        """See ``Rms``."""
        found = self._rms.snapshot()
        hosts = self._territory.hosts
        theirs = {
            node
            for name in self._settings.hosts_partitions
            if name in found.partitions
            for node in found.partitions[name].nodes
        } - hosts
        self._territory.elsewhere = frozenset(self._keeping(found) & theirs)
        vjobs = self._territory.vjobs()
        jobs = tuple(job for job in found.jobs if self._is_seen(job, vjobs))
        mine = (job.job_id for job in jobs if self._is_vjobs(job) or self._is_room(job))
        with self._lock:
            self._jobs = frozenset(mine)
        return replace(
            found,
            jobs=jobs,
            nodes={name: node for name, node in found.nodes.items() if name not in theirs},
            partitions={
                name: replace(partition, nodes=tuple(node for node in partition.nodes if node not in theirs))
                for name, partition in found.partitions.items()
            },
        )

    def _keeping(self, found: RmsSnapshot) -> set[str]:
        """The nodes that are up, and whose stores outlive rooms."""
        names = [name for name in self._settings.hosts_partitions if self._settings.hosts_of(name).store_survives]
        there = {node for name in names if name in found.partitions for node in found.partitions[name].nodes}
        return {node for node in there if (seen := found.nodes.get(node)) and seen.up and not seen.draining}

    def split(self, display_id: str) -> int:
        """See ``Rms``."""
        if number_of(display_id, 0) not in self._territory.own:
            raise self._not_mine(f"array element {display_id}")
        return self._rms.split(display_id)

    def request_room(self, node: str, partition: str, *, time_limit_s: float, time_min_s: float) -> int:
        """See ``Rms``."""
        self._require_node(node)
        job_id = self._rms.request_room(node, partition, time_limit_s=time_limit_s, time_min_s=time_min_s)
        with self._lock:
            self._jobs |= {job_id}
        return job_id

    def _is_seen(self, job: RmsJob, vjobs: Collection[int]) -> bool:
        if self._is_room(job):
            return not self._territory.hosts.isdisjoint(job.nodes)
        if not self._is_vjobs(job) or (job.split and job.job_id in vjobs):
            return True
        return number_of(job.display_id, job.job_id) in self._territory.own

    def _is_room(self, job: RmsJob) -> bool:
        return job.name == ROOM_NAME and job.user == self._settings.engine.user

    def _is_vjobs(self, job: RmsJob) -> bool:
        return job.partition in self._settings.slurm.partitions

    def _require_job(self, job_id: int) -> None:
        if job_id not in self._jobs and not self._territory.knows(job_id):
            raise self._not_mine(f"job {job_id}")

    def _require_node(self, node: str) -> None:
        if node not in self._territory.hosts:
            raise self._not_mine(f"node {node}")

    def _not_mine(self, what: str) -> RefusedError:
        return RefusedError(f"{what} is not of group {self._territory.group}: this engine does not act on it")
