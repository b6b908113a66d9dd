"""Emptying nodes in a replay: when, and what is known of the time for which they then have nothing."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from rmsplugin.decision.parameters import Parameters
from rmsplugin.energy.emptying import Emptying
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.energy.power import PowerClass
from rmsplugin.packing.search import Search
from rmsplugin.planning.order.transfers import Duration, Durations
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.events import Events
from rmsplugin.simulation.outcome import Outcome
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.powering import Powering
from rmsplugin.simulation.replay import replay
from rmsplugin.workload.jobs import Job

#: Its threshold is 198.75 s.
POWER = PowerClass(120.0, 300.0, 8.0, 150.0, off_s=30.0, on_s=120.0)


def job(job_id: int, submit_s: float, run_s: float, processors: int = 1, limit_s: float = 0) -> Job:
    return Job(job_id, submit_s, run_s, processors, limit_s or run_s, 1024, job_id)


#: A node of which half is used, and one of which a quarter is, once job 2 has ended.
TWO_NODES = [job(1, 0, 9000, 2), job(2, 0, 100, 2), job(3, 10, 9000)]


def replayed(jobs: list[Job], nodes: int = 3, migrate_s: float = 10.0, policy: str = "rjsp") -> Outcome:
    """Nodes of 4 CPUs."""
    cluster = Cluster(nodes=nodes, cpus_per_node=4, memory_per_node_mib=8192)
    energy = EnergyParameters(dict.fromkeys(cluster.node_names, POWER), emptying=Emptying(0.25))
    search = Search(time_limit_s=1e9, deterministic_limit=0.05)
    durations = Durations(migrate=Duration(migrate_s))
    proposal = ProposalParameters(policy, decision=Parameters(search=search), search=search, durations=durations)
    return replay(jobs, cluster, ReplayParameters(proposal, cycle_s=30.0, energy=energy))


def emptied(outcome: Outcome) -> int:
    assert outcome.powered is not None
    return outcome.powered.emptied


def test_a_node_is_emptied_once_its_vjob_has_run_for_long_enough() -> None:
    """Job 3 goes to n2, for jobs 1 and 2 fill n1 until job 2 ends; after as much time as is repaid it joins job 1."""
    found = replayed(TWO_NODES)
    assert emptied(found) == 1
    (move,) = found.jobs[2].moves
    assert [*move.moves.values()] == [("n2", "n1")]
    assert 36 + 198.75 < move.begin_s < 600


def test_no_node_is_emptied_while_a_vjob_waits() -> None:
    """Job 4 asks for all CPUs, so that it waits until all others have ended."""
    assert emptied(replayed([*TWO_NODES, job(4, 20, 10, 12)])) == 0


def test_a_node_of_a_vjob_whose_limit_ends_soon_is_not_emptied() -> None:
    assert emptied(replayed([*TWO_NODES[:2], job(3, 10, 400)])) == 0
    assert emptied(replayed([*TWO_NODES[:2], job(3, 10, 400, limit_s=9000)])) == 1


def test_a_node_is_expected_to_have_nothing_for_as_long_as_others_had_and_have() -> None:
    energy = EnergyParameters({**dict.fromkeys(("n1", "n2", "n3"), POWER), "other": replace(POWER, idle_w=130.0)})
    powering = Powering(energy.classes, energy, Events())

    def use(*nodes: str, now: float) -> None:
        powering.switch_idle(set(nodes), (0, 0), tuple, now)

    use("n1", "n2", "n3", now=0)
    assert powering.idle_after_s("n1", [900, 100], 0) == 900
    use("n1", "n3", now=100)
    use("n1", "n2", "n3", now=150)  # n2 had nothing for 50 s
    assert powering.idle_after_s("n1", [900, 100], 150) == 50
    use("n1", "n3", now=300)
    assert powering.idle_after_s("n1", [900, 100], 420) == 120
    assert powering.idle_after_s("n1", [80], 420) == 80
    assert powering.idle_after_s("other", [900], 420) == 900


def test_nodes_are_emptied_one_after_the_other() -> None:
    """Three nodes are emptied onto the first one, by migrations of 200 s each; a fifth one never has anything."""
    jobs = [job(2 * at + part, 100 * at, [9000, 1000][part], [1, 3][part]) for at in range(4) for part in range(2)]
    found = replayed(jobs, nodes=5, migrate_s=200.0)
    assert emptied(found) == 3
    moves = sorted((move.begin_s, move.end_s) for run in found.jobs for move in run.moves)
    assert all(begin_s >= end_s for (_, end_s), (begin_s, _) in itertools.pairwise(moves))
    assert moves[0][1] - moves[0][0] == pytest.approx(200)


def test_nodes_are_looked_at_once_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    from rmsplugin.simulation import emptying

    asked: list[int] = []
    monkeypatch.setattr(emptying, "empty_one", lambda *_: asked.append(1))
    replayed([job(1, 0, 600), *(job(2 + number, number, 500) for number in range(5))])
    assert 1 <= len(asked) <= 600 / 30 + 2


def test_static_policies_empty_nothing() -> None:
    assert emptied(replayed(TWO_NODES, policy="easy")) == 0
