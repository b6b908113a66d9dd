"""What ``rmsplugin check`` says of the site's placement rules: whom each selects, and which cannot be kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit import check_facts

from rmsplugin.cli.check.facts import SlurmFacts
from rmsplugin.cli.check.probe import parse_queue
from rmsplugin.cli.check.rules import judge_rules
from rmsplugin.finding import Finding, Level

QUEUE = parse_queue(
    "12|chem|vjob|ann|matlab:1|db-1\n13|bio|vjob|bob|(null)|web|x\n14|chem|debug|ann|(null)|db-2\n15_3|chem|vjob|ann|(null)|db\n"
)


def facts(**changes: Any) -> SlurmFacts:
    row = {"Partitions": "vmhosts", "CPUTot": "8", "RealMemory": "4096"}
    found = SlurmFacts(nodes={"n1": row, "n2": row}, licenses={"matlab": 4}, queue=QUEUE)
    return replace(found, **changes)


def judged(found: SlurmFacts | None = None, **keys: Any) -> Finding:
    settings = check_facts.settings(rule={"db": keys})
    [finding] = judge_rules(settings, found or facts())
    assert finding.subject == "rule db"
    return finding


def test_each_rule_is_told_with_those_that_it_selects() -> None:
    found = judged(kind="spread", per="vjob", accounts=["chem"], discrete=True)
    assert found.level is Level.OK
    assert found.what == "spread per vjob in the end; selects 2 of 3 jobs in the queue: 12, 15_3"
    assert judged(kind="capacity", most=2, licenses=["matlab"]).what == (
        "capacity at most 2; selects 1 of 3 jobs in the queue: 12"
    )
    assert judged(kind="ban", nodes="n1", users=["zoe"]).what == "ban on n1; selects 0 of 3 jobs in the queue"
    assert judged(kind="online", most=1).what == "online at most 1"


def test_a_queue_that_cannot_be_read_is_said() -> None:
    found = judged(facts(queue="squeue did not answer"), kind="spread")
    assert found.what == "spread; whom it selects is not known: squeue did not answer"


@pytest.mark.parametrize(
    ("keys", "level", "what"),
    [
        ({"kind": "fence", "nodes": "m[1-2]"}, Level.ERROR, "none of its nodes is a VM host: m1, m2"),
        ({"kind": "fence", "nodes": "n1,m1"}, Level.WARNING, "names nodes that are no VM hosts: m1"),
        (
            {"kind": "ban", "nodes": "n[1-2]"},
            Level.WARNING,
            "leaves its vjobs of partition vjob no VM host: they wait for ever",
        ),
        (
            {"kind": "reserve", "nodes": "n1", "cpus": 9},
            Level.ERROR,
            "keeps 9 CPUs and 0 MiB of n1, which has 8 and 4096",
        ),
        (
            {"kind": "capacity", "most": 1, "licenses": ["ansys"]},
            Level.WARNING,
            "Slurm has no licence ansys: nobody can ask for it",
        ),
    ],
)
def test_a_rule_that_cannot_be_kept_is_said(keys: dict[str, Any], level: Level, what: str) -> None:
    found = judged(**keys)
    assert (found.level, found.what) == (level, what)
    assert found.remedy


def test_a_rule_that_engines_of_groups_cannot_keep_is_told_where_there_may_be_managers() -> None:
    cluster = {"coordination": "zookeeper", "servers": ["c1:2181"], "shared_dir": "/shared"}
    groups = {"left": {"hosts": "n1"}, "right": {"hosts": "n2"}}

    def told(**keys: Any) -> list[str]:
        settings = check_facts.settings(rule={"db": keys}, cluster=cluster, group=groups)
        return [found.what for found in judge_rules(settings, facts()) if found.level is Level.WARNING]

    [what] = told(kind="capacity", nodes="n[1-2]", most=1)
    assert what.startswith("managers do not start with it: capacity counts VMs of several groups together")
    assert told(kind="capacity", nodes="n1", most=1) == []
    settings = check_facts.settings(rule={"db": {"kind": "capacity", "most": 1}})
    assert [found.level for found in judge_rules(settings, facts())] == [Level.OK]
