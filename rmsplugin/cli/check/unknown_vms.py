"""Unknown VMs: VMs on nodes whose vjobs no ledger of the site knows: engines leave them alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from rmsplugin.adapters.platform.base import Platform
from rmsplugin.engine.ledger.ledger_file import read_only
from rmsplugin.engine.ledger.site_ledgers import of_engines, site_ledgers
from rmsplugin.errors import RmspluginError
from rmsplugin.finding import Finding, error
from rmsplugin.model.vm_names import parse_vm_name
from rmsplugin.settings import Settings

_AT_ONCE = 32
#: How many VMs a finding names.
_NAMED = 5


def probe_unknown(settings: Settings, platform: Platform, nodes: Iterable[str]) -> dict[str, str]:
    """By name, VMs of unknown vjobs, and the node of each; none if a ledger cannot be read. Changes nothing."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        seen = {vm: node for node, vms in pool.map(lambda name: (name, _vms(platform, name)), nodes) for vm in vms}
    job_of = {vm: parsed[0] for vm in seen if (parsed := parse_vm_name(vm)) is not None}
    if not job_of:
        return {}
    known: set[int] = set()
    for ledger in of_engines(site_ledgers(settings)):  # a vjob is in the ledger before it has a VM
        try:
            with closing(read_only(ledger.path)) as connection:
                known.update(row[0] for row in connection.execute("select job_id from vjobs"))
        except sqlite3.Error:
            return {}
    return {vm: seen[vm] for vm, job in sorted(job_of.items()) if job not in known}


def judge_unknown(found: Mapping[str, str]) -> Iterator[Finding]:
    """Judge VMs of unknown vjobs."""
    if not found:
        return
    named = ", ".join(f"{vm} on {node}" for vm, node in [*found.items()][:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    yield error(
        "ledger",
        f"no ledger knows the vjobs of {len(found)} VMs, which engines leave alone: {named}{more}",
        "if a ledger was lost or set back, go back to its newest backup (docs/operator/restoring.md); end "
        "VMs that nobody needs on their nodes",
    )


def _vms(platform: Platform, node: str) -> Iterable[str]:
    try:
        return platform.list_vms(node)
    except RmspluginError:
        return ()  # the node has its finding already
