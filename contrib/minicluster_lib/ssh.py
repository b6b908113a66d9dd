"""SSH: each node's sshd, which gives the engine and the other nodes the node agent and nothing else."""

from __future__ import annotations

from minicluster_lib import hosts
from minicluster_lib.files import write
from minicluster_lib.layout import VENV, Cluster

_SSHD_CONFIG = """\
Port 22
AddressFamily inet
ListenAddress {address}
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile /run/sshd.pid
PermitRootLogin forced-commands-only
AllowUsers root
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile /etc/ssh/authorized_keys/%u
UsePAM no
UseDNS no
X11Forwarding no
AllowTcpForwarding no
MaxStartups 100
MaxSessions 100
LogLevel INFO
"""


def install_keys(cluster: Cluster) -> None:
    """Make host keys, the engine's key and the nodes' keys, and say on every host whom to trust."""
    from minicluster_lib.pki import ssh_key_pair  # here: only `minicluster up` makes keys

    engine_private, engine_public = ssh_key_pair("rmsplugin-engine")
    write(cluster.head.path("etc/rmsplugin/agent_key"), engine_private, mode=0o600, owner="slurm")
    write(cluster.head.path("etc/rmsplugin/agent_key.pub"), f"{engine_public}\n".encode())
    known_hosts = []
    agent = f"{VENV}/bin/rmsplugin-node"
    admitted = [f'restrict,command="{agent}" {engine_public}']
    for node in cluster.node_hosts:
        host_private, host_public = ssh_key_pair(node.name)
        write(node.path("etc/ssh/ssh_host_ed25519_key"), host_private, mode=0o600)
        write(node.path("etc/ssh/ssh_host_ed25519_key.pub"), f"{host_public}\n".encode())
        known_hosts.append(f"{node.name},{node.address} {host_public}")
        node_private, node_public = ssh_key_pair(f"root@{node.name}")
        write(node.path("etc/rmsplugin/node_key"), node_private, mode=0o600)
        admitted.append(f'restrict,command="{agent} --peer" {node_public}')
    authorized = "".join(f"{line}\n" for line in admitted)
    for node in cluster.node_hosts:
        write(node.path("etc/ssh/authorized_keys/root"), authorized.encode(), mode=0o600)
        write(node.path("etc/ssh/sshd_config"), _SSHD_CONFIG.format(address=node.address).encode())
    for host in cluster.hosts:
        write(host.path("etc/rmsplugin/known_hosts"), ("\n".join(known_hosts) + "\n").encode())


def start(cluster: Cluster) -> None:
    """Start the nodes' sshd."""
    for node in cluster.node_hosts:
        hosts.run(cluster, node, ["mkdir", "-p", "-m", "755", "/run/sshd"])
        hosts.start_daemon(node, "sshd", ["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/sshd_config"])
