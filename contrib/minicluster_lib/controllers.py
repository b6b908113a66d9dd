"""Controllers: a second host with a slurmctld and an engine that stand by, and what the two hosts share.

Both hosts have /home, as sites have a file system that controllers mount; ``shared_nfs`` has them mount one. Three
ZooKeeper servers, on the head, on the second controller and on the first node, say which engine leads.
"""

from __future__ import annotations

import json
import shutil

from minicluster_lib import hosts
from minicluster_lib.files import write
from minicluster_lib.layout import HEAD_ADDRESS, SECOND, Cluster, Host
from minicluster_lib.waiting import wait_until

SHARED = "/home/controllers"
SLURM_STATE = "/home/ctld"
_STATE = "/var/lib/rmsplugin-engine"
_ZOOKEEPER_CONF = "/etc/zoo.cfg"
_ZOOKEEPER_PORT = 2181
_PEER_PORT, _ELECTION_PORT = 2888, 3888
_ZOOKEEPER = """\
tickTime=400
initLimit=50
syncLimit=10
dataDir=/var/lib/zookeeper
clientPort={port}
clientPortAddress={address}
admin.enableServer=false
4lw.commands.whitelist=srvr
{servers}
"""
#: Small, and compiled little: three of them live beside VMs on a few cores.
_JAVA = ("java", "-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp")
_JAR, _SERVER = "/usr/share/java/zookeeper.jar", "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_ENGINE_STATE = 'state_dir = "/var/lib/rmsplugin"'

_CLUSTER = f"""
[cluster]
coordination = "zookeeper"
servers = [{{servers}}]
session_s = 6
shared_dir = "{SHARED}"
"""


_GROUP = '[group.{name}]\nhosts = "{hosts}"\n'


def ensemble(cluster: Cluster) -> list[Host]:
    """The hosts of the ZooKeeper servers; none for one controller."""
    return [] if cluster.second is None else [cluster.head, cluster.second, cluster.node_hosts[0]]


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
    _install_ensemble(ensemble(cluster))


def _install_ensemble(hosts_of_servers: list[Host]) -> None:
    servers = "\n".join(
        f"server.{number}={host.address}:{_PEER_PORT}:{_ELECTION_PORT}"
        for number, host in enumerate(hosts_of_servers, 1)
    )
    for number, host in enumerate(hosts_of_servers, 1):
        text = _ZOOKEEPER.format(port=_ZOOKEEPER_PORT, address=host.address, servers=servers)
        write(host.path(_ZOOKEEPER_CONF), text.encode())
        host.path("var/lib/zookeeper").mkdir(parents=True)
        write(host.path("var/lib/zookeeper/myid"), f"{number}\n".encode())


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
    text = _with(text, "[slurm]\n", "[slurm]\ncommand_timeout_s = 5\n")
    servers = ", ".join(f'"{each.address}:{_ZOOKEEPER_PORT}"' for each in ensemble(cluster))
    text += _CLUSTER.format(servers=servers) + _groups(cluster)
    if host == second.name:
        text = _with(text, f'listen = "{HEAD_ADDRESS}', f'listen = "{second.address}')
        text = _with(text, _ENGINE_STATE, f'state_dir = "{_STATE}"')
    return text


def _groups(cluster: Cluster) -> str:
    """What follows the section [cluster]: its setting of groups, and their own sections."""
    if not cluster.groups:
        return ""
    sections = [_GROUP.format(name=name, hosts=",".join(nodes)) for name, nodes in cluster.groups.items()]
    return f"migration_domains = [{json.dumps([*cluster.groups])}]\n{''.join(sections)}"


def _with(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"not once in the file: {old}"
    return text.replace(old, new)


def start_zookeeper(cluster: Cluster) -> None:
    """Start the servers of the ensemble. Nothing for one controller."""
    for host in ensemble(cluster):
        hosts.start_daemon(host, "zookeeper", [*_JAVA, _JAR, _SERVER, _ZOOKEEPER_CONF])


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
