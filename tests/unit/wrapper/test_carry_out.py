"""The process on a front that carries out one command of a VM."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from patience import PATIENCE_S

MAIN = """
import os, signal
from rmsplugin.wrapper.carry_out import program as carry_out

end = carry_out.Output.end

def end_as_the_job_does(output, code):
    os.kill(os.getpid(), signal.SIGTERM)
    end(output, code)

carry_out.Output.end = end_as_the_job_does
carry_out.main(["carry_out", "", "whole"])
"""


def test_slurm_ending_all_processes_of_the_job_does_not_take_an_answer_back(tmp_path: Path) -> None:
    """As after `scancel $SLURM_JOB_ID`: the command has done what it was to do."""
    with (tmp_path / "answer").open("w+b") as answer:
        done = subprocess.run([sys.executable, "-c", MAIN], input=b"no request", stdout=answer, timeout=PATIENCE_S)
        answer.seek(0)
        said = answer.read()
    assert (done.returncode, said[:4]) == (0, b"1 0 ")


LINE = "#!/usr/bin/rmsplugin-job vms=1,cpus=1,memory=256,ntasks=1,cpus_per_task=1,image=default,x_ntasks=default\n"
SCRIPT = "#!/bin/sh\necho here\n"


def carried_out(directory: Path, clients: Path, *words: str) -> str:
    """The answer to a client's words that were asked for in that directory."""
    parts = {"words": "".join(f"{word}\0" for word in words), "cwd": str(directory), "umask": "022", "environment": ""}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content.encode()))
    (directory / "request").write_bytes(data.getvalue())
    code = "import sys; from rmsplugin.wrapper.carry_out import program; program.main(sys.argv)"
    with (directory / "request").open("rb") as request, (directory / "answer").open("w+") as answer:
        subprocess.run(
            [sys.executable, "-c", code, str(clients), "whole"], stdin=request, stdout=answer, timeout=PATIENCE_S
        )
        answer.seek(0)
        return answer.read().partition("\n")[2]


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """A scontrol that writes the script with the plugin's line, as Slurm has it."""
    (tmp_path / "slurms").write_text(LINE + SCRIPT)
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        "#!/bin/sh\n"
        f"case $4 in -) cat {tmp_path}/slurms ;; *) cat {tmp_path}/slurms >${{4:-slurm-$3.sh}}; echo written ;; esac\n"
    )
    scontrol.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("verb", [("write", "batch_script"), ("WRITE", "batch")])
def test_the_script_of_a_vjob_is_written_as_its_user_wrote_it(
    tmp_path: Path, clients: Path, verb: tuple[str, str]
) -> None:
    assert carried_out(tmp_path, clients, "scontrol", *verb, "12", "-") == SCRIPT
    for words, name in ((("12",), "slurm-12.sh"), (("12", "copy"), "copy")):
        assert carried_out(tmp_path, clients, "scontrol", *verb, *words) == "written\n"
        assert (tmp_path / name).read_text() == SCRIPT


def test_a_file_that_no_scontrol_wrote_is_left_alone(tmp_path: Path, clients: Path) -> None:
    (tmp_path / "copy").write_text(LINE + SCRIPT)
    assert carried_out(tmp_path, clients, "scontrol", "show", "batch_script", "12", "-") == LINE + SCRIPT
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    carried_out(tmp_path, clients, "scontrol", "write", "batch_script", "12", "copy")
    assert (tmp_path / "copy").read_text() == LINE + SCRIPT
