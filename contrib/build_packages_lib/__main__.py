"""Run the command line."""

import sys

from build_packages_lib.cli import main

if __name__ == "__main__":
    sys.exit(main())
