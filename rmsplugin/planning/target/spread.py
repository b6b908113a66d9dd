"""Spread: quickly finds a host for every VM that has to arrive somewhere, in the first pool as far as its room goes."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import numpy.typing as npt

from rmsplugin.planning.target.counts import Counts, movers_after
from rmsplugin.planning.target.keep import Kept
from rmsplugin.planning.target.replacement import Mover, Replacement

_Amounts = npt.NDArray[np.int64]


def spread(problem: Replacement, kept: list[Kept]) -> Counts | None:
    """Place all arrivals beside the kept VMs, large ones first; None if some find no room this way.

    An arrival goes where it leaves least memory (best fit) among the nodes that take it in the first pool, else among
    those that take it in the end. The resumes of a vjob are all in the first pool, or none of them takes its room.
    """
    return _Spread(problem, kept).place_all()


def fill(problem: Replacement, counts: Counts) -> bool:
    """Place VMs without a place beside all that have one, where there is room; returns whether all have a place now."""
    return _Spread(problem, counts.kept).fill(counts)


class _Spread:
    def __init__(self, problem: Replacement, kept: list[Kept]) -> None:
        self._problem, self._kept = problem, kept
        classes = problem.classes
        self._left_c, self._left_m, self._early_m = (
            np.array([getattr(place, name) for place in problem.places], dtype=np.int64)
            for name in ("capacity_c", "capacity_m", "early_m")
        )
        for i, keeps in enumerate(kept):
            for k, count in (*keeps.residents.items(), *((k, n) for (k, _), n in keeps.images.items())):
                self._left_c[i] -= count * classes[k].centi_cpus
                self._left_m[i] -= count * classes[k].memory_mib
        self._allowed: dict[int, npt.NDArray[np.bool_]] = {}  # by class, for those that were asked for
        self._early: list[dict[int, int]] = [{} for _ in problem.places]
        self._late: list[dict[int, int]] = [{} for _ in problem.places]

    def _mask(self, k: int) -> npt.NDArray[np.bool_]:
        places = self._problem.places
        may_go = self._problem.classes[k].may_go
        return np.array([place.takes and may_go(i) for i, place in enumerate(places)], dtype=np.bool_)

    def place_all(self) -> Counts | None:
        """Place vjobs that resume first, as whole as they are; then the single arrivals."""
        groups: dict[int, list[Mover]] = defaultdict(list)
        singles: list[Mover] = []
        for mover in movers_after(self._problem, self._kept):
            (singles if mover.group is None else groups[mover.group]).append(mover)
        local = self._local_resumes()
        early_groups = self._reserve(local)
        late = [mover for group, movers in groups.items() if group not in early_groups for mover in movers]
        # Vjobs with most to place come first: they find room hardest.
        for group in sorted(early_groups & groups.keys(), key=lambda g: (-len(groups[g]), g)):
            if not self._place_group(groups[group]):
                early_groups.discard(group)
                for place, memory in local[group]:
                    self._early_m[place] += memory
                late += groups[group]
        for mover in sorted(singles + late, key=self._size):
            is_early = mover.group is None and self._place(mover, self._early_m, self._early)
            if not is_early and not self._place(mover, None, self._late):
                return None
        return Counts(self._kept, self._early, self._late, frozenset(early_groups))

    def fill(self, counts: Counts) -> bool:
        """Add single arrivals to counts that have too few of some classes."""
        classes = self._problem.classes
        self._reserve(self._local_resumes())
        missing = Counter(mover.vm_class for mover in movers_after(self._problem, self._kept))
        for i, (early, late) in enumerate(zip(counts.early, counts.late, strict=True)):
            for k, count in (*early.items(), *late.items()):
                missing[k] -= count
                self._left_c[i] -= count * classes[k].centi_cpus
                self._left_m[i] -= count * classes[k].memory_mib
            self._early_m[i] -= sum(classes[k].memory_mib * count for k, count in early.items())
        movers = [Mover("", k, 0) for k, count in missing.items() for _ in range(count)]
        return all(
            self._place(each, self._early_m, counts.early) or self._place(each, None, counts.late)
            for each in sorted(movers, key=self._size)
        )

    def _local_resumes(self) -> dict[int, list[tuple[int, int]]]:
        """By group: the nodes on which its VMs resume locally, with their memory."""
        local: dict[int, list[tuple[int, int]]] = {g: [] for g in range(len(self._problem.groups))}
        for i, keeps in enumerate(self._kept):
            for (k, group), count in keeps.images.items():
                local[group].append((i, count * self._problem.classes[k].memory_mib))
        return local

    def _reserve(self, local: dict[int, list[tuple[int, int]]]) -> set[int]:
        """Take the room of the first pool for the local resumes of as many vjobs as it suffices for.

        If it does not suffice for all, the vjobs of fewest VMs give way: each of their VMs will wait.
        """
        for resumes in local.values():
            for place, memory in resumes:
                self._early_m[place] -= memory
        early_groups = set(local)
        for group in sorted(local, key=lambda g: (self._problem.group_sizes[g], g)):
            if any(self._early_m[place] < 0 for place, _ in local[group]):
                early_groups.discard(group)
                for place, memory in local[group]:
                    self._early_m[place] += memory
        return early_groups

    def _size(self, mover: Mover) -> tuple[int, int, str]:
        k = self._problem.classes[mover.vm_class]
        return (-k.memory_mib, -k.centi_cpus, mover.name)

    def _place_group(self, movers: list[Mover]) -> bool:
        """Place the remote resumes of a vjob in the first pool, all or none."""
        before = (self._left_c.copy(), self._left_m.copy(), self._early_m.copy())
        arrivals = [dict(by_class) for by_class in self._early]
        if all(self._place(mover, self._early_m, arrivals) for mover in sorted(movers, key=self._size)):
            self._early = arrivals
            return True
        self._left_c, self._left_m, self._early_m = before
        return False

    def _place(self, mover: Mover, early_m: _Amounts | None, arrivals: list[dict[int, int]]) -> bool:
        k = mover.vm_class
        c, m = self._problem.classes[k].centi_cpus, self._problem.classes[k].memory_mib
        if k not in self._allowed:
            self._allowed[k] = self._mask(k)
        fits = self._allowed[k] & (self._left_c >= c) & (self._left_m >= m)
        if early_m is not None:
            fits &= early_m >= m
        candidates = np.flatnonzero(fits)
        if not len(candidates):
            return False
        best = int(candidates[np.argmin(self._left_m[candidates])])
        self._left_c[best] -= c
        self._left_m[best] -= m
        if early_m is not None:
            early_m[best] -= m
        arrivals[best][k] = arrivals[best].get(k, 0) + 1
        return True
