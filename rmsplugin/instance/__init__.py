"""Instance: a configuration in a JSON file, as the offline commands read it (docs/simulation/plan-and-pack.md).

All faults of a file are told at once, a line for each fault, with its JSON path.
"""

from rmsplugin.instance.reader import parse, read

__all__ = ["parse", "read"]
