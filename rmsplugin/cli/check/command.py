"""Checking: look at everything that the plugin needs of a site, and say for each fault how to mend it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import read_settings
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable
from rmsplugin.errors import SettingsError
from rmsplugin.model.wording import counted

if TYPE_CHECKING:
    from rmsplugin.cli.check.within import Look
    from rmsplugin.finding import Finding, Level
    from rmsplugin.settings import Settings


#: The longest that it looks, in seconds: in all, and more for each VM host.
_WITHIN_S, _EACH_HOST_S = 120.0, 1.0


def add_command(commands: options.Commands) -> None:
    """Add check to the command line."""
    parser = options.add_command(
        commands,
        "check",
        "look at everything that the plugin needs, and tell how to mend what is wrong",
        _check,
        """
        Run it on the controller as root (it goes on as engine.user) or as engine.user; of several controllers, on each.
        It changes nothing; in cluster.shared_dir it writes files of its own, and removes them. The exit status is 1
        when there is an error, 0 when there are warnings only. Whatever hangs, it ends within two minutes, and a second
        more for each VM host, or within --within: what was found by then is told, and what it was looking at is an
        error.

        examples:
          sudo rmsplugin check
          sudo rmsplugin check --quick --json
          sudo rmsplugin check --upgrade
        """,
    )
    parser.add_argument(
        "--upgrade",
        action="store_true",
        help="look only at what stands in the way of an upgrade; also for the newer release, before it is installed",
    )
    parser.add_argument("--quick", action="store_true", help="do not try the connections between all pairs of nodes")
    parser.add_argument(
        "--within",
        metavar="SECONDS",
        type=options.positive_seconds,
        help="look for so long at most (default: 120, and 1 for each VM host)",
    )
    parser.add_argument("--json", action="store_true", help="the findings as JSON")


def _check(arguments: argparse.Namespace) -> int:
    from rmsplugin.cli.check.within import Look, leave, look_within
    from rmsplugin.finding import Level, error

    look = Look()
    try:
        settings = read_settings(arguments.config)
        with _display() as look.show:
            has_ended = look_within(
                look,
                lambda: (_look_before_upgrade if arguments.upgrade else _look_at_all)(settings, arguments, look),
                lambda: arguments.within or _WITHIN_S + _EACH_HOST_S * look.hosts,
            )
        findings = list(look.found)
    except SettingsError as fault:
        # Without settings there is nothing else to look at.
        has_ended = True
        findings = [error("settings", line, "see docs/settings.md") for line in str(fault).splitlines()]
    status = 1 if any(finding.level is Level.ERROR for finding in findings) else 0
    _tell(arguments, findings)
    if not has_ended:
        leave(status)
    return status


def _tell(arguments: argparse.Namespace, findings: list[Finding]) -> None:
    from rmsplugin.finding import Level

    if arguments.json:
        print_document(
            arguments,
            {"findings": [asdict(finding) for finding in findings]},
            errors=_sentences(findings, Level.ERROR),
            warnings=_sentences(findings, Level.WARNING),
        )
    else:
        for finding in findings:
            print(printable(f"{finding.level:<8}{finding.subject}: {finding.what}"))
            if finding.remedy:
                print(printable(f"{'':8}  remedy: {finding.remedy}"))
        counts = [sum(finding.level is level for finding in findings) for level in (Level.ERROR, Level.WARNING)]
        faults = f"{counted(counts[0], 'error')}, {counted(counts[1], 'warning')}"
        print(f"{faults}, {len(findings) - sum(counts)} in order")


def _sentences(findings: Iterable[Finding], level: Level) -> list[str]:
    return [f"{finding.subject}: {finding.what}" for finding in findings if finding.level is level]


def _look_at_all(settings: Settings, arguments: argparse.Namespace, look: Look) -> None:
    """Look at everything; what was found is in ``look`` as soon as it is."""
    from rmsplugin.adapters.nodes.passages import passages_of
    from rmsplugin.adapters.nodes.ssh import NodeAgents
    from rmsplugin.adapters.platform.factory import open_platform
    from rmsplugin.cli.check import probe
    from rmsplugin.cli.check.cluster import judge_cluster, judge_epochs, judge_way
    from rmsplugin.cli.check.cluster_probe import probe_cluster
    from rmsplugin.cli.check.host import judge_host
    from rmsplugin.cli.check.memory import judge_bound, observing
    from rmsplugin.cli.check.nodes import judge_mounts_of, judge_node, judge_nodes, judge_pair
    from rmsplugin.cli.check.power import check_power
    from rmsplugin.cli.check.slurm import judge_slurm
    from rmsplugin.cli.check.unknown_vms import judge_unknown, probe_unknown
    from rmsplugin.settings import settings_path

    found, show = look.found, look.shows
    probe.become_engine_user(settings)
    show("Slurm")
    slurm = probe.probe_slurm(settings)
    show("this host")
    host = probe.probe_host(settings, settings_path(arguments.config))
    hosts = slurm.vm_hosts(settings)
    look.hosts = len(hosts)
    found += [*judge_host(settings, host, hosts, slurm.cpus(hosts)), *judge_slurm(settings, slurm)]
    if settings.native:
        return  # nothing of ours runs on the nodes
    show("BMCs")
    of_power, off = check_power(settings, slurm, hosts)
    found += of_power
    hosts = tuple(host for host in hosts if host not in off)
    show("the other controllers")
    cluster = probe_cluster(settings)
    found += [] if cluster is None else judge_cluster(cluster)
    found += judge_way(settings)
    agent = settings.nodes
    agents = NodeAgents(agent.agent_user, str(agent.agent_key), str(agent.known_hosts))
    hypervisor = open_platform(settings, passages_of(settings, epoch=None), agents)
    try:
        nodes = probe.probe_nodes(hypervisor, agents, hosts, done=show)
        for node in nodes:
            found += judge_node(settings, node)
        found += judge_nodes(settings, nodes)
        found += judge_unknown(probe_unknown(settings, hypervisor, hosts))
        found += [] if cluster is None else judge_epochs(cluster, nodes)
        # A node whose agent is out of reach has its error already; one more for each way to it says nothing new.
        answering = [node.name for node in nodes if not isinstance(node.agent, str)]
        for name, report in probe.probe_bounds(agents, answering if observing(settings) else []).items():
            found += judge_bound(name, report)
        for name, mounts in probe.probe_mounts(agents, answering if settings.guest.mounts else []).items():
            found += judge_mounts_of(settings, name, mounts)
        for pair in [] if arguments.quick else probe.probe_pairs(agents, answering, done=show):
            found += judge_pair(settings, pair)
    finally:
        agents.close()
        hypervisor.close()


def _look_before_upgrade(settings: Settings, arguments: argparse.Namespace, look: Look) -> None:
    """Look at ledgers, engine and nodes; what was found is in ``look`` at the end."""
    from rmsplugin.adapters.nodes.passages import passages_of
    from rmsplugin.adapters.nodes.ssh import NodeAgents
    from rmsplugin.adapters.platform.factory import open_platform
    from rmsplugin.cli.check import probe
    from rmsplugin.cli.check.upgrade import judge_upgrade, probe_upgrade

    probe.become_engine_user(settings)
    look.shows("the ledger, and the engine")
    facts = probe_upgrade(settings)
    look.shows("Slurm")
    slurm = probe.probe_slurm(settings)
    if slurm.unreachable:
        look.found += judge_upgrade(facts, slurm.unreachable)
        return
    if settings.native:
        look.found += judge_upgrade(facts, [])  # nothing of ours is on the nodes
        return
    hosts = slurm.vm_hosts(settings)
    look.hosts = len(hosts)
    agent = settings.nodes
    agents = NodeAgents(agent.agent_user, str(agent.agent_key), str(agent.known_hosts))
    hypervisor = open_platform(settings, passages_of(settings, epoch=None), agents)
    try:
        look.found += judge_upgrade(facts, probe.probe_nodes(hypervisor, agents, hosts, done=look.shows))
    finally:
        agents.close()
        hypervisor.close()


@contextmanager
def _display() -> Iterator[Callable[[str], None]]:
    """Say on a terminal what is being looked at."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("looking") as status:
        yield lambda what: status.update(f"looking at {what}")
