"""Part types: the parts of a decision by a policy of a site that are of another type than they should be.

Python does not ask for types. A state that is ``"running"``, and not ``VJobState.RUNNING``, equals it and is another
object: it would pass all that compares, and fail where the plan is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rmsplugin.decision.result import Barred, Decision, Reason, ReasonCode
from rmsplugin.model.vjob import VJobState

#: By part, the type of the values; that of a state and of a reason are told with their vjob.
_MAPPINGS = {"states": VJobState, "reasons": Reason, "placement": str, "barred": Barred}
_PLAIN = {"sentence": str, "cut_short": str, "sample_first": bool}


def wrong_types(decision: Decision) -> Iterator[str]:
    """A sentence for each part of a wrong type; none if all are right, or missing."""
    for part, kind in _MAPPINGS.items():
        found: object = getattr(decision, part)
        if isinstance(found, Mapping):
            yield from _values(part, kind, found)
        else:
            yield f"its {part} are {kind_of(found)}, and no mapping"
    for part, plain in _PLAIN.items():
        if not isinstance(getattr(decision, part), plain):
            yield f"its {part} is {kind_of(getattr(decision, part))}, and no {plain.__name__}"


def _values(part: str, kind: type, found: Mapping[object, object]) -> Iterator[str]:
    for name, value in found.items():
        if isinstance(value, Reason):
            yield from _reason(name, value)
        elif part == "states" and not isinstance(value, kind):
            yield f"it has vjob {name} {value}, which is {kind_of(value)}, and no VJobState"
        elif part != "reasons" and not isinstance(value, kind):
            yield f"its {part} have {kind_of(value)} for {name!r}, and no {kind.__name__}"


def _reason(name: object, reason: Reason) -> Iterator[str]:
    code, words, numbers = (getattr(reason, each) for each in ("code", "sentence", "numbers"))
    if not isinstance(code, ReasonCode):
        yield f"the code of its reason for vjob {name} is {kind_of(code)}, and no ReasonCode"
    if not isinstance(words, str):
        yield f"its reason for vjob {name} is {kind_of(words)}, and no sentence"
    if not isinstance(numbers, Mapping):
        yield f"the numbers of its reason for vjob {name} are {kind_of(numbers)}, and no mapping"
        return
    for key, value in numbers.items():
        if not isinstance(key, str) or not isinstance(value, int | float | str):
            yield f"the numbers of its reason for vjob {name} have {kind_of(value)} for {key!r}"
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"the numbers of its reason for vjob {name} have {value} for {key!r}, which is not finite"


def kind_of(value: object) -> str:
    """What a value is, for a sentence."""
    return "None" if value is None else f"a value of type {type(value).__name__}"
