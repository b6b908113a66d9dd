"""Rules for memory by observation: what the partitions, and the nodes of their VM hosts, need for it."""

from __future__ import annotations

from collections.abc import Iterator

from rmsplugin.adapters.nodes.base import MemoryReport
from rmsplugin.cli.check.facts import SlurmFacts
from rmsplugin.engine.observe.site import switches
from rmsplugin.finding import Finding, ok, warning
from rmsplugin.settings import Settings


def observing(settings: Settings) -> list[str]:
    """The vjob partitions whose memory is to be observed."""
    return [name for name, each in settings.partition.items() if each.memory == "observed"]


def judge_partitions(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Whether memory can be observed at all where it is to be."""
    for name in observing(settings):
        if switches(facts.partitions.get(name, {}).get("PreemptMode", "")):
            yield ok(f"partition {name}", "its memory is observed")
            continue
        yield warning(
            f"partition {name}",
            "has memory = observed and no context switches: its memory is booked as requested",
            f"PreemptMode=REQUEUE for {name} in slurm.conf, or memory = requested",
        )


def judge_bound(node: str, report: MemoryReport | str) -> Iterator[Finding]:
    """Whether VMs whose memory is observed can take no more of a node than is theirs."""
    subject = f"node {node}"
    if isinstance(report, str):
        yield warning(subject, f"the bound of observed VMs: {report}", "install this release of rmsplugin-node there")
    elif report.bounded:
        yield ok(subject, f"VMs whose memory is observed take {report.limit_mib} MiB at most")
    else:
        yield warning(
            subject,
            f"nothing bounds VMs whose memory is observed: {report.why or 'no bound was set yet'}",
            "see Memory by observation in docs/operator/configuring.md; the engine sets the bound in its cycles",
        )
