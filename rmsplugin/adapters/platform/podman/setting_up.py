"""Setting up: what podman, runc and CRIU of a VM host look for, as Debian has them."""

from __future__ import annotations

from pathlib import Path

from rmsplugin.adapters.platform.host_files import HostFiles

FILES = HostFiles(
    hook_source=Path("/usr/share/rmsplugin/hooks/criu"),
    hook=Path("/etc/criu/rmsplugin"),
    hook_does="the script that keeps a restored container still",
    values={},
    vm_group="root",
    private=(),
    certificates=(),
    start="`podman load -i FILE` with the image of the guests (docs/operator/images.md)",
)
