"""Run one of the experiments: `contrib/run-experiment NAME [OPTIONS...]`."""

from __future__ import annotations

import argparse
import sys

from experiments import energy, icdcs02, observed, rr6929, slowdown, splits, traces, vee09
from rmsplugin.errors import RmspluginError

_EXPERIMENTS = {
    "rr6929": rr6929,
    "vee09": vee09,
    "icdcs02": icdcs02,
    "traces": traces,
    "observed": observed,
    "slowdown": slowdown,
    "splits": splits,
    "energy": energy,
}


def main(arguments: list[str] | None = None) -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser("run-experiment", description="Repeat an experiment of the papers.")
    commands = parser.add_subparsers(dest="name", required=True)
    for name, module in _EXPERIMENTS.items():
        command = commands.add_parser(name, description=module.__doc__)
        module.add_options(command)
        command.set_defaults(run=module.run)
    given = parser.parse_args(arguments)
    try:
        for line in given.run(given):
            print(line, flush=True)
    except RmspluginError as error:
        print(f"run-experiment: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
