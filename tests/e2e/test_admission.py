"""What the plugin keeps its hands off, what it refuses, and whose vjob is whose (issue 2, 6.8, 6.9, 6.10)."""

from __future__ import annotations

import pytest
from e2e.cluster import Cluster

pytestmark = pytest.mark.e2e

HOLD = "#!/bin/sh\necho up\nwhile :; do sleep 1; done\n"


def test_native_jobs_run_and_vjobs_wait_while_the_engine_is_down(cluster: Cluster) -> None:
    cluster.kill("head", "engine")
    try:
        result = cluster.run(
            "sh",
            "-c",
            "cd /home/alice && sbatch --parsable -p plain -o plain.out --wrap 'echo native; hostname'",
            user="alice",
        )
        assert result.code == 0, result.err
        native = int(result.out)
        vjob = cluster.sbatch("#!/bin/sh\nhostname\n")
        # Without an engine rooms are given back only after their GraceTime.
        fields = cluster.wait_job(native, timeout_s=180)
        assert fields["JobState"] == "COMPLETED"
        first, host = (cluster.home() / "plain.out").read_text().splitlines()
        assert (first, host) == ("native", fields["BatchHost"])
        assert cluster.job(vjob)["JobState"] == "PENDING"
        assert cluster.ok("srun", "-p", "plain", "-n1", "hostname", user="alice").strip() in cluster.nodes
    finally:
        cluster.restart_engine()
    assert cluster.wait_job(vjob)["JobState"] == "COMPLETED"
    assert cluster.output(vjob) == f"vjob{vjob}-0\n"


@pytest.mark.parametrize(
    ("argv", "advice"),
    [
        (["srun", "-p", "vjob", "-n1", "hostname"], "sbatch"),
        (["salloc", "-p", "vjob", "-n1", "true"], "sbatch"),
        (["sbatch", "-p", "vjob", "--wrap", "true", ":", "-p", "vjob"], "het"),
        (["sbatch", "-p", "vjob", "-c", "64", "--wrap", "true"], "CPU"),
        (["sbatch", "-p", "vjob", "--mem=900G", "--wrap", "true"], "--mem"),
        (["sbatch", "-p", "vjob,plain", "--wrap", "true"], "partition"),
    ],
    ids=["srun", "salloc", "het", "cpus", "memory", "mixed partitions"],
)
def test_what_cannot_be_a_vjob_is_refused_with_advice(cluster: Cluster, argv: list[str], advice: str) -> None:
    result = cluster.run("sh", "-c", 'cd /home/alice && exec "$@"', "sh", *argv, user="alice")
    assert result.code != 0
    assert advice.lower() in result.err.lower(), result.err
    assert cluster.ok("squeue", "-h", "--user", "alice") == ""


def test_a_vjob_is_its_owners_alone(cluster: Cluster) -> None:
    job = cluster.sbatch(HOLD)
    cluster.wait_output(job, "up")
    own = cluster.plugin("ssh", str(job), "--", "id", "-un", user="alice")
    assert (own.code, own.out.strip()) == (0, "alice"), own.err
    for argv in (["suspend", str(job)], ["ssh", str(job), "--", "true"], ["migrate", str(job)]):
        result = cluster.plugin(*argv, user="bob")
        assert result.code == 1, argv
        assert "alice" in result.err or "operator" in result.err, result.err
    node = cluster.vjob(job)["nodes"][0]
    for host, path in (
        ("head", "/var/lib/rmsplugin/ledger.sqlite"),
        ("head", "/var/lib/rmsplugin/guest_root_key"),
        ("head", "/etc/rmsplugin/agent_key"),
        (node, f"/var/lib/rmsplugin/vm/vjob{job}-0.config"),
    ):
        assert cluster.run("cat", path, host=host, user="bob").code != 0, path
        assert cluster.run("test", "-s", path, host=host).code == 0, path
    address = next(vm["address"] for vm in vms(cluster) if vm["vjob"] == str(job))
    knock = cluster.run(
        "ssh", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes",
        f"alice@{address}", "true", user="bob",
    )  # fmt: skip
    assert knock.code == 255
    assert "denied" in knock.err
    assert cluster.vjob(job)["state"] == "running"


def vms(cluster: Cluster) -> list[dict[str, str]]:
    import json

    return json.loads(cluster.plugin("vms", "--json").out)["vms"]
