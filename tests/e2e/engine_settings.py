"""The engine's settings in a minicluster, changed as an administrator does it: the file, and then a new engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import Cluster

#: Who waits runs in the order of the queue, which tests can foretell.
BY_QUEUE = ("decision", 'policy = "mixed"')


@contextmanager
def added(cluster: Cluster, section: str, line: str) -> Iterator[None]:
    """An engine that has one more line in a section of its settings; afterwards one that has not."""
    path = cluster.host_path("head", "/etc/rmsplugin/rmsplugin.toml")
    before = path.read_text()
    assert before.count(f"[{section}]\n") == 1, f"[{section}] in {path}"
    try:
        path.write_text(before.replace(f"[{section}]\n", f"[{section}]\n{line}\n"))
        cluster.kill("head", "engine")
        cluster.restart_engine()
        yield
    finally:
        path.write_text(before)
        cluster.kill("head", "engine")
        cluster.restart_engine()
