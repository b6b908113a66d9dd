"""Measure: time, memory, the machine; aligned tables, ratios, and a record of each single result."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar("Value")


def timed(work: Callable[[], Value]) -> tuple[Value, float]:
    """What the work returns, and the seconds of wall clock that it took."""
    started = time.perf_counter()
    value = work()
    return value, time.perf_counter() - started


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "ortools": _version("ortools"),
        "pychoco": _version("pychoco"),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def mean(values: Iterable[float]) -> float:
    """The mean; 0 of nothing."""
    return statistics.fmean(numbers) if (numbers := list(values)) else 0.0


def median(values: Iterable[float]) -> float:
    """The median; 0 of nothing."""
    return statistics.median(numbers) if (numbers := list(values)) else 0.0


def share(flags: Iterable[bool]) -> float:
    """How many of the flags are true, in percent."""
    return 100 * mean(float(flag) for flag in flags)


def gap(value: float, bound: float) -> float:
    """How far a value may be above the best possible one, given a proven lower bound; in percent of the bound.

    A bound of 0 that is not reached has no such percentage: the gap is then given in percent of the value, 100.
    """
    if value <= bound:
        return 0.0
    return 100 * (value - bound) / bound if bound > 0 else 100.0


def ratio(ours: float, theirs: float) -> float:
    """How many times as much theirs is as ours; infinite if ours is nothing and theirs is something."""
    if ours == theirs:
        return 1.0
    return theirs / ours if ours else float("inf")


def aligned(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table: the first column to the left, all others to the right."""
    cells = [list(headers), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = []
    for row in cells:
        padded = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        padded[0] = row[0].ljust(widths[0])
        lines.append("  ".join(padded).rstrip())
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1 else f"{value:.1f}"
    return str(value)


@dataclass
class Report:
    """Takes in what a benchmark finds: prints tables and ratios, keeps a record of each single result."""

    benchmark: str = ""
    out: Path | None = None  # a file of JSON lines that the records are appended to
    records: list[dict[str, Any]] = field(default_factory=list)
    ratios: list[tuple[str, float]] = field(default_factory=list)

    def title(self, benchmark: str, text: str) -> None:
        """Begin a benchmark."""
        self.benchmark = benchmark
        busy = os.getloadavg()[0]  # others on the machine make everything slower
        print(f"\n{benchmark}. {text} (load {busy:.1f})\n", flush=True)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table."""
        print(aligned(headers, rows) + "\n", flush=True)

    def ratio(self, what: str, value: float) -> None:
        """Print how ours compares with something that was run beside it."""
        self.ratios.append((what, value))
        print(f"RATIO  {what}: {value:.3g}", flush=True)

    def say(self, text: str) -> None:
        """Print a remark."""
        print(text, flush=True)

    def record(self, **fields: Any) -> None:
        """Keep a single result."""
        record = {"benchmark": self.benchmark, **fields}
        self.records.append(record)
        if self.out is not None:
            with self.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def of(self, **wanted: Any) -> list[dict[str, Any]]:
        """The records of the current benchmark that have these values."""
        wanted["benchmark"] = self.benchmark
        return [r for r in self.records if all(r.get(name) == value for name, value in wanted.items())]


def progress(text: str) -> None:
    """Say on a terminal what is being measured; nothing in a pipe."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
