"""Releases: two trees of this repository, made so that hosts of a minicluster have first the one and then the other.

``TREE`` is an older commit, and the place from which hosts run the program. ``TREE/next`` is this checkout. A host is
upgraded when ``next`` is mounted over ``TREE`` there: what runs from that path is read from the new files, as after an
installation, and processes that run go on.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from e2e.cluster import REPOSITORY

import rmsplugin

NEXT = "next"
#: What the older tree says it is, where both say the same: nodes and commands tell releases apart by it.
OLDER = "0.0.9"
_PROGRAMS = {
    "rmsplugin": "rmsplugin.cli.main",
    "rmsplugin-hook": "rmsplugin.hook",
    "rmsplugin-node": "rmsplugin.node_agent.main",
}
_SCRIPT = """#!{tree}/.venv/bin/python3
import sys
from {module} import main
sys.exit(main())
"""


def commit_before(hours: int) -> str:
    """The newest commit that is that much older than the newest one."""
    newest = int(_git("log", "-1", "--format=%ct"))
    return _git("rev-list", "-1", f"--before={newest - 3600 * hours}", "HEAD")


def make_releases(tree: Path, commit: str) -> str:
    """Make both trees; the newer one is of what is committed here. Returns the older one's version."""
    tree.mkdir()
    _unpack(commit, tree)
    (tree / NEXT).mkdir()
    _unpack("HEAD", tree / NEXT)
    place = tree / "rmsplugin/__init__.py"
    text = place.read_text()
    place.write_text(text.replace(f'"{rmsplugin.__version__}"', f'"{OLDER}"'))
    for each in (tree, tree / NEXT):
        _compile(each)
        _make_environment(each, tree)
    return OLDER if f'"{rmsplugin.__version__}"' in text else "another"


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
    """Give a tree, which is run at ``place``, this checkout's libraries and its own programs."""
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
    libraries = Path(f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages")
    (environment / libraries).parent.mkdir(parents=True)
    source, target = REPOSITORY / ".venv" / libraries, environment / libraries
    if subprocess.run(["cp", "-al", str(source), str(target)], stderr=subprocess.DEVNULL).returncode != 0:
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)  # it is on another file system
    for own in [*target.glob("__editable__*rmsplugin*"), *target.glob("rmsplugin-*.dist-info")]:
        shutil.rmtree(own) if own.is_dir() else own.unlink()
    (target / "rmsplugin.pth").write_text(f"{place}\n")
    for name, module in _PROGRAMS.items():
        (programs / name).write_text(_SCRIPT.format(tree=place, module=module))
        (programs / name).chmod(0o755)
    shutil.copy2(tree / "rmsplugin/wrapper/native/rmsplugin-job", programs / "rmsplugin-job")
