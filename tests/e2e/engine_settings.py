"""The engine's settings in a minicluster, changed as an administrator does it: the file, and then a new engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import Cluster
from e2e.whole_files import write_whole

#: Waiting vjobs run in the order of the queue, which tests can foretell.
BY_QUEUE = ("decision", 'policy = "mixed"')


@contextmanager
def configured(cluster: Cluster, section: str, *lines: str) -> Iterator[None]:
    """An engine that has these lines in a section of its settings, in place of others of the same keys.

    A section that is not there is added.
    """
    path = cluster.host_path("head", "/etc/rmsplugin/rmsplugin.toml")
    before = path.read_text()
    assert before.count(f"[{section}]\n") <= 1, f"[{section}] in {path}"
    with_it = before if f"[{section}]\n" in before else f"{before}\n[{section}]\n"
    head, header, rest = with_it.partition(f"[{section}]\n")
    body, mark, tail = rest.partition("\n[")
    keys = {_key(line) for line in lines}
    kept = [line for line in body.splitlines() if _key(line) not in keys]
    try:
        write_whole(path, head + header + "\n".join([*lines, *kept]) + mark + tail)
        cluster.kill("head", "engine")
        cluster.restart_engine()
        yield
    finally:
        write_whole(path, before)
        cluster.kill("head", "engine")
        cluster.restart_engine()


def _key(line: str) -> str:
    return line.partition("=")[0].strip()
