"""contrib/run-campaign upgrade: which packages it takes and what it makes of them, and how long its vjobs last."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from e2e.cluster import REPOSITORY
from e2e.upgrade import __main__ as campaign
from e2e.upgrade import drill, managers
from e2e.upgrade.release import LIBRARIES, unpack_packages, write_programs


def package(directory: Path, name: str, files: dict[str, str]) -> None:
    """Make a package with these files; those without a text are links to nowhere."""
    tree = directory / name
    (tree / "DEBIAN").mkdir(parents=True)
    control = (
        f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: one\n"
    )
    (tree / "DEBIAN/control").write_text(control)
    for path, text in files.items():
        place = tree / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text) if text else place.symlink_to("/nowhere/libvirt.py")
    command = ["dpkg-deb", "--root-owner-group", "-b", tree, directory / f"{name}_1_all.deb"]
    subprocess.run(command, check=True, capture_output=True)


def test_programs_see_the_modules_of_packages_and_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, python = "usr/lib/rmsplugin", Path(sys.base_prefix) / "bin"
    says = "import libvirt\ndef main():\n    print('of the package')\n"
    files = {
        "pyvenv.cfg": f"home = {python}\ninclude-system-site-packages = false\n",
        "bin/rmsplugin-job": "-",
        **{f"{LIBRARIES}/{name}": "" for name in ("libvirt.py", f"libvirtmod{sysconfig.get_config_var('EXT_SUFFIX')}")},
        **dict.fromkeys((f"{LIBRARIES}/rmsplugin/{each}/__init__.py" for each in ("", "cli")), "# one\n"),
        f"{LIBRARIES}/rmsplugin/cli/main.py": says,
    }
    package(tmp_path, "rmsplugin-common", {f"{home}/{path}": text for path, text in files.items()})
    (tmp_path / "release").mkdir()
    environment = tmp_path / "release/.venv"
    unpack_packages(tmp_path, environment)
    (environment / "bin/python3").symlink_to(python / f"python3.{sys.version_info[1]}")
    write_programs(environment / "bin", tmp_path / "release", apart=True)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))  # which has an rmsplugin, too
    done = subprocess.run([environment / "bin/rmsplugin"], capture_output=True, text=True)
    assert done.stdout == "of the package\n", done.stderr
    assert [path.name for path in environment.parent.iterdir()] == [".venv"]


def test_a_directory_without_the_three_packages_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["upgrade", "--from", "HEAD", "--packages", str(tmp_path), str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        campaign.main()
    assert ended.value.code == 2
    assert f"{tmp_path} does not have the three packages of one release" in capsys.readouterr().err


class Stopped(Exception):
    """The drill has come far enough."""


class Submitting:
    """Stands for the site of a drill, and goes no further than its first order."""

    def __init__(self) -> None:
        self.bounds: list[int] = []

    def sbatch(self, *_: str, arguments: tuple[str]) -> int:
        self.bounds.append(int(arguments[0]))
        return len(self.bounds)

    def plugin(self, *_: str) -> None:
        raise Stopped


class SubmittingOfManagers(Submitting):
    """The same with managers of two groups."""

    groups = MappingProxyType({"left": ("n1",), "right": ("n2", "n3")})

    def wait_groups(self, hosts: set[str]) -> None:
        """All are there at once."""

    def group_of(self, job: int) -> str:
        return "left" if job == 1 else "right"


@pytest.mark.parametrize(
    ("upgrade", "site", "vjobs"), [(drill.upgrade, Submitting(), 3), (managers.upgrade, SubmittingOfManagers(), 4)]
)
def test_vjobs_of_a_drill_outlast_the_time_for_which_releases_are_mixed(
    monkeypatch: pytest.MonkeyPatch, upgrade: Any, site: Submitting, vjobs: int
) -> None:
    for module in (drill, managers):
        monkeypatch.setattr(module, "wait_number", lambda *_: 1)
    with pytest.raises(Stopped):
        upgrade(site, "0.0.9", 10 * 3600.0, print)
    assert len(site.bounds) == vjobs
    assert min(site.bounds) > 11 * 3600
