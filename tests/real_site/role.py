"""The Ansible role, run over ssh on the machines of the site."""

from __future__ import annotations

import json
import re

from packaged.playbook import play

from real_site import files
from real_site.layout import CONTROLLER, FRONT, VM_HOSTS
from real_site.machine import StepError
from real_site.site import Site

_KINDS = {"rmsplugin_controller": (CONTROLLER,), "rmsplugin_front": (FRONT,), "rmsplugin_node": VM_HOSTS}
_SSH = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
#: A new connection, and a look at a machine, take an emulated one long.
_SLOW = {
    "ANSIBLE_TIMEOUT": "180",
    "ANSIBLE_GATHER_TIMEOUT": "300",
    "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=600 -o ServerAliveInterval=60",
}


def inventory(site: Site, *, engine: bool) -> dict[str, object]:
    """What Ansible is told of the site.

    Args:
        site: which one.
        engine: whether the service of the engine is to be enabled and started.
    """
    variables = {
        "ansible_user": "root",
        "ansible_become": False,
        "ansible_ssh_private_key_file": str(site.work / "administrator"),
        "ansible_ssh_common_args": _SSH,
        "ansible_python_interpreter": "/usr/bin/python3",
        "rmsplugin_debs": str(site.debs),
        "rmsplugin_settings": str(site.work / "rmsplugin.toml"),
        "rmsplugin_engine_enabled": engine,
    }
    groups = {
        group: {"hosts": {host.name: {"ansible_host": host.address} for host in hosts}}
        for group, hosts in _KINDS.items()
    }
    return {"all": {"vars": variables, "children": groups}}


def run(site: Site, *, engine: bool = True) -> dict[str, int]:
    """Run the role.

    Args:
        site: which one.
        engine: whether the service of the engine is to be enabled and started.

    Returns:
        how many tasks have changed something, by host.

    Raises:
        StepError: it fails.
    """
    (site.work / "rmsplugin.toml").write_text(files.SETTINGS)
    file = site.work / "inventory.json"  # JSON is YAML
    file.write_text(json.dumps(inventory(site, engine=engine), indent=1))
    done = play(file, variables=_SLOW)
    with (site.work / "role.log").open("a") as log:
        log.write(done.said)
    if done.status != 0:
        raise StepError(f"the role has failed:\n{_tail(done.said)}")
    return done.changed


def _tail(said: str) -> str:
    failed = re.search(r"^.*(?:fatal|FAILED|UNREACHABLE).*", said, re.MULTILINE | re.DOTALL)
    return (failed[0] if failed else said)[-6000:]
