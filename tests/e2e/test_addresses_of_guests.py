"""Root in a guest takes other addresses than his VM's, and tries the hosts' ports: none of it gets through."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import configured
from e2e.queued import wait_rooms
from e2e.rooms import ledger

pytestmark = pytest.mark.e2e

IDLE = "#!/bin/bash\necho up\nwhile :; do sleep 1; done\n"

#: $1 is the host that is lied to, $2 how long an answer is waited for, the rest are addresses to take. Says what was
#: answered, which takes that the host believes it.
ATTACK = """
lied=$1; patience=$2; shift 2
own=$(cat /sys/class/net/eth0/address)
for address; do
    ip addr add $address/32 dev eth0
    arping -U -q -c 1 -I eth0 -s $address $lied
    ping -c 1 -W $patience -I $address $lied >/dev/null && echo took $address
    ip addr del $address/32 dev eth0
done
ip link set eth0 address 02:00:00:00:ba:d0
ping -c 1 -W $patience $lied >/dev/null && echo took a MAC
ip link set eth0 address $own
ping -c 1 -W 20 $lied >/dev/null && echo reaches it as itself
"""

#: Of the pool, and no VM's: of another's the head would believe it for a while.
FREE = "10.77.1.250"


#: Whichever ports of hosts given as ADDRESS/PORT take a connection.
CONNECT = 'for each in %s; do timeout 9 bash -c ": </dev/tcp/$each" 2>/dev/null && echo $each & done; wait'


def address_of(cluster: Cluster, job: int) -> str:
    ((address,),) = ledger(cluster, "select address from vms where job_id = ?", job)
    return str(address)


def address_of_host(cluster: Cluster, host: str) -> str:
    return cluster.ok("getent", "hosts", host).split()[0]


def attack(cluster: Cluster, job: int, *addresses: str, patience_s: int = 2) -> list[str]:
    """What root in the vjob's VM was answered by the head, from these addresses and another MAC address."""
    given = (address_of_host(cluster, "head"), str(patience_s), *addresses)
    return as_root(cluster, job, f"set -- {' '.join(given)}\n{ATTACK}")


@contextmanager
def open_to_guests(cluster: Cluster, *hosts: str) -> Iterator[None]:
    """Hosts whose rules for guests are gone for a while."""
    rules = {host: cluster.ok("nft", "list", "table", "inet", "rmsplugin", host=host) for host in hosts}
    try:
        for host in hosts:
            cluster.ok("nft", "delete", "table", "inet", "rmsplugin", host=host)
        yield
    finally:
        for host, text in rules.items():
            cluster.ok("sh", "-c", f"nft -f - <<'E'\n{text}\nE", host=host)


def as_root(cluster: Cluster, job: int, words: str) -> list[str]:
    """What root in the vjob's VM is shown by a command."""
    options = ("BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
    ssh = ["ssh", "-i", "/var/lib/rmsplugin/guest_root_key", *(word for each in options for word in ("-o", each))]
    return cluster.run(*ssh, f"root@{address_of(cluster, job)}", words).out.splitlines()


def neighbours(cluster: Cluster, *addresses: str) -> list[str]:
    """The MAC addresses that the head knows for these."""
    lines = [cluster.ok("ip", "-o", "neigh", "show", "to", address).split() for address in addresses]
    return [line[line.index("lladdr") + 1] if "lladdr" in line else "" for line in lines]


def test_root_in_a_guest_takes_no_address_until_the_filter_is_gone(cluster: Cluster) -> None:
    job = takes_none_until(cluster, "nft delete table bridge rmsplugin_guests")
    node = cluster.vjob(job)["nodes"][0]  # type: ignore[index]
    files = f"/run/rmsplugin-filters/vjob{job}-0.nft"

    # An administrator is told, and what he is told brings it back for the VM that runs.
    checked = json.loads(cluster.plugin("check", "--quick", "--json").out)["findings"]
    [said] = [each for each in checked if re.match(rf"does not filter .*\bvjob{job}-0\b", each["what"])]
    assert said["subject"] == f"node {node}"
    remedy = re.search("`(.*)`", said["remedy"])
    assert remedy is not None
    cluster.ok("sh", "-c", remedy[1], host=node)
    assert attack(cluster, job, FREE) == ["reaches it as itself"]

    assert cluster.run("ls", files, host=node).code == 0
    cluster.ok("scancel", str(job))
    cluster.wait_gone(job)
    assert cluster.run("ls", files, host=node).code != 0


@pytest.mark.long
def test_nor_where_libvirt_filters(cluster: Cluster) -> None:
    with configured(cluster, "network", 'filter = "rmsplugin-guest"'):
        takes_none_until(cluster, "ebtables -t nat -F")


def takes_none_until(cluster: Cluster, gone: str) -> int:
    """Attack from a VM, moved to and fro; a command on its node then takes the filter away. Returns its job."""
    wait_rooms(cluster)  # a test before this one may have borrowed a node's
    job, victim = (cluster.sbatch(IDLE) for _ in range(2))
    for each in (job, victim):
        cluster.wait_output(each, "^up$")
    cluster.ok("ip", "neigh", "flush", "to", FREE)  # a test before this one may have made the head believe in it
    wanted = (FREE, address_of(cluster, victim), address_of_host(cluster, cluster.nodes[-1]))
    known = neighbours(cluster, *wanted)
    assert known[1] and known[2] and not known[0]

    nothing = ["reaches it as itself"]
    assert attack(cluster, job, *wanted) == nothing
    born = cluster.vjob(job)["nodes"][0]  # type: ignore[index]
    there = next(name for name in cluster.nodes if name != born)
    assert cluster.plugin("suspend", str(job)).code == 0
    resumed = cluster.plugin("resume", str(job), "--to", there)
    assert resumed.code == 0, resumed.err
    assert attack(cluster, job, FREE) == nothing
    migrated = cluster.plugin("migrate", str(job), "--to", born)
    assert migrated.code == 0, migrated.err
    assert attack(cluster, job, FREE) == nothing
    assert neighbours(cluster, *wanted[1:]) == known[1:]

    head, other = address_of_host(cluster, "head"), address_of(cluster, victim)
    (node,) = wanted[2:]
    doors = [
        f"{head}/2049",
        f"{head}/6817",
        f"{head}/6830",
        f"{node}/22",
        f"{node}/6818",
        f"{node}/16514",
        f"{other}/22",
    ]
    assert set(as_root(cluster, job, CONNECT % " ".join(doors))) == {doors[0], doors[-1]}

    # It was the filter that stopped it.
    cluster.ok(*gone.split(), host=born)
    assert attack(cluster, job, FREE, patience_s=20) == [f"took {FREE}", "took a MAC", *nothing]
    with open_to_guests(cluster, "head", cluster.nodes[-1]):
        assert set(as_root(cluster, job, CONNECT % " ".join(doors))) == set(doors)
    return job
