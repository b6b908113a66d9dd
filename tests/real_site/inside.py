"""Inside: do the steps, in a network and with processes that end with the campaign."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from pathlib import Path

from real_site import disk, machine, steps
from real_site.layout import HOSTS
from real_site.patience import patient
from real_site.site import Site


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Started by the campaign itself, as process 1 of a namespace.")
    parser.add_argument("work", type=Path)
    parser.add_argument("base", type=Path, nargs=3, help="disk, kernel, initrd")
    parser.add_argument("--debs", type=Path, required=True)
    parser.add_argument("--until")
    parser.add_argument("--stay", action="store_true")
    return parser


def _do(step: steps.Step, site: Site) -> bool:
    began = time.monotonic()
    print(f"== {step.name}: {step.what}", flush=True)
    signal.alarm(round(patient(step.bound_s)))
    try:
        said = step.run(site)
    except machine.StepError as error:
        print(f"FAILED after {time.monotonic() - began:.0f} s: {error}", flush=True)
        return False
    finally:
        signal.alarm(0)
    print(f"{said}\n   done in {time.monotonic() - began:.0f} s", flush=True)
    return True


def _too_long(*_: object) -> None:
    raise machine.StepError("the step takes too long")


def main() -> int:
    """Do the steps; return 1 if one fails."""
    arguments = _parser().parse_args()
    base, work = disk.Base(*arguments.base), arguments.work
    # Process 1 of a namespace is sent only what it has a handler for.
    signal.signal(signal.SIGALRM, _too_long)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    machine.connect(HOSTS)
    machines = {host: machine.Machine(host, base, work / "site.disk", work) for host in HOSTS}
    site = Site(machines, work, arguments.debs)
    status = 0
    for step in steps.STEPS:
        status = 0 if _do(step, site) else 1
        if status or step.name == arguments.until:
            break
    if arguments.stay:
        print("the machines stay until Control-C", flush=True)
        signal.pause()
    return status


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
