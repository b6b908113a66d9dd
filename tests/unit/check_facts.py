"""A site in order, as the rules of ``rmsplugin check`` see it: tests change one thing of it, and look for the fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rmsplugin.cli.check.facts import SITE_FILE, Association, SlurmFacts
from rmsplugin.finding import Finding, Level
from rmsplugin.settings import Settings

HOOK = "#!/bin/sh\nexec rmsplugin-hook\n"

NOW = 1790000000.0


def settings(**sections: Mapping[str, Any] | None) -> Settings:
    """Settings of the site, with these keys changed; None leaves a section out."""
    data: dict[str, Any] = {
        "engine": {"listen": "10.0.0.1:6830", "url": "http://10.0.0.1:6830"},
        "slurm": {"partitions": ["vjob"]},
        "partition": {"vjob": {"hosts": "vmhosts"}},
        "hosts": {"vmhosts": {"rooms": "elastic"}},
        "network": {"pool": "10.0.1.10-10.0.1.200", "prefix_length": 16, "gateway": "10.0.0.1"},
        "image": {"default": {"kind": "kernel", "kernel": "/k", "initrd": "/i", "overhead_mib": 96}},
    }
    for name, values in sections.items():
        data[name] = {} if values is None else {**data.get(name, {}), **values}
    return Settings.model_validate(data)


HOLD = settings(hosts={"vmhosts": {"rooms": "hold"}})

CONFIG = {
    "SLURM_VERSION": "22.05.8",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SlurmctldHost[0]": "head(10.0.0.1)",
    "SlurmUser": "slurm(64030)",
    "AccountingStorageEnforce": "associations,limits,qos",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "JobSubmitPlugins": "lua",
    "Licenses": "vjobgate:1",
    "PreemptMode": "REQUEUE",
    "PreemptType": "preempt/partition_prio",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "SlurmctldParameters": "node_reg_mem_percent=0.1",
    "SlurmdParameters": "(null)",
    "KillWait": "30 sec",
    "PrologEpilogTimeout": "300",
    "PrologFlags": "Alloc",
    "JobFileAppend": "0",
    "PrologSlurmctld": "/hooks/prolog_slurmctld",
    "EpilogSlurmctld": "/hooks/epilog_slurmctld",
    "Prolog": "/hooks/prolog",
    "Epilog": "/hooks/epilog",
}

FRONTS = {"PartitionName": "vjob", "OverSubscribe": "NO", "PreemptMode": "REQUEUE", "PriorityTier": "1", "State": "UP"}
NATIVE = {"PartitionName": "plain", "OverSubscribe": "NO", "PreemptMode": "OFF", "PriorityTier": "10", "State": "UP"}
HOSTS = {
    "PartitionName": "vmhosts",
    "AllowGroups": "slurm",
    "GraceTime": "300",
    "Hidden": "YES",
    "MaxTime": "UNLIMITED",
    "OverSubscribe": "EXCLUSIVE",
    "PreemptMode": "CANCEL",
    "PriorityTier": "1",
    "State": "UP",
}

FRONT = {"CPUTot": "1024", "RealMemory": "4194304", "State": "IDLE", "Partitions": "vjob"}
NODE = {"CPUTot": "4", "RealMemory": "4096", "State": "IDLE", "Partitions": "plain,vmhosts"}

GATE = {
    "ReservationName": "rmsplugin_gate",
    "StartTime": "2026-09-01T00:00:00",
    "EndTime": "2027-09-01T00:00:00",
    "Users": "slurm",
    "Groups": "(null)",
    "Accounts": "(null)",
    "Licenses": "vjobgate:1",
}

TEXTS = {
    "/etc/slurm/job_submit.lua": 'local loaded, rmsplugin = pcall(require, "rmsplugin")',
    "/etc/slurm/rmsplugin.lua": "config.gate",
    "/usr/share/rmsplugin/rmsplugin_options.lua": "has_gate",
    "/usr/share/rmsplugin/rmsplugin_native.lua": "options.gated",
    SITE_FILE: 'return { partitions = { "vjob" }, max_vm_cpus = 4, max_vm_memory_mib = 3710 }',
    "/hooks/prolog_slurmctld": HOOK,
    "/hooks/epilog_slurmctld": HOOK,
    "/hooks/prolog": HOOK,
    "/hooks/epilog": HOOK,
}

SLURM = SlurmFacts(
    host="head",
    now=NOW,
    config=CONFIG,
    partitions={"vjob": FRONTS, "plain": NATIVE, "vmhosts": HOSTS},
    nodes={"front1": FRONT, "n1": NODE, "n2": NODE},
    reservations={"rmsplugin_gate": GATE},
    licenses={"vjobgate": 1},
    groups={"slurm": ("slurm",)},
    associations=(Association(),),
    saved_bytes_per_s=100 * 1048576.0,
    texts=TEXTS,
)


def with_config(**config: str) -> SlurmFacts:
    return replace(SLURM, config={**CONFIG, **config})


def with_partition(name: str, **row: str) -> SlurmFacts:
    return replace(SLURM, partitions={**SLURM.partitions, name: {**SLURM.partitions.get(name, {}), **row}})


def with_nodes(**rows: Mapping[str, str]) -> SlurmFacts:
    return replace(SLURM, nodes={**SLURM.nodes, **{name: {**NODE, **row} for name, row in rows.items()}})


def with_text(path: str, text: str | None) -> SlurmFacts:
    return replace(SLURM, texts={**TEXTS, path: text})


def faults(findings: Iterable[Finding]) -> list[Finding]:
    """What is not in order; each of these says what to do."""
    found = [finding for finding in findings if finding.level is not Level.OK]
    assert all(finding.remedy for finding in found)
    return found


def fault(findings: Iterable[Finding], level: Level, words: str) -> Finding:
    """The only fault, which is of this level and says these words."""
    found = faults(findings)
    assert len(found) == 1, found
    assert found[0].level is level and words in found[0].what, found[0]
    return found[0]
