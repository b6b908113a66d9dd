"""Hosts: the nodes on which the VMs of each job ran, and the times of their moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rmsplugin.report.columns import Actions, Ints
from rmsplugin.report.document import Interval
from rmsplugin.report.lives import RUNNING, STATES, WAITING, Lives

#: Kinds of actions that bring a VM to a node.
ARRIVALS = ("run", "resume", "migrate")

#: The time when a VM came, its number, and its node.
_Arrival = tuple[float, int, str]
#: A part of a life: its state, begin and end.
_Span = tuple[int, float, float]


class Hosts:
    """The intervals of each job's life with the hosts of its VMs."""

    def __init__(self, actions: Actions, lives: Lives, vms: Ints) -> None:
        """Take the actions of ARRIVALS at least, and the number of VMs of each job."""
        arrivals = [code for code, kind in enumerate(actions.kinds.words) if kind in ARRIVALS]
        kept = np.flatnonzero(np.isin(actions.kind, arrivals))
        kept = kept[np.lexsort((actions.ended[kept], actions.row[kept]))]
        self._vm, self._node, self._at = actions.vm[kept], actions.destination[kept], actions.ended[kept]
        self._names = actions.nodes.words
        self._first = np.searchsorted(actions.row[kept], np.arange(len(vms) + 1))
        self._lives = lives
        self._vms = vms

    def intervals(self, rows: Ints) -> Iterator[tuple[Interval, ...]]:
        """The lives of these jobs, each until its end or that of the report's time."""
        lives = self._lives
        places, ends = _places(lives.first, rows)
        times = (np.round(each[places], 1).tolist() for each in (lives.begin, lives.until))
        spans = list(zip(lives.span_state[places].tolist(), *times, strict=True))
        places, last = _places(self._first, rows)
        nodes = map(self._names.__getitem__, self._node[places].tolist())
        arrivals = list(zip(np.round(self._at[places], 1).tolist(), self._vm[places].tolist(), nodes, strict=True))
        begin = first = 0
        for vms, end, over in zip(self._vms[rows].tolist(), ends, last, strict=True):
            yield tuple(_life(spans[begin:end], arrivals[first:over], vms))
            begin, first = end, over


def _places(first: Ints, rows: Ints) -> tuple[Ints, list[int]]:
    """The places of the parts of these rows, one row's after the other's; and the count at which each row ends."""
    begins, counts = first[rows], first[rows + 1] - first[rows]
    ends = np.cumsum(counts)
    return np.repeat(begins - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0), ends.tolist()


def _life(spans: Sequence[_Span], arrivals: Sequence[_Arrival], vms: int) -> Iterator[Interval]:
    """One life: an arrival at another node begins a new interval of a run."""
    hosts = [""] * vms
    seen = 0
    for state, begin, until in spans:
        if state != RUNNING:
            yield Interval(STATES[state], begin, until)  # type: ignore[arg-type]  # spans have no other states
            if state == WAITING:
                hosts = [""] * vms
            continue
        while seen < len(arrivals) and arrivals[seen][0] < until:
            at, vm, node = arrivals[seen]
            seen += 1
            if at > begin and hosts[vm : vm + 1] not in ([node], []):
                yield Interval("running", begin, at, tuple(hosts))
                begin = at
            if vm < vms:
                hosts[vm] = node
        yield Interval("running", begin, until, tuple(hosts))
