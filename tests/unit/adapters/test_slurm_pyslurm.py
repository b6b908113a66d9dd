"""Whether pyslurm can be used: its import may fail, hang, or end the process, which hurts nobody who asks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmsplugin.adapters.rms import slurm_pyslurm
from rmsplugin.adapters.rms.factory import open_rms
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_pyslurm import SlurmPyslurm
from rmsplugin.errors import SettingsError


@pytest.fixture
def pyslurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty module pyslurm, found before any real one."""
    monkeypatch.syspath_prepend(tmp_path)  # type: ignore[no-untyped-call]
    (tmp_path / "pyslurm.py").touch()
    return tmp_path / "pyslurm.py"


def test_the_release_of_slurm_decides(pyslurm: Path) -> None:
    pyslurm.write_text("print('libslurm says something'); __version__ = '24.11.1'\n")
    assert SlurmPyslurm.fits("24.11.5")
    assert not SlurmPyslurm.fits("22.05.8")
    assert not SlurmPyslurm.fits("")


@pytest.mark.parametrize(
    ("module", "why"),
    [
        # As libslurm does where it finds no slurm.conf.
        ("import os, sys\nprint('fatal: no configuration', file=sys.stderr)\nos._exit(1)\n", "fatal: no configuration"),
        ("import os\nos._exit(0)\n", "printed nothing"),
        ("import os\nos.kill(os.getpid(), 9)\n", "exit status -9"),
        ("raise ImportError('libslurm.so.42: no such file')\n", "libslurm.so.42"),
    ],
)
def test_an_import_that_fails_or_ends_the_process_leaves_slurms_commands(
    pyslurm: Path, module: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    pyslurm.write_text(module)
    assert not SlurmPyslurm.fits("24.11.5")
    assert why in caplog.text
    assert isinstance(open_rms("auto"), SlurmCli)
    with pytest.raises(SettingsError, match=r"slurm\.adapter is pyslurm"):
        open_rms("pyslurm")


def test_slurm_is_not_asked_for_its_release_where_there_is_no_pyslurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: a new leader waited for a slurmctld that had gone, for the time of a command."""

    def version(commands: SlurmCli) -> str:
        raise AssertionError("asked")

    monkeypatch.setitem(sys.modules, "pyslurm", None)
    monkeypatch.setattr(SlurmCli, "version", version)
    assert isinstance(open_rms("auto"), SlurmCli)


def test_an_import_that_hangs_is_not_waited_for(pyslurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_pyslurm, "_IMPORT_S", 0.5)
    pyslurm.write_text("import time\ntime.sleep(60)\n")
    assert not SlurmPyslurm.fits("24.11.5")
