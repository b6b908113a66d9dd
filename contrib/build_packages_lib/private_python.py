"""The private Python of the packages: a virtual environment at one path on all hosts, with all libraries.

It is made in a staging tree, by the Python of the release, and told afterwards where it will lie. On Debian libvirt's
module is not in it: links lead to that of the release, which fits its libvirt. Elsewhere it is compiled for the libvirt
of the machine that builds.
"""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path

from build_packages_lib.tools import REPOSITORY, BuildError, output_of

#: Where it lies on a host.
HOME = Path("/usr/lib/rmsplugin")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

#: The extras of pyproject.toml whose libraries are in it: all that settings and options can ask for.
_EXTRAS = ("ha", "redfish", "metrics", "html")
_LIBVIRT = "libvirt-python"
_OF_THE_SITE = "/usr/local/lib/rmsplugin"
#: Debian's package python3-libvirt.
_SYSTEM = Path("/usr/lib/python3/dist-packages")
_LIBVIRT_FILES = ("libvirt.py", f"libvirtmod{sysconfig.get_config_var('EXT_SUFFIX')}")
#: What the plugin is built from.
_SOURCES = ("rmsplugin", "contrib/build_backend", "contrib/compile-guest-tools")
_SOURCE_FILES = ("pyproject.toml", "README.md", "LICENSE")


def make(tree: Path, work: Path, libraries: bool, *, links_libvirt: bool = True) -> Path:
    """Make it in a staging tree.

    Args:
        tree: the root of the staging tree.
        work: directory for what is left over.
        libraries: whether to have the libraries from the package index in it.
        links_libvirt: whether libvirt's module is that of the release; else it is one of the libraries.

    Returns:
        the directory for modules in it.

    Raises:
        BuildError: a step fails.
    """
    home = tree / HOME.relative_to("/")
    output_of([sys.executable, "-m", "venv", "--without-pip", home])
    pip = _pip(work)
    if libraries:
        output_of([*pip, "--python", home / "bin/python3", "install", "--no-compile", *_requirements(links_libvirt)])
    output_of([*pip, "--python", home / "bin/python3", "install", "--no-compile", "--no-deps", _wheel(pip, work)])
    modules = home / f"lib/python{PYTHON}/site-packages"
    _tidy(home, modules)
    if links_libvirt:
        _link_libvirt(modules)
    # What a site adds, e.g. a policy; the libraries come first.
    (modules / "site.pth").write_text(f"{_OF_THE_SITE}\n")
    # Files of a package are never written beside on the host, so nothing has to be compared with its source.
    output_of([sys.executable, "-m", "compileall", *_COMPILE_OPTIONS, "-s", tree, "-p", "/", modules])
    return modules


_COMPILE_OPTIONS = ("-q", "-j", "0", "--invalidation-mode", "unchecked-hash")


def _pip(work: Path) -> list[str | Path]:
    """A pip of its own: the release's may not be installed."""
    tools = work / "tools"
    output_of([sys.executable, "-m", "venv", tools])
    return [tools / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]


def _requirements(links_libvirt: bool) -> list[str]:
    """What pyproject.toml asks for; of libvirt's module nothing, or the release of the libvirt of this machine."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(line for extra in _EXTRAS for line in project["optional-dependencies"][extra])]
    wanted = [line for line in asked if not line.startswith(_LIBVIRT)]
    if len(wanted) != len(asked) - 1:
        raise BuildError(f"pyproject.toml has no {_LIBVIRT}")
    if not links_libvirt:
        wanted.append(f"{_LIBVIRT}=={output_of(['pkg-config', '--modversion', 'libvirt']).strip()}")
    return wanted


def _wheel(pip: list[str | Path], work: Path) -> Path:
    """Build the plugin, from a copy: what setuptools leaves behind is not to lie in the checkout."""
    copy = work / "sources"
    for name in _SOURCES:
        source, target = REPOSITORY / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "vjob-tools", "rmsplugin-job"))
        else:
            shutil.copy2(source, target)
    for name in _SOURCE_FILES:
        shutil.copy2(REPOSITORY / name, copy / name)
    output_of([*pip, "wheel", "--no-deps", "--wheel-dir", work / "wheels", copy])
    (wheel,) = (work / "wheels").glob("rmsplugin-*.whl")
    return wheel


def _tidy(home: Path, modules: Path) -> None:
    """Leave only what works at its final place and is used there."""
    for path in (home / "bin").iterdir():
        if not re.fullmatch(r"python3?(\.\d+)?|rmsplugin-job", path.name):
            path.unlink()
    for name in ("include", "share", "etc"):
        shutil.rmtree(home / name, ignore_errors=True)
    lines = (home / "pyvenv.cfg").read_text().splitlines()
    (home / "pyvenv.cfg").write_text("".join(f"{line}\n" for line in lines if not line.startswith("command")))
    for path in modules.glob("*.dist-info/direct_url.json"):
        path.unlink()
    for path in list(modules.rglob("__pycache__")):
        shutil.rmtree(path)
    # Tests of libraries, a tenth of the whole.
    for path in [path for path in modules.glob("*/**/tests") if path.is_dir()]:
        shutil.rmtree(path, ignore_errors=True)  # one may lie in another


def _link_libvirt(modules: Path) -> None:
    for name in _LIBVIRT_FILES:
        (modules / name).symlink_to(_SYSTEM / name)
