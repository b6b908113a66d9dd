"""Known objects: what may be made of a pickle that has something of a site's own code in it.

A policy of a site answers with what it likes. Only classes of ours and some of Python's are made of that, and no module
is loaded for another one.
"""

from __future__ import annotations

import enum
import io
import pickle

#: Classes of Python that there may be objects of, besides those that a pickle needs no name for.
_PLAIN = {
    "builtins": {"bytearray", "complex", "frozenset", "range", "set"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
}


class ForeignObjectError(Exception):
    """There is an object of a class that is neither ours nor Python's own; the message names it, and what to give."""


class KnownUnpickler(pickle.Unpickler):
    """Makes objects of known classes alone."""

    def find_class(self, module: str, name: str) -> object:
        """The class, or function of ours; raises ForeignObjectError before a module of anybody else is loaded."""
        if module.partition(".")[0] == __name__.partition(".")[0]:
            found = super().find_class(module, name)
            if getattr(found, "__module__", None) == module:
                return found
        elif (module, name) == ("builtins", "getattr"):  # so some releases of Python name the member of an enumeration
            return _member
        elif name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        raise ForeignObjectError(
            f"an object of {module}.{name}: give text, numbers and classes of rmsplugin only, "
            "such as str(...) and float(...) of it"
        )


def require_known(value: object) -> None:
    """Raise ForeignObjectError where anything in a value is of another class.

    Raises what ``pickle`` raises if the value cannot be pickled at all.
    """
    KnownUnpickler(io.BytesIO(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))).load()


def _member(own: type[enum.Enum], name: str) -> enum.Enum:
    return own.__members__[name]
