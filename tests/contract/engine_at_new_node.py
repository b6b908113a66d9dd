"""A process that leads, and writes a VM's configuration on a node that has come up anew, for tests that stop it.

usage: engine_at_new_node.py CONFIG EPOCH SESSION_S MESSAGE

It stops itself (SIGSTOP) right before its MESSAGE-th message to the node's agent, from 1 on: the call, its word that it
leads, the call again.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

from contract.test_nodes import NODE, VM, LocalAgents

from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.lease.clocked import ClockedLease, steady_s
from rmsplugin.adapters.simulated.ensemble import SimulatedEnsemble
from rmsplugin.engine.context.acts import Acts
from rmsplugin.errors import RmspluginError


class StoppedAgents(LocalAgents):
    """The way to the agent of an engine that is stopped on it."""

    stops_at = 0
    _messages = count(1)

    def _answer_once(self, node: str, words: list[str], **more: Any) -> dict[str, Any]:
        if next(self._messages) == self.stops_at:
            os.kill(os.getpid(), signal.SIGSTOP)
        return super()._answer_once(node, words, **more)


def main() -> None:
    config, epoch, session_s, message = sys.argv[1:]
    tree = SimulatedEnsemble(steady_s).open(float(session_s))
    lease = ClockedLease(Elected(tree, "/rmsplugin", Candidate("one", "here", float(session_s), 0.0), steady_s))
    lease.acquire()
    # No thread renews the lease; once it has ended, it is lost.
    acts = Acts(lease.held, until=lease.held_until)
    agents = StoppedAgents(Path(config), int(epoch), permit=acts.one)
    agents.stops_at = int(message)
    try:
        agents.put_config(NODE, VM, b"key=value")
        print("done", flush=True)
    except RmspluginError as error:
        print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
