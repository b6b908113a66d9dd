"""Child: the program of a proposing process. It answers requests until its engine closes the pipe, or has ended.

Prints of libraries go nowhere (standard output) or to the engine as diagnostics (standard error). The kernel
ends this process when the engine's end of the lifeline closes, also while C code holds the interpreter.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import rmsplugin
from rmsplugin.child_process import end_group, end_with, limit
from rmsplugin.latency import Sparing, loading
from rmsplugin.left_out import empty_pandas, imports_give
from rmsplugin.packing.solver_time import SPENT
from rmsplugin.proposer import wire
from rmsplugin.proposer.interim import Interim

Propose = Callable[..., wire.Found]


def main(words: list[str]) -> int:
    """Run until there are no more requests.

    Args:
        words: the file descriptor of the lifeline, the memory limit in MiB, the niceness above the engine's,
            and the function to call, as ``module:function``.
    """
    SPENT.clock = time.monotonic
    lifeline, memory_mib, nice, entry = int(words[0]), int(words[1]), int(words[2]), words[3]
    end_with(lifeline, group=True)
    requests, answers = _keep_to_ourselves()
    limit(memory_mib, nice)
    propose = _load(entry)
    _write(answers, wire.encode(wire.Ready(rmsplugin.__version__)))
    decoder, sparing = wire.Decoder(trusts=True), Sparing()
    while (request := wire.receive(decoder, lambda size: os.read(requests, size))) is not None:
        if not isinstance(request, wire.Request):
            raise wire.GarbageError("not a request")
        sparing.exempt()  # the request: the collector would go through it several times while it is answered
        answer = _answer(propose, request, answers, memory_mib)
        _write(answers, wire.encode(answer))
        if isinstance(answer, wire.Failure) and answer.over:
            return 1
        del request, answer
    return 0


def _load(entry: str) -> Propose:
    """The function named ``module:function``, without the pandas that solvers import."""
    module, _, function = entry.partition(":")
    try:
        with loading(), imports_give(pandas=empty_pandas()):
            loaded = importlib.import_module(module)
    except AttributeError:  # a release of OR-Tools that asks more of pandas than its classes
        loaded = importlib.import_module(module)
    propose: Propose = getattr(loaded, function)
    return propose


def _keep_to_ourselves() -> tuple[int, int]:
    """Move the pipes to descriptors that no library knows: HiGHS sometimes prints a line on standard output."""
    requests, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return requests, answers


def _answer(propose: Propose, request: wire.Request, answers: int, memory_mib: int) -> wire.Answer | wire.Failure:
    clock, solvers_before_s = _Clock(), SPENT.seconds
    try:
        with Interim(lambda better: _write(answers, wire.encode(wire.Better(better)))) as interim:
            found = propose(request.configuration, request.parameters, clock.stage, time.monotonic, interim.offer)
    except MemoryError:
        return wire.Failure(f"it ran out of memory ({memory_mib} MiB are allowed)", over=True)
    except Exception as error:
        return wire.Failure(f"internal error: {type(error).__name__}: {error}"[:500])
    peak_memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return wire.Answer(found, clock.seconds, SPENT.seconds - solvers_before_s, _data_mib(), peak_memory_mib)


def _data_mib() -> int:
    """The memory that counts for the limit."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[5]) * resource.getpagesize() >> 20


@dataclass
class _Clock:
    """Seconds of each stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


if __name__ == "__main__":
    try:
        status = main(sys.argv[1:])
    except BrokenPipeError:  # the engine is gone, or does not need the answer
        status = 0
    end_group()
    # No destructors: threads that a library may have left are none of our business.
    os._exit(status)
