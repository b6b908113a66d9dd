"""Modes in packages: those of a site, whatever umask build and checkout had. Real dpkg-deb, no Python inside."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from build_packages_lib import completion, deb, modes, private_python, trees
from build_packages_lib.tools import BuildError

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")

VALUES = {"version": "1-1~deb12", "architecture": "amd64", "python": "3.11", "next_python": "3.12", "maintainer": "A"}
_OWN = {"./var/lib/rmsplugin/store/": "drwx------", "./var/lib/rmsplugin/vm/": "drwx--x--x"}


@pytest.fixture(params=[0o077, 0o000], ids=["077", "000"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield int(request.param)
    os.umask(before)


def python(tree: Path, *arguments: object, **options: object) -> Path:
    """In place of the private Python: a program and a module."""
    modules = tree / "usr/lib/rmsplugin/lib"
    modules.mkdir(parents=True)
    (modules / "module.py").write_text("")
    os.close(os.open(modules / "program", os.O_CREAT, 0o777))
    return modules


def test_modes_are_those_of_a_site(tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_python, "make", python)
    monkeypatch.setattr(completion, "scripts", lambda *arguments: {})
    made = trees.make(tmp_path / "trees", tmp_path, libraries=False)
    for tree in made.values():
        for path in (tree, *tree.rglob("*")):
            assert path.is_symlink() or path.stat().st_mode & 0o777 in (0o755, 0o644, 0o700, 0o711), (
                path
            )  # as an RPM has
    for name, tree in made.items():
        file = deb.build(name, tree, VALUES, tmp_path, ["-Znone"])
        listed = subprocess.run(["dpkg-deb", "--contents", file], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            mode, _, _, _, _, place = line.split()[:6]
            usual = ("drwxr-xr-x",) if place.endswith("/") else ("-rw-r--r--", "-rwxr-xr-x", "lrwxrwxrwx")
            assert mode in ((_OWN[place],) if place in _OWN else usual), line
        assert name != trees.COMMON or "-rwxr-xr-x root/root         0" in listed, "a program is one"


def test_what_no_package_may_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "program").touch()
    (tmp_path / "program").chmod(0o4755)
    with pytest.raises(BuildError, match="no"):
        modes.set_modes(tmp_path)
