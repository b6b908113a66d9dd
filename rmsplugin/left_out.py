"""Left out: packages that a library imports beside it, and that nothing here uses.

OR-Tools and sqlite-utils import pandas to take its tables and columns, of which they are given none. That import costs
as much CPU as all else that a proposing process loads, at each start of an engine and of its proposing process.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def pandas_as(stand_in: ModuleType | None) -> Iterator[None]:
    """Have imports of pandas give ``stand_in`` meanwhile; None: they fail, as where it is not installed.

    Where pandas is loaded already, by whoever needs it, it stays.
    """
    if "pandas" in sys.modules:
        yield
        return
    sys.modules["pandas"] = stand_in  # type: ignore[assignment] # None is what the import system looks for
    try:
        yield
    finally:
        del sys.modules["pandas"]


def empty_pandas() -> ModuleType:
    """A pandas whose classes have no objects: OR-Tools asks whether it was given one, and names them in its types."""
    module = ModuleType("pandas")
    module.__spec__ = importlib.util.spec_from_loader("pandas", None)
    for name in ("DataFrame", "Index", "Series"):
        setattr(module, name, type(name, (), {}))
    return module
