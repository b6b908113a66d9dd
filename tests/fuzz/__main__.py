"""``contrib/run-campaign fuzz``: the guest's parsers with sanitizers, for as many rounds as one likes."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from fuzz import build, fuzz, missing


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="run-campaign fuzz",
        description="Mutations of good input for each parser of the guest's program, with sanitizers. The same seed is "
        "the same input; of what fails the input is printed.",
    )
    parser.add_argument("--seeds", metavar="A-B", default="1-20", help="one after the other (default: %(default)s)")
    parser.add_argument(
        "--rounds", metavar="N", type=int, default=20000, help="of each parser and seed (default: %(default)s)"
    )
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    if missing():
        parser.error(missing())
    with tempfile.TemporaryDirectory() as directory:
        program = build(Path(directory), "-O1")
        for seed in range(int(first), int(last or first) + 1):
            wrong = fuzz(program, seed, arguments.rounds, timeout_s=3600)
            print(f"seed {seed}: {wrong or 'nothing wrong'}", flush=True)
            if wrong:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
