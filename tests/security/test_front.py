"""A user's environment against the front: the first process of his job there heeds nothing of it."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

GEOMETRY = "vms=1,cpus=1,memory=96,ntasks=1,cpus_per_task=1,image=default"
#: As pip put it beside this Python.
INSTALLED = Path(sys.executable).with_name("rmsplugin-job")
#: A library's constructor, and a module that Python imports as it starts.
LIBRARY = '#include <fcntl.h>\n__attribute__((constructor)) static void run(void) {{ open("{}", O_CREAT, 0600); }}\n'
MODULE = "open({!r}, 'w')\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A batch script as the kernel starts it."""
    path = tmp_path / "slurm_script"
    path.write_text(f"#!{INSTALLED} {GEOMETRY}\n#!/bin/sh\ntrue\n")
    path.chmod(0o700)
    return path


def start(script: Path, **environment: str) -> str:
    """Start it where no settings are; what it says on standard error."""
    bare = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "12", **environment}
    # Where root may: also without those of this host.
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /etc/rmsplugin 2>/dev/null; exec "$@"', "sh"]
    words = [*(hidden if os.getuid() == 0 else []), "env", "-i", *(f"{k}={v}" for k, v in bare.items()), str(script)]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S).stderr


def library(tmp_path: Path, marker: Path) -> str:
    source, built = tmp_path / "library.c", tmp_path / "library.so"
    source.write_text(LIBRARY.format(marker))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, source], check=True)
    return str(built)


@pytest.mark.parametrize("name", ["PYTHONPATH", "LD_PRELOAD", "LD_AUDIT"])
def test_nothing_that_the_environment_names_runs_on_the_front(tmp_path: Path, script: Path, name: str) -> None:
    marker = tmp_path / "it ran"
    if name.startswith("LD_"):
        # Only the job's first process: `env` before it is the test's own.
        script = wrapped(tmp_path, script, f"{name}={library(tmp_path, marker)}")
        start(script)
    else:
        (tmp_path / "sitecustomize.py").write_text(MODULE.format(str(marker)))
        start(script, **{name: str(tmp_path)})
    assert not marker.exists()


def wrapped(tmp_path: Path, script: Path, variable: str) -> Path:
    """A program that becomes the script with one more variable, as slurmstepd does."""
    path = tmp_path / "slurmstepd"
    name, _, value = variable.partition("=")
    path.write_text(
        f"#!{sys.executable} -I\nimport os\n"
        f"os.execve({str(script)!r}, [{str(script)!r}], {{**os.environ, {name!r}: {value!r}}})\n"
    )
    path.chmod(0o700)
    return path


def test_settings_are_not_read_where_the_user_says(tmp_path: Path, script: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(f'broken\n[slurm]\nbin_dir = "{tmp_path}"\n')
    said = start(script, RMSPLUGIN_CONFIG=str(own))
    assert said.startswith("rmsplugin-job: /etc/rmsplugin/rmsplugin.toml: ")
    assert "own.toml" not in said


@pytest.mark.parametrize("linked", [False, True])
def test_the_script_gets_the_whole_environment(tmp_path: Path, linked: bool) -> None:
    """What acts on no process here is laid aside, and is the job's in the VM: to the byte, whatever it is called."""
    place = tmp_path / "opt/bin"
    place.mkdir(parents=True)
    shutil.copy(INSTALLED, place)
    # In place of the Python beside it: tells what it was started as.
    told = (
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r});"
        " from rmsplugin.wrapper import process;"
        " print((sys.argv[1:], process.own_environment(), process.job_environment()))"
    )
    (place / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -I -c "{told}" "$@"\n')
    (place / "python3").chmod(0o700)
    program = place / "rmsplugin-job"
    if linked:
        program = tmp_path / "rmsplugin-job"
        program.symlink_to(place / "rmsplugin-job")
    environment = {
        "SLURM_JOB_ID": "12",
        "PYTHONPATH": "/home/ann/lib",
        "RMSPLUGIN_CONFIG": "/home/ann/own.toml",
        "RMSPLUGIN_ENVIRONMENT": "0",
        "LD_LIBRARY_PATH": "/home/ann/lib",
        "BASH_FUNC_module%%": "() { true\n}",
        "a.b": "\udcff\udcfe",
        "EMPTY": "",
        "PATH": "/home/ann/bin",
    }
    result = subprocess.run([program, GEOMETRY, "script", "a b", ""], env=environment, capture_output=True, check=True)
    words, own, job = ast.literal_eval(
        result.stdout.decode("utf-8", "surrogateescape").replace("\n", "\\n").strip("\\n")
    )
    assert words == ["-I", "-m", "rmsplugin.wrapper.main", GEOMETRY, "script", "a b", ""]
    assert job == environment
    assert {name for name in own if not name.startswith("SLURM_")} <= {"RMSPLUGIN_ENVIRONMENT", "PWD", "SHLVL", "_"}
    assert own["RMSPLUGIN_ENVIRONMENT"] != "0"
