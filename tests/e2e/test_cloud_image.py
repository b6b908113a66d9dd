"""A vjob in a real Debian that cloud-init set up: an image of kind qcow2 (issue 2, section 3)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.cluster import REPOSITORY, Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

BASE = "/var/lib/rmsplugin/debian.qcow2"
SCRIPT = """#!/bin/bash
. /etc/os-release
echo "$ID $(hostname) $(id -un) $PWD $(cat /proc/1/comm)"
for i in {1..12}; do echo $i; sleep 1; done
touch made-in-debian
"""


@pytest.fixture
def debian_cluster() -> Iterator[Cluster]:
    """A minicluster of two nodes whose image `debian` lies on n1 and n2."""
    built = subprocess.run(
        [str(REPOSITORY / "contrib/guest-image"), "build-debian"], capture_output=True, text=True, timeout=900
    )
    assert built.returncode == 0, built.stderr
    cluster = Cluster(Path("/var/tmp") / f"rmsplugin-debian-{os.getpid()}")
    try:
        up = cluster.manage("up", "--nodes", "2", "--cycle-s", "1")
        assert up.code == 0, up.err
        for host in cluster.status()["hosts"]:
            settings = cluster.host_path(host, "/etc/rmsplugin/rmsplugin.toml")
            text = settings.read_text() + f'\n[image.debian]\nkind = "qcow2"\nbase = "{BASE}"\noverhead_mib = 256\n'
            text = text.replace("[hypervisor]\n", "[hypervisor]\nboot_timeout_s = 500\n")
            settings.write_text(text.replace("[slurm]\n", "[slurm]\nprolog_wait_s = 250\n"))
            site = cluster.host_path(host, "/etc/rmsplugin/site.lua")
            site.write_text(site.read_text().replace("return {", 'return {\n  images = { "default", "debian" },'))
            if host != "head":
                shutil.copyfile(built.stdout.strip(), cluster.host_path(host, BASE))
        (cluster.directory / "shared/slurm/job_submit.lua").touch()
        cluster.kill("head", "engine")
        cluster.restart_engine()
        yield cluster
    finally:
        cluster.manage("down")


def test_a_job_runs_in_a_debian_that_cloud_init_set_up_and_survives_a_suspend(debian_cluster: Cluster) -> None:
    cluster = debian_cluster
    job = cluster.sbatch(SCRIPT, "--mem=640", "-c", "2", "--export=ALL,RMSPLUGIN_IMAGE=debian")
    cluster.wait_output(job, "^3$", timeout_s=600)
    born = cluster.vjob(job)["nodes"][0]
    other = next(node for node in cluster.nodes if node != born)
    cluster.wait_nodes()
    moved = cluster.plugin("migrate", str(job), "--to", other)
    assert (moved.code, "disk" in moved.err) == (1, True), "its disk is on one node only"
    assert cluster.plugin("suspend", str(job)).code == 0
    assert cluster.qemus(job) == []
    resumed = cluster.plugin("resume", str(job))
    assert resumed.code == 0, resumed.err
    assert cluster.wait_job(job)["JobState"] == "COMPLETED"
    first, *numbers = cluster.output(job).splitlines()
    assert first == f"debian vjob{job}-0 alice /home/alice systemd"
    assert numbers == [str(number) for number in range(1, 13)]
    assert (cluster.home() / "made-in-debian").exists()
    cluster.wait_gone(job)
