"""BMCs: one for each node, an ipmi_sim of Debian's, by which the engine and Slurm's ResumeProgram switch the node.

A node that has no power has no process but this one, and nobody reaches its address (``host_power``).
"""

from __future__ import annotations

import json
import secrets

from minicluster_lib import hosts
from minicluster_lib.files import write
from minicluster_lib.host_power import READING, SOCKET
from minicluster_lib.layout import PREFIX_LENGTH, Cluster, Host
from minicluster_lib.network import BRIDGE

PASSWORD_FILE = "/etc/rmsplugin/bmc_password"
USER = "admin"
_PORT = 623
_DIRECTORY = "/etc/bmc"
_STATE = "/var/lib/bmc"

_LAN = """\
name "{node}"
set_working_mc 0x20
  startlan 1
    addr {address} {port}
    priv_limit admin
    allowed_auths_admin md5
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{directory}/chassis"
  user 2 true "{user}" "{password}" admin 10 md5
"""

_COMMANDS = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02
mc_enable 0x20
"""

#: ipmi_sim runs it with the BMC's number, `get` and names, or `set` and names with values.
_CHASSIS = f"""\
#!/bin/sh
operation=$1
shift
while [ $# -gt 0 ]; do
    case $operation-$1 in
    get-power) echo "power:$(cat {READING})" ;;
    get-*) echo "$1:0" ;;
    set-power) if [ "$2" = 1 ]; then to=on; else to=off; fi; {_DIRECTORY}/order "$to" || exit 1; shift ;;
    set-shutdown) {_DIRECTORY}/order shutdown || exit 1; shift ;;
    set-*) shift ;;
    esac
    shift
done
"""

_ORDER = f"""\
#!/usr/bin/python3 -IS
import json, socket, sys
with socket.socket(socket.AF_UNIX) as host:
    host.connect("{SOCKET}")
    host.sendall(json.dumps({{"op": "power", "to": sys.argv[1]}}).encode() + b"\\n")
    answer = json.loads(host.makefile("rb").readline())
sys.exit(answer.get("error"))
"""

#: Equation 8 gives some 6 s for these. A soft shutdown takes less than a second, and is asked for after two.
_SETTINGS = """
[power]
switch = true

[[power.classes]]
idle_w = 100
busy_w = 200
off_w = 5
transition_w = 60
off_s = 3
on_s = 6

[power.driver.ipmi]
kind = "command"
addresses = {{ {addresses} }}
timeout_s = 10
shutdown_s = 4
{commands}
"""


def install(cluster: Cluster) -> None:
    """Write the nodes' /etc/bmc, and the password for controllers. Nothing without power saving."""
    if not cluster.power_saving:
        return
    password = secrets.token_hex(8)
    for host in filter(None, [cluster.head, cluster.second]):
        write(host.path(PASSWORD_FILE), f"{password}\n".encode(), mode=0o600, owner="slurm")
    for node in cluster.node_hosts:
        lan = _LAN.format(
            node=node.name,
            address=node.bmc_address,
            port=_PORT,
            directory=_DIRECTORY,
            user=USER,
            password=password,
        )
        write(node.path(f"{_DIRECTORY}/lan.conf"), lan.encode(), mode=0o600)
        write(node.path(f"{_DIRECTORY}/commands"), _COMMANDS.encode())
        write(node.path(f"{_DIRECTORY}/chassis"), _CHASSIS.encode(), mode=0o755)
        write(node.path(f"{_DIRECTORY}/order"), _ORDER.encode(), mode=0o755)
        node.path(_STATE).mkdir(mode=0o700)


def start(cluster: Cluster, node: Host) -> None:
    """Start a node's BMC. Nothing without power saving."""
    if not cluster.power_saving:
        return
    hosts.request(node, op="has_power", address=f"{node.address}/{PREFIX_LENGTH}", device=BRIDGE)
    files = ["-c", f"{_DIRECTORY}/lan.conf", "-f", f"{_DIRECTORY}/commands", "-s", _STATE]
    hosts.start_daemon(node, "bmc", ["/usr/bin/ipmi_sim", *files, "-n"], own_power=True)


def settings(cluster: Cluster) -> str:
    """The part of rmsplugin.toml that switches nodes; empty without power saving."""
    if not cluster.power_saving:
        return ""
    addresses = ", ".join(f'{node.name} = "{node.bmc_address}"' for node in cluster.node_hosts)
    tool = ["/usr/bin/ipmitool", "-I", "lanplus", "-C", "3", "-N", "1", "-R", "3", "-H", "{address}", "-U", USER]
    tool += ["-f", PASSWORD_FILE, "chassis", "power"]
    words = {"off": "off", "on": "on", "shutdown": "soft", "status": "status"}
    commands = "\n".join(f"{key} = {json.dumps([*tool, word])}" for key, word in words.items())
    return _SETTINGS.format(addresses=addresses, commands=commands)
