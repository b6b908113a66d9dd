"""Hosts: start the hosts' first processes, talk to them, and run commands inside."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minicluster_lib.host_init import CONTROL_SOCKET
from minicluster_lib.layout import (
    MEMBER_VARIABLE,
    PRIMARY_GROUPS,
    PROJECTS,
    REPOSITORY,
    SEARCH_PATH,
    USERS,
    VENV,
    Cluster,
    Host,
    MiniclusterError,
)
from minicluster_lib.teardown import is_init

_LEFT_OUT_OF_ETC = {"ssh", "munge", "libvirt", "slurm", "mysql", "ssl", "pki", "rmsplugin", "ganesha", "apparmor.d"}
_LEFT_OUT_OF_ETC |= {"systemd", "init.d", "alternatives.d", "sudoers", "sudoers.d", "gshadow"}


def prepare_files(cluster: Cluster) -> None:
    """Make each host's own /etc, /var, /root and /tmp, and the shared /home."""
    template = cluster.directory / "template-etc"
    shutil.copytree("/etc", template, symlinks=True, ignore=_ignore_etc, dirs_exist_ok=True)
    for entry in ("mysql", "ssl"):
        if Path("/etc", entry).is_dir():
            shutil.copytree(f"/etc/{entry}", template / entry, symlinks=True, ignore=shutil.ignore_patterns("private"))
    _write_accounts(template)
    (template / "hosts").write_text(_hosts_file(cluster))
    (template / "resolv.conf").unlink(missing_ok=True)
    (template / "resolv.conf").write_text("# no name service here: see hosts\n")
    (template / "nsswitch.conf").write_text(
        "passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\nservices: files\nprotocols: files\n"
    )
    (template / "mtab").unlink(missing_ok=True)
    (template / "mtab").symlink_to("/proc/self/mounts")
    for name in ("slurm", "munge", "libvirt", "ssh", "pki", "rmsplugin", "ganesha"):
        (template / name).mkdir(exist_ok=True)
    for host in cluster.hosts:
        shutil.copytree(template, host.path("etc"), symlinks=True)
        host.path("etc/hostname").write_text(f"{host.name}\n")
        _make_directories(host)
    shutil.rmtree(template)
    _make_homes(cluster.shared / "home")


def _make_homes(home: Path) -> None:
    """Make the directories of users and projects, which guests see by NFS."""
    home.mkdir(parents=True)
    for project, (gid, _) in PROJECTS.items():
        directory = home / project
        directory.mkdir()
        os.chown(directory, 0, gid)
        directory.chmod(0o2770)
    for user, uid in USERS.items():
        directory = home / user
        directory.mkdir(mode=0o700)
        profile = directory / ".profile"
        profile.write_text(f"PATH={VENV}/bin:{SEARCH_PATH}\nexport PATH\n")
        for path in (directory, profile):
            os.chown(path, uid, uid)


def _ignore_etc(directory: str, names: list[str]) -> set[str]:
    if directory == "/etc":
        return {name for name in names if name in _LEFT_OUT_OF_ETC or name.endswith("-")}
    return {name for name in names if not os.access(os.path.join(directory, name), os.R_OK)}


def _write_accounts(etc: Path) -> None:
    own = tuple(f"{name}:" for name in (*USERS, *PRIMARY_GROUPS.values(), *PROJECTS))

    def others(path: Path) -> list[str]:
        return [line for line in path.read_text().splitlines() if not line.startswith(own)]

    passwd, group, shadow = (others(etc / name) for name in ("passwd", "group", "shadow"))
    for user, uid in USERS.items():
        passwd.append(f"{user}:x:{uid}:{uid}:{user.capitalize()}:/home/{user}:/bin/bash")
        group.append(f"{PRIMARY_GROUPS[user]}:x:{uid}:")
        shadow.append(f"{user}:*:19000:0:99999:7:::")
    group += [f"{project}:x:{gid}:{','.join(members)}" for project, (gid, members) in PROJECTS.items()]
    # No password of the machine is carried into the hosts.
    shadow = [":".join([line.split(":")[0], "*", *line.split(":")[2:]]) for line in shadow]
    for name, lines in (("passwd", passwd), ("group", group), ("shadow", shadow)):
        (etc / name).write_text("\n".join(lines) + "\n")


def _hosts_file(cluster: Cluster) -> str:
    lines = ["127.0.0.1 localhost"] + [f"{host.address} {host.name}" for host in cluster.hosts]
    return "\n".join(lines) + "\n"


def _make_directories(host: Host) -> None:
    slurm = ("slurm", "slurm")
    munge = ("munge", "munge")
    wanted: list[tuple[str, int, tuple[str, str] | None]] = [
        ("root", 0o711, None),
        ("root/.ssh", 0o700, None),
        ("tmp", 0o1777, None),
        ("var/tmp", 0o1777, None),
        ("var/cache/libvirt", 0o755, None),
        ("var/lib/libvirt", 0o755, None),
        ("var/lib/munge", 0o711, munge),
        ("var/spool/slurm", 0o755, slurm),
        ("var/spool/slurm/d", 0o755, None),
        ("var/lib/rmsplugin", 0o700 if host.is_head else 0o755, slurm if host.is_head else None),
        ("var/lib/rmsplugin-images", 0o755, None),
        ("var/log", 0o755, None),
    ]
    if host.is_head:
        wanted += [
            ("var/spool/slurm/ctld", 0o700, slurm),
            ("var/lib/nfs/ganesha", 0o755, None),
            ("var/lib/slurm", 0o700, slurm),
        ]
    else:
        wanted += [
            ("var/lib/rmsplugin/store", 0o700, None),
            ("var/lib/rmsplugin/vm", 0o711, None),
        ]
    for path, mode, owner in wanted:
        directory = host.path(path)
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(mode)
        if owner:
            shutil.chown(directory, *owner)
    host.path("var/run").symlink_to("/run")
    host.path("var/lock").symlink_to("/run/lock")
    host.log_directory.mkdir(parents=True)
    host.log_directory.chmod(0o755)


def write_binds(cluster: Cluster, host: Host) -> None:
    """Write what the host's file tree holds besides the system and the host's own files."""
    binds = [
        [str(cluster.shared / "home"), "/home", "rw"],
        [str(cluster.shared / "slurm"), "/etc/slurm", "rw"],
        [str(host.log_directory), "/var/log", "rw"],
        [str(REPOSITORY), str(REPOSITORY), "ro"],
    ]
    if cluster.image_directory:
        binds.append([cluster.image_directory, "/var/lib/rmsplugin-images", "ro"])
    for prefix in (sys.prefix, sys.base_prefix, str(VENV.resolve())):
        if not any(Path(prefix).is_relative_to(covered) for covered in ("/usr", REPOSITORY)):
            binds.append([prefix, prefix, "ro"])
    (host.directory / "binds.json").write_text(json.dumps(binds))


def boot(cluster: Cluster, host: Host) -> int:
    """Start a host's first process; return its PID on this machine."""
    write_binds(cluster, host)
    environment = {
        "PATH": SEARCH_PATH,
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        MEMBER_VARIABLE: str(cluster.directory),
    }
    command = [sys.executable, "-m", "minicluster_lib.host_init", "--dir", str(cluster.directory), "--host", host.name]
    log_path = host.log_directory / "host.log"
    with log_path.open("ab") as log:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment, cwd="/"
        )
    if result.returncode != 0:
        raise MiniclusterError(f"host {host.name} did not start:\n{log_path.read_text()[-2000:]}")
    return int(result.stdout)


def request(host: Host, timeout_s: float = 60, **values: Any) -> dict[str, Any]:
    """Send a request to a host's first process and return the answer."""
    try:
        directory_fd = os.open(host.directory, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        raise MiniclusterError(f"host {host.name} is not up: {error}") from error
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(f"/proc/self/fd/{directory_fd}/{CONTROL_SOCKET}")
            connection.sendall(json.dumps(values).encode() + b"\n")
            answer: dict[str, Any] = json.loads(connection.makefile("rb").readline())
    except (OSError, ValueError) as error:
        raise MiniclusterError(f"host {host.name} does not answer: {error}") from error
    finally:
        os.close(directory_fd)
    if "error" in answer:
        raise MiniclusterError(f"{host.name}: {answer['error']}")
    return answer


def start_daemon(
    host: Host,
    name: str,
    argv: Sequence[str],
    *,
    user: str = "root",
    environment: dict[str, str] | None = None,
    restart_on_crash: bool = False,
    **more: Any,
) -> None:
    """Start a daemon on a host. ``more``: other values of ``host_init.Daemon``."""
    request(
        host,
        op="start",
        name=name,
        argv=list(argv),
        user=user,
        environment=environment or {},
        restart_on_crash=restart_on_crash,
        **more,
    )


def enter_command(cluster: Cluster, host: Host, command: Sequence[str], *, user: str = "root") -> list[str]:
    """Return the command that runs a command on a host as a user of the cluster."""
    home = {"root": "/root", "slurm": "/var/lib/rmsplugin" if host.is_head else "/"}.get(user, f"/home/{user}")
    if user not in ("root", "slurm", *USERS):
        home = "/"
    environment = {
        "PATH": f"{VENV}/bin:{SEARCH_PATH}",
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": os.environ.get("TERM", "dumb"),
        MEMBER_VARIABLE: str(cluster.directory),
    }
    pid = cluster.init_pids.get(host.name, 0)
    # After a reboot of the machine the recorded PID may be another process's.
    if not is_init(pid, cluster.directory):
        raise MiniclusterError(f"host {host.name} is not up")
    group = PRIMARY_GROUPS.get(user, user)
    identity = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups"]
    return [
        "nsenter",
        f"--target={pid}",
        "--mount",
        "--uts",
        "--ipc",
        "--net",
        "--pid",
        "--",
        *identity,
        "env",
        "-i",
        f"--chdir={home}",
        *(f"{key}={value}" for key, value in environment.items()),
        *command,
    ]


def run(
    cluster: Cluster,
    host: Host,
    command: Sequence[str],
    *,
    user: str = "root",
    check: bool = True,
    stdin: str | None = None,
    timeout_s: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run a command on a host and return its result."""
    result = subprocess.run(
        enter_command(cluster, host, command, user=user),
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    if check and result.returncode != 0:
        shown = " ".join(command)
        raise MiniclusterError(
            f"{host.name}: {shown}: exit {result.returncode}: {(result.stderr or result.stdout)[-800:]}"
        )
    return result
