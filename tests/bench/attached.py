"""Wrapper: what an attached one costs its front, in memory and, idle, in CPU; and how fast it delivers output.

The guest is an ssh server in namespaces of this machine (tests/unit/guestbox.py), without virtualisation; so the speed
is that of the tools, not of a guest's CPU.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

from unit import guestbox
from unit.wrapper import test_wrapper

from bench.measure import Report, ratio

#: Seconds of idleness that are watched, and MB of output.
SIZES = {"full": (120, 200), "quick": (40, 50), "tiny": (3, 5)}

_PAUSE = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]
_NATIVE = ["sh", "-c", "sleep 100000; exit"]
_HEADERS = ("", "processes", "RSS KiB", "PSS KiB", "private KiB", "CPU s an hour", "wake-ups a minute")


def run(size: tuple[int, int], report: Report) -> None:
    """Measure; says so where it cannot."""
    idle_s, output_mb = size
    report.title("h", "An attached wrapper: memory, idle CPU, delivery")
    if reason := guestbox.missing():
        report.say(f"not measured: {reason}")
        return
    with guestbox.ready("busybox", 1) as box:
        bench = test_wrapper.Bench(box.directory, box, "busybox")
        _idle(bench, idle_s, report)
        _deliver(bench, output_mb, report)


def _idle(bench: test_wrapper.Bench, idle_s: int, report: Report) -> None:
    bench.fresh()
    bench.script("#!/bin/sh\necho ready\nexec sleep 100000\n")
    with _processes(lambda: bench.start(), lambda: subprocess.Popen(_PAUSE), lambda: subprocess.Popen(_NATIVE)) as some:
        guestbox.wait_until(lambda: b"ready" in bench.out.read_bytes())
        time.sleep(7)  # the last acknowledgement
        before = [_spent(process.pid) for process in some]
        time.sleep(idle_s)
        rows = []
        for what, process, (cpu_s, wakes) in zip(
            ("wrapper", "python3 -I -S, pausing", "sh and sleep, as of a native job"), some, before, strict=True
        ):
            memory = _memory(process.pid)
            now_s, now_wakes = _spent(process.pid)
            cpu = (now_s - cpu_s) / idle_s * 3600
            rows.append((what, len(_tree(process.pid)), *memory, cpu, (now_wakes - wakes) / idle_s * 60))
            report.record(
                what=what,
                idle_s=idle_s,
                rss_kib=memory[0],
                pss_kib=memory[1],
                private_kib=memory[2],
                cpu_s_per_hour=cpu,
            )
        report.table(_HEADERS, rows)
        for index, other in ((1, "a bare Python"), (2, "a native job's shell and sleep")):
            report.ratio(f"RSS of the wrapper, as a multiple of {other}", ratio(rows[index][2], rows[0][2]))
            report.ratio(f"private memory of the wrapper, as a multiple of {other}", ratio(rows[index][4], rows[0][4]))


def _deliver(bench: test_wrapper.Bench, output_mb: int, report: Report) -> None:
    script = f"#!/bin/sh\nhead -c {output_mb}000000 /dev/zero | tr '\\0' x\n"
    bench.fresh()
    bench.script(script)
    native = bench.directory / "native"
    began = time.perf_counter()
    with native.open("wb") as file:
        subprocess.run(["sh", str(bench.directory / "script")], stdout=file, check=True)
    native_s = time.perf_counter() - began
    began = time.perf_counter()
    status = bench.start().wait(600)
    wrapped_s = time.perf_counter() - began
    if status != 0 or native.read_bytes() != bench.out.read_bytes():
        raise AssertionError("the output is not the script's")
    report.table(
        ("", "MB", "s", "MB/s"),
        [
            ("through the wrapper, from its start to its end", output_mb, wrapped_s, output_mb / wrapped_s),
            ("the same script without it", output_mb, native_s, output_mb / native_s),
        ],
    )
    report.record(what="delivery", mb=output_mb, wrapped_s=wrapped_s, native_s=native_s)
    report.ratio("time to deliver, as a multiple of a native job's", ratio(native_s, wrapped_s))


@contextmanager
def _processes(*start: Callable[[], subprocess.Popen[bytes]]):  # type: ignore[no-untyped-def]
    running = []
    try:
        for one in start:
            running.append(one())
        yield running
    finally:
        for process in running:
            for pid in _tree(process.pid):
                subprocess.run(["kill", f"-{int(signal.SIGKILL)}", str(pid)], check=False)
            process.wait()


def _tree(pid: int) -> list[int]:
    """The process and all that it started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _tree(int(child))
    return found


def _memory(pid: int) -> tuple[int, int, int]:
    """RSS, PSS and private memory in KiB, of the process and all that it started."""
    rss = pss = private = 0
    for member in _tree(pid):
        for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()[1:]:
            name, kib = line.split()[:2]
            rss += int(kib) if name == "Rss:" else 0
            pss += int(kib) if name == "Pss:" else 0
            private += int(kib) if name.startswith("Private_") and "Hugetlb" not in name else 0
    return rss, pss, private


def _spent(pid: int) -> tuple[float, int]:
    """Seconds on a CPU, and times put there, of the process, its threads and all that it started."""
    seconds, wakes = 0.0, 0
    for member in _tree(pid):
        for task in Path(f"/proc/{member}/task").iterdir():
            on_cpu_ns, _, times = (task / "schedstat").read_text().split()
            seconds, wakes = seconds + int(on_cpu_ns) / 1e9, wakes + int(times)
    return seconds, wakes
