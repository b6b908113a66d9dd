"""Engine: rmsplugin's sidecar on the head."""

from __future__ import annotations

from minicluster_lib import hosts, settings_file
from minicluster_lib.layout import MEMBER_VARIABLE, VENV, Cluster

COMMAND = VENV / "bin" / "rmsplugin"


def make_directories(cluster: Cluster) -> None:
    """Make the engine's directories below /run."""
    install = ["install", "-d", "-o", "slurm", "-g", "slurm"]
    hosts.run(cluster, cluster.head, [*install, "-m", "755", "/run/rmsplugin"])
    hosts.run(cluster, cluster.head, [*install, "-m", "700", "/run/rmsplugin/runtime"])


def start(cluster: Cluster) -> bool:
    """Start the engine; False when it is not installed."""
    if not COMMAND.exists():
        return False
    hosts.start_daemon(
        cluster.head,
        "engine",
        [str(COMMAND), "engine", "--config", settings_file.PATH],
        user="slurm",
        environment={
            "HOME": "/var/lib/rmsplugin",
            "XDG_RUNTIME_DIR": "/run/rmsplugin/runtime",
            "XDG_CACHE_HOME": "/var/lib/rmsplugin/cache",
            "XDG_CONFIG_HOME": "/var/lib/rmsplugin/config",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            MEMBER_VARIABLE: str(cluster.directory),
        },
    )
    return True
