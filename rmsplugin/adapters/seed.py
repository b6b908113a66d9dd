"""Seed: the ISO image that tells cloud-init in a disk-image guest who it is (data source NoCloud)."""

from __future__ import annotations

import functools
import io
import ipaddress
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pycdlib import PyCdlib

#: cloud-init looks for a file system of this name.
_VOLUME = "CIDATA"

#: Name of a guest that was not told who it is, and of the service in it that waits to be told.
_WAITER = "rmsplugin-waits"

#: A kernel that panics resets the machine, which ends the VM: it would stand still for ever.
_NO_PANIC = ["sh", "-c", "echo -1 >/proc/sys/kernel/panic"]

_ANY_USER: dict[str, Any] = {
    "users": [],  # not the image's default user either: the engine makes the accounts
    "disable_root": False,
    "ssh_pwauth": False,
    "ssh_deletekeys": True,
}


@dataclass(frozen=True, slots=True)
class Seed:
    """Identity of one guest. The host key is made by the engine, so that it can verify the guest it talks to."""

    instance_id: str  # the VM's UUID: cloud-init sets a guest up once for each
    hostname: str
    mac: str
    address: ipaddress.IPv4Interface
    gateway: ipaddress.IPv4Address | None
    root_authorized_key: str
    host_private_key: str  # OpenSSH form, ed25519
    host_public_key: str


def seed_iso(seed: Seed) -> bytes:
    """The image. It holds the guest's host key, so it is as secret as that."""
    return _iso({"instance-id": seed.instance_id, "local-hostname": seed.hostname}, _network(seed), _user(seed))


@functools.cache
def waiting_program() -> str:
    """The program that waits in a guest; a template has it in memory, as it was when the template was made."""
    return resources.files("rmsplugin").joinpath("adapters/guests/awaits_identity.py").read_text()


@functools.cache
def waiting_seed_iso() -> bytes:
    """The image for a guest that boots without being told who it is, and waits to be: nothing of any VM is in it."""
    launch = ["systemd-run", "--quiet", "--no-block", f"--unit={_WAITER}", "python3", "-c", waiting_program()]
    # No host keys: sshd starts when there is one. The card stays down: it has the template's address.
    user = {**_ANY_USER, "ssh_genkeytypes": [], "bootcmd": [_NO_PANIC, launch]}
    return _iso({"instance-id": _WAITER, "local-hostname": _WAITER}, {"version": 2, "ethernets": {}}, user)


def _iso(meta: dict[str, Any], network: dict[str, Any], user: dict[str, Any]) -> bytes:
    files = {"meta-data": meta, "network-config": network, "user-data": user}
    iso = PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=_VOLUME)
    for number, (name, document) in enumerate(files.items()):
        # JSON is YAML, and escapes every value for us.
        content = ("#cloud-config\n" if name == "user-data" else "") + json.dumps(document, indent=1) + "\n"
        data = content.encode()
        iso.add_fp(io.BytesIO(data), len(data), f"/FILE{number}.;1", rr_name=name, joliet_path=f"/{name}")
    image = io.BytesIO()
    iso.write_fp(image)
    iso.close()
    return image.getvalue()


def _network(seed: Seed) -> dict[str, Any]:
    interface: dict[str, Any] = {"match": {"macaddress": seed.mac}, "addresses": [str(seed.address)]}
    if seed.gateway is not None:
        interface["routes"] = [{"to": "0.0.0.0/0", "via": str(seed.gateway)}]
    return {"version": 2, "ethernets": {"vjob": interface}}


def _user(seed: Seed) -> dict[str, Any]:
    return {
        **_ANY_USER,
        "hostname": seed.hostname,
        "ssh_authorized_keys": [seed.root_authorized_key],
        "ssh_keys": {"ed25519_private": seed.host_private_key, "ed25519_public": seed.host_public_key},
        "bootcmd": [_NO_PANIC],
    }
