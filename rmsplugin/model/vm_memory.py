"""VM memory: the size of a VM whose job has the memory that it asked for. Pure; only this module computes it.

A request is the memory that a job can use. The guest's kernel and tools come on top of it (``overhead_mib`` of the
image, and a part that grows with the machine under any Linux). The hypervisor's need comes on top of that
(``nodes.memory_overhead_mib``), and is not in the VM. docs/decisions/0043 has the measurements.
"""

from __future__ import annotations

#: The kernel describes each page of 4 KiB in 64 bytes (``struct page``).
_PAGES = 64
#: With transparent huge pages, from 512 MiB on, the kernel keeps a twentieth free, 66 MiB at most (``min_free_kbytes``,
#: set by ``set_recommended_min_free_kbytes``), and available memory counts from one and a half times that.
_FREE, _FREE_MIB = 8, 104


def vm_mib(request_mib: int, overhead_mib: int) -> int:
    """The memory with which a VM is booted, in MiB.

    Args:
        request_mib: the memory that the job requested in each VM.
        overhead_mib: the overhead of the image; 0: unknown, then the VM is as large as the request, and the job has
            less.
    """
    if not overhead_mib:
        return request_mib
    return request_mib + overhead_mib + -(-request_mib // _PAGES) + min(-(-request_mib // _FREE), _FREE_MIB)


def largest_request_mib(most_mib: int, overhead_mib: int) -> int:
    """The largest request whose VM is no larger than ``most_mib``, in MiB; 0 if there is none."""
    low, high = 0, max(0, most_mib)
    while low < high:
        middle = (low + high + 1) // 2
        if vm_mib(middle, overhead_mib) <= most_mib:
            low = middle
        else:
            high = middle - 1
    return low
