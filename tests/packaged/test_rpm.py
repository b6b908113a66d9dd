"""contrib/rpm: the spec is built by real rpmbuild, and its packages have what Debian's have.

Both are built without the libraries of the package index, by the Python of this machine. What they need on RHEL is
named in the spec, and was not tried: no RHEL is here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tarfile
from pathlib import Path

import pytest

import rmsplugin

REPOSITORY = Path(__file__).resolve().parents[2]
SPEC = REPOSITORY / "contrib/rpm/rmsplugin.spec"
#: What the packages are built from.
SOURCES = (
    "contrib",
    "docs/man",
    "docs/CHANGELOG.md",
    "hooks",
    "lua",
    "rmsplugin",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
SITE = f"/usr/lib/rmsplugin/lib/python{sysconfig.get_python_version()}/site-packages"
#: Where the same lies elsewhere; None: it is of one kind of packages only.
MOVED = {"/usr/share/zsh/vendor-completions": "/usr/share/zsh/site-functions"}
OF_DEBIAN = re.compile(
    rf"/usr/share/doc/[^/]+/(copyright|changelog(\.Debian)?\.gz)|{SITE}/libvirt.*|/usr/share/doc/rmsplugin-common"
)
OF_RPM = re.compile(r"/usr/(share/(licenses|doc)/rmsplugin-common.*|lib/\.build-id.*)")

pytestmark = pytest.mark.skipif(
    not (shutil.which("rpmbuild") and shutil.which("dpkg-deb")), reason="needs Debian's package rpm"
)


def said(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def rpms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("rpm")
    (top / "SOURCES").mkdir()
    name = f"rmsplugin-{rmsplugin.__version__}"
    with tarfile.open(top / f"SOURCES/{name}.tar.gz", "w:gz", compresslevel=1) as archive:
        for source in SOURCES:
            archive.add(REPOSITORY / source, f"{name}/{source}", filter=_without_caches)
    fast = ("--define", "_binary_payload w1.gzdio")
    said("rpmbuild", "-bb", "--nodeps", "--without", "libraries", *fast, "--define", f"_topdir {top}", SPEC)
    return top / "RPMS"


def _without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(entry.name).name in ("__pycache__", "vjob-tools", "rmsplugin-job") else entry


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("debs")
    said(REPOSITORY / "contrib/build-packages", "--fast", "--without-libraries", "--output", output)
    return output


def in_deb(debs: Path, kind: str) -> dict[str, str]:
    """Mode and owner of each file, by its path; of a directory that several packages have, too."""
    (file,) = debs.glob(f"rmsplugin-{kind}_*.deb")
    found = {}
    for line in said("dpkg-deb", "-c", file).splitlines():
        mode, owner, _, _, _, path = line.split(None, 5)
        found["/" + path.partition(" -> ")[0].strip("./")] = f"{mode} {owner}"
    return found


def in_rpm(rpms: Path, kind: str) -> dict[str, str]:
    (file,) = rpms.rglob(f"rmsplugin-{kind}-*.rpm")
    query = "[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES}\n]"
    rows = (line.split(" ", 2) for line in said("rpm", "-qp", "--queryformat", query, file).splitlines())
    return {path: f"{mode} {owner}" for mode, owner, path in rows}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["common", "controller", "node"])
def test_the_packages_have_what_those_of_debian_have(rpms: Path, debs: Path, kind: str) -> None:
    expected = {}
    for path, how in in_deb(debs, kind).items():
        for here, there in MOVED.items():
            path = path.replace(here, there)
        # A directory of the system is no package's own there.
        if not OF_DEBIAN.fullmatch(path) and not (how.startswith("d") and not _is_ours(path)):
            expected[path] = how
    found = {path: how for path, how in in_rpm(rpms, kind).items() if not OF_RPM.fullmatch(path)}
    assert found == expected


def _is_ours(path: str) -> bool:
    return "rmsplugin" in path


@pytest.mark.long
def test_configuration_of_the_site_is_kept(rpms: Path, debs: Path, tmp_path: Path) -> None:
    for kind in ("common", "controller", "node"):
        (deb,) = debs.glob(f"rmsplugin-{kind}_*.deb")
        said("dpkg-deb", "-e", deb, tmp_path / kind)
        kept = tmp_path / kind / "conffiles"
        (file,) = rpms.rglob(f"rmsplugin-{kind}-*.rpm")
        assert said("rpm", "-qpc", file).split() == (kept.read_text().split() if kept.exists() else [])


def test_the_version_is_that_of_the_plugin() -> None:
    assert f"\nVersion:        {rmsplugin.__version__}\n" in SPEC.read_text()


@pytest.mark.parametrize(("release", "python"), [("9", "python3.12"), ("10", "python3")])
def test_each_release_has_a_python_that_the_plugin_runs_on(release: str, python: str) -> None:
    read = said("rpmspec", "-P", "--define", f"rhel {release}", SPEC)
    assert re.search(rf"^Requires: +{re.escape(python)}$", read, re.MULTILINE)
    assert f"/usr/bin/{python} -m build_packages_lib.stage" in read
