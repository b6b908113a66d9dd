"""The seed of a disk-image guest, read back."""

from __future__ import annotations

import ast
import io
import ipaddress
import json
from dataclasses import replace
from pathlib import Path

import pytest
from pycdlib import PyCdlib

from rmsplugin.adapters.guests import awaits_identity
from rmsplugin.adapters.seed import Seed, seed_iso, waiting_seed_iso

SEED = Seed(
    instance_id="00000000-0000-4000-8000-000000000001",
    hostname="vjob12-0",
    mac="52:54:00:00:00:01",
    address=ipaddress.IPv4Interface("10.77.1.10/16"),
    gateway=ipaddress.IPv4Address("10.77.0.1"),
    root_authorized_key="ssh-ed25519 AAAA engine",
    host_private_key="-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\n",
    host_public_key="ssh-ed25519 BBBB vjob12-0",
)


def read(image: bytes, name: str, by: str) -> str:
    return read_bytes(image, name, by).decode()


def read_bytes(image: bytes, name: str, by: str) -> bytes:
    iso = PyCdlib()
    iso.open_fp(io.BytesIO(image))
    content = io.BytesIO()
    iso.get_file_from_iso_fp(content, **{by: f"/{name}"})
    iso.close()
    return content.getvalue()


def test_volume_name() -> None:
    iso = PyCdlib()
    iso.open_fp(io.BytesIO(seed_iso(SEED)))
    assert iso.pvd.volume_identifier.strip() == b"CIDATA"


@pytest.mark.parametrize("by", ["rr_path", "joliet_path"])
def test_who_it_is(by: str) -> None:
    image = seed_iso(SEED)
    assert json.loads(read(image, "meta-data", by)) == {
        "instance-id": SEED.instance_id,
        "local-hostname": "vjob12-0",
    }
    network = json.loads(read(image, "network-config", by))
    assert network == {
        "version": 2,
        "ethernets": {
            "vjob": {
                "match": {"macaddress": "52:54:00:00:00:01"},
                "addresses": ["10.77.1.10/16"],
                "routes": [{"to": "0.0.0.0/0", "via": "10.77.0.1"}],
            }
        },
    }


def test_keys_and_no_passwords() -> None:
    text = read(seed_iso(SEED), "user-data", "rr_path")
    head, _, document = text.partition("\n")
    assert head == "#cloud-config"
    user = json.loads(document)
    assert user["ssh_keys"] == {"ed25519_private": SEED.host_private_key, "ed25519_public": SEED.host_public_key}
    assert user["ssh_authorized_keys"] == [SEED.root_authorized_key]
    assert (user["users"], user["disable_root"], user["ssh_pwauth"]) == ([], False, False)
    assert "passw" not in text and "chpasswd" not in user


def test_no_gateway_no_route() -> None:
    network = json.loads(read(seed_iso(replace(SEED, gateway=None)), "network-config", "rr_path"))
    assert "routes" not in network["ethernets"]["vjob"]


def test_hostile_value_stays_a_value() -> None:
    key = 'ssh-ed25519 AAAA x"\nruncmd: [reboot]\n#'
    user = json.loads(read(seed_iso(replace(SEED, root_authorized_key=key)), "user-data", "rr_path").partition("\n")[2])
    assert user["ssh_authorized_keys"] == [key]
    assert "runcmd" not in user


def test_a_guest_that_waits_is_told_nothing_of_any_vm_and_runs_the_program_that_waits() -> None:
    image = waiting_seed_iso()
    assert json.loads(read(image, "meta-data", "rr_path")) == {
        "instance-id": "rmsplugin-waits",
        "local-hostname": "rmsplugin-waits",
    }
    assert json.loads(read(image, "network-config", "rr_path"))["ethernets"] == {}
    user = json.loads(read(image, "user-data", "rr_path").partition("\n")[2])
    assert (user["users"], user["disable_root"], user["ssh_pwauth"]) == ([], False, False)
    assert user["ssh_deletekeys"] and not {"ssh_keys", "ssh_authorized_keys"} & set(user)
    assert user["ssh_genkeytypes"] == [], "a host key that all VMs would share"
    launch = user["bootcmd"][-1]
    assert launch[0] == "systemd-run" and launch[-3:-1] == ["python3", "-c"]
    program = launch[-1]
    ast.parse(program, feature_version=(3, 7))
    assert not set("$%") & set(program), "systemd-run would put something else in its place"
    tools = Path(__file__).parents[3] / "rmsplugin/guest_tools/vjob-tools"
    assert read_bytes(image, "vjob-tools", "rr_path") == tools.read_bytes()


def test_a_guest_that_waits_reads_on_until_it_is_told_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "raw"
    config.write_text("wait\nend=\n.....")
    answers = iter(["hostname=vjob12-0\ngateway=\nhost_key=YWI=\nend=\n.....", ""])
    monkeypatch.setattr(awaits_identity, "_CONFIG", str(config))
    monkeypatch.setattr(awaits_identity.time, "sleep", lambda _: config.write_text(next(answers)))
    assert awaits_identity._await_configuration() == {"hostname": "vjob12-0", "gateway": "", "host_key": "YWI="}
    assert next(answers) == "", "it was read once more, and no more often"
