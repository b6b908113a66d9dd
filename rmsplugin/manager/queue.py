"""Queue: the vjobs that Slurm has, in the order in which they may start, as far as the leader has to know them."""

from __future__ import annotations

from rmsplugin.adapters.rms.base import JobState, Rms, RmsJob, RmsSnapshot
from rmsplugin.engine.assess.newcomers import read_geometry
from rmsplugin.engine.capacity.capacity import demand_of_new
from rmsplugin.engine.observe.rooms import hosts_of, vm_hosts
from rmsplugin.errors import NotFoundError, RefusedError
from rmsplugin.groups.choosing import Shape
from rmsplugin.groups.giving import Live
from rmsplugin.model.rules import Rules, allowing
from rmsplugin.model.vjob import Geometry
from rmsplugin.settings import Settings


def array_of(job: RmsJob) -> int:
    """The job id under which a vjob is given: that of its array, or its own."""
    return int(job.display_id.partition("_")[0])


class SlurmQueue:
    """Reads jobs as vjobs; the script of each is asked for once. Used by one thread."""

    def __init__(self, settings: Settings, rms: Rms) -> None:
        self._settings, self._rms = settings, rms
        self._geometries: dict[int, Geometry | None] = {}  # by array; None: it was not wrapped

    def read(self, seen: RmsSnapshot) -> tuple[list[Live], frozenset[int]]:
        """All vjobs that have not ended, head first; and those that have, as long as Slurm knows them.

        Raises:
            UnavailableError: Slurm does not answer.
        """
        jobs: dict[int, list[RmsJob]] = {}
        ended = set()
        for job in seen.jobs:
            if job.partition not in self._settings.partition:
                continue
            if job.state is JobState.ENDED:
                ended.add(array_of(job))
            else:
                jobs.setdefault(array_of(job), []).append(job)
        self._geometries = {array: found for array, found in self._geometries.items() if array in jobs}
        found = []
        for array, elements in sorted(jobs.items(), key=lambda each: _key(seen, each[1][0])):
            waits = any(job.state is JobState.PENDING and job.eligible for job in elements)
            geometry = self._geometry(array, elements[0])
            found.append(Live(array, self._shape(seen, elements[0].partition, geometry), waits))
        return found, frozenset(ended)

    def _geometry(self, array: int, job: RmsJob) -> Geometry | None:
        if array not in self._geometries:
            try:
                self._geometries[array] = read_geometry(self._settings, self._rms, job)[0]
            except (RefusedError, NotFoundError):
                self._geometries[array] = None  # the engine of some group says so, and holds it
        return self._geometries[array]

    def _shape(self, seen: RmsSnapshot, partition: str, geometry: Geometry | None) -> Shape:
        if geometry is None:
            return Shape.of((), ())
        demands = [demand_of_new(self._settings, partition, geometry, index) for index in (0, geometry.vms - 1)]
        small = geometry.vms - geometry.large
        return Shape.of([demands[0]] * geometry.large + [demands[1]] * small, self._rules(seen, partition, geometry))

    def _rules(self, seen: RmsSnapshot, partition: str, geometry: Geometry) -> Rules:
        hosts = hosts_of(self._settings, seen, partition)
        known = {name: seen.nodes[name].features for name in hosts if name in seen.nodes}
        allowed = geometry.constraints.allowed(known)
        return () if allowed.issuperset(vm_hosts(self._settings, seen)) else allowing(allowed)


def _key(seen: RmsSnapshot, job: RmsJob) -> tuple[int, int, int, int]:
    partition = seen.partitions.get(job.partition)
    tier = partition.priority_tier if partition else 0
    return (-tier, -job.priority, job.submit_time, job.job_id)
