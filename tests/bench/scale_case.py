"""One large configuration in a process of its own, so that its peak memory is that of nothing else; prints JSON."""

from __future__ import annotations

import json
import resource
import sys

from bench.families import scale
from bench.measure import timed
from bench.switching import decided, placed
from rmsplugin.packing.search import Search
from rmsplugin.planning.plan import Unreachable
from rmsplugin.planning.target.placement import place_sample


def main(nodes: int, vms: int, seed: int, time_limit_s: float) -> dict[str, float | int | None]:
    """Decide, place and plan; the baseline comes after the memory was read."""
    configuration = scale(nodes, vms, seed)
    decision, decision_s = timed(lambda: decided(configuration))
    found, placement_s = placed(configuration, decision, "cost", Search(time_limit_s=time_limit_s))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    baseline, ffd_s = timed(lambda: place_sample(configuration, decision.states, decision.placement))
    return {
        "nodes": nodes,
        "vms": vms,
        "seed": seed,
        "decision_s": decision_s,
        "placement_s": placement_s,
        "peak_mib": peak_mib,
        "cost": found.plan.cost,
        "lower_bound": found.lower_bound,
        "actions": sum(len(pool) for pool in found.plan.pools),
        "pools": len(found.plan.pools),
        "ffd_cost": None if isinstance(baseline, Unreachable) else baseline.plan.cost,
        "ffd_s": ffd_s,
    }


if __name__ == "__main__":
    print(json.dumps(main(*(int(argument) for argument in sys.argv[1:4]), float(sys.argv[4]))))
