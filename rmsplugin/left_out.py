"""Left out: packages that a library imports beside it, and that nothing here uses.

OR-Tools and sqlite-utils import pandas to take its tables and columns, of which they are given none. That import costs
as much CPU as all else that a proposing process loads, at each start of an engine and of its proposing process.
sqlite-utils imports numpy for its types, too, and paramiko imports invoke, for commands in an ssh_config that is never
read. Both provide for what is not installed. aiohttp reads the certificates of all authorities, for requests to others.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def imports_give(**stand_ins: ModuleType | None) -> Iterator[None]:
    """Have imports of these packages give the stand-ins meanwhile; None: they fail, as where it is not installed.

    A package that is loaded already, by whoever needs it, stays.
    """
    new = {name: stand_in for name, stand_in in stand_ins.items() if name not in sys.modules}
    sys.modules.update(new)  # type: ignore[arg-type] # None is what the import system looks for
    try:
        yield
    finally:
        for name in new:
            del sys.modules[name]


def empty_pandas() -> ModuleType:
    """A pandas whose classes have no objects: OR-Tools asks whether it was given one, and names them in its types."""
    module = ModuleType("pandas")
    module.__spec__ = importlib.util.spec_from_loader("pandas", None)
    for name in ("DataFrame", "Index", "Series"):
        setattr(module, name, type(name, (), {}))
    return module


@contextmanager
def no_authorities() -> Iterator[None]:
    """Have TLS clients that are prepared meanwhile trust no authority, and read no certificates."""
    import ssl

    whole = ssl.create_default_context
    ssl.create_default_context = lambda *_, **__: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        yield
    finally:
        ssl.create_default_context = whole
