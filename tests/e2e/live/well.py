"""Well: whether everything is as it should be again, and how long that took."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field

from e2e.cluster import PROGRAM
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

    decided: float = 0.0  # by the clock, the last decision of an engine that was seen; 0: none
    undecided_s: float = 0.0  # the longest time between two decisions
    slurm_s: float | None = None  # from its beginning until Slurm answers
    well_s: float | None = None  # from its end until everything is well
    resumed: list[str] = field(default_factory=list)  # nodes that Slurm had drained for a job that it forgot
    ended: list[str] = field(default_factory=list)  # hosts of a slurmctld that did not end by itself


def last_decision(site: Site) -> float:
    """When, by the clock, the engine that leads has looked and decided last; 0 if none says so."""
    status = site.ask("/v1/status")
    return float(status["last_cycle"]["time"]) if status and status["last_cycle"] else 0.0


def slurm_answers(site: Site) -> bool:
    """Whether a slurmctld answers at once."""
    return site.run("timeout", "3", "squeue", "-h", "-o", "%i").code == 0


def start_all(site: Site) -> None:
    """Start what has ended, as its service manager or an administrator does. Engines have a keeper."""
    for host in site.all_hosts():
        for name, state in site.daemons(host).items():
            if state["pid"] is None and name != "engine":
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


def until_well(site: Site, begun: float, healed: float, recovery: Recovery) -> list[str]:
    """Wait until nothing is missing; fills what was measured. Returns what is missing at the bound.

    Args:
        site: the minicluster.
        begun: when the fault came, by the clock.
        healed: when it had gone.
        recovery: what was measured so far.
    """
    while True:
        try:
            if time.time() - healed > _STUCK_S:
                end_stuck(site, recovery)
            start_all(site)
            resume_forgetful_if_told(site, recovery)
            watch(site, begun, recovery)
            lacks = missing(site)
        except (AssertionError, MiniclusterError, subprocess.TimeoutExpired) as error:
            lacks = [f"a look failed: {error}"]  # what answered a moment ago does not, or not yet
        if not lacks and recovery.decided > healed:
            recovery.well_s = time.time() - healed
            return []
        if time.time() - healed > BOUND_S:
            return lacks or ["no engine has decided since"]
        time.sleep(_EVERY_S)


def resume_forgetful_if_told(site: Site, recovery: Recovery) -> None:
    """As ``resume_forgetful``, where Slurm answers."""
    if slurm_answers(site):
        resume_forgetful(site, recovery)


def watch(site: Site, begun: float, recovery: Recovery) -> None:
    """Take the time of what has come back since the last look."""
    if recovery.slurm_s is None and slurm_answers(site):
        recovery.slurm_s = time.time() - begun
    if (decided := last_decision(site)) > recovery.decided:
        if recovery.decided:
            recovery.undecided_s = max(recovery.undecided_s, decided - recovery.decided)
        recovery.decided = decided


def checks_of_ledger(site: Site) -> str:
    """What `rmsplugin ledger check` says of a ledger that is not whole; empty if it is."""
    told = site.run(str(PROGRAM), "ledger", "check", timeout_s=120)
    return "" if told.code == 0 else f"ledger check: {told.out.strip()} {told.err.strip()}"
