"""Rules for switching: what Slurm and the settings must have, so that the engine can switch nodes off and on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rmsplugin.cli.check.facts import SlurmFacts, some
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.settings import Settings

_ON = "power.switch"


def judge_switching(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge nothing where the engine switches no node."""
    if not settings.power.switch:
        return
    hosts = facts.vm_hosts(settings)
    mine = [node for node in hosts if settings.power.watts_of(node) and settings.power.driver_of(node)]
    if left := [node for node in hosts if node not in mine]:
        yield warning(
            _ON,
            f"{some(left)} are never switched: they have no class, or no BMC",
            "[[power.classes]] and [power.driver.NAME] in the settings, with their nodes",
        )
    for name in settings.hosts_partitions:
        if settings.hosts_of(name).rooms == "hold":
            yield warning(
                _ON,
                f"the nodes of {name} are never switched: the engine holds its rooms there",
                f'rooms = "elastic" in [hosts.{name}] of the settings, or a line less',
            )
    missing = [name for name in ("SuspendProgram", "ResumeProgram") if facts.config.get(name, "(null)") == "(null)"]
    if missing:
        yield error(
            _ON,
            f"slurm.conf has no {' and no '.join(missing)}: Slurm powers no node down, and none up for a job",
            "both programs in slurm.conf, as docs/operator/energy.md has them",
        )
    elif mine:
        yield from _times(settings, facts, mine)


def _times(settings: Settings, facts: SlurmFacts, nodes: list[str]) -> Iterator[Finding]:
    longest_s = max(watts.on_s for node in nodes if (watts := settings.power.watts_of(node)) is not None)
    found = re.match(r"\d+", facts.config.get("ResumeTimeout", ""))
    timeout_s = int(found[0]) if found else 60
    if timeout_s < longest_s:
        yield error(
            "ResumeTimeout",
            f"is {timeout_s} s: a node that takes {longest_s:g} s to come on (on_s) would be down by then",
            f"ResumeTimeout={2 * longest_s:.0f} in slurm.conf",
        )
    else:
        yield ok(_ON, f"{some(nodes)} are switched off when nobody uses them")
