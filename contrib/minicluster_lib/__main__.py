"""Entry point of ``contrib/minicluster``."""

import sys

from minicluster_lib.cli import main

if __name__ == "__main__":
    sys.exit(main())
