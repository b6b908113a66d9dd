"""The rules of ``rmsplugin check`` for slurm.conf, the Lua module and the gate: each fault is found, with a remedy."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from unit.check_facts import GATE, SLURM, fault, faults, settings, with_config, with_text

from rmsplugin.cli.check.facts import SITE_FILE, SlurmFacts
from rmsplugin.cli.check.probe import parse_config, parse_rows, saved_bytes_per_s
from rmsplugin.cli.check.slurm import hook_paths, judge_slurm
from rmsplugin.cli.check.submission import SiteFile, read_site_file
from rmsplugin.finding import Level


@pytest.mark.parametrize(
    ("config", "level", "words"),
    [
        ({"SLURM_VERSION": "21.08.5"}, Level.ERROR, "older than 22.05"),
        ({"SLURM_VERSION": ""}, Level.WARNING, "cannot be told"),
        ({"SlurmctldHost[0]": "other(10.0.0.2)"}, Level.WARNING, "not the controller"),
        ({"SlurmUser": "root(0)"}, Level.ERROR, "engine.user is slurm"),
        ({"JobSubmitPlugins": "(null)"}, Level.ERROR, "does not name lua"),
        ({"SLURM_CONF": "/opt/slurm.conf"}, Level.ERROR, "cannot be read"),
        ({"PrologSlurmctld": "(null)"}, Level.ERROR, "is not set"),
        ({"PrologSlurmctld": "/nowhere"}, Level.ERROR, "cannot be read"),
        ({"EpilogSlurmctld": "(null)"}, Level.WARNING, "is not set"),
        ({"PrologFlags": "(null)"}, Level.WARNING, "has no Alloc"),
        ({"SelectType": "select/linear"}, Level.ERROR, "one vjob at a time"),
        ({"SelectTypeParameters": "CR_CORE"}, Level.WARNING, "does not count memory"),
        ({"PreemptMode": "GANG,REQUEUE"}, Level.ERROR, "gang scheduling"),
        ({"MCSPlugin": "mcs/user", "MCSParameters": "enforced,select"}, Level.WARNING, "wrappers of one label"),
        ({"MCSPlugin": "mcs/group", "MCSParameters": "enforced,select,privatedata:a|b"}, Level.WARNING, "has select"),
        ({"KillWait": "2 sec"}, Level.WARNING, "too short"),
        ({"PrologEpilogTimeout": "60"}, Level.WARNING, "not above slurm.prolog_wait_s"),
    ],
)
def test_each_fault_of_slurm_conf_is_found(config: dict[str, str], level: Level, words: str) -> None:
    fault(judge_slurm(settings(), with_config(**config)), level, words)


def test_prolog_flags_that_imply_alloc_are_in_order() -> None:
    assert faults(judge_slurm(settings(), with_config(PrologFlags="Contain"))) == []


@pytest.mark.parametrize(
    "config",
    [
        {"MCSPlugin": "mcs/none", "MCSParameters": "select"},
        {"MCSPlugin": "mcs/account", "MCSParameters": "(null)"},
        {"MCSPlugin": "mcs/group", "MCSParameters": "ondemand,ondemandselect,noprivatedata:select|b"},
    ],
)
def test_labels_that_close_no_front_are_in_order(config: dict[str, str]) -> None:
    assert faults(judge_slurm(settings(), with_config(**config))) == []


def test_slurm_out_of_reach_is_the_only_fault() -> None:
    fault(judge_slurm(settings(), SlurmFacts(unreachable="scontrol failed")), Level.ERROR, "scontrol failed")


# -- hosts of slurmctld --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trusted", ["backup", "backup.site", "10.0.0.2", "10.0.0.0/24"])
def test_backup_controllers_that_the_engine_trusts_are_in_order(trusted: str) -> None:
    facts = with_config(**{"SlurmctldHost[1]": "backup(10.0.0.2)"})
    assert faults(judge_slurm(settings(engine={"trusted_hosts": [trusted]}), facts)) == []


@pytest.mark.parametrize("trusted", [[], ["head"], ["10.0.0.1"], ["10.0.1.0/24"], ["back"]])
def test_a_backup_controller_that_the_engine_does_not_trust_is_found(trusted: list[str]) -> None:
    facts = with_config(**{"SlurmctldHost[1]": "backup(10.0.0.2)"})
    fault(judge_slurm(settings(engine={"trusted_hosts": trusted}), facts), Level.WARNING, "backup is not in engine.tr")


def test_a_backup_controller_that_cannot_reach_the_engine_is_found() -> None:
    facts = with_config(**{"SlurmctldHost[1]": "backup(10.0.0.2)"})
    fault(judge_slurm(settings(engine={"url": ""}), facts), Level.WARNING, "backup cannot reach the engine")


@pytest.mark.parametrize("row", [{"NodeHostName": "head"}, {"NodeHostName": "head.site"}])
def test_a_front_where_slurmctld_runs_is_found(row: dict[str, str]) -> None:
    facts = replace(SLURM, nodes={**SLURM.nodes, "front1": {**SLURM.nodes["front1"], **row}})
    fault(judge_slurm(settings(), facts), Level.WARNING, "is a host of slurmctld")


# -- submission ----------------------------------------------------------------------------------------------------

LARGEST = "max_vm_cpus = 4, max_vm_memory_mib = 3710"


@pytest.mark.parametrize(
    ("path", "text", "level", "words"),
    [
        ("/etc/slurm/job_submit.lua", "function slurm_job_submit() end", Level.ERROR, "does not load rmsplugin"),
        ("/etc/slurm/rmsplugin.lua", None, Level.ERROR, "is not there"),
        ("/usr/share/rmsplugin/rmsplugin_options.lua", None, Level.ERROR, "is not there"),
        ("/etc/slurm/rmsplugin.lua", "job_desc.priority = 0", Level.ERROR, "earlier release"),
        ("/hooks/prolog", "#!/bin/sh\nexit 0\n", Level.WARNING, "does not run rmsplugin-hook"),
        ("/hooks/prolog_slurmctld", "#!/bin/sh\nexit 0\n", Level.ERROR, "does not run rmsplugin-hook"),
    ],
)
def test_each_fault_of_a_file_of_slurms_is_found(path: str, text: str | None, level: Level, words: str) -> None:
    fault(judge_slurm(settings(), with_text(path, text)), level, words)


@pytest.mark.parametrize(
    ("text", "level", "words"),
    [
        ('partitions = { "batch" }', Level.ERROR, "wraps the jobs of batch"),
        ("partitions = {}", Level.ERROR, "wraps the jobs of no partition"),
        ('gate = "other"', Level.ERROR, "by the licence other, but slurm.gate is vjobgate"),
        ('images = { "default", "big" }', Level.ERROR, "image big"),
        ("images = { }", Level.WARNING, "does not offer the image default"),
        ('image_memory_mib = { default = 96, ["debian-12"] = 512 }', Level.WARNING, "debian-12, which is none"),
        ("slurm_memory_mib = 64", Level.ERROR, "all vjobs are refused"),
        ("max_vm_cpus = 5", Level.WARNING, "more than the 4 that the largest VM host has"),
        ("max_vm_memory_mib = 4096", Level.WARNING, "more than the 3710 that the largest VM host has for a VM besides"),
        ("max_total_cpus = 2000", Level.WARNING, "more than the 1024 that the largest front has"),
        ("max_total_memory_mib = 5000000", Level.WARNING, "more than the 4194304 that the largest front has"),
    ],
)
def test_each_fault_of_the_site_file_is_found(text: str, level: Level, words: str) -> None:
    others = [part for part in ('partitions = { "vjob" }', *LARGEST.split(", ")) if part.split()[0] != text.split()[0]]
    facts = with_text(SITE_FILE, f"return {{ {', '.join([*others, text])} }}")
    fault(judge_slurm(settings(), facts), level, words)


@pytest.mark.parametrize(
    ("slurms", "sites", "words"),
    [
        (
            "defer,max_script_size=4195328",
            "",
            "takes scripts of 4194304 bytes with the plugin's line, but Slurm takes 4195328",
        ),
        ("max_script_size=9000,defer", "max_script_size = 8000,", "takes scripts of 8000 bytes"),
        ("defer", "max_script_size = 8000,", "but Slurm takes 4194304"),
        ("max_script_size=9000", "max_script_size = 9000,", None),
        ("(null)", "", None),
    ],
)
def test_how_long_scripts_may_be_is_the_same_in_both_files(slurms: str, sites: str, words: str | None) -> None:
    text = f'return {{ partitions = {{ "vjob" }}, {sites} {LARGEST} }}'
    facts = replace(with_text(SITE_FILE, text), config=with_config(SchedulerParameters=slurms).config)
    if words is None:
        assert faults(judge_slurm(settings(), facts)) == []
    else:
        fault(judge_slurm(settings(), facts), Level.WARNING, words)


def test_sizes_that_the_site_file_does_not_bound_are_told() -> None:
    found = faults(judge_slurm(settings(), with_text(SITE_FILE, 'return { partitions = { "vjob" } }')))
    assert [finding.remedy.split(" in ")[0] for finding in found] == ["max_vm_cpus = 4", "max_vm_memory_mib = 3710"]


def test_an_image_that_takes_its_memory_from_the_jobs_is_told() -> None:
    (found,) = faults(
        judge_slurm(
            settings(image={"default": {"kind": "kernel", "kernel": "/k", "initrd": "/i"}}), with_text("/none", None)
        )
    )
    assert (found.level, found.subject) == (Level.WARNING, "image.default")
    assert "has no overhead_mib" in found.what and "memory-short" in found.remedy


def test_containers_take_no_memory_for_a_kernel_and_the_site_file_has_to_name_their_platform() -> None:
    containers = {"default": {"kind": "container", "reference": "localhost/guest:1"}}
    given = settings(hypervisor={"platform": "podman"}, image=containers)
    (found,) = faults(judge_slurm(given, with_text("/none", None)))
    assert "for platform libvirt, but hypervisor.platform is podman" in found.what


def test_a_site_file_is_read_without_its_comments() -> None:
    text = """return {
      -- partitions = { "old" }, gate = "old",
      partitions = { "vjob", 'big' }, -- two
      images = { "default", "debian-12" }, image_memory_mib = { default = 96, ["debian-12"] = 512 },
      gate = "gate2", max_vm_cpus = 8,
    }"""
    assert read_site_file(text) == SiteFile(
        ("vjob", "big"), "gate2", ("default", "debian-12"), ("default", "debian-12"), {"max_vm_cpus": 8}
    )


def test_what_the_site_file_computes_is_not_judged() -> None:
    text = f"return {{ partitions = names, gate = name, images = all(), {LARGEST} }}"
    assert faults(judge_slurm(settings(), with_text(SITE_FILE, text))) == []


def test_without_a_site_file_only_the_sizes_are_missing() -> None:
    found = faults(judge_slurm(settings(), with_text(SITE_FILE, None)))
    assert all("has no max_vm" in finding.what for finding in found) and len(found) == 2


# -- gate ----------------------------------------------------------------------------------------------------------


def from_now(days: float) -> str:
    return (datetime.fromtimestamp(SLURM.now) + timedelta(days=days)).isoformat(timespec="seconds")


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"Licenses": "other:1"}, Level.ERROR, "holds 0 of the 1"),
        ({"Users": "slurm,alice"}, Level.ERROR, "is for alice"),
        ({"Users": "(null)"}, Level.ERROR, "is for nobody"),
        ({"Accounts": "physics"}, Level.ERROR, "is for physics"),
        ({"StartTime": from_now(1)}, Level.ERROR, "begins only"),
        ({"EndTime": from_now(20.4)}, Level.WARNING, "ends in 20 days"),
        ({"EndTime": "Unknown"}, Level.WARNING, "cannot be read"),
    ],
)
def test_each_fault_of_the_reservation_is_found(change: dict[str, str], level: Level, words: str) -> None:
    facts = replace(SLURM, reservations={"rmsplugin_gate": {**GATE, **change}})
    fault(judge_slurm(settings(), facts), level, words)


def test_a_gate_without_a_reservation_is_an_error() -> None:
    fault(judge_slurm(settings(), replace(SLURM, reservations={})), Level.ERROR, "is not there")


def test_a_licence_that_slurm_does_not_have_is_an_error() -> None:
    found = fault(judge_slurm(settings(), replace(SLURM, licenses={"matlab": 5})), Level.ERROR, "has no vjobgate")
    assert "Licenses=vjobgate:1" in found.remedy


def test_licences_beside_those_reserved_open_the_gate() -> None:
    fault(judge_slurm(settings(), replace(SLURM, licenses={"vjobgate": 5})), Level.ERROR, "holds 1 of the 5")


def test_the_gate_in_another_reservation_is_an_error() -> None:
    other = {"ReservationName": "course", "Licenses": "matlab:2,vjobgate", "Users": "alice"}
    facts = replace(SLURM, reservations={"rmsplugin_gate": GATE, "course": other}, licenses={"vjobgate": 1})
    assert fault(judge_slurm(settings(), facts), Level.ERROR, "has vjobgate").subject == "reservation course"


# -- facts ---------------------------------------------------------------------------------------------------------


def test_slurms_listings_are_read() -> None:
    text = "Configuration data as of 2026\nKillWait                = 30 sec\nEmpty =\n\nCgroup:\nKillWait = 1\n"
    assert parse_config(text) == {"KillWait": "30 sec", "Empty": ""}
    assert hook_paths({"Prolog[0]": "/a", "Prolog[1]": "/b", "PrologFlags": "Alloc"}, "Prolog") == ["/a", "/b"]
    assert hook_paths({"Prolog": "(null)"}, "Prolog") == []
    text = "PartitionName=a Nodes=n[1-2] TRES=cpu=4,mem=8G PreemptMode=SUSPEND\nPartitionName=b Nodes=(null)\n"
    rows = parse_rows(text, "PartitionName")
    assert rows["a"] == {"PartitionName": "a", "Nodes": "n[1-2]", "TRES": "cpu=4,mem=8G", "PreemptMode": "SUSPEND"}
    assert rows["b"]["Nodes"] == "(null)"
    text = "NodeName=f OS=Linux 6.1 #1 SMP  RealMemory=10 AllocTRES= Reason=Low RealMemory [slurm@2026] Comment=a\n"
    row = parse_rows(text, "NodeName")["f"]
    assert (row["OS"], row["RealMemory"], row["AllocTRES"]) == ("Linux 6.1 #1 SMP", "10", "")
    assert (row["Reason"], row["Comment"]) == ("Low RealMemory [slurm@2026]", "a")
    assert parse_rows("No reservations in the system\n", "ReservationName") == {}


def test_how_fast_vms_are_saved_is_measured_on_the_last_suspends(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    assert saved_bytes_per_s(path) == 0.0
    database = sqlite3.connect(path)
    database.execute("create table actions (id integer primary key, kind, state, bytes_total, created, ended)")
    rows = [("suspend", "done", 1, 0.0, 1000.0)]  # older than those that count
    rows += [("suspend", "done", 400, 10.0, 14.0), ("suspend", "done", 100, 20.0, 21.0)] * 25
    rows += [("suspend", "failed", 1, 0.0, 9.0), ("resume", "done", 1, 0.0, 9.0), ("suspend", "running", 5, 9.0, 0.0)]
    database.executemany("insert into actions (kind, state, bytes_total, created, ended) values (?, ?, ?, ?, ?)", rows)
    database.commit()
    database.close()
    assert saved_bytes_per_s(path) == 100.0
    path.write_bytes(b"no ledger" * 1000)
    assert saved_bytes_per_s(path) == 0.0
