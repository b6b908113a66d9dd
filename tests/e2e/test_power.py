"""Nodes lose their power and get it back: Slurm, slurmd, libvirtd and guests are real, and so are the BMCs' ipmi_sim.

The tests follow each other on one cluster: a node that a test switches on is one that the next one finds.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from e2e.cluster import Cluster
from e2e.conftest import minicluster, share_templates
from e2e.engine_settings import configured
from e2e.rooms import count, finish, host_of, ledger, wait_number
from minicluster_lib import hosts
from minicluster_lib.bmcs import PASSWORD_FILE, USER

from rmsplugin.engine.ledger.ledger_file import read_only

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

#: Its script says who it is when it begins, and when it ends.
KIND = ("-c", "2", "--mem=96")
SCRIPT = "#!/bin/sh\necho begins $SLURM_JOB_ID\nsleep ${1:-2}\necho ends $SLURM_JOB_ID\n"


class Powered(Cluster):
    """A minicluster whose nodes have BMCs."""

    def ipmitool(self, node: str, *words: str) -> str:
        """What an operator does at a BMC, and sees there; asked beside the product's own driver."""
        address = self._layout.host(node).bmc_address
        tool = ("ipmitool", "-I", "lanplus", "-C", "3", "-H", address, "-U", USER, "-f", PASSWORD_FILE)
        return self.ok(*tool, "chassis", "power", *words, user="slurm").strip()

    def have_fault(self, node: str, fault: str) -> None:
        """Have the node fail when it is switched; empty: no more."""
        hosts.request(self._layout.host(node), op="power", fault=fault)

    def runs(self, node: str) -> list[str]:
        """The node's daemons that run."""
        daemons = self.status()["hosts"][node]["daemons"]
        return [name for name, daemon in daemons.items() if daemon["pid"]]

    def slurm(self, node: str) -> str:
        """The node's state in Slurm."""
        found = re.search(r"State=(\S+)", self.ok("scontrol", "-o", "show", "node", node))
        assert found
        return found[1]

    def switch(self, node: str) -> tuple[str, str]:
        """State, and last error, of a node as the engine has it, also while it is down; empty: it is simply on."""
        with closing(read_only(self.ledger(), busy_s=5)) as db:
            sql = "select state, error from power_switches where node = ?"
            return db.execute(sql, [node]).fetchone() or ("", "")

    def power_events(self, node: str) -> list[str]:
        """What the engine did with the node's power, oldest first."""
        with closing(read_only(self.ledger(), busy_s=5)) as db:
            rows = db.execute("select message from events where node = ? and kind like 'power-%' order by id", [node])
            return [message for (message,) in rows]

    def wait_power(self, what: str, condition: Callable[[], object], timeout_s: float = 90) -> None:
        self.wait(what, condition, timeout_s, lambda: self.manage("logs", "head", "engine").out[-3000:])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Powered]:
    options = ("--power-saving", "--room-idle-s", "2", "--cycle-s", "2", "--watch-s", "1")
    for each in minicluster("elastic", *options):
        yield Powered(each.directory)


@pytest.fixture(autouse=True)
def clean(cluster: Powered) -> Iterator[None]:
    """No job outlives its test. A node that is drained is one that is about to go off: it is left so."""
    yield
    cluster.run("scancel", "--user", "alice")


def wait_off(cluster: Powered, *nodes: str) -> None:
    """Wait until nodes are off to the engine; then they are to the operator at the BMC, to Slurm, and in truth."""
    cluster.wait_power(f"{nodes} to be off", lambda: all(cluster.switch(node)[0] == "off" for node in nodes))
    assert [cluster.ipmitool(node, "status") for node in nodes] == ["Chassis Power is off"] * len(nodes)
    assert [cluster.runs(node) for node in nodes] == [["bmc"]] * len(nodes)
    cluster.wait_power("Slurm's timer", lambda: all("POWERED_DOWN" in cluster.slurm(node) for node in nodes))


def assert_whole(cluster: Powered, job: int) -> None:
    """Its script ran once, from its begin to its end."""
    assert cluster.wait_job(job)["JobState"] == "COMPLETED"
    assert cluster.lines(job) == [f"begins {job}", f"ends {job}"]


def on_again(events: list[str]) -> str:
    """Why the node was switched on last; empty: it never was."""
    found = [each.partition(" is on: ")[2] for each in events]
    return next(filter(None, reversed(found)), "")


def native(cluster: Powered, node: str, seconds: int) -> int:
    """Submit a native job for this node."""
    return cluster.sbatch(SCRIPT, "-p", "plain", "-w", node, arguments=(str(seconds),))


def test_idle_nodes_go_off_and_one_comes_on_for_a_vjob(cluster: Powered) -> None:
    wait_off(cluster, "n1", "n2", "n3")
    checked = cluster.plugin("check", "--quick")
    assert (checked.code, "3 are switched off" in checked.out) == (0, True), checked.out
    job = cluster.sbatch(SCRIPT, *KIND)
    assert_whole(cluster, job)
    on = {node for node in cluster.nodes if any(" is on: " in event for event in cluster.power_events(node))}
    assert on == {"n1"}, "one is enough"
    assert "n1 is on: a vjob needs it" in cluster.power_events("n1")
    wait_off(cluster, "n1")
    share_templates(cluster)


def test_nodes_that_are_off_are_found_where_the_ledger_does_not_know_of_them(cluster: Powered) -> None:
    """As after one that was lost, or in a group that gets hosts of another one."""
    before = len(cluster.power_events("n1"))
    cluster.kill("head", "engine")
    with closing(sqlite3.connect(cluster.ledger())) as db, db:
        db.execute("delete from power_switches")
    cluster.restart_engine()
    wait_off(cluster, "n1", "n2", "n3")
    (found,) = cluster.power_events("n1")[before:]
    assert found == "n1 is off: Slurm had it powered down before this engine had it"
    job = cluster.sbatch(SCRIPT, *KIND)
    assert_whole(cluster, job)
    wait_off(cluster, "n1", "n2", "n3")


def test_native_jobs_have_their_nodes_whether_the_engine_runs_or_not(cluster: Powered) -> None:
    """Slurm's ResumeProgram is ours. Of a job whose node has booted, Slurm itself takes note once in 30 s."""
    cluster.kill("head", "engine")
    jobs = [native(cluster, "n2", 2)]
    cluster.wait_power("n2 to boot", lambda: "slurmd" in cluster.runs("n2"))
    assert cluster.ipmitool("n2", "status") == "Chassis Power is on"
    cluster.restart_engine()
    jobs += [native(cluster, "n1", 10)]
    cluster.ipmitool("n3", "on")
    why = ("somebody else switched it on", "Slurm has it on already")  # whether its BMC or Slurm told first
    cluster.wait_power("n3 to be seen", lambda: on_again(cluster.power_events("n3")).startswith(why))
    cluster.wait_job(jobs[1], "RUNNING")
    cluster.kill("n1", "bmc")
    for job in jobs:
        assert_whole(cluster, job)
    why = ("Slurm needs it for a job", "Slurm has it on already")  # whether the engine's next look is soon, or later
    cluster.wait_power("n1 to be seen", lambda: on_again(cluster.power_events("n1")).startswith(why))


def test_a_node_whose_bmc_is_silent_stays_on(cluster: Powered) -> None:
    cluster.wait_power("the BMC of n1", lambda: "`status` of n1" in cluster.power_events("n1")[-1])
    wait_off(cluster, "n2", "n3")
    assert "POWER" not in cluster.slurm("n1")
    assert "slurmd" in cluster.runs("n1")
    cluster.start("n1", "bmc")


def test_nodes_that_do_not_come_up_are_left_alone_until_somebody_helps_them(cluster: Powered) -> None:
    cluster.have_fault("n2", "hangs")
    cluster.have_fault("n3", "old-boot-time")
    job = cluster.sbatch(SCRIPT, "-N", "3", *KIND)
    for node in ("n2", "n3"):
        cluster.wait_power(f"{node} to fail", lambda node=node: cluster.switch(node)[0] == "failed")
        assert "did not come on" in cluster.power_events(node)[-1]
    assert cluster.runs("n2") == ["bmc"]
    assert "slurmd" in cluster.runs("n3"), "it booted, and tells that it did so long ago"
    assert cluster.job(job)["JobState"] == "PENDING"
    for node in ("n2", "n3"):
        cluster.have_fault(node, "")
        cluster.ipmitool(node, "off")
        cluster.ok("scontrol", "update", f"NodeName={node}", "State=RESUME")
        cluster.ok("scontrol", "update", f"NodeName={node}", "State=POWER_UP")
    assert_whole(cluster, job)


def test_slurms_powered_down_is_no_proof_where_slurmd_runs_on(cluster: Powered) -> None:
    cluster.have_fault("n2", "stays-on")
    cluster.wait_power("Slurm's timer", lambda: "POWERED_DOWN" in cluster.slurm("n2"))
    assert "slurmd" in cluster.runs("n2")
    assert cluster.switch("n2")[0] == "going-off"
    cluster.have_fault("n2", "")
    cluster.ipmitool("n2", "off")
    wait_off(cluster, "n2")


@pytest.mark.long
def test_a_node_that_is_little_used_is_emptied_live_and_goes_off(cluster: Powered) -> None:
    beside, fills = (count(cluster, "-w", "n1") for _ in range(2))
    for job in (beside, fills):
        wait_number(cluster, job)
    moves = count(cluster)
    wait_number(cluster, moves)
    home = host_of(cluster, moves)
    finish(cluster, fills)
    assert home != "n1", "it was full"
    with configured(cluster, "planning", 'objective = "energy"'), configured(cluster, "power", "underload = 0.6"):
        cluster.wait_power(f"{home} to be left", lambda: host_of(cluster, moves) == "n1", 180)
        wait_off(cluster, home)
        for job in (beside, moves):
            wait_number(cluster, job, 2)
            assert (cluster.job(job)["JobState"], host_of(cluster, job)) == ("RUNNING", "n1")
    assert "vjob-sleeping" not in cluster.events(moves)
    [(why,)] = ledger(cluster, "select message from events where kind = 'node-emptied'")
    assert why.startswith(f"{home} is emptied, so that it can be switched off: ")
    for job in (beside, moves):
        finish(cluster, job)
    wait_off(cluster, *cluster.nodes)
