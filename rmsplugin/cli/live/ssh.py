"""Session: ssh into a VM of one's vjob, with the key and the host keys that the engine hands out for it."""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.file_errors import file_errors
from rmsplugin.errors import NotFoundError, OperationFailedError, RefusedError

_WAIT_S = 10


def add_command(commands: options.Commands) -> None:
    """Add ssh to the command line."""
    parser = options.add_command(
        commands,
        "ssh",
        "log in to a VM of a vjob, or run a command there",
        _ssh,
        """
        For the vjob's user, and root. COMMAND runs there; without one, a login shell. The exit status is that of ssh.
        The host key is verified.

        examples:
          rmsplugin ssh 12
          rmsplugin ssh 12 -- uptime
          rmsplugin ssh 12 1 -- 'ps aux | head'
        """,
    )
    parser.add_argument("job", metavar="JOBID", type=options.job_id, help="job id, or ARRAYID_INDEX")
    parser.add_argument("vm", metavar="VM", nargs="?", type=options.vm, default="0", help="name or number (default: 0)")
    parser.usage = "rmsplugin ssh [-h] [--config FILE] JOBID [VM] [-- COMMAND...]"


def _ssh(arguments: argparse.Namespace) -> int:
    answer = find_engine(arguments).access(arguments.job, wait_s=_WAIT_S)
    if "private_key" not in answer:
        reason = f" ({answer['reason']})" if answer.get("reason") else ""
        raise RefusedError(f"vjob {arguments.job} is {answer.get('state', 'not running')}{reason}: no VM to log in to")
    vm = _chosen(answer, arguments.job, arguments.vm)
    with _private_directory() as directory:
        return _run_ssh(ssh_command(directory, answer, vm, arguments.words))


def _chosen(answer: Mapping[str, Any], job: str, wanted: str) -> Mapping[str, Any]:
    vms: list[Mapping[str, Any]] = answer["vms"]
    for index, vm in enumerate(vms):
        if wanted in (vm["name"], str(index)):
            return vm
    raise NotFoundError(f"vjob {job} has no VM {wanted}; it has {', '.join(vm['name'] for vm in vms)}")


def ssh_command(directory: Path, answer: Mapping[str, Any], vm: Mapping[str, Any], command: Sequence[str]) -> list[str]:
    """Write key and host key into the directory, and return the command that uses them and nothing else.

    Raises:
        RefusedError: they cannot be written.
    """
    key, known_hosts = directory / "key", directory / "known_hosts"
    for path, text in ((key, answer["private_key"]), (known_hosts, f"{vm['name']} {vm['host_key']}\n")):
        with file_errors(path):
            path.touch(mode=0o600)
            path.write_text(text)
    chosen = {
        "IdentityFile": key,
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "PreferredAuthentications": "publickey",
        "UserKnownHostsFile": known_hosts,
        "GlobalKnownHostsFile": "none",
        "HostKeyAlias": vm["name"],
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "CheckHostIP": "no",
        "ConnectTimeout": "20",
        "LogLevel": "ERROR",
    }
    words = [word for name, value in chosen.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-F", "none", *words, "-l", answer["user"], "--", vm["address"], *command]


@contextmanager
def _private_directory() -> Iterator[Path]:
    """A directory that only we can enter, gone when the session ends, however that is (SIGKILL excepted)."""
    path = Path(tempfile.mkdtemp(prefix="rmsplugin-ssh-"))  # 0700

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        for number, handler in previous.items():
            signal.signal(number, handler)


def _run_ssh(command: list[str]) -> int:
    sys.stdout.flush()
    # ^C is for what runs in the VM: ssh gets it from the terminal as we do, and decides. Not SIG_IGN, which ssh would
    # inherit; and before ssh is there, for it may be told at once.
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return _status_of(command)
    finally:
        signal.signal(signal.SIGINT, interrupt)


def _status_of(command: list[str]) -> int:
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        raise OperationFailedError(f"ssh cannot be run: {error.strerror}; is openssh-client installed?") from None
    try:
        status = process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
    return status if status >= 0 else 128 - status
