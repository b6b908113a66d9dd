"""Engine: rmsplugin's sidecar on each controller, or the manager of groups in its place."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable

from minicluster_lib import controllers, hosts, settings_file
from minicluster_lib.layout import VENV, Cluster, Host

COMMAND = VENV / "bin" / "rmsplugin"


def make_directories(cluster: Cluster) -> None:
    """Make the engines' directories below /run."""
    install = ["install", "-d", "-o", "slurm", "-g", "slurm"]
    for host in _controllers(cluster):
        hosts.run(cluster, host, [*install, "-m", "755", "/run/rmsplugin"])
        hosts.run(cluster, host, [*install, "-m", "700", "/run/rmsplugin/runtime"])


def _controllers(cluster: Cluster) -> list[Host]:
    return [cluster.head, *([cluster.second] if cluster.second is not None else [])]


def start(cluster: Cluster) -> bool:
    """Start the head's engine; False when it is not installed."""
    if not COMMAND.exists():
        return False
    _start_on(cluster, cluster.head)
    return True


def _start_on(cluster: Cluster, host: Host) -> None:
    state = controllers.engine_state(host.name)
    hosts.start_daemon(
        host,
        cluster.engine_daemon,
        [str(COMMAND), cluster.engine_daemon, "--config", settings_file.PATH],
        user="slurm",
        environment={
            "HOME": state,
            "XDG_RUNTIME_DIR": "/run/rmsplugin/runtime",
            "XDG_CACHE_HOME": f"{state}/cache",
            "XDG_CONFIG_HOME": f"{state}/config",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )


def start_and_wait(cluster: Cluster, progress: Callable[[str], None], timeout_s: float = 60) -> None:
    """Start the engine and wait for its first cycle; an engine that does not come up is a warning, not a failure.

    Before its first cycle a new cluster has no gate: Slurm would start vjobs as it does other jobs.
    """
    if not start(cluster):
        progress(f"warning: no engine: {COMMAND} is not installed")
        return
    name = cluster.engine_daemon
    progress(f"waiting for the {name}'s first cycle")
    deadline = time.monotonic() + timeout_s
    while not _has_looked(cluster):
        state = hosts.request(cluster.head, op="status")["daemons"][name]
        if state["pid"] is None or time.monotonic() > deadline:
            how = f"ended with status {state['status']}" if state["pid"] is None else "has not finished a cycle yet"
            progress(f"warning: the {name} {how}; see: minicluster logs head {name}")
            break
        time.sleep(0.1)
    if cluster.second is not None:
        _start_on(cluster, cluster.second)


def _has_looked(cluster: Cluster) -> bool:
    """Whether the engine has finished a cycle. Each `rmsplugin status` would take CPU time that it starts with."""
    path = f"/proc/{cluster.init_pids['head']}/root/run/rmsplugin/engine.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, contextlib.suppress(OSError):
        connection.settimeout(10)
        connection.connect(path)
        connection.sendall(b"GET /v1/status HTTP/1.0\r\nHost: localhost\r\n\r\n")
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
        return head.split()[1:2] == [b"200"] and bool(json.loads(body)["last_cycle"]["time"])
    return False
