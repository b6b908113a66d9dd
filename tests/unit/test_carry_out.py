"""The process on a front that carries out one command of a VM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MAIN = """
import os, signal
from rmsplugin.wrapper import carry_out

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
        done = subprocess.run([sys.executable, "-c", MAIN], input=b"no request", stdout=answer, timeout=30)
        answer.seek(0)
        said = answer.read()
    assert (done.returncode, said[:4]) == (0, b"1 0 ")
