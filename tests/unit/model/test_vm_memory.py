"""How large a VM is for what was requested."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minicluster_lib import settings_file

from rmsplugin.model.vm_memory import largest_request_mib, vm_mib

#: Of contrib/guest-image booted with so much memory, as its /proc/meminfo said at the script's start (record 0043).
AVAILABLE_MIB = {96: 15, 130: 48, 256: 171, 512: 418, 1024: 841, 1800: 1598}


def test_without_a_known_overhead_a_vm_is_as_large_as_the_request() -> None:
    assert [vm_mib(request, 0) for request in (1, 96, 4096)] == [1, 96, 4096]
    assert largest_request_mib(4096, 0) == 4096


def test_a_vm_has_the_request_its_images_overhead_and_what_a_larger_machine_takes() -> None:
    assert vm_mib(64, 96) == 64 + 96 + 1 + 8
    assert vm_mib(1024, 96) == 1024 + 96 + 16 + 104
    assert vm_mib(1 << 20, 96) == (1 << 20) + 96 + (1 << 14) + 104, "not a share of it without bound"


def test_what_was_measured_of_the_small_image_is_covered() -> None:
    for size_mib, available_mib in AVAILABLE_MIB.items():
        assert vm_mib(available_mib, settings_file.IMAGE_OVERHEAD_MIB) >= size_mib


@given(st.integers(0, 1 << 21), st.integers(0, 4096))
def test_the_largest_request_is_the_largest_whose_vm_fits(most_mib: int, overhead_mib: int) -> None:
    largest = largest_request_mib(most_mib, overhead_mib)
    assert largest == 0 or vm_mib(largest, overhead_mib) <= most_mib
    assert vm_mib(largest + 1, overhead_mib) > most_mib


@pytest.mark.parametrize("memory_mib", [1024, 2048, 65536])
def test_the_minicluster_accepts_no_job_that_its_nodes_cannot_host(memory_mib: int) -> None:
    request_mib = settings_file.largest_request_mib(memory_mib, settings_file.IMAGE_OVERHEAD_MIB)
    size_mib = vm_mib(request_mib, settings_file.IMAGE_OVERHEAD_MIB) + settings_file.MEMORY_OVERHEAD_MIB
    assert memory_mib - 2 <= size_mib <= memory_mib or memory_mib < 1400
    assert size_mib <= memory_mib
