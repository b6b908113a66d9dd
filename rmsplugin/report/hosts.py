"""Hosts: on which nodes the VMs of each job ran, and when they moved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmsplugin.report.columns import Actions, Ints
from rmsplugin.report.document import Interval
from rmsplugin.report.lives import RUNNING, STATES, WAITING, Lives

#: Kinds of actions that bring a VM to a node.
ARRIVALS = ("run", "resume", "migrate")


class Hosts:
    """The intervals of each job's life with the hosts of its VMs."""

    def __init__(self, actions: Actions, lives: Lives, vms: Ints) -> None:
        """Take the actions of ARRIVALS at least, and how many VMs each job has."""
        arrivals = [code for code, kind in enumerate(actions.kinds.words) if kind in ARRIVALS]
        kept = np.flatnonzero(np.isin(actions.kind, arrivals))
        kept = kept[np.lexsort((actions.ended[kept], actions.row[kept]))]
        self._vm, self._node, self._at = actions.vm[kept], actions.destination[kept], actions.ended[kept]
        self._names = actions.nodes.words
        self._first = np.searchsorted(actions.row[kept], np.arange(len(vms) + 1))
        self._lives = lives
        self._vms = vms

    def intervals(self, row: int) -> Iterator[Interval]:
        """The life of one job, until its end or that of the report's time."""
        lives = self._lives
        places, spans = (slice(each[row], each[row + 1]) for each in (self._first, lives.first))
        times, vms, codes = (each[places].tolist() for each in (self._at, self._vm, self._node))
        hosts = [""] * int(self._vms[row])
        seen = 0
        for state, begin, until in zip(
            *(each[spans].tolist() for each in (lives.span_state, lives.begin, lives.until)), strict=True
        ):
            while state == RUNNING and seen < len(times) and times[seen] < until:
                at, vm, node = times[seen], vms[seen], self._names[codes[seen]]
                seen += 1
                if at > begin and hosts[vm : vm + 1] not in ([node], []):
                    yield Interval("running", round(begin, 1), round(at, 1), tuple(hosts))
                    begin = at
                if vm < len(hosts):
                    hosts[vm] = node
            yield Interval(
                STATES[state],  # type: ignore[arg-type]  # spans have no other states
                round(begin, 1),
                round(until, 1),
                tuple(hosts) if state == RUNNING else (),
            )
            if state == WAITING:
                hosts = [""] * len(hosts)
