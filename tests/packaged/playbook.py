"""contrib/ansible's playbook, run by the checkout's ansible-playbook."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ROLE = REPOSITORY / "contrib/ansible"
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")


@dataclass(frozen=True)
class Played:
    """A run of it.

    Args:
        status: ansible-playbook's exit status.
        said: all that it has said.
        told: by host how many tasks were changed, failed, and so on.
    """

    status: int
    said: str
    told: Mapping[str, Mapping[str, int]]

    @property
    def changed(self) -> dict[str, int]:
        """How many tasks have changed something, by host."""
        return {host: counts["changed"] for host, counts in self.told.items()}


def play(inventory: Path, *options: str, variables: Mapping[str, str] | None = None) -> Played:
    """Run it.

    Args:
        inventory: its file. What ansible-playbook writes beside it goes with the directory.
        options: of ansible-playbook.
        variables: of its environment, beside those that each run has.
    """
    environment = {
        "PATH": os.pathsep.join((str(PLAYBOOK.parent), "/usr/sbin:/usr/bin:/sbin:/bin")),
        "HOME": str(inventory.parent),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(ROLE / "ansible.cfg"),
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_LOCAL_TEMP": str(inventory.parent / "tmp"),
        **(variables or {}),
    }
    command = [PLAYBOOK, "-i", inventory, *options, ROLE / "site.yml"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    recap = done.stdout.rpartition("PLAY RECAP")[2].splitlines()[1:]
    told = {
        line.split()[0]: {key: int(value) for key, _, value in (each.partition("=") for each in line.split()[2:])}
        for line in recap
        if ":" in line
    }
    return Played(done.returncode, done.stdout + done.stderr, told)
