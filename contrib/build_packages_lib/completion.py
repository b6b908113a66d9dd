"""Completion of `rmsplugin` in shells, made from its command line by shtab."""

from __future__ import annotations

import sys
from pathlib import Path

from build_packages_lib.tools import output_of

#: Shell -> where its completions lie; of zsh, below the directory of its release.
_PLACES = {"bash": "usr/share/bash-completion/completions/rmsplugin", "zsh": "usr/share/zsh/{zsh}/_rmsplugin"}

# The ids of live jobs and the names of nodes are Slurm's, which answers in hundredths of a second.
_PROGRAM = r"""
import argparse, sys
import shtab
from rmsplugin.cli.main import build_parser

BASH = '''
_rmsplugin_jobs() {
  compgen -W "$(squeue --noheader --array --format=%i 2>/dev/null)" -- "$1"
}
_rmsplugin_nodes() {
  compgen -W "$(sinfo --noheader --Node --format=%N 2>/dev/null | sort -u)" -- "$1"
}
'''
ZSH = '''
_rmsplugin_jobs() {
  compadd -- ${(f)"$(squeue --noheader --array --format=%i 2>/dev/null)"}
}
_rmsplugin_nodes() {
  compadd -- ${(fu)"$(sinfo --noheader --Node --format=%N 2>/dev/null)"}
}
'''
KINDS = {
    "JOBID": {"bash": "_rmsplugin_jobs", "zsh": "_rmsplugin_jobs"},
    "NODE": {"bash": "_rmsplugin_nodes", "zsh": "_rmsplugin_nodes"},
    "FILE": shtab.FILE,
    "DIR": shtab.DIRECTORY,
}


def complete(parser):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                complete(each)
        elif action.metavar in KINDS:
            action.complete = KINDS[action.metavar]


parser = build_parser()
complete(parser)
print(shtab.complete(parser, shell=sys.argv[1], preamble={"bash": BASH, "zsh": ZSH}))
"""


def scripts(modules: Path, work: Path, zsh: str) -> dict[str, str]:
    """The completions, by their places in a package's tree.

    Args:
        modules: the plugin's directory of modules, with its libraries or without.
        work: directory for shtab.
        zsh: the name of the directory that packages have for it.

    Raises:
        BuildError: shtab cannot be had, or fails.
    """
    pip = [work / "tools/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    shtab = work / "shtab"
    output_of([*pip, "install", "--no-compile", "--target", shtab, "shtab>=1.7,<2"])
    path = {"PYTHONPATH": f"{shtab}:{modules}", "PYTHONDONTWRITEBYTECODE": "1"}
    return {
        place.format(zsh=zsh): output_of([sys.executable, "-c", _PROGRAM, shell], path)
        for shell, place in _PLACES.items()
    }
