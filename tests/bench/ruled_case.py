"""One large site with placement rules, or without, in a process of its own; prints JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.engine_case import children_cpu_s
from bench.large_site import WIDE, LargeSite
from bench.measure import median
from rmsplugin.engine.assess.arrivals import Arrivals
from rmsplugin.engine.assess.ruled_places import RuledPlaces
from rmsplugin.engine.assess.site_rules import Member, traits_of_job
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.latency import keep_for_good, switch_threads_often
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_names import vm_name
from rmsplugin.model.vm_phase import VMPhase


def rules_of(nodes: int, running: int) -> dict[str, dict[str, Any]]:
    """Rules that all VMs obey, and that are as full as can be: none may come to the first tenth of the nodes."""
    tenth = max(1, nodes // 10)
    return {
        "apart": {"kind": "spread", "per": "vjob"},
        "few": {"kind": "capacity", "nodes": f"n[1-{tenth}]", "most": tenth * (running // nodes)},
        "still": {"kind": "root", "users": ["daemon"]},
        "online": {"kind": "online", "most": nodes},
    }


def main(ruled: int, nodes: int, running: int, waiting: int, cycles: int, arrivals: int) -> dict[str, Any]:
    """Measure cycles that change nothing; and how long it takes to look at arrivals, one after the other."""
    switch_threads_often()  # as the daemon does
    rules = rules_of(nodes, running) if ruled else {}
    with tempfile.TemporaryDirectory() as directory:
        site = LargeSite(Path(directory), nodes, running, waiting, strewn=True, rules=rules)
        with contextlib.closing(site):
            keep_for_good()
            _cycle(site)  # what is done once is not counted
            own, child = zip(*(_cycle(site) for _ in range(cycles)), strict=True)
            found = {"ruled": ruled, "nodes": nodes, "vms": running, "waiting": waiting}
            found |= {"cycle_s": median(own), "propose_s": median(child)}
            found |= _arrivals(site, arrivals)
    return found


def _cycle(site: LargeSite) -> tuple[float, float]:
    """CPU seconds of the engine, without its simulated neighbours, and of the proposing process."""
    site.signs_of_life()
    adapters_s, child_s, began = site.adapters_cpu_s(), children_cpu_s(), time.process_time()
    report = site.cycle.run()
    own_s = time.process_time() - began - (site.adapters_cpu_s() - adapters_s)
    if report.begun or report.problems:
        raise RuntimeError(f"the cycle was to change nothing: {report.sentence} {report.problems}")
    return own_s, children_cpu_s() - child_s


def _arrivals(site: LargeSite, count: int) -> dict[str, float]:
    """CPU ms to look at one arrival: of the first one after a look, of a later one; and if all VMs are gone through."""
    seen = site.cycle.seen
    assert seen is not None
    kept, times, anew = Arrivals(site.settings, site.ledger), [], []
    vjobs = [vjob for vjob in site.ledger.vjobs() if vjob.state is VJobState.WAITING][:count]
    for number, vjob in enumerate(vjobs):
        name, node = vm_name(vjob.job_id, 0), site.nodes[-1 - number % (len(site.nodes) // 2)]
        member = Member(vjob.display_id, traits_of_job(seen.jobs[vjob.job_id], vjob.geometry), (name,))
        began = time.thread_time()
        kept.require(seen, member, {name: node})
        times.append(1000 * (time.thread_time() - began))
        if number < 3:
            anew.append(_anew_ms(site, seen, member))
        _starts(site, vjob, name, node)
    return {"first_ms": times[0], "later_ms": median(times[1:]), "anew_ms": median(anew)}


def _anew_ms(site: LargeSite, seen: Observation, member: Member) -> float:
    began = time.thread_time()
    RuledPlaces(site.settings, site.ledger, seen, [member])
    return 1000 * (time.thread_time() - began)


def _starts(site: LargeSite, vjob: VJobRow, name: str, node: str) -> None:
    """The ledger has the VM that has just been looked at, as when its step has begun."""
    more = {"host_key_public": "", "memory_mib": vjob.geometry.memory_mib, "phase": VMPhase.PLACED}
    address = f"10.1.{vjob.job_id // 250 % 250}.{vjob.job_id % 250 + 1}"
    with site.ledger.transaction():
        site.ledger.set_vms(vjob.job_id, [VMRow(name, vjob.job_id, 0, f"uuid-{name}", name, address, node, **more)])
        site.ledger.transition(vjob.job_id, VJobState.STARTING, "measured")


if __name__ == "__main__":
    assert WIDE > 1, "a spread is about several VMs"
    print(json.dumps(main(*(int(argument) for argument in sys.argv[1:7]))))
