"""Proposers that misbehave when they are asked to search, each in its way, and answer by FFD like good ones.

They run in a proposing process (rmsplugin.proposer). They import no solver, so that it starts quickly.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NoReturn

from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.packing.solver_time import SPENT
from rmsplugin.planning.order.dependencies import Order
from rmsplugin.planning.order.makespan import Makespan
from rmsplugin.planning.plan import Plan
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal

#: What outlives a request.
HELD: list[bytearray] = []

Found = Callable[[Configuration, ProposalParameters, object], Proposal]

#: Holds the interpreter while it runs: no Python code, no signal handler of this process gets a turn.
HOLDING = ctypes.PyDLL(None)


def answer(configuration: Configuration, parameters: ProposalParameters, *_: object) -> Proposal:
    """Nothing is to be done; the sentence says who asked, and which process answers."""
    decision = Decision(parameters.policy, {}, {}, {})
    words = f"{parameters.heuristic} by {os.getpid()}."
    return Proposal(decision, {}, Plan(()), Order((), (), ()), Makespan(0, 0, ()), 0, 0, 0, "", words)


def _solve() -> None:
    with SPENT.running():
        time.sleep(0.2)


def bad(act: Callable[[], object]) -> Found:
    """A proposer that does something before it answers, unless it is asked for FFD."""

    def propose(configuration: Configuration, parameters: ProposalParameters, *_: object) -> Proposal:
        if parameters.heuristic is None:
            act()
        return answer(configuration, parameters)

    return propose


def _hang_in_c() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    print("searching", file=sys.stderr, flush=True)
    HOLDING.sleep(600)


def _say_and_abort() -> None:
    os.write(2, b"F0000 solver.cc:17] Check failed: a <= b (2 vs. 1)\x1b[31m\n")
    os.abort()


def _eat_in_python() -> NoReturn:
    held = []
    while True:
        held.append(bytearray(1 << 24))


def _eat_in_c() -> None:
    HOLDING.calloc.restype = ctypes.c_void_p
    HOLDING.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    while True:
        place = HOLDING.calloc(1, 1 << 24)
        if not place:
            os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
            os.abort()
        HOLDING.memset(place, 1, 1 << 24)


def _print() -> None:
    for _ in range(20_000):
        HOLDING.puts(b"tmpSolver.run();")
        print("tmpSolver.run();")
        print("Coin0506I Presolve 0 rows", file=sys.stderr)
    HOLDING.fflush(None)
    sys.stdout.flush()


def _write_garbage() -> None:
    """Into every pipe that it has but standard error."""
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"\0garbage")
        except OSError:
            continue
    time.sleep(600)


def _write_half_a_frame() -> None:
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"RMSP\0\0\0")
        except OSError:
            continue
    os._exit(0)


def _warn_once() -> None:
    if HELD:
        os._exit(0)
    HELD.append(bytearray())
    print("warning: this is slow", file=sys.stderr, flush=True)


def _fail() -> None:
    raise IndexError("list index out of range")


def _drown_in_diagnostics() -> NoReturn:
    while True:
        os.write(2, b"x" * 65536)


hangs_in_c = bad(_hang_in_c)
crashes = bad(lambda: HOLDING.strlen(None))
aborts = bad(_say_and_abort)
eats_in_python = bad(_eat_in_python)
eats_in_c = bad(_eat_in_c)
prints = bad(_print)
writes_garbage = bad(_write_garbage)
writes_half_a_frame = bad(_write_half_a_frame)
fails = bad(_fail)
drowns_in_diagnostics = bad(_drown_in_diagnostics)
leaves = bad(lambda: os._exit(0))
sleeps = bad(lambda: time.sleep(600))
holds_on = bad(lambda: HELD.append(bytearray(200 << 20)))
warns_once = bad(_warn_once)
solves = bad(_solve)


def improves_and(act: Callable[[], object]) -> Callable[..., Proposal]:
    """A proposer that finds a good one, then a better one, and then does something."""

    def propose(configuration: Configuration, parameters: ProposalParameters, *given: object) -> Proposal:
        found = answer(configuration, parameters)
        if parameters.heuristic is None:
            offer: Callable[[Callable[[], Proposal]], None] = given[-1]  # type: ignore[assignment]
            for words in ("good", "best"):
                offer(partial(replace, found, sentence=words))
                time.sleep(0.4)
            act()
        return found

    return propose


improves_and_hangs = improves_and(_hang_in_c)
improves_and_crashes = improves_and(lambda: HOLDING.strlen(None))
improves_and_eats = improves_and(_eat_in_python)
improves_and_fails = improves_and(_fail)
improves = improves_and(lambda: None)


def always_crashes(*_: object) -> None:
    """Whatever it is asked."""
    HOLDING.strlen(None)
