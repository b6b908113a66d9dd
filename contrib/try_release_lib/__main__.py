"""Run the command line."""

import sys

from try_release_lib.cli import main

if __name__ == "__main__":
    sys.exit(main())
