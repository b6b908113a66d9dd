"""A process with the service of an engine that leads, which stops itself (SIGSTOP) while it answers a request.

usage: engine_in_answer.py DIRECTORY MUNGE_SOCKET SESSION_S WHERE

WHERE: right after it has checked who asks (``asked``), after the work is in its ledger (``done``), before munge seals
the answer (``unsealed``), after that (``sealed``); or ``never``. It says its port; its vjob 12 runs.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unit.served import ME, Served

from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.lease.clocked import ClockedLease, steady_s
from rmsplugin.adapters.simulated.ensemble import SimulatedEnsemble
from rmsplugin.engine.serve import front, sealing
from rmsplugin.engine.serve.requests import Requests
from rmsplugin.model.vjob import VJobState


def stop() -> None:
    """Stop here: a signal to the process may be taken by another thread, after this one has gone on."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def stopping(act: Callable[..., Any], *, before: bool = False, after: bool = False) -> Callable[..., Any]:
    """The act of a process that is stopped before it, or after it."""

    @functools.wraps(act)
    def wrapped(*words: Any, **options: Any) -> Any:
        if before:
            stop()
        answer = act(*words, **options)
        if after:
            stop()
        return answer

    return wrapped


def main() -> None:
    directory, munge_socket, session_s, where = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4]
    verify = functools.partial(sealing.verify_request, munge_socket=munge_socket)
    seal = functools.partial(sealing.seal_response, munge_socket=munge_socket)
    front.verify_request = stopping(verify, after=where == "asked")
    front.seal_response = stopping(seal, before=where == "unsealed", after=where == "sealed")
    Requests.started = stopping(Requests.started, after=where == "done")  # type: ignore[method-assign]
    tree = SimulatedEnsemble(steady_s).open(session_s)
    lease = ClockedLease(Elected(tree, "/rmsplugin", Candidate("one", "here", session_s, 0.0), steady_s))
    served = Served(directory, tcp=True)
    served.leads = lease.held
    served.add_vjob(12, ME, VJobState.RUNNING)
    lease.acquire()
    print(served.port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
