"""Stage: all files of the packages in one tree, for rpmbuild (contrib/rpm/rmsplugin.spec).

Run it with the Python of the release: ``python3.12 -m build_packages_lib.stage ROOT [--without-libraries]``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from build_packages_lib import trees
from build_packages_lib.tools import BuildError


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="stage", description="Put all files of the packages into one tree.")
    parser.add_argument("root", type=Path, metavar="ROOT", help="the tree")
    parser.add_argument("--without-libraries", action="store_true", help="leave the package index's libraries out")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="rmsplugin-stage-") as directory:
            work = Path(directory)
            libraries = not arguments.without_libraries
            for tree in trees.make(work / "trees", work, libraries, trees.RED_HAT).values():
                shutil.copytree(tree, arguments.root, symlinks=True, dirs_exist_ok=True)
    except (BuildError, OSError) as error:
        print(f"stage: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
