"""What libvirt's words about saved states mean: only a damaged one may ever count as lost."""

from __future__ import annotations

import libvirt
import pytest

from rmsplugin.adapters.platform.libvirt.errors import (
    NoControlGroupError,
    is_unknown_format,
    is_unloadable_state,
    translate,
)
from rmsplugin.errors import NoSpaceError, NotFoundError, OperationFailedError, RmspluginError


def said(text: str, code: int, errno: int = 0) -> RmspluginError:
    error = libvirt.libvirtError("")
    error.err = (code, libvirt.VIR_FROM_QEMU, text, 2, None, None, None, errno, 0)
    return translate(error, "restoring vjob1-0 on n1")


def test_program_that_is_missing_is_not_a_file_that_is_missing() -> None:
    enoent = 2
    assert type(said("no file", libvirt.VIR_ERR_SYSTEM_ERROR, enoent)) is NotFoundError
    missing = said("Cannot find 'lzop' in path: No such file or directory", libvirt.VIR_ERR_SYSTEM_ERROR, enoent)
    assert type(missing) is OperationFailedError
    assert not is_unloadable_state(missing)


@pytest.mark.parametrize(
    "text", ["Failed to create v1 controller memory for group", "Failed to create v2 cgroup '/sys/fs/cgroup/x'"]
)
def test_a_control_group_that_is_missing_is_not_a_file_that_is_missing(text: str) -> None:
    assert type(said(f"{text}: No such file or directory", libvirt.VIR_ERR_SYSTEM_ERROR, 2)) is NoControlGroupError


@pytest.mark.parametrize(
    "text",
    ["Invalid compressed save format 5", "unsupported save image format: 6", "Invalid save image format specified"],
)
def test_format_of_a_newer_libvirt_is_not_damage(text: str) -> None:
    error = said(text, libvirt.VIR_ERR_OPERATION_FAILED)
    assert is_unknown_format(error) and not is_unloadable_state(error)


def test_damage_is_damage() -> None:
    error = said("image magic is incorrect", libvirt.VIR_ERR_OPERATION_FAILED)
    assert not is_unknown_format(error)
    assert is_unloadable_state(said("load of migration failed: Invalid argument", libvirt.VIR_ERR_OPERATION_FAILED))


def test_compressor_that_finds_no_room() -> None:
    assert type(said("lzop: No space left on device: <stdout>", libvirt.VIR_ERR_INTERNAL_ERROR)) is NoSpaceError
