"""Build backend: setuptools, after the programs in C were compiled (pyproject.toml, PEP 517).

rmsplugin-job, which Slurm starts on fronts, becomes one of the wheel's scripts: setuptools takes no binaries as such,
and pip drops ``-I`` from the first line of a script in Python.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

_ROOT = Path(__file__).parents[2]
_LAUNCHER = _ROOT / "rmsplugin/wrapper/native/rmsplugin-job"

__all__ = (
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
)


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Build a wheel; see PEP 517."""
    _compile()
    return _with_launcher(wheel_directory, build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Build what an editable installation needs; see PEP 660."""
    _compile()
    # A path to the checkout: the finder that setuptools installs otherwise is code that each start of Python runs.
    settings = {**(config_settings or {}), "editable_mode": "compat"}
    name = build_meta.build_editable(wheel_directory, settings, metadata_directory)
    return _with_launcher(wheel_directory, name)


def _compile() -> None:
    subprocess.run([_ROOT / "contrib/compile-guest-tools"], check=True)


def _with_launcher(directory: str, name: str) -> str:
    """Put rmsplugin-job into the wheel of this name; returns the name."""
    whole = Path(directory, name)
    plain = whole.rename(whole.with_suffix(".plain"))
    data = _LAUNCHER.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    place = f"{'-'.join(name.split('-')[:2])}.data/scripts/{_LAUNCHER.name}"
    launcher = zipfile.ZipInfo(place, date_time=(1980, 1, 1, 0, 0, 0))
    launcher.external_attr = 0o100755 << 16
    launcher.compress_type = zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr(launcher, data)
        for member in old.infolist():
            content = old.read(member)
            if member.filename.endswith(".dist-info/RECORD"):
                content += f"{place},sha256={digest},{len(data)}\n".encode()
            new.writestr(member, content)
    plain.unlink()
    return name
