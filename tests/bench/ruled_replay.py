"""ai. Replays with placement rules: `rmsplugin simulate`, whole process; next to the same without rules."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Report, progress, ratio
from bench.simulating import generated, simulate


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    policies: Sequence[str] = ("fcfs", "easy", "conservative", "mixed", "slowdown")
    jobs: int = 300


SIZES = {
    "full": Sizes(),
    "quick": Sizes(jobs=60),
    "tiny": Sizes(policies=("easy", "conservative"), jobs=10),
}

_NODES, _CPUS = 36, 4
_CLUSTER = ("--nodes", str(_NODES), "--cpus-per-node", str(_CPUS), "--memory-per-node", "16384")

#: One of each kind that makes some jobs wait, and lets each of them run.
_RULES = f"""
[rule.apart]
kind = "spread"
users = ["1"]
per = "vjob"
[rule.rivals]
kind = "split"
users = ["2", "3"]
per = "user"
[rule.few]
kind = "capacity"
users = ["4"]
nodes = "n[01-18]"
most = 16
[rule.alone]
kind = "lonely"
users = ["5"]
[rule.home]
kind = "fence"
users = ["6"]
nodes = "n[01-20]"
[rule.kept]
kind = "reserve"
nodes = "n01"
cpus = 1
[rule.on]
kind = "online"
most = {_NODES - 1}
"""


def run(sizes: Sizes, report: Report) -> None:
    """Measure each policy with and without rules, one after the other."""
    report.title("ai", "replays with placement rules: `rmsplugin simulate`, whole process, CPU seconds")
    with tempfile.TemporaryDirectory() as name:
        trace, rules = Path(name) / "generated.swf", Path(name) / "rules.toml"
        trace.write_text("\n".join(_of_users(sizes.jobs)) + "\n", encoding="ascii")
        rules.write_text(_RULES, encoding="ascii")
        for policy in sizes.policies:
            progress(f"ai: {policy}")
            plain_s, ruled_s = (_cpu_s(trace, policy, words) for words in ((), ("--rules", str(rules))))
            report.record(policy=policy, jobs=sizes.jobs, plain_s=plain_s, ruled_s=ruled_s)
            times = ratio(plain_s, ruled_s)
            report.ratio(f"{policy}, {sizes.jobs} jobs: CPU of a replay, with rules / without", times)
    progress("")
    rows = [[each["policy"], each["plain_s"], each["ruled_s"]] for each in report.of()]
    report.table(["policy", "without rules, CPU s", "with rules, CPU s"], rows)


def _of_users(jobs: int) -> Iterator[str]:
    """A generated trace with jobs of eight users, which leaves a fifth of the cluster idle."""
    for line in generated(jobs, _NODES, seed=1, load=0.8 * _CPUS):
        fields = line.split()
        if fields[0].isdecimal():
            fields[11] = str(int(fields[0]) % 8 + 1)
        yield " ".join(fields)


def _cpu_s(trace: Path, policy: str, words: Sequence[str]) -> float:
    """CPU seconds of one replay."""
    return simulate(trace, _NODES, *_CLUSTER, "--policy", policy, *words)[1]
