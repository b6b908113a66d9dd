"""What must differ between two runs, taken out by a few rules: job ids, hosts, times, the partition. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rmsplugin.model.hostlist import expand

_RULES = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"\b10\.77\.\d+\.\d+\b"), "ADDRESS"),  # of the minicluster's network
    # Slurm itself writes now this, now that for a job without a limit, in native partitions too.
    (re.compile(r"\b(365-00:00:00|Partition_Limit)\b"), "UNLIMITED"),
)


@dataclass(frozen=True)
class Names:
    """What the jobs of a case are called in one partition."""

    partition: str
    jobs: tuple[str, ...]  # ids (of arrays: the array's), in the order of submission
    hosts: Mapping[str, str]  # what stands for a host or a list of hosts

    def plain(self, text: str) -> str:
        """The text as it is whatever the partition: job ids, hosts, addresses, times."""
        for name in sorted(self.hosts, key=len, reverse=True):
            text = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w])", self.hosts[name], text)
        for number, job in enumerate(self.jobs, 1):
            text = re.sub(rf"vjob{job}-", "NODE", text)
            text = re.sub(rf"(?<!\d){job}(?!\d)", f"JOB{number}", text)
        for pattern, word in _RULES:
            text = pattern.sub(word, text)
        return re.sub(rf"\b{self.partition}\b", "PARTITION", text)


def names_of(partition: str, nodes_of_jobs: Mapping[str, str]) -> Names:
    """The names for jobs and their node lists as Slurm's accounting has them, e.g. ``{"50012": "n[1-2]"}``.

    A node is called by its place in its job's list, as a VM is by its name.
    """
    hosts: dict[str, str] = {}
    for listed in nodes_of_jobs.values():
        nodes = expand(listed)
        for number, node in enumerate(nodes):
            hosts.setdefault(node, f"NODE{number}")
        if len(nodes) > 1:
            hosts[listed] = f"NODE[0-{len(nodes) - 1}]"
    return Names(partition, tuple(nodes_of_jobs), hosts)
