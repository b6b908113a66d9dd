"""Managers: two of them are upgraded one by one, as docs/operator/groups.md says, while vjobs of both groups run."""

from __future__ import annotations

from typing import Any

from e2e.live.site import CONTROLLERS
from e2e.live.site import Site as LiveSite
from e2e.rooms import count, host_of, last_number, wait_number
from e2e.upgrade import drill
from e2e.upgrade.site import Site

from rmsplugin import __version__

#: Seconds until each manager has a group: engines wait for the longest act of the turn before theirs.
_SHARED_OUT_S = 240


class SiteOfManagers(Site, LiveSite):
    """The minicluster of the older release, with managers of two groups on two controllers."""

    def told_groups(self, host: str) -> dict[str, dict[str, Any]]:
        """What the manager of a host tells of each group; empty while it does not answer."""
        status = self.ask_on(host, "/v1/status") or {"groups": []}
        return {each["name"]: each for each in status["groups"]}

    def wait_groups(self, hosts: set[str]) -> None:
        """Wait until engines of all groups answer, on these hosts, on each of them one at least."""
        asked = min(hosts)

        def there() -> bool:
            found = self.told_groups(asked)
            answering = {name for name, each in found.items() if each["answers"]}
            return answering == self.groups.keys() and {each["host"] for each in found.values()} == hosts

        self.wait(f"all groups on {sorted(hosts)}", there, _SHARED_OUT_S, lambda: self._explained(asked))

    def group_of(self, job: int) -> str:
        """The group of the node on which a vjob of one VM runs; empty while it does not."""
        node = host_of(self, job)
        return next((name for name, nodes in self.groups.items() if node in nodes), "")

    def _explained(self, asked: str) -> list[object]:
        logs = [self.manage("logs", host, self.decider).out[-3000:] for host in CONTROLLERS]
        return [self.told_groups(asked), *logs]


def upgrade(cluster: SiteOfManagers, older: str, mixed_s: float, say: drill.Say) -> None:
    """Upgrade both controllers, then the VM hosts, while vjobs run and sleep in both groups.

    Args:
        cluster: of the older release, up and idle, with managers on two controllers and three VM hosts.
        older: the version that it says it has.
        mixed_s: how long managers of two releases work beside each other, in seconds at least.
        say: takes a sentence about each step.

    Raises:
        AssertionError: something was lost, or is not as the guide says.
    """
    up_to = drill.longest(mixed_s)
    cluster.wait_groups({*CONTROLLERS})
    jobs = [count(cluster, "-w", nodes[0], up_to=up_to) for nodes in cluster.groups.values()]
    for job in jobs:
        wait_number(cluster, job)
    assert [cluster.group_of(job) for job in jobs] == [*cluster.groups]
    # Not in the group that has one node only, which may be full.
    moves, sleeps = (count(cluster, "-x", *cluster.groups["left"], up_to=up_to) for _ in range(2))
    for job in (moves, sleeps):
        wait_number(cluster, job)
    drill.ordered(cluster, "suspend", sleeps, "sleeping")
    say(f"{older}: {len(jobs) + 1} vjobs run, in both groups, one sleeps")
    drill.judge_before(cluster, older, say)

    first = upgrade_controller(cluster, "front2", "head", jobs, up_to, say)
    assert_told_apart(cluster, older)
    drill.work_mixed(cluster, mixed_s, moves, [*jobs, first], say)
    drill.assert_whole(cluster, [first])
    second = upgrade_controller(cluster, "head", "front2", jobs, up_to, say)
    cluster.copy_files()
    drill.assert_names_older_nodes(cluster, older)
    drill.upgrade_nodes(cluster, moves, say)
    drill.ordered(cluster, "resume", sleeps, "running")
    wait_number(cluster, sleeps, 2)
    drill.assert_no_errors(cluster)
    drill.assert_whole(cluster, [*jobs, moves, sleeps, second])
    say("all ended whole, with one start each, and nothing of them is left")


def upgrade_controller(
    cluster: SiteOfManagers, host: str, other: str, jobs: list[int], up_to: int, say: drill.Say
) -> int:
    """Stop the manager of a host, install, start it; all groups are the other one's meanwhile.

    Returns:
        a vjob that was submitted while the other manager was alone.
    """
    before = {job: last_number(cluster, job) for job in jobs}
    assert cluster.manage("stop", host, cluster.decider).code == 0
    cluster.wait_groups({other})
    meanwhile = drill.counting(cluster, up_to)
    cluster.install(host)
    cluster.start(host, cluster.decider)
    cluster.wait_groups({*CONTROLLERS})
    for job in (*jobs, meanwhile):
        wait_number(cluster, job, 2)
    assert all(last_number(cluster, job) > number for job, number in before.items())
    say(f"{host} has the newer release; its groups were at {other} meanwhile, where a job was submitted and began")
    return meanwhile


def assert_told_apart(cluster: SiteOfManagers, older: str) -> None:
    """Each manager tells its own release, and that of the one that stands by."""
    status = {host: cluster.ask_on(host, "/v1/status") or {} for host in CONTROLLERS}
    releases = {host: told.get("version") for host, told in status.items()}
    assert releases == {"head": older, "front2": __version__}, status
    for told in status.values():
        (standby,) = told["cluster"]["standbys"]
        assert standby["version"] == releases[standby["host"]], told
