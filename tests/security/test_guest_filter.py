"""The node's own filter lets out and in what libvirt's says: the same frames, one by one, on a bridge."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from security import guest_frames

from rmsplugin.model.vm_names import TAP_PREFIX, tap_of
from rmsplugin.node_agent import guest_filter
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.node_agent.values import Guard

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft")

PORTS = Path(__file__).resolve().parents[2] / "contrib/nftables/rmsplugin-guests.nft"
VM, SISTER = "vjob7-0", "vjob7-1"
TAP = tap_of(VM)
OWN = Guard("52:54:00:00:00:01", "10.77.1.10")
ALL = [name for frames in (guest_frames.from_guest, guest_frames.to_guest) for name, _ in frames(*OWN)]
ALLOWED = ["IPv4", "ARP request", "ARP reply", "RARP of a VM that moved", "to it: IPv4", "to it: ARP"]

#: Rules of ebtables, written by hand after ``network_filter.FILTER_XML``.
LIBVIRT = f"""
ebtables -t nat -N libvirt-I; ebtables -t nat -N libvirt-O
ebtables -t nat -P libvirt-I ACCEPT; ebtables -t nat -P libvirt-O ACCEPT
ebtables -t nat -A libvirt-I -p ipv4 -s {OWN.mac} --ip-src {OWN.address} -j ACCEPT
ebtables -t nat -A libvirt-I -p arp -s {OWN.mac} --arp-mac-src {OWN.mac} --arp-ip-src {OWN.address} -j ACCEPT
ebtables -t nat -A libvirt-I -p 0x8035 -s {OWN.mac} -d ff:ff:ff:ff:ff:ff --arp-opcode 3 --arp-mac-src {OWN.mac} \
    --arp-mac-dst {OWN.mac} --arp-ip-src 0.0.0.0 --arp-ip-dst 0.0.0.0 -j ACCEPT
ebtables -t nat -A libvirt-I -j DROP
ebtables -t nat -A libvirt-O -p ipv4 -j ACCEPT; ebtables -t nat -A libvirt-O -p arp -j ACCEPT
ebtables -t nat -A libvirt-O -j DROP
ebtables -t nat -A PREROUTING -i {TAP} -j libvirt-I; ebtables -t nat -A POSTROUTING -o {TAP} -j libvirt-O
"""


def passing(script: str, tap: str = TAP) -> list[str]:
    """Which frames pass, with the rules that a script makes."""
    words = ["unshare", "--net", sys.executable, guest_frames.__file__, tap, *OWN]
    done = subprocess.run(words, input=script, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def kept(*vms: tuple[str, Guard]) -> str:
    return "".join(f"nft -f - <<'E'\n{guest_filter.rules({vm: guard})}\nE\n" for vm, guard in vms)


def alone(place: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code with a network of its own; the files of rules lie in ``place / "rules"``."""
    begin = (
        "import pathlib, subprocess\nfrom rmsplugin.node_agent import guest_filter\n"
        f"place, own = pathlib.Path({str(place / 'rules')!r}), guest_filter.Guard(*{tuple(OWN)!r})\n"
        "def kept(*vms): print(*(guest_filter.is_kept(guest_filter.tap_of(vm)) for vm in vms))\n"
    )
    words = ["unshare", "--net", sys.executable, "-c", begin + code]
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


def test_a_vm_sends_in_its_own_name_only() -> None:
    assert passing("") == ALL
    assert passing(kept((VM, OWN))) == ALLOWED


def test_the_same_passes_as_with_rules_of_ebtables_of_the_same_filter() -> None:
    assert passing(LIBVIRT) == passing(kept((VM, OWN)))


def test_what_is_said_again_replaces_what_was_said_and_others_keep_theirs() -> None:
    before = Guard("52:54:00:00:00:77", "10.77.1.77")
    assert passing(kept((VM, before), (SISTER, before), (VM, OWN), (SISTER, before))) == ALLOWED


def test_interfaces_of_others_are_none_of_its_business() -> None:
    assert passing(kept((VM, OWN)), "vnet0") == ALL


def test_an_interface_of_ours_without_rules_of_its_own_passes_nothing_out(tmp_path: Path) -> None:
    gone = f"nft delete element bridge {guest_filter.TABLE} guests '{{ \"{TAP}\" }}'"
    (tmp_path / "try").write_text(f"{kept((VM, OWN))}{gone}")
    words = ["unshare", "--net", sys.executable, guest_frames.__file__, TAP, *OWN]
    done = subprocess.run(words, stdin=(tmp_path / "try").open(), capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr.strip()) == (1, "nothing passes")


def test_a_vm_is_forgotten_as_often_as_one_likes(tmp_path: Path) -> None:
    done = alone(
        tmp_path,
        f"guest_filter.drop(place, {VM!r})\n"  # where there is no table yet: it makes none
        f"assert subprocess.run(['nft', 'list', 'ruleset'], capture_output=True).stdout == b''\n"
        f"for vm in ({VM!r}, {SISTER!r}): guest_filter.keep(place, vm, own)\n"
        f"for _ in range(2):\n  guest_filter.drop(place, {VM!r})\n  kept({VM!r}, {SISTER!r})\n",
    )
    assert done.stdout.splitlines() == ["False True"] * 2, done.stderr
    assert sorted(path.name for path in (tmp_path / "rules").iterdir()) == [f"{SISTER}.nft"]


def test_a_table_that_was_flushed_comes_back_with_all_vms(tmp_path: Path) -> None:
    done = alone(
        tmp_path,
        f"for vm in ({VM!r}, {SISTER!r}):\n"
        "  guest_filter.keep(place, vm, own)\n"
        "  subprocess.run(['nft', 'flush', 'ruleset'], check=True)\n"
        f"guest_filter.keep(place, 'vjob7-2', own)\n"
        "kept(*(f'vjob7-{index}' for index in range(4)))\n",
    )
    assert done.stdout.split() == ["True"] * 3 + ["False"], done.stderr


def test_rules_of_a_node_that_are_loaded_anew_bring_its_vms_along(tmp_path: Path) -> None:
    """As `/etc/nftables.conf` does it that begins with a flush and includes ours, whether or not there are VMs."""
    rules, count = re.subn(r"/run/rmsplugin-filters", str(tmp_path / "rules"), PORTS.read_text())
    assert count == 1
    (tmp_path / "nftables.conf").write_text(f"flush ruleset\n{rules}")
    load = f"subprocess.run(['nft', '-f', {str(tmp_path / 'nftables.conf')!r}], check=True)\n"
    keep = f"for vm in ({VM!r}, {SISTER!r}): guest_filter.keep(place, vm, own)\n"
    done = alone(tmp_path, f"{load}{keep}{load}{load}kept({VM!r}, {SISTER!r}, 'vjob7-2')\n")
    assert done.stdout.split() == ["True", "True", "False"], done.stderr


def test_a_vm_that_is_filtered_no_more_is_seen(tmp_path: Path) -> None:
    seen = "print(guest_filter.unfiltered(place))\n"
    done = alone(
        tmp_path,
        f"for vm in ({VM!r}, {SISTER!r}): guest_filter.keep(place, vm, own)\n"
        f"subprocess.run(['ip', 'link', 'add', {TAP!r}, 'type', 'bridge'], check=True)\n"
        f"{seen}subprocess.run(['nft', 'flush', 'ruleset'], check=True)\n{seen}"
        f"guest_filter.keep(place, {SISTER!r}, own)\n{seen}",
    )
    assert done.stdout.splitlines() == ["[]", f"['{VM}']", "[]"], done.stderr


def test_a_node_that_cannot_says_so_and_keeps_no_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(guest_filter, "_PATH", "")
    with pytest.raises(AgentError, match="cannot be filtered: there is no nft"):
        guest_filter.keep(tmp_path / "rules", VM, OWN)
    assert not guest_filter.is_kept(TAP)
    assert list((tmp_path / "rules").iterdir()) == []


def test_names_of_interfaces_are_no_longer_than_linux_takes_and_differ() -> None:
    names = {tap_of(f"vjob{job}-{index}") for job in (1, 4294967295) for index in range(500)}
    assert len(names) == 1000
    assert {len(name) for name in names} == {15}
    assert all(name.startswith(TAP_PREFIX) for name in names)
