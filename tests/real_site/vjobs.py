"""Vjobs of a user: submitted, watched, switched, ended."""

from __future__ import annotations

import json
import time

from real_site.layout import VM_HOSTS
from real_site.machine import StepError
from real_site.site import Site, wait_for

#: Says a number a second, until it is told to end.
COUNT = """\
#!/bin/bash
n=0
until [ -e end ]; do n=$((n + 1)); echo "$n"; sleep 1; done
echo over
"""


def submit(site: Site) -> str:
    """Submit a vjob that counts, and wait for its first line; return the job's id."""
    script = "/home/alice/count.sh"
    site.controller.put(script, COUNT, "755", "alice:alice")
    job = site.controller.run(f"runuser -u alice -- sbatch --parsable -p vjob --mem=64 -D /home/alice {script}").strip()
    wait_for("the vjob's first line", 1200, lambda: _lines(site, job, 1))
    return job


def _lines(site: Site, job: str, least: int) -> str | None:
    """The last line of the vjob's output, when it has so many."""
    done = site.controller.ask(f"cat /home/alice/slurm-{job}.out")
    lines = done.stdout.splitlines() if done.returncode == 0 else []  # else it is not there yet
    return lines[-1] if len(lines) >= least else None


def goes_on(site: Site, job: str) -> None:
    """Wait until it has said three lines more.

    Raises:
        StepError: it has not, in time.
    """
    seen = len(site.controller.run(f"cat /home/alice/slurm-{job}.out").splitlines())
    wait_for(f"vjob {job} goes on", 600, lambda: _lines(site, job, seen + 3))


def facts(site: Site, job: str) -> dict[str, object]:
    """What `rmsplugin vjobs` says of it."""
    (found,) = json.loads(site.controller.run(f"rmsplugin vjobs {job} --json"))["vjobs"]
    return found


def node(site: Site, job: str) -> str:
    """Where it is."""
    return str(facts(site, job)["nodes"][0])


def other_node(site: Site, job: str) -> str:
    """Where it is not."""
    here = node(site, job)
    return next(host.name for host in VM_HOSTS if host.name != here)


def suspend(site: Site, job: str) -> None:
    """Have it suspended."""
    site.controller.run(f"rmsplugin suspend {job}", 900)
    _wait_for_state(site, job, "sleeping")


def resume(site: Site, job: str, to: str) -> None:
    """Have it resumed on a VM host, and see it go on."""
    site.controller.run(f"rmsplugin resume {job} --to {to}", 900)
    _wait_for_state(site, job, "running")
    goes_on(site, job)


def migrate(site: Site, job: str, to: str) -> None:
    """Have it migrated to a VM host, and see it go on."""
    site.controller.run(f"rmsplugin migrate {job} --to {to}", 900)
    wait_for("the vjob runs there", 900, lambda: to if node(site, job) == to else None)
    goes_on(site, job)


def _wait_for_state(site: Site, job: str, state: str) -> None:
    wait_for(f"vjob {job} is {state}", 900, lambda: state if facts(site, job)["state"] == state else None)


def switch(site: Site, job: str) -> str:
    """Suspend it, and resume it on the other VM host; return how long both took."""
    to, began = other_node(site, job), time.monotonic()
    suspend(site, job)
    slept = time.monotonic()
    resume(site, job, to)
    return f"suspended in {slept - began:.0f} s; goes on on {to} {time.monotonic() - slept:.0f} s later"


def judge_whole(site: Site, job: str) -> str:
    """Wait for its end, and look at all that it has said.

    Raises:
        StepError: it has not ended well, or lines are missing or there twice.
    """
    wait_for(f"the end of vjob {job}", 900, lambda: _ended(site, job))
    said = site.controller.run(f"cat /home/alice/slurm-{job}.out").split()
    if said != [*map(str, range(1, len(said))), "over"]:
        raise StepError(f"vjob {job}: lines are missing, or there twice: {' '.join(said)}")
    return f"vjob {job} has ended; {len(said) - 1} numbers, none twice, none missing"


def _ended(site: Site, job: str) -> str | None:
    state = site.controller.ask(f"sacct -n -X -P -j {job} -o State").stdout.strip()
    if state not in ("", "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "COMPLETED"):
        raise StepError(f"job {job} has ended as {state}")
    return state if state == "COMPLETED" else None
