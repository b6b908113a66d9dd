"""The names that the Ansible role takes for VM hosts from an inventory: real ansible-playbook, its tasks for names."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ansible") is None, reason="needs ansible-core (extra lint)")

ROLES = Path(__file__).resolve().parents[3] / "contrib/ansible/roles"
PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.include_role": {"name": "rmsplugin", "tasks_from": "names", "public": True}},
            {
                "ansible.builtin.debug": {
                    "msg": "names={{ rmsplugin_vm_hosts | join(',') }} own={{ rmsplugin_node_name }}"
                }
            },
        ],
    }
]


def play(directory: Path, nodes: dict[str, dict[str, str]]) -> subprocess.CompletedProcess[str]:
    """Look at the names with a controller and these VM hosts; the last task tells them."""
    inventory: dict[str, Any] = {
        "all": {
            "vars": {"ansible_connection": "local"},
            "children": {"rmsplugin_controller": {"hosts": {"ctl": None}}, "rmsplugin_node": {"hosts": nodes}},
        }
    }
    for name, content in (("inventory.json", inventory), ("play.json", PLAY)):
        (directory / name).write_text(json.dumps(content))
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(directory),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_ROLES_PATH": str(ROLES),
        "ANSIBLE_LOCAL_TEMP": str(directory / "tmp"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "ansible", "playbook", "-i", directory / "inventory.json", directory / "play.json"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)


def test_names_are_those_of_the_inventory_up_to_the_first_dot(tmp_path: Path) -> None:
    played = play(tmp_path, {"n1.example.org": {}, "n2": {}})
    assert played.returncode == 0, played.stdout + played.stderr
    assert "names=n1,n2 own=n1" in played.stdout and "names=n1,n2 own=n2" in played.stdout


def test_a_host_that_is_there_by_its_address_has_the_name_that_is_set_for_it(tmp_path: Path) -> None:
    named = {"rmsplugin_node_name": "n1"}
    played = play(tmp_path, {"10.0.0.11": named, "n2.example.org": {}, "2001:db8::3": {"rmsplugin_node_name": "n3"}})
    assert played.returncode == 0, played.stdout + played.stderr
    for own in ("ctl", "n1", "n2", "n3"):
        assert f"names=n1,n2,n3 own={own}" in played.stdout


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        (["10.0.0.11", "n2"], "names VM hosts by addresses"),
        (["2001:db8::3", "n2"], "names VM hosts by addresses"),
        (["n1.a.example.org", "n1.b.example.org"], "have one name: n1, n1"),
    ],
)
def test_what_is_no_name_of_one_host_is_refused_before_keys_are_made(
    tmp_path: Path, nodes: list[str], why: str
) -> None:
    played = play(tmp_path, {node: {} for node in nodes})
    said = " ".join((played.stdout + played.stderr).split())
    assert played.returncode != 0 and why in said, said
    assert "names=" not in played.stdout, "on the controller neither"
