"""Rules for the hosts of slurmctld: backup controllers speak to the engine, and users run nothing on any of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from rmsplugin.cli.check.facts import SlurmFacts, some
from rmsplugin.finding import Finding, ok, warning
from rmsplugin.settings import Settings


def controllers(facts: SlurmFacts) -> dict[str, str]:
    """The hosts of slurmctld, the first one first: name -> address; empty where Slurm shows none."""
    shown = (value for key, value in sorted(facts.config.items()) if key.startswith("SlurmctldHost"))
    parts = (value.partition("(") for value in shown)
    return {name: address.rstrip(")") for name, _, address in parts if name}


def judge_controllers(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge what the settings say of backup controllers, and what else runs where slurmctld does."""
    known = controllers(facts)
    yield from _backups(settings, dict(list(known.items())[1:]))
    yield from _fronts(settings, facts, {_short(name) for name in known})


def _backups(settings: Settings, backups: dict[str, str]) -> Iterator[Finding]:
    if not backups:
        return
    strange = [name for name, address in backups.items() if not _is_trusted(settings, name, address)]
    missing = [key for key in ("listen", "url") if not getattr(settings.engine, key)]
    late = "after a failover each vjob that starts is CONFIGURING for slurm.prolog_wait_s"
    if missing:
        yield warning(
            "backup controller",
            f"{some(list(backups))} cannot reach the engine, which listens on its own host only: {late}",
            f"set {' and '.join(missing)} in [engine]",
        )
    elif strange:
        yield warning(
            "backup controller",
            f"{some(strange)} is not in engine.trusted_hosts: the engine refuses what its hooks report, and {late}",
            f"add {some(strange)} to trusted_hosts in [engine]",
        )
    else:
        yield ok("backup controller", f"{some(list(backups))} may speak to the engine as the controller does")


def _is_trusted(settings: Settings, name: str, address: str) -> bool:
    """Whether the settings name this host, its address or its network."""
    for trusted in settings.engine.trusted_hosts:
        if _short(trusted) == _short(name) or trusted == address:
            return True
        try:
            if ipaddress.ip_address(address) in ipaddress.ip_network(trusted, strict=False):
                return True
        except ValueError:
            continue  # One of them is a name.
    return False


def _fronts(settings: Settings, facts: SlurmFacts, hosts: set[str]) -> Iterator[Finding]:
    """Users start processes on fronts: the wrapper is theirs."""
    fronts = dict.fromkeys(name for partition in settings.slurm.partitions for name in facts.nodes_of(partition))
    for front in fronts:
        if hosts & {_short(front), _short(facts.nodes[front].get("NodeHostName", ""))} - {""}:
            yield warning(
                f"front {front}",
                "is a host of slurmctld: wrappers run there as the vjobs' users, beside the engine and its keys",
                "take another host as front",
            )


def _short(name: str) -> str:
    """A host's name without its domain; an address as it is."""
    return name if name[:1].isdigit() or ":" in name else name.partition(".")[0]
