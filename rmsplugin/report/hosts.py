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
        kept = np.isin(actions.kind, arrivals)
        self._row, self._vm = actions.row[kept], actions.vm[kept]
        self._node, self._at = actions.destination[kept], actions.ended[kept]
        self._names = actions.nodes.words
        self._first = np.searchsorted(self._row, np.arange(len(vms) + 1))
        self._lives = lives
        self._vms = vms

    def intervals(self, row: int) -> Iterator[Interval]:
        """The life of one job, until its end or that of the report's time."""
        lives, places = self._lives, slice(self._first[row], self._first[row + 1])
        order = np.argsort(self._at[places], kind="stable")
        arrivals = [
            (float(at), int(vm), self._names[node])
            for at, vm, node in zip(*(each[places][order] for each in (self._at, self._vm, self._node)), strict=True)
        ]
        hosts = [""] * int(self._vms[row])
        seen = 0
        for span in range(lives.first[row], lives.first[row + 1]):
            state = int(lives.span_state[span])
            begin, until = float(lives.begin[span]), float(lives.until[span])
            moves = arrivals[seen:]
            while state == RUNNING and moves and moves[0][0] < until:
                at, vm, node = moves.pop(0)
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
