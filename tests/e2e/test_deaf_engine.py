"""munge stands still on the engine's host for longer than a wrapper may be silent: nobody is taken for silent."""

from __future__ import annotations

import time
from typing import Any

import pytest
from e2e.cluster import Cluster
from e2e.rooms import count, finish, ledger, wait_number

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

#: Longer than a wrapper may be silent (engine.orphan_s), with the time until its next sign of life.
STILL_S = 40.0
#: As long again: what the engine missed meanwhile has to come of it by then.
AFTER_S = 45.0


def status(cluster: Cluster) -> dict[str, Any]:
    return cluster.ask("/v1/status") or {}


def said(cluster: Cluster) -> str:
    """What the engine says of its own hearing."""
    return next((each for each in status(cluster).get("problems", []) if "cannot hear" in each), "")


def test_no_job_is_requeued_while_munge_stands_still_or_after_it(cluster: Cluster) -> None:
    jobs = [count(cluster) for _ in range(3)]
    for job in jobs:
        wait_number(cluster, job, 2)
    stopped = cluster.manage("kill", "head", "munged", "--signal", "STOP")
    assert stopped.code == 0, stopped.err
    try:
        time.sleep(STILL_S)
    finally:
        going_on = cluster.manage("kill", "head", "munged", "--signal", "CONT")
    assert going_on.code == 0, going_on.err
    cluster.wait("the engine to tell of it", lambda: bool(said(cluster)), 30, lambda: [status(cluster)])
    time.sleep(AFTER_S)
    assert not ledger(cluster, "select message from events where message like '%has been silent%'")
    for job in jobs:
        assert cluster.job(job)["Restarts"] == "0", cluster.describe(job)
    cluster.wait("the engine to hear again", lambda: not said(cluster), 60, lambda: [status(cluster)])
    for job in jobs:
        finish(cluster, job)
