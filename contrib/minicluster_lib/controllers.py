"""Controllers: a second host with a slurmctld and an engine that stand by, and what the two hosts share.

Both hosts have /home, as sites have a file system that controllers mount. One ZooKeeper server, on the head, says which
engine leads: the head is not to be lost as a whole, its daemons are.
"""

from __future__ import annotations

import shutil

from minicluster_lib import hosts
from minicluster_lib.files import write
from minicluster_lib.layout import HEAD_ADDRESS, SECOND, Cluster
from minicluster_lib.waiting import wait_until

SHARED = "/home/controllers"
SLURM_STATE = "/home/ctld"
_STATE = "/var/lib/rmsplugin-engine"
_ZOOKEEPER_CONF = "/etc/zoo.cfg"
_ZOOKEEPER_PORT = 2181
_ZOOKEEPER = f"""\
tickTime=400
dataDir=/var/lib/zookeeper
clientPort={_ZOOKEEPER_PORT}
clientPortAddress={HEAD_ADDRESS}
admin.enableServer=false
"""
_SERVER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_ENGINE_STATE = 'state_dir = "/var/lib/rmsplugin"'

_CLUSTER = f"""
[cluster]
coordination = "zookeeper"
servers = ["{HEAD_ADDRESS}:{_ZOOKEEPER_PORT}"]
session_s = 6
shared_dir = "{SHARED}"
"""


def install(cluster: Cluster) -> None:
    """Make what both hosts share, and give the second one the keys of the first. Nothing for one controller."""
    if (second := cluster.second) is None:
        return
    for directory in (SHARED, SLURM_STATE):
        path = cluster.shared / directory.lstrip("/")
        path.mkdir(mode=0o700)
        shutil.chown(path, "slurm", "slurm")
    state = second.path(_STATE)
    state.mkdir(mode=0o700)
    shutil.chown(state, "slurm", "slurm")
    for name in ("agent_key", "agent_key.pub", "pki"):
        source, target = (host.path(f"etc/rmsplugin/{name}") for host in (cluster.head, second))
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)
        for path in (target, *target.rglob("*")):
            shutil.chown(path, "slurm", "slurm")
    write(cluster.head.path(_ZOOKEEPER_CONF), _ZOOKEEPER.encode())
    cluster.head.path("var/lib/zookeeper").mkdir()


def slurm_conf(cluster: Cluster, text: str) -> str:
    """The slurm.conf of this cluster, made from that of one controller."""
    if (second := cluster.second) is None:
        return text
    primary = f"SlurmctldHost={cluster.head.name}({HEAD_ADDRESS})\n"
    text = _with(text, primary, f"{primary}SlurmctldHost={second.name}({second.address})\n")
    text = _with(text, "StateSaveLocation=/var/spool/slurm/ctld", f"StateSaveLocation={SLURM_STATE}")
    return _with(text, "SlurmctldTimeout=30", "SlurmctldTimeout=10")


def settings(cluster: Cluster, text: str, host: str) -> str:
    """The settings of a host, made from those of a cluster of one controller.

    They are the same on all, but for an engine's own: its state directory and its address.
    """
    if (second := cluster.second) is None:
        return text
    url = f'url = "http://{HEAD_ADDRESS}:6830'
    trusted = f'trusted_hosts = ["{HEAD_ADDRESS}", "{second.address}"]'
    text = _with(text, f'{url}"', f'{url} http://{second.address}:6830"\n{trusted}')
    # As long as a command may take, the next engine waits for what the one before may have begun.
    text = _with(text, "[slurm]\n", "[slurm]\ncommand_timeout_s = 5\n") + _CLUSTER
    if host == second.name:
        text = _with(text, f'listen = "{HEAD_ADDRESS}', f'listen = "{second.address}')
        text = _with(text, _ENGINE_STATE, f'state_dir = "{_STATE}"')
    return text


def _with(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"not once in the file: {old}"
    return text.replace(old, new)


def start_zookeeper(cluster: Cluster) -> None:
    """Start the server of the ensemble. Nothing for one controller."""
    if cluster.second is not None:
        words = ["java", "-Xmx64m", "-XX:+UseSerialGC", "-cp", "/usr/share/java/zookeeper.jar", _SERVER]
        hosts.start_daemon(cluster.head, "zookeeper", [*words, _ZOOKEEPER_CONF])


def start_second(cluster: Cluster) -> None:
    """Start the slurmctld that stands by. Nothing for one controller."""
    if (second := cluster.second) is not None:
        hosts.start_daemon(second, "slurmctld", ["/usr/sbin/slurmctld", "-D"], user="slurm")

        def stands_by() -> bool:
            said = hosts.run(cluster, cluster.head, ["scontrol", "ping"], check=False).stdout
            return f"{SECOND} is UP" in said

        wait_until(stands_by, 60, f"slurmctld of {SECOND} to stand by")


def engine_state(host: str) -> str:
    """The directory in which the engine of a host keeps what is its own."""
    return _STATE if host == SECOND else "/var/lib/rmsplugin"
