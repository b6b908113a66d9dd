"""Judge: what must hold after each fault, and in the end. Each breach is a sentence."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence

from e2e.live.site import Site
from e2e.live.work import VJob
from e2e.rooms import Machine, ledger

#: An engine clears up after a vjob within this time.
_CLEARED_S = 60.0
_BAD_ENDS = {"FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"}


def counted(text: str, *, over: bool) -> str:
    """What is wrong with the output of a script that counts; empty: each line is there, once, in order.

    Args:
        text: all that it wrote so far.
        over: it has ended, and has to have said so.
    """
    whole, _, rest = text.rpartition("\n")
    lines = [line for line in whole.splitlines() if line and not line.startswith("slurmstepd")]
    end = re.fullmatch(r"counted to (\d+)", lines[-1]) if lines else None
    if over and (end is None or rest):
        return f"it does not end as it should: {(lines or [''])[-1]!r} {rest!r}"
    numbers = lines[:-1] if end else lines
    for place, line in enumerate(numbers, 1):
        if line != str(place):
            return f"line {place} is {line!r}"
    if end and int(end[1]) != len(numbers):
        return f"it counted to {end[1]}, and {len(numbers)} numbers are there"
    return ""


def begun(site: Site, vjob: VJob) -> int:
    """How often a vjob's script began."""
    path = site.home(vjob.order.user) / f"started.{vjob.job}"
    return len(path.read_text().splitlines()) if path.exists() else 0


def of_vjob(site: Site, vjob: VJob, *, forgets: bool = False) -> list[str]:
    """What is wrong with one vjob. One that has ended is over from now on.

    Args:
        site: the minicluster.
        vjob: which one.
        forgets: a slurmctld was lost, which may have forgotten that it had started the job: it is requeued.
    """
    told = site.run("scontrol", "-o", "show", "job", str(vjob.job))
    fields = dict(re.findall(r"(\S+?)=(\S*)", told.out))
    state = fields.get("JobState", "")
    wrong = []
    if not state:  # it is forgotten some minutes after its end
        said = counted(site.output(vjob.job, vjob.order.user), over=True)
        vjob.ended = time.time()
        return [f"vjob {vjob.job}: Slurm does not know it: {told.err.strip()}; {said}"] if said else []
    if state in _BAD_ENDS:
        wrong.append(f"its job is {state}, {fields.get('Reason')}, {fields.get('ExitCode')}")
    restarts = int(fields.get("Restarts", "0"))
    if forgets:
        vjob.restarts = restarts
    if restarts > max(vjob.restarts, site.ends_missed(vjob.job)):
        wrong.append(f"its job was requeued {restarts} times")
    starts = begun(site, vjob)
    if starts > 1:
        wrong.append(f"its script began {starts} times")
    if said := counted(site.output(vjob.job, vjob.order.user), over=state == "COMPLETED"):
        wrong.append(said)
    if state == "COMPLETED":
        vjob.ended = vjob.ended or _time_of(fields.get("EndTime", ""))
    return [f"vjob {vjob.job}: {each}" for each in wrong]


def _time_of(text: str) -> float:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return time.time()


def of_vms(site: Site, alive: Sequence[VJob]) -> list[str]:
    """VMs that run on two hosts, that nobody waits for, or that are missing; only while nothing is under way."""
    known = {each["job_id"]: each for each in site.vjobs()}
    guests = Counter(guest.vm for guest in Machine(site).guests())
    wrong = [f"{vm} has {number} QEMUs" for vm, number in guests.items() if number > 1 and not _under_way(site, vm)]
    for vjob in alive:
        state = known.get(vjob.job, {}).get("state", "")
        here = sum(vm.startswith(f"vjob{vjob.job}-") for vm in guests)
        if state == "sleeping" and here:
            wrong.append(f"vjob {vjob.job} sleeps, and {here} of its VMs run")
    return wrong


def _under_way(site: Site, vm: str) -> bool:
    return bool(ledger(site, "select 1 from actions where vm = ? and state = 'running'", vm))


def left_over(site: Site, over: Sequence[VJob]) -> list[str]:
    """What is left of vjobs that have ended, once there was time to clear up after them."""
    found = []
    for vjob in over:
        deadline = time.monotonic() + _CLEARED_S
        # Of others that come and go a look may see half.
        while (left := site.leftovers(vjob.job)) and time.monotonic() < deadline:
            time.sleep(1)
        found += [f"vjob {vjob.job} has left: {each}" for each in left]
    return found
