"""The files by which a replay knows what users asked for their VMs, and which nodes are on one switch."""

from __future__ import annotations

import pytest

from rmsplugin.errors import WorkloadError
from rmsplugin.workload.topology_file import read_switches
from rmsplugin.workload.wishes_file import read_wishes

TOPOLOGY = """\
# two leaves below one switch
SwitchName=s0 Nodes=n[1-2] LinkSpeed=1
switchname=s1 \\
   NODES=n3,m7   # a comment
SwitchName=top Switches=s[0-1]
"""


def test_leaf_switches_are_those_with_nodes_as_in_topology_conf() -> None:
    assert read_switches(TOPOLOGY) == (frozenset({"n1", "n2"}), frozenset({"n3", "m7"}))


def test_blocks_count_as_leaf_switches() -> None:
    text = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2\n"
    assert read_switches(text) == (frozenset({"n1", "n2"}), frozenset({"n3", "n4"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no switch with nodes: write SwitchName=NAME Nodes=LIST"),
        ("SwitchName=top Switches=s[0-1]", "has no switch with nodes"),
        ("SwitchName=s0 Nodes=n1\nSwitchName=s1 Nodes=n[2", "line 2: not a list of nodes"),
        ("SwitchName=s0 Nodes=n[1-2]\n\nSwitchName=s1 Nodes=n2", "line 3: n2 is on s0 already"),
        ("SwitchName=s0 \\\n Node=n1", "line 1: 'Node=n1' is nothing that topology.conf has"),
        ("SwitchName=s0 Nodes=n1\nn2", "line 2: 'n2' is nothing that topology.conf has"),
        ("SwitchName=s0 Nodes=n[1-99999999]", "line 1: "),
    ],
)
def test_a_topology_that_is_wrong_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        read_switches(text)
    assert message in str(refused.value)


def test_wishes_are_those_of_sbatch() -> None:
    text = """{"jobs": {"1": {"switches": 2}, "2": {"spread": true, "exclusive": "user"}, "3": {"exclusive": "yes"},
        "4": {"spread": false}, "5": {}}}"""
    assert read_wishes(text) == {
        1: (frozenset(), 2),
        2: (frozenset({"spread", "exclusive"}), 0),
        3: (frozenset({"alone"}), 0),
        4: (frozenset(), 0),
        5: (frozenset(), 0),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON: "),
        ("[]", "the document: has to be an object"),
        ("{}", "jobs: has to be an object"),
        ('{"jobs": {"a": {}}}', "jobs.a: 'a' is not the number of a job"),
        ('{"jobs": {"1": 1}}', "jobs.1: has to be an object"),
        ('{"jobs": {"1": {"switch": 1}}}', "jobs.1: there is no key 'switch'; a job has switches, spread, exclusive"),
        ('{"jobs": {"1": {"switches": 0}}}', "jobs.1.switches: has to be a whole number from 1 to 999999, not 0"),
        ('{"jobs": {"1": {"switches": true}}}', "jobs.1.switches: has to be a whole number"),
        ('{"jobs": {"1": {"switches": 1.5}}}', "jobs.1.switches: has to be a whole number"),
        ('{"jobs": {"1": {"spread": "yes"}}}', "jobs.1.spread: has to be true or false, not 'yes'"),
        ('{"jobs": {"1": {"spread": 1}}}', "jobs.1.spread: has to be true or false, not 1"),
        ('{"jobs": {"1": {"spread": 0.0}}}', "jobs.1.spread: has to be true or false, not 0.0"),
        ('{"jobs": {"1": {"exclusive": true}}}', 'jobs.1.exclusive: has to be "yes" or "user", not True'),
        ('{"jobs": {"1": {"exclusive": "mcs"}}}', 'jobs.1.exclusive: has to be "yes" or "user", not \'mcs\''),
    ],
)
def test_wishes_that_are_wrong_are_refused_with_their_place(text: str, message: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        read_wishes(text)
    assert message in str(refused.value)
