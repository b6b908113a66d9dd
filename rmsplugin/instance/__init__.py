"""Instance: a configuration in a JSON file, as the offline commands read it (docs/operator-guide.md, Planning offline).

Whatever is wrong with a file is said at once, a line for each fault, with its JSON path.
"""

from rmsplugin.instance.reader import parse, read

__all__ = ["parse", "read"]
