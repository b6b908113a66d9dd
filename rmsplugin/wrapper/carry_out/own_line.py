"""Own line: removes the plugin's line before a script from the output of `scontrol write batch_script` in the VM.

Slurm has a vjob's script with the line (decision 0001); its user wrote it without. job_submit removes the line from a
copy that is submitted again (lua/rmsplugin_options.lua), so that copies made elsewhere do as well.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence

_LINE = re.compile(rb"(?:#!/\S+ vms=\d+,cpus=\d+,memory=\d+,ntasks=\d+,cpus_per_task=\d+,image=[^\n]*\n)+")
# scontrol accepts any prefix of at least five letters of it, in any case.
_WHAT, _LEAST = "batch_script", 5


def without(script: bytes) -> bytes:
    """The script as its user wrote it."""
    match = _LINE.match(script)
    return script[match.end() :] if match else script


def written_to(words: Sequence[str]) -> str | None:
    """The target to which these words of scontrol write a job's script: a file, or ``-`` for its output; None: none."""
    for at, word in enumerate(words[:-2]):
        what = words[at + 1].lower()
        if word.lower() == "write" and len(what) >= _LEAST and _WHAT.startswith(what):
            job, *files = words[at + 2 :]
            return files[0] if files else f"slurm-{job}.sh"
    return None


def mend_file(path: str) -> None:
    """Remove the line from a script in a file that scontrol has written."""
    with open(path, "r+b") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return
        script = file.read()
        own = without(script)
        if own != script:
            file.seek(0)
            file.write(own)
            file.truncate()
