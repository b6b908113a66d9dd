"""Slurm's end of a job, told by its library: no command of Slurm's tells how a script has ended.

usage: slurm_end.py PLUGIN_DIR JOB_ID STATUS

STATUS is the script's, as wait(2) gives it. ``salloc`` ends its own jobs by the same call. It is a process of its own,
for the library is Slurm's own one, of the site's release, and must not be loaded into an engine.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_LIBRARY = "libslurmfull.so"


def _complete(directories: str, job_id: int, status: int) -> None:
    """Tell slurmctld. Raises OSError: there is no such library, or slurmctld has refused."""
    found = [path for each in directories.split(":") if (path := Path(each, _LIBRARY)).exists()]
    if not found:
        raise OSError(f"{_LIBRARY} is not in PluginDir of slurm.conf ({directories})")
    # Slurm's plugins take their symbols from whoever has loaded them.
    slurm = ctypes.CDLL(str(found[0]), mode=ctypes.RTLD_GLOBAL, use_errno=True)
    slurm.slurm_init.argtypes, slurm.slurm_init.restype = [ctypes.c_char_p], None
    slurm.slurm_complete_job.argtypes = [ctypes.c_uint32, ctypes.c_uint32]
    slurm.slurm_strerror.argtypes, slurm.slurm_strerror.restype = [ctypes.c_int], ctypes.c_char_p
    slurm.slurm_init(None)
    if slurm.slurm_complete_job(job_id, status):
        raise OSError(slurm.slurm_strerror(ctypes.get_errno()).decode("utf-8", "replace"))


if __name__ == "__main__":
    try:
        _complete(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    except OSError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
    print("told", flush=True)
    os._exit(0)  # nothing of the library's own end is waited for
