"""Asking: a process that asks the engine for this and that while it is measured, and how long each answer took."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rmsplugin.client import EngineClient

#: What is asked for in turn: a word for the table, method and path; ``{vjob}`` is one that runs.
ASKED = {
    "vjobs": ("GET", "/v1/vjobs?vjob={vjob}"),
    "status": ("GET", "/v1/status"),
    "started": ("POST", "/v1/jobs/{vjob}/started"),
    "attached": ("POST", "/v1/jobs/{vjob}/attached"),
}
_PAUSE_S = 0.005


@contextmanager
def asking(socket: str, vjobs: Sequence[str]) -> Iterator[dict[str, list[float]]]:
    """Ask all the time meanwhile, for the vjobs in turn. At the end the seconds of all answers are there, by word."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    asker = context.Process(target=_ask, args=(socket, tuple(vjobs), theirs))
    asker.start()
    theirs.close()  # so that one that failed ends the pipe
    ours.recv()  # it is up
    found: dict[str, list[float]] = {}
    try:
        yield found
    finally:
        ours.send("end")
        found.update(ours.recv())
        asker.join()


def _ask(socket: str, vjobs: Sequence[str], pipe: Any) -> None:
    client, number = EngineClient.unix(socket), 0
    times: dict[str, list[float]] = {word: [] for word in ASKED}
    pipe.send("up")
    while not pipe.poll():
        for word, (method, path) in ASKED.items():
            began = time.perf_counter()
            client.request(method, path.format(vjob=vjobs[number % len(vjobs)]))
            times[word].append(time.perf_counter() - began)
            time.sleep(_PAUSE_S)
        number += 1
    pipe.send(times)
