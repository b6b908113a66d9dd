"""A call of the node agent, and a platform's hook, is a process of its own: it loads what it needs, and no more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from security.test_saved_xml import saved

import rmsplugin

ROOT = Path(rmsplugin.__file__).parents[1]
VM = "vjob9001-0"
AGENT = "rmsplugin.node_agent"
ABOUT_NO_VM = ("obey", "list", "space")
#: Without ``site``, which may load modules of its own.
PROGRAM = """
import sys
from rmsplugin.node_agent.main import main
print(main(), file=sys.stderr)
print(*sys.modules, file=sys.stderr)
"""
#: Slow to load, and nothing that a short verb or a hook needs.
SLOW = {"asyncio", "ast", "dataclasses", "dis", "hashlib", "inspect", "socket", "ssl", "subprocess", "threading"}
#: Of ours, what other calls need.
OTHERS = {f"{AGENT}.{name}" for name in ("control_group", "digests", "guards", "guest_filter", "serving", "templates")}
OTHERS |= {f"{AGENT}.transfer", f"{AGENT}.room"}


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "rmsplugin.toml"
    path.write_text(
        f'[nodes]\nstore = "{tmp_path}/store"\nvm_dir = "{tmp_path}/vm"\n'
        '[image.default]\nkernel = "/var/lib/rmsplugin-images/vmlinuz"\n'
        'initrd = "/var/lib/rmsplugin-images/initrd.img"\n'
    )
    return path


def loaded(settings: Path, words: list[str], content: bytes) -> set[str]:
    """The modules that a call has loaded at its end; it succeeds."""
    environment = {name: value for name, value in os.environ.items() if name != "SSH_ORIGINAL_COMMAND"}
    environment |= {"PYTHONPATH": str(ROOT), "RMSPLUGIN_CONFIG": str(settings)}
    command = [sys.executable, "-S", "-c", PROGRAM, *words]
    done = subprocess.run(command, input=content, capture_output=True, env=environment, check=True)
    status, modules = done.stderr.decode().splitlines()[-2:]
    assert status == "0", (done.stdout, done.stderr)
    return set(modules.split())


def test_a_hook_loads_neither_the_verbs_nor_what_they_need(settings: Path, tmp_path: Path) -> None:
    xml = saved("kernel").replace("/var/lib/rmsplugin/vm", f"{tmp_path}/vm")
    found = loaded(settings, ["--qemu-hook", VM, "prepare", "begin", "-"], xml.encode())
    assert "rmsplugin.adapters.platform.libvirt.vm_shape" in found
    verbs = {f"{AGENT}.{name}" for name in ("calls", "files", "store", "values", "verbs")}
    assert found & (SLOW | OTHERS | verbs | {"ipaddress", "json", "pathlib", "shlex", "urllib"}) == set()


@pytest.mark.parametrize("verb", ["put-config", "put-seed", "stat", "drop-state", "drop-config", *ABOUT_NO_VM])
def test_a_short_verb_loads_nothing_that_others_need(settings: Path, verb: str) -> None:
    loaded(settings, ["init-store", "0" * 32, "-"], b"")
    words = [verb] if verb in ABOUT_NO_VM else [verb, VM]
    found = loaded(settings, words, b"x")
    assert f"{AGENT}.verbs" in found
    assert found & (SLOW | OTHERS | {f"{AGENT}.creation_hook", "xml.etree.ElementTree"}) == set()
