"""The trees of the three packages: which file of the checkout lies where on a host."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from build_packages_lib import completion, private_python
from build_packages_lib.deb import squeeze
from build_packages_lib.modes import NODE_DIRECTORIES, set_modes
from build_packages_lib.tools import REPOSITORY

COMMON, CONTROLLER, NODE = "rmsplugin-common", "rmsplugin-controller", "rmsplugin-node"

#: Program in /usr/bin -> the module with its function ``main``.
_COMMON_PROGRAMS = {"rmsplugin": "rmsplugin.cli.main", "rmsplugin-hook": "rmsplugin.hook"}
_NODE_PROGRAMS = {"rmsplugin-node": "rmsplugin.node_agent.main"}
#: Files of their own for each hook: an administrator may change one, and keeps it.
_HOOKS = ("prolog", "epilog", "prolog_slurmctld", "epilog_slurmctld", "resume_program", "suspend_program")


@dataclass(frozen=True, slots=True)
class System:
    """What differs between kinds of systems: see ``private_python.make`` and ``completion.scripts``."""

    links_libvirt: bool
    zsh: str


DEBIAN = System(links_libvirt=True, zsh="vendor-completions")
RED_HAT = System(links_libvirt=False, zsh="site-functions")


def make(root: Path, work: Path, libraries: bool, system: System = DEBIAN) -> dict[str, Path]:
    """Make the trees of all packages below a directory; see ``private_python.make``.

    Returns:
        the trees by the packages' names.
    """
    trees = {name: root / name for name in (COMMON, CONTROLLER, NODE)}
    for tree in trees.values():
        tree.mkdir(parents=True, mode=0o755)
    modules = private_python.make(trees[COMMON], work, libraries, links_libvirt=system.links_libvirt)
    _common(trees[COMMON], modules, work, system)
    _controller(trees[CONTROLLER])
    _node(trees[NODE])
    for tree in trees.values():
        set_modes(tree)
    return trees


def _common(tree: Path, modules: Path, work: Path, system: System) -> None:
    _programs(tree, _COMMON_PROGRAMS)
    # It starts the Python beside it, whichever links lead to it.
    (tree / "usr/bin/rmsplugin-job").symlink_to(private_python.HOME / "bin/rmsplugin-job")
    for page in sorted((REPOSITORY / "docs/man").iterdir()):
        squeeze(page.read_bytes(), tree / f"usr/share/man/man{page.suffix[1:]}/{page.name}.gz")
    for place, text in completion.scripts(modules, work, system.zsh).items():
        _write(tree / place, text)
    for name in _HOOKS:
        _copy("hooks/prolog", tree / "etc/rmsplugin/hooks" / name)


def _controller(tree: Path) -> None:
    for name in ("rmsplugin-engine.service", "rmsplugin-manager.service"):
        _copy(f"contrib/systemd/{name}", tree / "usr/lib/systemd/system" / name)
    _copy("contrib/logrotate/rmsplugin", tree / "etc/logrotate.d/rmsplugin")
    # job_submit.lua, which a site may have its own of, looks for the others there.
    for path in sorted((REPOSITORY / "lua").glob("*.lua")):
        _copy(path, tree / "usr/share/rmsplugin" / path.name)
    _examples(tree, CONTROLLER, "slurm.conf.example", "nftables/rmsplugin-guests.nft")
    _examples(tree, CONTROLLER, "prometheus/rmsplugin.rules.yml", "grafana/rmsplugin.json")


def _node(tree: Path) -> None:
    _programs(tree, _NODE_PROGRAMS)
    for name in ("criu", "qemu"):
        _copy(f"hooks/{name}", tree / "usr/share/rmsplugin/hooks" / name)
    _examples(tree, NODE, "nftables/rmsplugin-guests.nft")
    for place in NODE_DIRECTORIES:
        (tree / place).mkdir(parents=True)


def _programs(tree: Path, modules: dict[str, str]) -> None:
    """Programs are files in /usr/bin, not links: so libvirt's AppArmor profile lets its hook start the node agent.

    They are isolated: a user's PYTHONPATH is for another Python.
    """
    for name, module in modules.items():
        text = f"#!{private_python.HOME}/bin/python3 -I\nimport sys\n\nfrom {module} import main\n\nsys.exit(main())\n"
        _write(tree / "usr/bin" / name, text, 0o755)


def _examples(tree: Path, package: str, *names: str) -> None:
    for name in names:
        _copy(f"contrib/{name}", tree / "usr/share/doc" / package / "examples" / Path(name).name)


def _copy(source: str | Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(REPOSITORY / source, target)
    target.chmod((REPOSITORY / source).stat().st_mode & 0o755)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
