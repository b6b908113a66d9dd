"""Well: whether everything is as it should be again, and how long that took."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from e2e.cluster import PROGRAM
from e2e.live.gaps import Gaps
from e2e.live.history import History
from e2e.live.site import CONTROLLERS, Site
from minicluster_lib.layout import MiniclusterError

#: It takes no longer than this after the fault has gone.
BOUND_S = 300.0
_EVERY_S = 1.0
#: Then an administrator ends a slurmctld that does not end by itself.
_STUCK_S = 90.0
#: What Slurm drains a front or a node for after it forgot a start: an administrator resumes it.
FORGOT = "Duplicate jobid"


@dataclass
class Recovery:
    """What was measured around one fault; seconds, None: not in time."""

    gaps: Gaps  # between decisions
    slurm_s: float | None = None  # from its beginning until Slurm answers
    well_s: float | None = None  # from its end until everything is well
    resumed: list[str] = field(default_factory=list)  # nodes that Slurm had drained for a job that it forgot
    ended: list[str] = field(default_factory=list)  # hosts of a slurmctld that did not end by itself


def begin_recovery(site: Site) -> Recovery:
    """What is measured from now on."""
    recovery = Recovery(Gaps(site.groups or ("",)))
    recovery.gaps.note(site.decisions())
    return recovery


def slurm_answers(site: Site) -> bool:
    """Whether a slurmctld answers at once."""
    return site.run("timeout", "3", "squeue", "-h", "-o", "%i").code == 0


def start_all(site: Site) -> None:
    """Start what has ended, as its service manager or an administrator does. Engines and managers have a keeper."""
    for host in site.all_hosts():
        for name, state in site.daemons(host).items():
            if state["pid"] is None and name != site.decider:
                site.start(host, name)


def end_stuck(site: Site, recovery: Recovery) -> None:
    """End a slurmctld that has begun to end, and does not; its service manager starts it again."""
    for host in site.stuck_slurmctlds():
        site.kill(host, "slurmctld")
        recovery.ended.append(host)


def resume_forgetful(site: Site, recovery: Recovery) -> None:
    """Resume what Slurm drained for a job that it forgot, as the guide tells."""
    for line in site.unable_nodes():
        if FORGOT in line:
            site.run("scontrol", "update", f"NodeName={line.split()[0]}", "State=RESUME")
            recovery.resumed.append(line)


def missing(site: Site) -> list[str]:
    """What is not as it should be, each a sentence; the quick looks are first, and slow ones wait for them."""
    if ended := site.ended():
        return [f"{each} does not run" for each in ended]
    if not slurm_answers(site):
        return ["Slurm does not answer"]
    status = site.ask("/v1/status")
    if status is None:
        return ["no engine answers"]
    cluster = status["cluster"] or {}
    found = [f"degraded: {each}" for each in cluster.get("degraded", ["no engine of several leads"])]
    if len(cluster.get("standbys", [])) != len(CONTROLLERS) - 1:
        found.append("nobody stands by")
    if site.groups:
        found += _missing_of_groups(site, status["groups"])
    found += [f"problem: {each}" for each in status.get("problems", [])]
    nodes = (site.ask("/v1/nodes") or {"nodes": []})["nodes"]
    found += [f"node {each['name']} is {each['state']}" for each in nodes if each["state"] in ("unreachable", "gone")]
    if not nodes:
        found.append("no nodes are seen")
    if found:
        return found
    ping = site.run("scontrol", "ping", timeout_s=60).out
    if ping.count("is UP") != len(CONTROLLERS):
        return [f"slurmctld: {' '.join(ping.split())}"]
    return [f"Slurm: {line}" for line in site.unable_nodes()]


def _missing_of_groups(site: Site, told: Sequence[Mapping[str, Any]]) -> list[str]:
    """What groups lack, as a manager tells of them."""
    found = [f"the engine of group {each['name']} does not answer: {each['problem']}" for each in told
             if not each["answers"]]  # fmt: skip
    found += [f"group {name} is not told of" for name in site.groups.keys() - {each["name"] for each in told}]
    idle = {*CONTROLLERS} - {each["host"] for each in told}
    return found + [f"the manager on {host} has no group" for host in sorted(idle)]


def until_well(site: Site, begun: float, healed: float, recovery: Recovery, history: History) -> list[str]:
    """Wait until nothing is missing; fills what was measured. Returns what is missing at the bound.

    Args:
        site: the minicluster.
        begun: when the fault came, by the clock.
        healed: when it had gone.
        recovery: what was measured so far.
        history: takes in what is seen.
    """
    while True:
        try:
            if time.time() - healed > _STUCK_S:
                end_stuck(site, recovery)
            start_all(site)
            resume_forgetful_if_told(site, recovery)
            watch(site, begun, recovery, history)
            lacks = missing(site)
        except (AssertionError, MiniclusterError, subprocess.TimeoutExpired) as error:
            lacks = [f"a look failed: {error}"]  # what answered a moment ago does not, or not yet
        if not lacks and recovery.gaps.all_since(healed):
            recovery.well_s = time.time() - healed
            return []
        if time.time() - healed > BOUND_S:
            return lacks or [f"no engine has decided since: {recovery.gaps.last}"]
        time.sleep(_EVERY_S)


def resume_forgetful_if_told(site: Site, recovery: Recovery) -> None:
    """As ``resume_forgetful``, where Slurm answers."""
    if slurm_answers(site):
        resume_forgetful(site, recovery)


def watch(site: Site, begun: float, recovery: Recovery, history: History) -> None:
    """Take the time of what has come back since the last look, and note what is to be seen."""
    if recovery.slurm_s is None and slurm_answers(site):
        recovery.slurm_s = time.time() - begun
    decisions = site.decisions()
    recovery.gaps.note(decisions)
    history.note(decisions)
    history.look(time.time())


def checks_of_ledger(site: Site) -> str:
    """What `rmsplugin ledger check` says of a ledger that is not whole; empty if it is."""
    told = site.run(str(PROGRAM), "ledger", "check", timeout_s=120)
    return "" if told.code == 0 else f"ledger check: {told.out.strip()} {told.err.strip()}"
