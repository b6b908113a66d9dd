"""Container: the root file system of the small guest as an image for podman, with a first process for containers.

The archive depends on its content only: times are zero, owners are root, entries are sorted. So an image has one ID on
all nodes, whoever built and loaded it; a saved container is restored only on a node with the image of that ID.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from guest_image_lib import build

NAME = "container.tar"
REPOSITORY = "localhost/rmsplugin-guest"

_FIRST_PROCESS = "usr/lib/rmsplugin/container"
#: Where the node binds the configuration of a guest.
_CONFIG = "usr/lib/rmsplugin/config"
_INITTAB = "::respawn:/etc/rmsplugin/sshd\n"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def reference(key: str) -> str:
    """The name that settings have for the image: an image that differs has another one."""
    return f"{REPOSITORY}:{key}"


def build_container(output: Path | None, progress: Callable[[str], None]) -> Path:
    """Build the image, or find it in the cache; return the path of the archive, beside which a file has its name.

    Args:
        output: a directory where both are wanted besides the cache.
        progress: told what is being done.
    """
    build.run([str(build.COMPILE)])
    versions = build.tool_versions()
    key = build.Inputs("", tuple(versions)).key
    made = build.cache_directory() / f"container-{key}" / NAME
    if not made.exists():
        progress(
            f"building the guest of containers from {', '.join(f'{name} {version}' for name, version in versions)}"
        )
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=build.cache_directory(), prefix=".building-") as work:
            root = Path(work) / "root"
            fill_root(root)
            whole = Path(work) / NAME
            with whole.open("wb") as file:
                write_archive(file, root, reference(key))
            made.with_name("reference").write_text(f"{reference(key)}\n")
            whole.rename(made)
    os.utime(made.parent)
    build.forget_unused(build.cache_directory())
    if output is None:
        return made
    output.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(made.with_name("reference"), output / "reference")
    return Path(shutil.copyfile(made, output / NAME))


def fill_root(root: Path) -> None:
    """As of VMs, but for the first process: it needs no drivers, and takes no identity later."""
    build.fill_root(root)
    (root / "etc/inittab").write_text(_INITTAB)
    (root / "init").unlink()
    (root / _FIRST_PROCESS).symlink_to("vjob-tools")
    (root / _CONFIG).touch()


def write_archive(file: io.BufferedIOBase, root: Path, name: str) -> None:
    """Write the image of a root file system: one layer, its configuration, and a manifest (form of docker-archive)."""
    layer = _layer(root)
    configuration = {
        "architecture": _ARCHITECTURES.get(os.uname().machine, os.uname().machine),
        "config": {"Entrypoint": [f"/{_FIRST_PROCESS}"], "WorkingDir": "/"},
        "created": "1970-01-01T00:00:00Z",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    text = json.dumps(configuration, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for member, content in (
            (config_name, text),
            ("layer.tar", layer),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            archive.addfile(_member(member, 0o644, len(content)), io.BytesIO(content))


def _layer(root: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as layer:
        for path in sorted(root.rglob("*")):
            _add(layer, root, path, build.PRIVATE)
    return buffer.getvalue()


def _add(layer: tarfile.TarFile, root: Path, path: Path, private: Mapping[str, tuple[int, int]]) -> None:
    """Add an entry, with the modes that ``CpioWriter.add_tree`` has."""
    name, mode = str(path.relative_to(root)), path.lstat().st_mode
    only, group = private.get(name, (None, 0))
    if path.is_symlink():
        member = _member(name, 0o777)
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
        layer.addfile(member)
    elif path.is_dir():
        member = _member(name, only or (0o1777 if mode & 0o1000 else 0o755))
        member.type = tarfile.DIRTYPE
        layer.addfile(member)
    else:
        content = path.read_bytes()
        member = _member(name, only or (0o755 if mode & 0o100 else 0o644), len(content))
        member.gid = group
        layer.addfile(member, io.BytesIO(content))


def _member(name: str, mode: int, size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode, member.size = mode, size
    return member
