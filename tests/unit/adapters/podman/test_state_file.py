"""The seal behind podman's export: whole or not, whose it is, and no obstacle to who reads the export."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rmsplugin.adapters.platform.podman.on_node import state_file
from rmsplugin.errors import CorruptStateError

VM = "vjob7-0"
IMAGE = "ab" * 32


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / f"{VM}.state.partial"
    path.write_bytes(b"exported" * 1000)
    return path


def test_a_sealed_file_is_whole_and_says_whose_state_it_is(state: Path) -> None:
    assert state_file.read(state) is None
    state_file.add(state, VM, IMAGE)
    assert state_file.read(state) == state_file.Seal(VM, IMAGE, 8000)
    assert state_file.require(state, VM).image == IMAGE
    with pytest.raises(CorruptStateError, match="not of vjob8-0"):
        state_file.require(state, "vjob8-0")


def test_a_file_that_was_cut_or_grew_anywhere_is_not_whole(state: Path) -> None:
    state_file.add(state, VM, IMAGE)
    sealed = state.read_bytes()
    for kept in (*range(0, len(sealed), 501), len(sealed) - 1):
        state.write_bytes(sealed[:kept])
        assert state_file.read(state) is None, kept
        with pytest.raises(CorruptStateError):
            state_file.require(state, VM)
    for longer in (sealed + b"x", b"x" + sealed, sealed + sealed[-1024:]):
        state.write_bytes(longer)
        assert state_file.read(state) is None


def test_a_seal_that_says_nothing_of_use_is_none(state: Path) -> None:
    state_file.add(state, VM, IMAGE)
    sealed = state.read_bytes()
    for old, new in ((b'"name"', b'"game"'), (b"{", b"["), (b"state 1", b"state 2")):
        state.write_bytes(sealed.replace(old, new))
        assert state_file.read(state) is None


@pytest.mark.skipif(shutil.which("zstd") is None, reason="there is no zstd here")
def test_who_unpacks_the_export_does_not_see_the_seal(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "plain.zst"
    plain.write_bytes(b"what podman exports" * 1000)
    subprocess.run(["zstd", "-q", str(plain)], check=True)
    state_file.add(packed, VM, IMAGE)
    unpacked = subprocess.run(["zstd", "-dc", str(packed)], capture_output=True, check=True).stdout
    assert unpacked == plain.read_bytes()
