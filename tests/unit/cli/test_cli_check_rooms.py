"""The rules of ``rmsplugin check`` for fronts and rooms: each fault is found, with a remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.check_facts import (
    FRONT,
    HOLD,
    NODE,
    SLURM,
    TEXTS,
    fault,
    faults,
    settings,
    with_config,
    with_nodes,
    with_partition,
)

from rmsplugin.cli.check.facts import Association
from rmsplugin.cli.check.slurm import judge_slurm
from rmsplugin.finding import Finding, Level

ELASTIC = settings()
DEDICATED = {**NODE, "Partitions": "vmhosts"}


def dedicated() -> dict[str, dict[str, str]]:
    return {"front1": FRONT, "n1": DEDICATED, "n2": DEDICATED}


# -- fronts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"State": "DOWN"}, Level.ERROR, "is DOWN"),
        ({"PreemptMode": "GANG,SUSPEND"}, Level.ERROR, "cannot honour"),
        ({"PreemptMode": "CANCEL"}, Level.ERROR, "cannot honour"),
        ({"PreemptMode": "SUSPEND"}, Level.ERROR, "Slurm itself would suspend wrappers"),
        ({"OverSubscribe": "EXCLUSIVE"}, Level.ERROR, "one vjob at a time"),
        ({"OverSubscribe": "FORCE:64"}, Level.WARNING, "first version"),
    ],
)
def test_each_fault_of_a_vjob_partition_is_found(change: dict[str, str], level: Level, words: str) -> None:
    assert fault(judge_slurm(ELASTIC, with_partition("vjob", **change)), level, words).subject == "partition vjob"


@pytest.mark.parametrize(("mode", "words"), [("OFF", "are not suspended"), ("REQUEUE", "context switches are on")])
def test_what_the_preempt_mode_means_is_said(mode: str, words: str) -> None:
    found = list(judge_slurm(ELASTIC, with_partition("vjob", PreemptMode=mode)))
    assert faults(found) == [] and any(words in finding.what for finding in found)


def test_suspend_goes_with_preempt_none_on_dedicated_hosts() -> None:
    facts = replace(with_partition("vjob", PreemptMode="SUSPEND"), nodes=dedicated())
    facts = replace(facts, config={**facts.config, "PreemptType": "preempt/none", "PreemptMode": "OFF"})
    assert faults(judge_slurm(HOLD, facts)) == []


def test_a_vjob_partition_that_slurm_does_not_have_is_an_error() -> None:
    partitions = {name: row for name, row in SLURM.partitions.items() if name != "vjob"}
    facts = replace(SLURM, partitions=partitions, nodes={"n1": NODE})
    assert "Nodes=front1" in fault(judge_slurm(ELASTIC, facts), Level.ERROR, "not in Slurm").remedy


def test_a_vjob_partition_without_nodes_is_an_error() -> None:
    fault(judge_slurm(ELASTIC, replace(SLURM, nodes={"n1": NODE, "n2": NODE})), Level.ERROR, "has no nodes")


def test_a_node_that_is_front_and_vm_host_is_an_error() -> None:
    found = fault(judge_slurm(ELASTIC, with_nodes(n1={"Partitions": "vjob,vmhosts"})), Level.ERROR, "has n1")
    assert found.subject == "partition vjob" and "service host" in found.remedy


def test_a_front_that_other_users_may_use_is_a_warning() -> None:
    facts = replace(SLURM, nodes={**SLURM.nodes, "front1": {**FRONT, "Partitions": "debug,vjob"}})
    assert fault(judge_slurm(ELASTIC, facts), Level.WARNING, "only numbers").subject == "partition debug"


@pytest.mark.parametrize(
    ("fronts", "level"),
    [
        ({"front1": "DOWN"}, Level.ERROR),
        ({"front1": "IDLE+DRAIN"}, Level.ERROR),
        ({"front1": "DOWN+NOT_RESPONDING"}, Level.ERROR),
        ({"front1": "DOWN", "front2": "IDLE"}, Level.WARNING),
    ],
)
def test_fronts_that_cannot_run_wrappers_are_found(fronts: dict[str, str], level: Level) -> None:
    nodes = {name: {**FRONT, "State": state, "Reason": "broken"} for name, state in fronts.items()}
    found = fault(judge_slurm(ELASTIC, replace(SLURM, nodes={**SLURM.nodes, **nodes})), level, "front front1")
    assert "broken" in found.what


def test_a_front_that_is_inval_is_mended_by_config_overrides() -> None:
    front = {**FRONT, "State": "IDLE+INVALID_REG", "Reason": "Low RealMemory (reported:4096 < 100.00% of configured)"}
    facts = replace(SLURM, nodes={**SLURM.nodes, "front1": front})
    found = fault(judge_slurm(ELASTIC, facts), Level.ERROR, "Low RealMemory")
    assert "config_overrides" in found.remedy and "State=RESUME" in found.remedy


@pytest.mark.parametrize(
    ("front", "words", "remedy"),
    [
        ({"CPUTot": "7"}, "have 7 CPUs in Slurm, its VM hosts 8", "CPUs=8"),
        ({"RealMemory": "10000"}, "1808 MiB for vjobs that sleep", "RealMemory=16384"),
        ({"RealMemory": "8000"}, "0 MiB for vjobs that sleep", "RealMemory=16384"),
    ],
)
def test_fronts_too_small_for_the_vm_hosts_are_a_warning(front: dict[str, str], words: str, remedy: str) -> None:
    facts = replace(SLURM, nodes={**SLURM.nodes, "front1": {**FRONT, **front}})
    assert remedy in fault(judge_slurm(ELASTIC, facts), Level.WARNING, words).remedy


def test_fronts_that_slurm_would_call_invalid_are_a_warning() -> None:
    facts = with_config(SlurmctldParameters="idle_on_node_suspend")
    fault(judge_slurm(ELASTIC, facts), Level.WARNING, "no node_reg_mem_percent")
    overrides = {**facts.config, "SlurmdParameters": "config_overrides"}
    assert faults(judge_slurm(ELASTIC, replace(facts, config=overrides))) == []


# -- hosts partitions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"State": "DRAIN"}, Level.ERROR, "is DRAIN"),
        ({"Hidden": "NO"}, Level.WARNING, "is not hidden"),
        ({"AllowGroups": "ALL"}, Level.ERROR, "any user"),
        ({"AllowGroups": "staff"}, Level.ERROR, "which slurm is not in"),
        ({"AllowGroups": "slurm,operators"}, Level.WARNING, "with bob in it"),
        ({"OverSubscribe": "NO"}, Level.ERROR, "beside VMs"),
        ({"MaxTime": "12:00:00"}, Level.ERROR, "less than room_time_limit"),
        ({"PreemptMode": "REQUEUE"}, Level.ERROR, "which they do not"),
        ({"PreemptMode": "OFF"}, Level.ERROR, "which they do not"),
        ({"GraceTime": "46800"}, Level.ERROR, "VMs would leave as soon as they have come"),
        ({"GraceTime": "20"}, Level.WARNING, "GraceTime=20 s; to save a full node of 4096 MiB takes 51 s"),
    ],
)
def test_each_fault_of_a_hosts_partition_is_found(change: dict[str, str], level: Level, words: str) -> None:
    facts = replace(with_partition("vmhosts", **change), groups={"slurm": ("slurm",), "operators": ("bob",)})
    assert fault(judge_slurm(ELASTIC, facts), level, words).subject == "partition vmhosts"


def test_a_hosts_partition_that_slurm_does_not_have_is_an_error() -> None:
    partitions = {name: row for name, row in SLURM.partitions.items() if name != "vmhosts"}
    facts = replace(SLURM, partitions=partitions, nodes={"front1": FRONT})
    found = fault(judge_slurm(ELASTIC, facts), Level.ERROR, "not in Slurm")
    assert "PartitionName=vmhosts" in found.remedy and "PreemptMode=CANCEL" in found.remedy


def test_a_hosts_partition_without_nodes_is_an_error() -> None:
    fault(judge_slurm(ELASTIC, replace(SLURM, nodes={"front1": FRONT})), Level.ERROR, "there is no VM host")


def test_a_vjob_partition_that_is_its_own_hosts_is_an_error() -> None:
    given = settings(partition={"vjob": {"hosts": "vjob"}}, hosts=None)
    found = faults(judge_slurm(given, SLURM))
    assert any("its own hosts" in finding.what and "second partition" in finding.remedy for finding in found)


def test_a_node_in_two_hosts_partitions_is_an_error() -> None:
    given = settings(
        slurm={"partitions": ["vjob", "big"]},
        partition={"vjob": {"hosts": "vmhosts"}, "big": {"hosts": "bighosts"}},
    )
    facts = replace(
        with_nodes(n1={"Partitions": "vmhosts,bighosts,plain"}),
        partitions={**SLURM.partitions, "big": SLURM.partitions["vjob"], "bighosts": SLURM.partitions["vmhosts"]},
    )
    facts = replace(facts, nodes={**facts.nodes, "front1": {**FRONT, "Partitions": "vjob,big"}})
    assert any(found.subject == "node n1" and "vmhosts" in found.what for found in faults(judge_slurm(given, facts)))


# -- native jobs on the same nodes ---------------------------------------------------------------------------------


def test_dedicated_hosts_need_no_preemption() -> None:
    facts = replace(with_config(PreemptType="preempt/none", PreemptMode="OFF"), nodes=dedicated())
    assert faults(judge_slurm(HOLD, facts)) == []


def test_shared_nodes_without_preemption_by_tier_are_an_error() -> None:
    facts = with_config(PreemptType="preempt/none", PreemptMode="OFF")
    found = fault(judge_slurm(ELASTIC, facts), Level.ERROR, "jobs of plain wait for its rooms")
    assert found.subject == "PreemptType" and "preempt/partition_prio" in found.remedy


@pytest.mark.parametrize("tier", ["1", "0"])
def test_a_native_partition_of_no_higher_tier_is_an_error(tier: str) -> None:
    found = fault(
        judge_slurm(ELASTIC, with_partition("plain", PriorityTier=tier)), Level.ERROR, "never take a node back"
    )
    assert found.subject == "partition plain" and "PriorityTier=10" in found.remedy


def test_rooms_that_are_held_on_shared_nodes_are_a_warning_when_they_give_way() -> None:
    found = fault(judge_slurm(HOLD, SLURM), Level.WARNING, "rooms = hold, but plain has n1, n2")
    assert "elastic" in found.remedy


def test_rooms_that_are_held_on_shared_nodes_and_never_give_way_are_an_error() -> None:
    found = faults(judge_slurm(HOLD, with_partition("vmhosts", PreemptMode="OFF")))
    assert {finding.level for finding in found} == {Level.ERROR, Level.WARNING}


@pytest.mark.parametrize("epilog", ["(null)", "/other/epilog"])
def test_shared_nodes_need_the_epilog(epilog: str) -> None:
    shared = replace(with_config(Epilog=epilog), texts={**TEXTS, "/other/epilog": "#!/bin/sh"})
    assert fault(judge_slurm(ELASTIC, shared), Level.ERROR, "no").subject == "Epilog"
    fault(judge_slurm(HOLD, replace(shared, nodes=dedicated())), Level.WARNING, "no")


def test_the_grace_time_is_judged_by_the_settings_while_nothing_is_measured() -> None:
    facts = replace(SLURM, saved_bytes_per_s=0.0)
    assert "takes 170 s (by suspend_s" in said_of_grace(list(judge_slurm(ELASTIC, facts)))
    slower = settings(durations={"suspend_s_per_mib": 0.1})
    fault(judge_slurm(slower, facts), Level.WARNING, "GraceTime=300 s; to save a full node of 4096 MiB takes 420 s")


def said_of_grace(findings: list[Finding]) -> str:
    (found,) = (finding.what for finding in findings if "GraceTime" in finding.what)
    return found


# -- accounting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("associations", "level", "words"),
    [
        ((), Level.ERROR, "no association of slurm"),
        ("slurmdbd does not answer", Level.WARNING, "slurmdbd does not answer"),
        ((Association(max_jobs=1),), Level.WARNING, "may have 1 jobs, and there are 2 VM hosts"),
        ((Association(max_submit=1),), Level.WARNING, "may have 1 jobs"),
    ],
)
def test_an_account_that_may_have_no_rooms_is_found(
    associations: tuple[Association, ...] | str, level: Level, words: str
) -> None:
    fault(judge_slurm(ELASTIC, replace(SLURM, associations=associations)), level, words)


def test_an_accounting_that_enforces_nothing_needs_no_association() -> None:
    facts = replace(with_config(AccountingStorageEnforce="none"), associations=())
    assert faults(judge_slurm(ELASTIC, facts)) == []


@pytest.mark.parametrize("kind", ["accounting_storage/none", "(null)"])
def test_without_accounting_nothing_proves_that_a_forgotten_job_has_ended(kind: str) -> None:
    facts = with_config(AccountingStorageType=kind, AccountingStorageEnforce="none")
    fault(judge_slurm(ELASTIC, facts), Level.WARNING, "until an operator confirms it")


@pytest.mark.parametrize(
    ("exempt", "said"), [("00:00:00", False), ("NONE", False), ("00:05:00", True), ("1-00:00:00", True)]
)
def test_how_long_a_fresh_room_keeps_a_native_job_waiting_is_said(exempt: str, said: bool) -> None:
    found = [
        each.what for each in judge_slurm(ELASTIC, with_config(PreemptExemptTime=exempt)) if "give way" in each.what
    ]
    assert ["PreemptExemptTime" in what for what in found] == [said]
    seconds = {"00:05:00": "300 s", "1-00:00:00": "86400 s"}.get(exempt, "give way")
    assert seconds in found[0]
