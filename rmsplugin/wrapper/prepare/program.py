"""Preparation: writes, as one tar to standard output, the files for the start of the script in the guest.

A process of its own that ends: the memory for this would stay in the wrapper for the job's whole life.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import tarfile
import time

from rmsplugin.model.vjob import Geometry
from rmsplugin.wrapper import process
from rmsplugin.wrapper.prepare import environment


def start_files(argv: list[str]) -> dict[str, bytes]:
    """The files, by name, without the standard input.

    Args:
        argv: ``prepare MERGED USER VM,VM... GEOMETRY SCRIPT ARGS...``.
    """
    merged, user, vms, geometry, script, *arguments = argv[1:]
    words = environment.script_environment(
        process.job_environment(),
        Geometry.parse(geometry),
        vms.split(","),
        user=user,
        home=os.path.expanduser("~"),
        hints=frozenset(geometry.strip().split(",")),
    )
    umask = os.umask(0o077)
    return {
        "slurm_script": without_first_line(script),
        "path": os.fsencode(script) + b"\n",
        "env": environment.environment_file(words),
        "args": environment.arguments_file(arguments),
        "limits": environment.limits_file(),
        "cwd": os.fsencode(os.getcwd()),
        "umask": f"{umask:04o}\n".encode(),
        "merged": f"{merged}\n".encode(),
    }


def without_first_line(path: str) -> bytes:
    """The user's script: without this program's line, which job_submit.lua put before it."""
    with open(path, "rb") as script:
        script.readline()
        return script.read()


def write_archive(files: dict[str, bytes], output: io.BufferedWriter) -> None:
    """Write the files, the standard input if it is a file, and last ``complete``."""
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            archive.addfile(_member(name, len(data)), io.BytesIO(data))
        if stat.S_ISREG(os.fstat(0).st_mode):
            with open("/proc/self/fd/0", "rb") as file:
                archive.addfile(_member("stdin", os.fstat(0).st_size), file)
        archive.addfile(_member("complete", 0))


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o700, int(time.time())
    return member


def main(argv: list[str]) -> None:
    """Write the archive; if that fails, write the error to standard error."""
    try:
        process.die_with_parent()
        files = start_files(argv)
        with open(1, "wb") as output:
            write_archive(files, output)
    except BrokenPipeError:
        # The connection broke. The wrapper prepares again for the next one.
        os._exit(process.CANNOT_RUN)
    except Exception as error:
        process.complain(error, who="")
        os._exit(process.CANNOT_RUN)
    sys.exit(0)
