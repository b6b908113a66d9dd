"""What comes upon a controller: an engine that stands still, and a reboot."""

from __future__ import annotations

import time

from real_site import vjobs
from real_site.machine import Machine, StepError
from real_site.site import Site, wait_for, wait_for_rooms

_ENGINE = "rmsplugin-engine"
_DROP_IN = f"/run/systemd/system/{_ENGINE}.service.d/watchdog.conf"
#: Ten minutes in the unit that we ship; all else of the watchdog is as there.
_SOONER = "[Service]\nWatchdogSec=120\nTimeoutAbortSec=20\n"


def watchdog(site: Site) -> str:
    """An engine that stands still is started again by systemd; the vjob does not notice."""
    controller = site.controller
    if controller.run(f"systemctl show -P WatchdogUSec {_ENGINE}").strip() != "10min":
        raise StepError("the unit's watchdog is not on")
    controller.put(_DROP_IN, _SOONER)
    controller.run(f"systemctl daemon-reload; systemctl restart {_ENGINE}", 900)
    wait_for_rooms(site)
    before, restarts = _process(controller), _restarts(controller)
    controller.run(f"kill -STOP {before}")
    began = time.monotonic()
    vjobs.goes_on(site, site.job)
    wait_for("another engine", 900, lambda: _another(controller, before))
    took_s = time.monotonic() - began
    if _restarts(controller) != restarts + 1:
        raise StepError(f"systemd has started it {_restarts(controller) - restarts} times")
    said = controller.run(f"journalctl -u {_ENGINE} --no-pager -o cat | grep -i 'watchdog timeout' | tail -n 1").strip()
    wait_for_rooms(site)
    vjobs.goes_on(site, site.job)
    controller.run(f"rm {_DROP_IN}; systemctl daemon-reload")
    return f"another engine {took_s:.0f} s after the first one was stopped; systemd: {said}"


def _process(machine: Machine) -> str:
    return machine.run(f"systemctl show -P MainPID {_ENGINE}").strip()


def _restarts(machine: Machine) -> int:
    return int(machine.run(f"systemctl show -P NRestarts {_ENGINE}"))


def _another(machine: Machine, before: str) -> str | None:
    """The process of an engine that is up, and is not the one before."""
    state = machine.ask(f"systemctl is-active {_ENGINE}").stdout.strip()
    process = _process(machine)
    return process if state == "active" and process not in (before, "0") else None


def reboot(site: Site) -> str:
    """The controller is booted anew while the vjob runs, which then ends with all that it has said."""
    controller = site.controller
    boot_id = controller.run("cat /proc/sys/kernel/random/boot_id")
    controller.ask("systemctl reboot")
    wait_for("the controller is another", 900, lambda: _is_anew(controller, boot_id))
    controller.wait_until_up(600)
    wait_for_rooms(site)
    vjobs.goes_on(site, site.job)
    controller.run("runuser -u alice -- touch /home/alice/end")
    return vjobs.judge_whole(site, site.job)


def _is_anew(machine: Machine, boot_id: str) -> str | None:
    done = machine.ask("cat /proc/sys/kernel/random/boot_id", 60)
    return "yes" if done.returncode == 0 and done.stdout != boot_id else None
