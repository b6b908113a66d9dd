"""``rmsplugin check`` on real Slurm: a cluster in order is in order, and each slip in slurm.conf is found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from e2e.cluster import Cluster
from e2e.slurm_conf import edited

pytestmark = pytest.mark.e2e

Finding = dict[str, str]


def findings(cluster: Cluster) -> list[Finding]:
    """What the check says, but for the ways between nodes."""
    result = cluster.plugin("check", "--quick", "--json")
    found: list[Finding] = json.loads(result.out)["findings"]
    assert result.code == (1 if any(each["level"] == "error" for each in found) else 0), result.err
    return found


def errors(found: list[Finding]) -> list[tuple[str, str]]:
    return [(each["subject"], each["what"]) for each in found if each["level"] == "error"]


@pytest.fixture
def reconfigure(cluster: Cluster) -> Iterator[Callable[[str, str], None]]:
    """Put one text in another's place in slurm.conf, and have Slurm read it; undone after the test."""
    with edited(cluster) as change:
        yield change
    cluster.wait("a site in order", lambda: not errors(findings(cluster)), 60, lambda: errors(findings(cluster)))


def test_a_cluster_in_order_has_no_error(cluster: Cluster) -> None:
    found = findings(cluster)
    assert errors(found) == []
    said = {each["subject"]: each["what"] for each in found if each["level"] == "ok"}
    assert "keeps the licence" in said["reservation rmsplugin_gate"]
    assert said["accounting"] == "slurm may submit rooms"
    assert all(each["remedy"] for each in found if each["level"] != "ok")


@pytest.mark.parametrize(
    ("old", "new", "subject", "words"),
    [
        ("PriorityTier=10 PreemptMode=OFF", "PriorityTier=1 PreemptMode=OFF", "partition plain", "never take a node"),
        ("Licenses=vjobgate:1", "Licenses=vjobgate:3", "reservation rmsplugin_gate", "holds 1 of the 3"),
        ("AllowGroups=slurm OverSubscribe", "OverSubscribe", "partition vmhosts", "any user can take"),
        ("PartitionName=vjob Nodes=front1", "PartitionName=vjob Nodes=front1,n1", "partition vjob", "has n1, which"),
        ("PreemptMode=CANCEL", "PreemptMode=OFF", "partition vmhosts", "wait for its rooms to end"),
        ("Epilog=/etc/rmsplugin/hooks/epilog\n", "", "Epilog", "is not set"),
    ],
    ids=["tier", "licences", "groups", "front-is-host", "no-preemption", "no-epilog"],
)
def test_a_slip_in_slurm_conf_is_an_error_with_a_remedy(
    cluster: Cluster, reconfigure: Callable[[str, str], None], old: str, new: str, subject: str, words: str
) -> None:
    reconfigure(old, new)
    # slurmctld answers while it still reads the file again.
    found = cluster.wait("an error", lambda: errors(findings(cluster)), 30, lambda: findings(cluster))
    assert [where for where, _ in found] == [subject], found
    assert words in found[0][1]
