"""Templates that one minicluster of a run of pytest has made are there for the others, and for its other nodes.

To make one takes 6 to 9 s of CPU time beside what its job takes, on each node and for each size of a VM anew. The nodes
of all these miniclusters are alike: same image, same QEMU, same virtual hardware. The name of a template says these,
and the node agent takes none that does not fit. Tests of how templates are made drop first what is there.

A run of pytest has a directory for them, which goes when the run ends: nothing that another checkout made is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

#: Has the process id of the run: of its first process, whose environment its workers have.
_RUN = "RMSPLUGIN_TESTS_RUN"
#: Where miniclusters of tests are: a file there can have several names.
_PLACE = Path("/var/tmp")
_NAME = "rmsplugin-templates-"
#: Who holds its lock makes the usual templates, and writes into it when they are made.
_USUAL = "usual"
_is_first = False
#: The directory of a node's templates, in its file tree.
OF_A_NODE = "var/lib/rmsplugin/templates"


def begin_run() -> None:
    """To be called in each process of a run: the first one is the run."""
    os.environ.setdefault(_RUN, str(os.getpid()))


def end_run() -> None:
    """To be called at the end of each process of a run: with the first one goes what the run had in common."""
    if os.environ.get(_RUN) == str(os.getpid()):
        shutil.rmtree(_common(), ignore_errors=True)
        del os.environ[_RUN]


def _common() -> Path:
    return _PLACE / f"{_NAME}{os.environ.get(_RUN, os.getpid())}"


def share(nodes: Iterable[Path]) -> None:
    """Give what these nodes have made to all of the run, and to each of them what it lacks.

    Args:
        nodes: the directories that the nodes' file trees have on this machine.
    """
    common = _common()
    if not common.exists():
        _forget_ended_runs()
    exchange(common, [node / OF_A_NODE for node in nodes])


@contextlib.contextmanager
def place_of_first() -> Iterator[bool]:
    """Be the one that makes the usual templates; tells whether nobody has, once whoever is at it has ended."""
    global _is_first
    _common().mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(_common() / _USUAL, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        _is_first = True
        try:
            yield not file.read()
            file.write("made\n")
        finally:
            _is_first = False


def await_usual() -> None:
    """Wait for another process that makes the usual templates now."""
    if _is_first or not (_common() / _USUAL).exists():
        return
    with open(_common() / _USUAL) as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def exchange(common: Path, nodes: Iterable[Path]) -> None:
    """Have the templates of each directory in all of them; what a directory has already stays as it is there."""
    nodes = list(nodes)
    for directory in (common, *nodes):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for source, target in [*((node, common) for node in nodes), *((common, node) for node in nodes)]:
        _link_all(source, target)


def _link_all(source: Path, target: Path) -> None:
    """By further names of the same file: a template is never written to, but replaced."""
    for state in source.glob("*.state"):
        if (target / state.name).exists():
            continue
        for path in (state.with_suffix(".disk"), state):
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(path, target / path.name)


def _forget_ended_runs() -> None:
    """A run that was killed has left its directory."""
    for directory in _PLACE.glob(f"{_NAME}*"):
        if not Path("/proc", directory.name.removeprefix(_NAME)).exists():
            shutil.rmtree(directory, ignore_errors=True)
