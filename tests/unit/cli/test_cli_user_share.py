"""``rmsplugin plan`` and ``simulate`` with a share for each user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.cli.json_documents import answer_of

from rmsplugin.cli.main import main

DAY_S = 86400


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_plan_suspends_what_a_user_has_beyond_his_share(capsys: pytest.CaptureFixture[str]) -> None:
    def vjob(name: str, state: str, user: str, host: str | None = None, **keys: float) -> dict[str, object]:
        vm = {"name": f"{name}-0", "cpu": 1, "memory_mib": 512}
        vms = [vm if host is None else {**vm, "host": host}]
        return {"name": name, "state": state, "user": user, "time_limit_s": 7 * DAY_S, "vms": vms, **keys}

    vjobs = [
        vjob("a1", "running", "ann", "n1", ran_s=50000),
        vjob("a2", "running", "ann", "n2", ran_s=40000),
        vjob("b", "waiting", "ben", waited_s=4000, ran_s=30000),
    ]
    nodes = [{"name": name, "cpu": 1, "memory_mib": 4096} for name in ("n1", "n2")]
    Path("i.json").write_text(json.dumps({"nodes": nodes, "vjobs": vjobs}))

    def suspended(*words: str) -> list[str]:
        assert main(["plan", "--instance", "i.json", "--policy", "slowdown", "--json", *words]) == 0
        pools = answer_of(capsys.readouterr().out)["plan"]["pools"]
        return [action["vm"] for pool in pools for action in pool if action["action"] == "suspend"]

    assert suspended() == []
    assert suspended("--user-share", "0.5") == ["a2-0"]
    assert suspended("--user-share", "0.5", "--user-share-s", "4001") == []


def test_simulate_knows_whose_jobs_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Ann has filled two nodes for a day when Ben comes with two jobs of a day, whose length nobody knows yet."""
    jobs = [(1, 0, 12), (2, 0, 12), (3, 60, 13), (4, 60, 13)]
    fields = [(number, at, -1, DAY_S, 1, -1, -1, 1, DAY_S, -1, 1, user, *[-1] * 6) for number, at, user in jobs]
    Path("t.swf").write_text("".join(" ".join(map(str, line)) + "\n" for line in fields))
    where = ["--nodes", "2", "--cpus-per-node", "1", "--memory-per-node", "1024", "--policy", "slowdown"]

    def starts_s(*words: str) -> float:
        assert main(["simulate", "--workload", "t.swf", *where, "--jobs-out", "o.csv", *words]) == 0
        capsys.readouterr()
        lines = [line.split(",") for line in Path("o.csv").read_text().splitlines()]
        return float(next(line[2] for line in lines if line[0] == "4"))

    assert starts_s() < 4000
    assert starts_s("--user-share", "0.5") > 40000
