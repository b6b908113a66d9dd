"""c. Plan cost on overloaded clusters: so few nodes that suspends precede resumes, and the pools matter."""

from __future__ import annotations

from bench import switching
from bench.measure import Report, mean
from bench.switching import Sizes

SIZES = {
    "full": Sizes(nodes=(60, 80, 110), vms=(270, 378, 486), objectives=("cost",)),
    "quick": Sizes(nodes=(60, 80, 110), vms=(486,), objectives=("cost",), configurations=5),
    "tiny": Sizes(nodes=(5,), vms=(36,), objectives=("cost",), configurations=2, time_limit_s=1.0),
}


def run(sizes: Sizes, report: Report) -> None:
    """Measure all families of the size."""
    report.title("c", "plan cost, overloaded: as b on fewer nodes")
    switching.measure(sizes, report)
    found = report.of()
    changes = ", ".join(f"{mean(r[key] for r in found):.1f} {key}" for key in ("suspended", "resumed", "started"))
    report.say(f"vjobs a configuration: {changes}; pools a plan: {mean(r['pools'] for r in found):.1f}")
