"""`rmsplugin check` finds the hook that refuses other VMs wherever libvirt runs one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmsplugin.adapters.platform.libvirt.on_node import guards

REFUSES = "#!/bin/sh\necho 'rmsplugin refuses it' >&2\nexit 1\n"
LETS_ALL = "#!/bin/sh\ncat >/dev/null\n"


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(guards, "_QEMU_HOOK", str(tmp_path / "qemu"))
    monkeypatch.setattr(guards, "_QEMU_HOOKS", str(tmp_path / "qemu.d"))
    return tmp_path


def put(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("files", "refuses"),
    [
        ({}, False),
        ({"qemu": REFUSES}, True),
        ({"qemu": LETS_ALL}, False),
        ({"qemu.d/rmsplugin": REFUSES}, True),
        ({"qemu": LETS_ALL, "qemu.d/rmsplugin": REFUSES, "qemu.d/site": LETS_ALL}, True),
        ({"qemu": LETS_ALL, "qemu.d/site": LETS_ALL}, False),
    ],
)
def test_a_hook_is_seen_that_refuses_other_vms(hooks: Path, files: dict[str, str], refuses: bool) -> None:
    for name, text in files.items():
        put(hooks / name, text)
    assert guards.seen()["qemu_hook"] is refuses
