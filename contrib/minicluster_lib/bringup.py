"""Bring-up: make the hosts and start their daemons, as much as possible at the same time."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from minicluster_lib import (
    accounting,
    bmcs,
    controllers,
    engine,
    hosts,
    image,
    libvirt,
    network,
    nfs,
    podman,
    settings_file,
    shared_nfs,
    slurm,
    ssh,
)
from minicluster_lib.layout import Cluster, Host
from minicluster_lib.teardown import MARKER


class Progress:
    """Says on standard error what is being done, and how long the whole has taken so far."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, text: str) -> None:
        """Show one line."""
        print(f"[{time.monotonic() - self._started:5.1f} s] {text}", file=sys.stderr, flush=True)


def bring_up(cluster: Cluster, progress: Progress) -> None:
    """Make and start the whole cluster; cluster.ready is set at the end."""
    cluster.directory.mkdir(parents=True, exist_ok=True)
    cluster.directory.chmod(0o755)
    (cluster.directory / MARKER).touch()
    cluster.save()
    progress(f"minicluster of {cluster.nodes} nodes in {cluster.directory}: files, keys, guest image")
    with ThreadPoolExecutor(max_workers=8) as pool:
        built = _building(cluster, pool, progress)
        hosts.prepare_files(cluster)
        database = pool.submit(accounting.install_database, cluster)
        if not cluster.native:
            _install_for_vms(cluster)
        slurm.install_configuration(cluster, secrets.token_bytes(128))
        kind = None
        if built is not None:
            cluster.image_directory = str(built.result())
        if cluster.has_libvirt:
            kind = pool.submit(image.domain_type, Path(cluster.image_directory), progress)

        progress("hosts and network")
        for host, pid in zip(
            cluster.hosts, pool.map(lambda host: hosts.boot(cluster, host), cluster.hosts), strict=True
        ):
            cluster.init_pids[host.name] = pid
        cluster.save()
        network.connect(cluster)

        progress("munge, libvirt, sshd, NFS, MariaDB")
        database.result()
        head = pool.submit(_start_head, cluster, progress)
        nodes = [pool.submit(_start_node, cluster, node) for node in cluster.node_hosts]
        nodes += [
            pool.submit(_start_front, cluster, host, name)
            for name, host in cluster.front_hosts.items()
            if not host.is_head
        ]
        if kind is not None:
            cluster.domain_type = kind.result()
        settings_file.install(cluster)
        for future in nodes:
            future.result()
        if not cluster.native:
            ssh.start(cluster)
        head.result()
        progress("waiting for Slurm's nodes, libvirt and NFS")
        _wait(
            pool,
            [
                lambda: slurm.wait_for_nodes(cluster),
                *([lambda: nfs.wait_until_ready(cluster), *_libvirt_waits(cluster)] if cluster.has_libvirt else []),
            ],
        )
        controllers.start_second(cluster)
    if cluster.has_libvirt:
        libvirt.keep_capabilities(cluster)
    if cluster.engine:
        engine.start_and_wait(cluster, progress)
    cluster.ready = True
    cluster.save()


def _building(cluster: Cluster, pool: ThreadPoolExecutor, progress: Progress) -> Future[Path] | None:
    """What the guests are made of; None where there are none."""
    if cluster.podman:
        return pool.submit(podman.provide)
    return pool.submit(image.provide, progress) if cluster.has_libvirt else None


def _install_for_vms(cluster: Cluster) -> None:
    from minicluster_lib import pki  # here: the other commands start faster without it

    pki.install_certificates(cluster)
    ssh.install_keys(cluster)
    controllers.install(cluster)
    shared_nfs.install_configuration(cluster)
    bmcs.install(cluster)
    if cluster.podman:
        podman.install_configuration(cluster)
    else:
        libvirt.install_configuration(cluster)
        nfs.install_configuration(cluster)


def _start_head(cluster: Cluster, progress: Progress) -> None:
    slurm.start_munge(cluster, cluster.head)
    if cluster.has_libvirt:
        nfs.start(cluster, cluster.head)
    shared_nfs.start(cluster)
    engine.make_directories(cluster)
    controllers.start_zookeeper(cluster)
    accounting.start(cluster)
    slurm.start_accounting(cluster)
    shared_nfs.wait_until_mounted(cluster)
    progress("slurmdbd answers; starting slurmctld")
    slurm.start_controller(cluster)
    if not cluster.native:
        slurm.start_slurmd(cluster.head, "front1")


def _start_front(cluster: Cluster, host: Host, name: str) -> None:
    slurm.start_munge(cluster, host)
    slurm.start_slurmd(host, name)


def _start_node(cluster: Cluster, node: Host) -> None:
    slurm.start_munge(cluster, node)
    if cluster.has_libvirt:
        libvirt.start(node)
    if cluster.podman:
        podman.load_image(cluster, node)
    slurm.start_slurmd(node, node.name, boots=cluster.power_saving)
    bmcs.start(cluster, node)


def _libvirt_waits(cluster: Cluster) -> list[Callable[[], None]]:
    return [lambda node=node: libvirt.wait_until_ready(cluster, node) for node in cluster.node_hosts]  # type: ignore[misc]


def _wait(pool: ThreadPoolExecutor, waits: list[Callable[[], None]]) -> None:
    for future in [pool.submit(wait) for wait in waits]:
        future.result()


def refresh(cluster: Cluster, progress: Progress) -> None:
    """Put the repository's present Lua files and hooks into a running cluster, and restart the engine."""
    slurm.install_configuration_files(cluster)
    settings_file.install(cluster)
    hosts.run(cluster, cluster.head, ["scontrol", "reconfigure"])
    progress("Lua files and hooks are copied, Slurm is reconfigured")
    if cluster.engine:
        daemons = hosts.request(cluster.head, op="status")["daemons"]
        if cluster.engine_daemon in daemons:
            hosts.request(cluster.head, op="restart", name=cluster.engine_daemon)
            progress(f"{cluster.engine_daemon} restarted")
        else:
            engine.start_and_wait(cluster, progress)
