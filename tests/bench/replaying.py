"""s. Replay: `rmsplugin simulate` under policies that switch, whole process; next to EASY, which switches nothing."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from unit.replayed import DATA

from bench.measure import Report, progress, ratio
from bench.simulating import generated, simulate


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    #: Traces that may lie beside this checkout, and the processors of their machines.
    traces: Sequence[tuple[str, int]] = (
        ("kth_sp2_full.swf.gz", 100),
        ("ctc_sp2_full.swf.gz", 338),
        ("hpc2n_full.swf.gz", 240),
        ("sdsc_sp2_5k.swf", 128),
        ("lublin256_5k_fmodel.swf", 256),
    )
    policies: Sequence[str] = ("rjsp", "mixed")
    first: Sequence[int] = (1000, 5000)  # jobs of each trace, ascending
    processors: int = 100  # of a generated one, which is there on every machine


SIZES = {
    "full": Sizes(),
    "quick": Sizes(traces=(("kth_sp2_full.swf.gz", 100),), policies=("rjsp",), first=(250, 500)),
    "tiny": Sizes(traces=(), policies=("rjsp",), first=(10, 20), processors=8),
}

#: Memory of a node of one CPU: of each VM the same.
_MEMORY_MIB = "4096"


def run(sizes: Sizes, report: Report) -> None:
    """Measure the first jobs of the traces that there are, and of a generated one."""
    report.title("s", "replay: `rmsplugin simulate` with context switches, whole process, CPU seconds")
    known = [(DATA / "swf" / trace, processors) for trace, processors in sizes.traces]
    with tempfile.TemporaryDirectory() as name:
        whole = Path(name) / "generated.swf"
        lines = generated(max(sizes.first), sizes.processors, seed=1, load=0.8)
        whole.write_text("\n".join(lines) + "\n", encoding="ascii")
        for path, processors in [*(case for case in known if case[0].exists()), (whole, sizes.processors)]:
            for jobs in sizes.first:
                part = Path(name) / "first.swf"
                part.write_bytes(b"".join(_first(path, jobs)))
                for policy in ("easy", *sizes.policies):
                    _measure(path.name, part, processors, policy, report)
    progress("")
    found = report.of()
    keys = ("trace", "jobs", "policy", "decisions", "switches", "cpu_s", "peak_mib")
    headers = ["trace", "jobs", "policy", "decisions", "switches", "CPU s", "peak MiB", "/ EASY"]
    report.table(
        headers, [[*(each[key] for key in keys), ratio(_easy_s(report, each), each["cpu_s"])] for each in found]
    )
    for policy in sizes.policies:
        for trace in dict.fromkeys(each["trace"] for each in found):
            few, *_, many = (each["cpu_s"] / each["decisions"] for each in report.of(trace=trace, policy=policy))
            report.ratio(f"{trace}, {policy}: CPU of a decision, of all jobs / of the fewest", ratio(few, many))


def _first(path: Path, jobs: int) -> Iterator[bytes]:
    """The lines of the first jobs of a trace."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        yield from islice((line for line in file if line.strip() and not line.startswith(b";")), jobs)


def _measure(trace: str, part: Path, processors: int, policy: str, report: Report) -> None:
    progress(f"s: {trace}, {policy}")
    told, cpu_s, peak_mib = simulate(part, processors, "--policy", policy, "--memory-per-node", _MEMORY_MIB)
    switching = told.get("context_switches") or {}
    counts = {key: switching.get(key, 0) for key in ("decisions", "switches")}
    report.record(trace=trace, jobs=told["jobs"], policy=policy, **counts, cpu_s=cpu_s, peak_mib=peak_mib)


def _easy_s(report: Report, row: dict[str, object]) -> float:
    """What EASY took for the same jobs."""
    beside = report.of(trace=row["trace"], jobs=row["jobs"], policy="easy")
    return float(beside[0]["cpu_s"])
