"""Inside: run a command in a root, with mounts and processes that end with it.

The command's first process is process 1 of a PID namespace, and is killed when this program ends, however it ends: the
kernel ends all others of the namespace with it, and the mounts go with the last of them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from minicluster_lib import control_groups, host_init, kernel

from try_release_lib.root import CHECKOUT, REPOSITORY, SHARED, Place, RefusedError, environment, named_directories
from try_release_lib.root import pip_configuration as pip_files

_PR_SET_PDEATHSIG = 1
_NAMESPACES = kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWPID


def check_namespaces() -> None:
    """Refuse a machine where no namespaces can be made."""
    try:
        result = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    except FileNotFoundError:
        raise RefusedError("unshare is not installed; apt-get install util-linux") from None
    if result.returncode != 0:
        raise RefusedError(f"no namespaces can be made here (a container without privileges?): {result.stderr.strip()}")


def run(place: Place, command: list[str]) -> int:
    """Run a command in the root's copy of the checkout; return its exit status, 128 + N where signal N ended it."""
    parent = os.getpid()
    _remove_groups(place)  # of a run that was killed
    sys.stdout.flush()
    manager = os.fork()
    if manager == 0:
        os._exit(_guarded(lambda: _manage(place, command, parent)))
    # Control-C reaches the command itself; what it then does is waited for.
    old = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)}
    ended = {number: signal.signal(number, _end_with(manager)) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        _, status = os.waitpid(manager, 0)
    finally:
        for number, handler in {**old, **ended}.items():
            signal.signal(number, handler)
    _remove_groups(place)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _remove_groups(place: Place) -> None:
    if place.containers:
        control_groups.remove_groups(place.group, control_groups.RUNC_CONTROLLERS)


def _end_with(manager: int):  # type: ignore[no-untyped-def]
    def end(number: int, _frame: object) -> None:
        os.kill(manager, signal.SIGKILL)
        os._exit(128 + number)

    return end


def _guarded(function) -> int:  # type: ignore[no-untyped-def]
    try:
        return int(function())
    except (OSError, RefusedError) as error:
        print(f"try-release: {error}", file=sys.stderr, flush=True)
        return 1
    except BaseException as error:
        print(f"try-release: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1


def _die_with_parent(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:
        os._exit(1)  # it had ended already


def _manage(place: Place, command: list[str], parent: int) -> int:
    """The process between this program and process 1, which has to be a child of the one that makes the namespace."""
    _die_with_parent(parent)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    groups = control_groups.enter_group(place.group, control_groups.RUNC_CONTROLLERS) if place.containers else {}
    kernel.unshare(_NAMESPACES)
    first = os.fork()
    if first == 0:
        _die_with_parent(0)
        os._exit(_guarded(lambda: _first_process(place, command, groups)))
    _, status = os.waitpid(first, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _first_process(place: Place, command: list[str], groups: dict[Path, str]) -> int:
    kernel.set_host_name("try-release")
    _build_root(place, groups)
    os.chdir(CHECKOUT)
    main = os.fork()
    if main == 0:
        for number in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        if Path("/usr/local/share/ca-certificates").is_dir():
            subprocess.run(["update-ca-certificates"], capture_output=True, env=environment(), check=False)
        os.execvpe(command[0], command, environment())
    while True:
        pid, status = os.wait()  # what the command left behind is collected as well
        if pid == main:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _build_root(place: Place, groups: dict[Path, str]) -> None:
    """Make the release's file tree the root of this mount namespace; ``groups``: its control groups, if any."""
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    root = str(place.root)
    kernel.bind(root, root)
    kernel.mount("proc", f"{root}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.mount("sysfs", f"{root}/sys", "sysfs", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    if groups:
        host_init.mount_control_groups(Path(root, "sys/fs/cgroup"), groups)
    kernel.mount("tmpfs", f"{root}/run", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
    Path(root, "run/lock").mkdir()
    host_init.mount_dev(Path(root, "dev"))
    shown = [(str(REPOSITORY.parent / "shared"), str(SHARED))] if (REPOSITORY.parent / "shared").is_dir() else []
    settings = [path.read_text(errors="replace") for path in (Path("/etc/pip.conf"), *pip_files()) if path.is_file()]
    settings += [value for name, value in os.environ.items() if name.startswith("PIP_")]
    shown += [(directory, directory) for directory in named_directories(settings)]
    for source, target in shown:
        Path(root, target.lstrip("/")).mkdir(parents=True, exist_ok=True)
        kernel.bind(source, root + target, read_only=True)
    kernel.pivot_root(root)
