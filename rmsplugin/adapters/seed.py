"""Seed: the ISO image that gives cloud-init in a disk-image guest its identity (data source NoCloud)."""

from __future__ import annotations

import functools
import io
import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from rmsplugin.adapters.guests.config import NATIVE_FILE, native_tools

#: cloud-init looks for a file system of this name.
_VOLUME = "CIDATA"

#: Name of a guest without an identity, and of the service in it that waits for one.
_WAITER = "rmsplugin-waits"

#: A kernel that panics resets the machine, which ends the VM: otherwise it would stand still for ever.
_NO_PANIC = ["sh", "-c", "echo -1 >/proc/sys/kernel/panic"]

_ANY_USER: dict[str, Any] = {
    "users": [],  # not the image's default user either: the engine makes the accounts
    "disable_root": False,
    "ssh_pwauth": False,
    "ssh_deletekeys": True,
}


@dataclass(frozen=True, slots=True)
class Seed:
    """Identity of one guest. The engine makes the host key, so that it can verify the guest when it talks to it."""

    instance_id: str  # the VM's UUID: cloud-init sets a guest up once for each
    hostname: str
    mac: str
    address: ipaddress.IPv4Interface
    gateway: ipaddress.IPv4Address | None
    root_authorized_key: str
    host_private_key: str  # OpenSSH form, ed25519
    host_public_key: str


def seed_iso(seed: Seed) -> bytes:
    """The image. It holds the guest's host key, so it is as secret as the key."""
    return _iso({"instance-id": seed.instance_id, "local-hostname": seed.hostname}, _network(seed), _user(seed))


@functools.cache
def waiting_program() -> str:
    """The program that waits in a guest."""
    return resources.files("rmsplugin").joinpath("adapters/guests/awaits_identity.py").read_text()


@functools.cache
def waiting_seed_iso() -> bytes:
    """The image for a guest that boots without an identity, and waits for one: it holds nothing of any VM.

    A template has the programs in its memory, as they were when the template was made.

    Raises:
        RefusedError: the program for guests was not compiled.
    """
    launch = ["systemd-run", "--quiet", "--no-block", f"--unit={_WAITER}", "python3", "-c", waiting_program()]
    # No host keys: sshd starts when there is one. The card stays down: it has the template's address.
    user = {**_ANY_USER, "ssh_genkeytypes": [], "bootcmd": [_NO_PANIC, launch]}
    meta, network = {"instance-id": _WAITER, "local-hostname": _WAITER}, {"version": 2, "ethernets": {}}
    return _iso(meta, network, user, {NATIVE_FILE: native_tools()})


def _iso(
    meta: dict[str, Any], network: dict[str, Any], user: dict[str, Any], others: Mapping[str, bytes] | None = None
) -> bytes:
    documents = {"meta-data": meta, "network-config": network, "user-data": user}
    from pycdlib import PyCdlib  # here: only VMs of disk images have one

    # JSON is YAML, and escapes every value for us.
    files = {name: json.dumps(document, indent=1).encode() + b"\n" for name, document in documents.items()}
    files["user-data"] = b"#cloud-config\n" + files["user-data"]
    iso = PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=_VOLUME)
    for number, (name, data) in enumerate({**files, **(others or {})}.items()):
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
