"""Command line of ``contrib/guest-image``."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from guest_image_lib.build import BuildError, build
from guest_image_lib.container import build_container
from guest_image_lib.debian import build_debian

_EXAMPLES = """\
examples:
  contrib/guest-image build                   # into the cache; prints the directory
  contrib/guest-image build --output images/  # puts vmlinuz, vmlinux and initrd.img there
  contrib/guest-image build-container         # an archive for `podman load`; prints its path
  contrib/guest-image build-debian            # a qcow2 with Debian and cloud-init; prints its path
"""


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="guest-image",
        description="Build the small guest of the minicluster from Debian packages (kernel, busybox, bash, dropbear).",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser("build", help="build vmlinuz, vmlinux and initrd.img, unless the cache has them")
    one.add_argument("--output", type=Path, help="also put the files into this directory")
    container = commands.add_parser("build-container", help="build the same guest as an archive for `podman load`")
    container.add_argument("--output", type=Path, help="also put container.tar, and its name, into this directory")
    debian = commands.add_parser("build-debian", help="build a disk image of Debian with cloud-init, for kind qcow2")
    debian.add_argument("--output", type=Path, help="also put debian.qcow2 into this directory")
    arguments = parser.parse_args()
    make = {"build": build, "build-container": build_container, "build-debian": build_debian}[arguments.command]
    try:
        print(make(arguments.output, lambda text: print(f"guest-image: {text}", file=sys.stderr, flush=True)))
    except (BuildError, OSError, shutil.Error) as error:
        print(f"guest-image: {error}", file=sys.stderr)
        return 1
    return 0
