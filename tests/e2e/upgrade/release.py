"""Releases: two trees of this repository, made so that hosts of a minicluster have first the one and then the other.

``TREE`` is an older commit, and the place from which hosts run the program. ``TREE/next`` is this checkout. A host is
upgraded when ``next`` is mounted over ``TREE`` there: what runs from that path is read from the new files, as after an
installation, and processes that run go on.

The programs are those of the commits with this checkout's libraries, or those of Debian packages with the libraries
that each has of its own. A package's private Python runs from wherever it lies.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from e2e.cluster import REPOSITORY

import rmsplugin

NEXT = "next"
LIBRARIES = Path(f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages")
#: What the older tree says it is, where both say the same: nodes and commands tell releases apart by it.
OLDER = "0.0.9"
_PROGRAMS = {
    "rmsplugin": "rmsplugin.cli.main",
    "rmsplugin-hook": "rmsplugin.hook",
    "rmsplugin-node": "rmsplugin.node_agent.main",
}
_SCRIPT = """#!{tree}/.venv/bin/python3{options}
import sys
from {module} import main
sys.exit(main())
"""


def commit_before(hours: int) -> str:
    """The newest commit that is that much older than the newest one."""
    newest = int(_git("log", "-1", "--format=%ct"))
    return _git("rev-list", "-1", f"--before={newest - 3600 * hours}", "HEAD")


def make_releases(tree: Path, commit: str, packages: tuple[Path, Path] | None = None) -> str:
    """Make both trees; the newer one is of what is committed here.

    Args:
        tree: the place of both.
        commit: the older one; with packages, the one of which the older ones were built.
        packages: directories of the older and of the newer packages; None: the programs are the commits' own.

    Returns:
        the older one's version.
    """
    tree.mkdir()
    (tree / NEXT).mkdir()
    for each, of_commit, debs in zip((tree, tree / NEXT), (commit, "HEAD"), packages or (None, None), strict=True):
        _unpack(of_commit, each)
        _compile(each)
        if debs is None:
            _make_environment(each, tree)
        else:
            unpack_packages(debs, each / ".venv")
        write_programs(each / ".venv/bin", tree, apart=debs is not None)
    if packages is None:
        shutil.copy2(tree / "rmsplugin/wrapper/native/rmsplugin-job", tree / ".venv/bin")
        shutil.copy2(tree / NEXT / "rmsplugin/wrapper/native/rmsplugin-job", tree / NEXT / ".venv/bin")
    return _call_older(tree / ".venv" / LIBRARIES if packages else tree)


def _call_older(modules: Path) -> str:
    """Have the older release say that it is another one than this; return its version."""
    place = modules / "rmsplugin/__init__.py"
    text = place.read_text()
    place.write_text(text.replace(f'"{rmsplugin.__version__}"', f'"{OLDER}"'))
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-f", str(place)], check=True)
    return OLDER if f'"{rmsplugin.__version__}"' in text else "another"


def unpack_packages(debs: Path, environment: Path) -> None:
    """Have the private Python of packages at ``environment``; libvirt's module is lent where Debian's is missing."""
    with tempfile.TemporaryDirectory(dir=environment.parent) as unpacked:
        for deb in sorted(debs.glob("rmsplugin-*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(deb), unpacked], check=True)
        (Path(unpacked) / "usr/lib/rmsplugin").rename(environment)
    for link in (environment / LIBRARIES).glob("libvirt*"):
        if link.is_symlink() and not link.exists():
            link.unlink()
            shutil.copy2(REPOSITORY / ".venv" / LIBRARIES / link.name, link)


def write_programs(programs: Path, place: Path, *, apart: bool) -> None:
    """Write the programs of a tree that is run at ``place``; ``apart``: as packages start Python, seeing no others'."""
    for name, module in _PROGRAMS.items():
        (programs / name).write_text(_SCRIPT.format(tree=place, module=module, options=" -I" if apart else ""))
        (programs / name).chmod(0o755)


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(REPOSITORY), *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def _unpack(commit: str, directory: Path) -> None:
    archive = subprocess.run(["git", "-C", str(REPOSITORY), "archive", commit], check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(directory)], check=True, input=archive.stdout)


def _compile(tree: Path) -> None:
    subprocess.run([str(tree / "contrib/compile-guest-tools")], check=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(tree / "rmsplugin")], check=True)


def _make_environment(tree: Path, place: Path) -> None:
    """Give a tree, which is run at ``place``, this checkout's libraries and its own modules."""
    environment = tree / ".venv"
    programs = environment / "bin"
    programs.mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text(
        f"home = {Path(sys.base_prefix) / 'bin'}\ninclude-system-site-packages = false\n"
        f"version = {sys.version.split()[0]}\n"
    )
    for name in ("python", "python3"):
        (programs / name).symlink_to(
            Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        )
    (environment / LIBRARIES).parent.mkdir(parents=True)
    source, target = REPOSITORY / ".venv" / LIBRARIES, environment / LIBRARIES
    if subprocess.run(["cp", "-al", str(source), str(target)], stderr=subprocess.DEVNULL).returncode != 0:
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)  # it is on another file system
    for own in [*target.glob("__editable__*rmsplugin*"), *target.glob("rmsplugin-*.dist-info")]:
        shutil.rmtree(own) if own.is_dir() else own.unlink()
    (target / "rmsplugin.pth").write_text(f"{place}\n")
