"""A reporter that does what the first job that is asked for stands for, instead of a report."""

from __future__ import annotations

import json
import os
import signal
import sys
import time


def main() -> None:
    """Behave badly, or just take a while."""
    request = json.load(sys.stdin)
    match request["jobs"][0]:
        case "1":
            sys.exit("no module named numpy")
        case "2":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "3":
            print(json.dumps({"doing": "this", "part": 0.5, "pid": os.getpid()}), file=sys.stderr, flush=True)
            time.sleep(600)
        case "4":
            print("a warning of a library\n[]\n{}", file=sys.stderr)
            print("the report of", request["owner"])
        case "5":
            print(json.dumps({"error": "the ledger is locked", "unknown": False}), file=sys.stderr)
        case "6":
            time.sleep(0.5)
            print(time.monotonic())


if __name__ == "__main__":
    main()
