"""slurm.conf of a minicluster, changed as an administrator does it: the file of all hosts, and then a reconfigure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from e2e.cluster import Cluster
from e2e.whole_files import write_whole


@contextmanager
def edited(cluster: Cluster) -> Iterator[Callable[[str, str], None]]:
    """Puts one text in another's place in the file as it was before the block, and has Slurm read it.

    Whatever happens in the block, the file is as before after it, and Slurm has read that.
    """
    path = cluster.directory / "shared/slurm/slurm.conf"  # one file, which all hosts have as /etc/slurm/slurm.conf
    before = path.read_text()

    def change(old: str, new: str) -> None:
        assert before.count(old) == 1, f"{old!r} in {path}"
        write_whole(path, before.replace(old, new))
        cluster.ok("scontrol", "reconfigure")

    try:
        yield change
    finally:
        write_whole(path, before)
        cluster.ok("scontrol", "reconfigure")
