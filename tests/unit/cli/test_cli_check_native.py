"""Rules of ``rmsplugin check`` for platform native: whose nodes jobs are paused on, and what Slurm counts there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.check_facts import CONFIG, GATE, SLURM, TEXTS, fault, faults

from rmsplugin.cli.check.facts import SITE_FILE, SlurmFacts
from rmsplugin.cli.check.host import FileFact, HostFacts, judge_host
from rmsplugin.cli.check.slurm import judge_slurm
from rmsplugin.finding import Finding, Level
from rmsplugin.settings import Settings

SETTINGS = Settings.model_validate(
    {
        "hypervisor": {"platform": "native"},
        "slurm": {"partitions": ["batch", "urgent"]},
        "partition": {"urgent": {"hosts": "batch"}},
    }
)
PARTITION = {
    "OverSubscribe": "NO",
    "PreemptMode": "REQUEUE",
    "PriorityTier": "1",
    "State": "UP",
    "DefMemPerCPU": "1024",
}
NODE = {
    "CPUTot": "4",
    "RealMemory": "4096",
    "State": "IDLE",
    "Partitions": "batch,urgent",
    "ThreadsPerCore": "1",
}
CONFIGURATION = {**CONFIG, "PreemptType": "preempt/none", "PreemptMode": "OFF"}
SITE = """return { platform = "native", partitions = { "batch", "urgent" },
  max_vm_cpus = 4, max_vm_memory_mib = 4096, max_total_cpus = 8, max_total_memory_mib = 8192 }"""
FACTS = replace(
    SLURM,
    config=CONFIGURATION,
    partitions={
        "batch": {**PARTITION, "PartitionName": "batch"},
        "urgent": {**PARTITION, "PartitionName": "urgent", "PriorityTier": "5"},
        "plain": {**PARTITION, "PartitionName": "plain", "PreemptMode": "OFF"},
    },
    nodes={"n1": NODE, "n2": NODE, "n3": {**NODE, "Partitions": "plain"}},
    reservations={"rmsplugin_gate": GATE},
    texts={**TEXTS, SITE_FILE: SITE},
)


def judged(facts: SlurmFacts) -> list[Finding]:
    return list(judge_slurm(SETTINGS, facts))


def with_config(**config: str) -> SlurmFacts:
    return replace(FACTS, config={**CONFIGURATION, **config})


def with_partition(name: str, **row: str) -> SlurmFacts:
    return replace(FACTS, partitions={**FACTS.partitions, name: {**FACTS.partitions[name], **row}})


def with_node(name: str, **row: str) -> SlurmFacts:
    return replace(FACTS, nodes={**FACTS.nodes, name: {**FACTS.nodes[name], **row}})


def test_a_site_in_order_has_no_fault() -> None:
    assert faults(judged(FACTS)) == []


def test_neither_fronts_nor_rooms_nor_hooks_on_nodes_are_asked_for() -> None:
    config = {key: value for key, value in CONFIGURATION.items() if key not in ("Prolog", "Epilog")}
    assert faults(judged(replace(FACTS, config=config))) == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (with_node("n2", Partitions="batch,urgent,plain"), "has n2, where jobs are paused"),
        (with_node("n2", Partitions="batch"), "has some nodes in common with batch"),
        (with_config(PreemptMode="SUSPEND,GANG", PreemptType="preempt/none"), "time-slice"),
        (with_partition("batch", OverSubscribe="FORCE:2"), "OverSubscribe=FORCE:2"),
        (with_partition("batch", OverSubscribe="EXCLUSIVE"), "OverSubscribe=EXCLUSIVE"),
        (with_partition("batch", PreemptMode="CANCEL"), "PreemptMode=CANCEL"),
        (with_partition("batch", State="DOWN"), "is DOWN"),
        (with_config(SelectTypeParameters="CR_CORE"), "does not count memory"),
        (with_config(SelectType="select/linear"), "select/linear"),
        (with_config(PrologFlags="(null)"), "no Alloc"),
        (with_config(PreemptType="preempt/partition_prio", PreemptMode="REQUEUE"), "requeues jobs"),
        (with_config(PreemptType="preempt/qos", PreemptMode="REQUEUE"), "requeues jobs"),
        (with_node("n1", ThreadsPerCore="2"), "whole cores"),
        (replace(FACTS, partitions={k: v for k, v in FACTS.partitions.items() if k != "urgent"}), "not in Slurm"),
        (
            replace(FACTS, texts={**FACTS.texts, SITE_FILE: SITE.replace('platform = "native", ', "")}),
            "platform libvirt",
        ),
    ],
)
def test_what_would_start_jobs_on_the_cpus_or_memory_of_paused_ones_is_an_error(facts: SlurmFacts, words: str) -> None:
    fault(judged(facts), Level.ERROR, words)


def test_whole_cores_are_no_fault_where_slurm_gives_cpus_away() -> None:
    facts = replace(
        with_node("n1", ThreadsPerCore="2"), config={**CONFIGURATION, "SelectTypeParameters": "CR_CPU_MEMORY"}
    )
    assert faults(judged(facts)) == []


def test_slurms_own_preemption_harms_nobody_where_all_have_one_tier() -> None:
    facts = with_config(PreemptType="preempt/partition_prio", PreemptMode="REQUEUE")
    assert faults(judged(replace(facts, partitions=with_partition("urgent", PriorityTier="1").partitions))) == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (with_partition("batch", DefMemPerCPU="UNLIMITED"), "no default memory"),
        (with_config(PrologSlurmctld="(null)"), "is not set"),
        (
            replace(FACTS, texts={**FACTS.texts, SITE_FILE: SITE.replace("max_vm_cpus = 4", "max_vm_cpus = 5")}),
            "largest node",
        ),
    ],
)
def test_what_only_costs_time_is_a_warning(facts: SlurmFacts, words: str) -> None:
    fault(judged(facts), Level.WARNING, words)


def test_nothing_about_vms_is_asked_of_the_host() -> None:
    def file(path: str, **values: Any) -> FileFact:
        return FileFact(path, **values)

    host = HostFacts(
        user="slurm",
        settings_file=file("/s", owner="root", mode=0o644),
        state_dir=file("/d", owner="slurm", mode=0o700),
        agent_key=file("/k"),
        known_hosts=file("/h"),
        known_hosts_text="",
        engine="",
        held=(),
        paused="",
        munge="",
    )
    assert faults(judge_host(SETTINGS, host, ("n1", "n2"), 8)) == []
