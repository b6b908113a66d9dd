"""y. Node agent: short calls to one that serves, beside a process for each of them; without sshd, which forks, too.

CPU seconds are those of all processes of the calls, wall seconds those of calls one after the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from socket_channel import served_by

from bench.measure import Report, median, progress, ratio
from rmsplugin.adapters.nodes.served import Served
from rmsplugin.adapters.nodes.ssh_link import Patience

#: Rounds, and calls in each.
SIZES: Mapping[str, tuple[int, int]] = {"full": (7, 100), "quick": (3, 50), "tiny": (1, 3)}

_VM = "vjob12-0"
_CONFIG = b"x" * 900
_PATIENCE_S = 600.0

Call = Callable[[list[str], bytes], dict[str, Any]]


def run(sizes: tuple[int, int], report: Report) -> None:
    """Measure both by turns."""
    rounds, calls = sizes
    report.title("y", "short calls of a node agent that serves, beside a process a call")
    with tempfile.TemporaryDirectory() as directory:
        settings = Path(directory) / "rmsplugin.toml"
        settings.write_text(f'[nodes]\nstore = "{directory}/store"\nvm_dir = "{directory}/vm"\n', encoding="utf-8")
        for turn in range(rounds):
            progress(f"y: round {turn + 1} of {rounds}")
            for way, measured in (("a process each", _each), ("served", _served)):
                wall_s, cpu_s = measured(settings, calls)
                report.record(way=way, wall_s=wall_s / calls, cpu_s=cpu_s / calls)
    progress("")
    ways = ("a process each", "served")
    found = {(way, key): median([row[key] for row in report.of(way=way)]) for way in ways for key in _KEYS}
    report.table(
        ["", "ms of wall a call", "ms of CPU a call"],
        [[way, *(1000 * found[way, key] for key in _KEYS)] for way in ways],
    )
    for key in _KEYS:
        report.ratio(f"{key} of a call, served / a process each", ratio(found[ways[0], key], found[ways[1], key]))


_KEYS = ("wall_s", "cpu_s")


def _each(settings: Path, calls: int) -> tuple[float, float]:
    """Wall and CPU seconds of so many calls, each a process of its own."""

    def call(words: list[str], content: bytes) -> dict[str, Any]:
        done = subprocess.run([*_command(settings), *words], input=content, capture_output=True, check=True)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return _timed(lambda: _all(call, calls))


def _served(settings: Path, calls: int) -> tuple[float, float]:
    """Wall and CPU seconds of so many calls to one process, its start and end among them."""

    def serve() -> None:
        agent, channel = served_by([*_command(settings), "serve"], _PATIENCE_S)
        served = Served(channel, "agent")
        _all(lambda words, content: served.call(words, content, Patience(_PATIENCE_S), words[0]), calls)
        served.close()
        agent.wait()

    return _timed(serve)


def _command(settings: Path) -> list[str]:
    return [sys.executable, "-m", "rmsplugin.node_agent.main", "--config", str(settings)]


def _all(call: Call, calls: int) -> None:
    for number in range(calls):
        words, content = (["put-config", _VM], _CONFIG) if number % 2 == 0 else (["drop-config", _VM], b"")
        answer = call(words, content)
        if "error" in answer:
            raise RuntimeError(f"{words[0]} failed: {answer['error']}")


def _timed(action: Callable[[], None]) -> tuple[float, float]:
    before, began = os.times(), time.perf_counter()
    action()
    wall_s, after = time.perf_counter() - began, os.times()
    own_s = after.user + after.system - before.user - before.system
    return wall_s, own_s + after.children_user + after.children_system - before.children_user - before.children_system
