"""Build backend: setuptools, after the program for guests was compiled (pyproject.toml, PEP 517)."""

from __future__ import annotations

import subprocess
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
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Build what an editable installation needs; see PEP 660."""
    _compile()
    return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)


def _compile() -> None:
    subprocess.run([Path(__file__).parents[1] / "compile-guest-tools"], check=True)
