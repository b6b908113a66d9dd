"""Faults as they come upon the minicluster, and how each one goes away again."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

from e2e.live import cut
from e2e.live.dice import CUT, KILL, Throw, one_of
from e2e.live.site import CONTROLLERS, Keeper, Site

_SERVERS = ("head", "front2", "n1")
#: Of the other kinds: which daemon fails.
_DAEMONS = {
    "server": "zookeeper",
    "ensemble": "zookeeper",
    "quorum": "zookeeper",
    "nfs": "nfs",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "front": "slurmd",
    "libvirtd": "libvirtd",
    "agent": "sshd",
    "munged": "munged",
}
_DECIDERS = ("leader", "standby")
#: Kinds whose processes are no daemons of the minicluster's, or not alone.
_PROCESSES = ("engine", "halted")


def places(site: Site, throw: Throw) -> list[str]:
    """The hosts on which it fails. The leader is the one of now."""
    match throw.kind:
        case "leader" | "standby":
            leads = site.leader() or CONTROLLERS[0]
            return [host for host in CONTROLLERS if (host == leads) == (throw.kind == "leader")]
        case "quorum":
            spared = one_of(list(_SERVERS), throw.which)
            return [host for host in _SERVERS if host != spared]
        case "server":
            return [one_of(list(_SERVERS), throw.which)]
        case "ensemble":
            return [site.first_server(_SERVERS)]
        case "nfs":
            return ["head"]
        case "slurmctld":
            return [site.slurmctld_that_rules()]
        case "front" | "controller" | "halted":
            return [one_of(list(CONTROLLERS), throw.which)]
        case "engine":
            return [host for host in CONTROLLERS if site.engines(host, group_of(site, throw))][:1]
        case "munged":
            return [one_of(site.all_hosts(), throw.which)]
        case _:
            return [one_of(site.nodes, throw.which)]


def group_of(site: Site, throw: Throw) -> str:
    """The group whose engine fails."""
    return one_of([*site.groups], throw.which)


@contextlib.contextmanager
def under(site: Site, keeper: Keeper, throw: Throw, hosts: list[str]) -> Iterator[None]:
    """In the block the fault is there; after it, on every path, it has gone."""
    daemon = site.decider if throw.kind in _DECIDERS else _DAEMONS.get(throw.kind, "")
    with contextlib.ExitStack() as stack:
        if throw.kind in _PROCESSES:
            stack.callback(_strike(throw.way, [pid for host in hosts for pid in _struck(site, throw, host)]))
            yield
            return
        if throw.kind in _DECIDERS:
            keeper.held |= {*hosts}
            stack.callback(keeper.held.difference_update, hosts)
        for host in hosts:
            stack.callback(_come(site, throw.way, host, daemon))
        if throw.way == KILL:
            # All of them at the same time: the first is not to be missed before the last has gone.
            for host in hosts:
                site.kill(host, daemon)
        yield


def _come(site: Site, way: str, host: str, daemon: str) -> Callable[[], object]:
    """Have it come upon one host, but for a kill. Returns what makes it go."""
    if way == KILL:
        return lambda: site.start(host, daemon)
    if way == CUT:
        rules = cut.of_engine() if daemon == site.decider else cut.of_daemon(daemon) if daemon else cut.of_host()
        site.cut(host, rules)
        return lambda: site.mend(host)
    site.signal(host, daemon, signal.SIGSTOP)
    return lambda: _go_on(site, host, daemon)


def _go_on(site: Site, host: str, daemon: str) -> None:
    site.signal(host, daemon, signal.SIGCONT)


def _struck(site: Site, throw: Throw, host: str) -> list[int]:
    """The processes on a host that it strikes, on this machine; a manager before its engines."""
    if throw.kind == "engine":
        return site.engines(host, group_of(site, throw))
    return [site.decider_pid(host), *site.engines(host)]


def _strike(way: str, pids: list[int]) -> Callable[[], object]:
    """Kill or stop processes at one moment. Returns what makes it go: whoever is killed is started by its manager."""
    _signal(pids, signal.SIGKILL if way == KILL else signal.SIGSTOP)
    return lambda: None if way == KILL else _signal(pids, signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in filter(None, pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
