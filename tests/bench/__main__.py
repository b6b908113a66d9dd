"""The one command of the benchmarks: see ``contrib/run-benchmarks --help``."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from bench.measure import Report, machine, timed

#: Module by letter; each has SIZES by name and ``run(sizes, report)``.
BENCHMARKS = {
    "a": "packing",
    "b": "switching",
    "c": "overloaded",
    "d": "scaling",
    "e": "peer",
    "f": "deciding",
    "g": "signs",
    "h": "attached",
    "i": "latency",
    "j": "proposing",
    "k": "engine_scale",
    "l": "live",
    "m": "perturbed",
    "n": "crowded",
    "o": "simulating",
    "p": "ablation",
    "q": "reporting",
    "r": "page",
    "s": "replaying",
    "t": "stepping",
    "u": "finishing",
    "v": "reacting",
    "w": "grouping",
    "x": "grouped_scale",
    "y": "serving",
    "z": "passing",
    "aa": "arriving",
    "ab": "telling",
    "ac": "watching",
    "ad": "ruling",
    "ae": "handing",
    "af": "curves",
    "ag": "stepwise",
    "ah": "ruled_cycle",
    "ai": "ruled_replay",
    "aj": "emptied",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks that were asked for."""
    options = _parser().parse_args(arguments)
    about = machine()
    print("machine: " + ", ".join(f"{name} {value}" for name, value in about.items()), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps({"machine": about, "size": options.size}) + "\n", encoding="utf-8")
    report = Report(out=options.out)
    for letter in options.benchmarks or BENCHMARKS:
        module = importlib.import_module(f"bench.{BENCHMARKS[letter]}")
        _, seconds = timed(lambda module=module: module.run(module.SIZES[options.size], report))
        print(f"({seconds:.0f} s)", flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run-benchmarks",
        description="Measure decision, packing, plans, service, wrapper, latency, proposing, engine, crowded"
        " clusters, simulation, the parts of the planner, reports, steps, groups, calls of node agents, arrivals of"
        " VMs, metrics, placement rules, readings of Slurm, cycles and replays with rules, and nodes that are emptied,"
        " each next to something else; docs/benchmarks.md says what the numbers mean.",
        epilog="examples:\n  contrib/run-benchmarks --quick\n  contrib/run-benchmarks a f --out results.jsonl",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    lines = ", ".join(f"{letter} {name}" for letter, name in BENCHMARKS.items())
    parser.add_argument(
        "benchmarks", nargs="*", type=_letter, metavar="a|...|aj", help=f"which ones ({lines}); all if none"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="size", action="store_const", const="quick", help="fewer samples: some minutes")
    size.add_argument("--tiny", dest="size", action="store_const", const="tiny", help="only to see that all of it runs")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write each single result there, one JSON line each")
    parser.set_defaults(size="full")
    return parser


def _letter(text: str) -> str:
    if text not in BENCHMARKS:
        raise argparse.ArgumentTypeError(f"no benchmark {text!r}: there are {', '.join(BENCHMARKS)}")
    return text


if __name__ == "__main__":
    sys.exit(main())
