"""Image: the guest image of the cluster, and whether a guest boots from it under KVM here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from minicluster_lib import kvm
from minicluster_lib.cache import cache_directory, locked
from minicluster_lib.layout import REPOSITORY, MiniclusterError

_BUILDER = REPOSITORY / "contrib" / "guest-image"
_TRIAL_S = 10.0
READY_LINE = b"rmsplugin-guest: ready"


def provide(progress: Callable[[str], None]) -> Path:
    """Return the directory of the guest image, building it when the cache has none."""
    result = subprocess.run([sys.executable, str(_BUILDER), "build"], stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise MiniclusterError("the guest image could not be built (see above)")
    return Path(result.stdout.strip())


def domain_type(image_directory: Path, progress: Callable[[str], None]) -> str:
    """Return kvm when a guest really boots under it on this machine, else qemu; the answer is cached until reboot."""
    if not (os.access("/dev/kvm", os.R_OK | os.W_OK) and kvm.usable()):
        return "qemu"
    with locked("domain-type"):
        return _cached_domain_type(image_directory, progress)


def _cached_domain_type(image_directory: Path, progress: Callable[[str], None]) -> str:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    cached = cache_directory() / f"domain-type-{boot_id}"
    if cached.exists():
        return cached.read_text().strip()
    progress("trying whether a guest boots under KVM")
    found = "kvm" if _boots_under_kvm(image_directory) else "qemu"
    for old in cache_directory().glob("domain-type-*"):
        old.unlink()
    new = cached.with_suffix(".new")  # a minicluster that is killed here leaves no empty answer
    new.write_text(found + "\n")
    new.rename(cached)
    progress(f"guests run under {'KVM' if found == 'kvm' else 'TCG: no guest boots under KVM here'}")
    return found


def _boots_under_kvm(image_directory: Path) -> bool:
    command = [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-accel", "kvm", "-cpu", "host", "-machine", "pc", "-m", "128", "-serial", "stdio",
        "-kernel", str(image_directory / "vmlinux"), "-initrd", str(image_directory / "initrd.img"),
        "-append", "console=ttyS0 panic=-1",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    deadline = time.monotonic() + _TRIAL_S
    seen = b""
    try:
        while time.monotonic() < deadline and process.poll() is None and READY_LINE not in seen:
            seen += process.stdout.read() or b""
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    return READY_LINE in seen
