"""The rules that close a host's ports to VMs: the kernel takes them with any pool, and the agent sees them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
RULES = REPOSITORY / "contrib/nftables/rmsplugin-guests.nft"

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft")

SEEN = "import pathlib; from rmsplugin.node_agent import guards; print(guards.seen(pathlib.Path('/x'))['ports_closed'])"


def alone(script: str, rules: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script with a network of its own; the rules are on its standard input."""
    return subprocess.run(["unshare", "--net", "sh", "-ec", script], input=rules, capture_output=True, text=True)


@pytest.mark.parametrize("pool", ["10.0.1.10-10.0.1.250", "192.168.7.9-192.168.9.4", "10.9.9.9-10.9.9.9"])
def test_the_rules_load_with_any_pool_and_load_again(pool: str) -> None:
    text, changed = re.subn(r"(define rmsplugin_guests =) \S+", rf"\1 {pool}", RULES.read_text())
    assert changed == 1
    once = alone("nft -c -f -", text)
    assert once.returncode == 0, once.stderr
    twice = alone(f"nft -f {RULES}; nft -f {RULES}; nft list chain inet rmsplugin input | grep -c drop")
    assert (twice.returncode, twice.stdout) == (0, "1\n"), twice.stderr


def test_the_agent_sees_whether_they_are_loaded() -> None:
    look = f'{sys.executable} -c "{SEEN}"'
    done = alone(f"cd {REPOSITORY}; {look}; nft -f {RULES}; {look}; nft flush chain inet rmsplugin input; {look}")
    assert done.stdout.split() == ["False", "True", "False"], done.stderr
