"""A process that takes over a shared ledger, and commits without end. It prints each number when that is safe.

usage: committing.py DIRECTORY EPOCH
"""

from __future__ import annotations

import sys
from pathlib import Path

from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.takeover import take_over

#: Large events: the log of changes begins anew many times a second.
PADDING = "x" * 20_000


def main() -> None:
    directory, epoch = Path(sys.argv[1]), int(sys.argv[2])
    ledger = Ledger(take_over(directory, epoch, leads=lambda: True), exclusive=True)
    print("leads", flush=True)
    number = 0
    while True:
        number += 1
        ledger.event(f"epoch {epoch}", f"{number} {PADDING}")
        print(number, flush=True)


main()
