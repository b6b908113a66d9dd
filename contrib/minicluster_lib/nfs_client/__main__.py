"""Mount a directory of a server of NFS 4, and answer for it until it is unmounted: SERVER:DIRECTORY PLACE."""

from __future__ import annotations

import sys

from minicluster_lib.nfs_client.file_system import FileSystem
from minicluster_lib.nfs_client.fuse import Device, mount
from minicluster_lib.nfs_client.session import Session
from minicluster_lib.nfs_client.volume import Volume

_PORT = 2049


def main() -> None:
    """Mount as soon as the server answers."""
    source, place = sys.argv[1:]
    server, _, directory = source.partition(":")
    files = FileSystem(Volume(Session(server, _PORT, place), directory))
    Device(mount(source, place), files.answer, files.nodes.forget).serve()


if __name__ == "__main__":
    main()
