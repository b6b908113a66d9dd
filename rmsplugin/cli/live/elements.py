"""Elements: what is done to each vjob of a job array that was asked for by one name."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmsplugin.api.binding import SeveralError
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.watching import done_sentence, watch
from rmsplugin.errors import (
    ForbiddenError,
    NotFoundError,
    OperationFailedError,
    RefusedError,
    UnavailableError,
)
from rmsplugin.model.job_names import fold

if TYPE_CHECKING:
    from rmsplugin.api.answers import Element
    from rmsplugin.api.binding import Engine

#: States of elements of which nothing has to be done: it is so, or about to be.
_DONE = {"suspend": ("sleeping", "suspending"), "resume": ("running", "resuming", "unpausing"), "migrate": ()}
#: Stands for the element in a sentence that holds for several.
_NAME = "\0"


def begin_on(engine: Engine, command: str, name: str, *, to: str = "", vm: str = "") -> int:
    """Begin the operation that the command is called after. Returns its number. Raises SeveralError."""
    if command == "suspend":
        return engine.suspend(name)
    return engine.resume(name, to=to) if command == "resume" else engine.migrate(name, vm=vm, to=to)


def operate_on_each(engine: Engine, arguments: argparse.Namespace, elements: Sequence[Element]) -> int:
    """Begin it for each element that is not so already, and watch all; what one refuses keeps none of the others.

    Args:
        engine: to ask.
        arguments: command, no_wait and json of the command line.
        elements: each with the ``vjob``'s name and its ``state``.

    Raises:
        OperationFailedError: it was refused, or failed, for some; all others are done.
    """
    command, started = arguments.command, time.monotonic()
    wanted = [each["vjob"] for each in elements if each["state"] not in _DONE[command]]
    if not wanted:
        names = fold(each["vjob"] for each in elements)
        raise OperationFailedError(f"vjobs {names} are {elements[0]['state']} already")
    begun, refused = _begin(engine, command, wanted)
    return _tell(engine, arguments, begun, refused, started)


def operate_on_several(engine: Engine, arguments: argparse.Namespace, names: Sequence[str], *, to: str) -> int:
    """Begin it for each of several names, and watch all; what one refuses keeps none of the others.

    Args:
        engine: to ask.
        arguments: command, no_wait and json of the command line.
        names: of vjobs, or of elements of arrays.
        to: the node to use; empty: the engine chooses.

    Raises:
        OperationFailedError: it was refused, or failed, for some; all others are done.
    """
    command, started = arguments.command, time.monotonic()
    begun: dict[str, int] = {}
    refused: dict[str, list[str]] = {}
    for name in names:
        try:
            begun[name] = begin_on(engine, command, name, to=to)
        except SeveralError as error:
            elements, faults = _begin_elements(engine, command, name, error.elements)
            begun |= elements
            for sentence, those in faults.items():
                refused.setdefault(sentence, []).extend(those)
        except (RefusedError, NotFoundError, ForbiddenError) as error:
            refused.setdefault(str(error).replace(name, _NAME), []).append(name)
        except UnavailableError as error:
            refused[f"{_NAME}: {error}"] = list(names[names.index(name) :])
            break
    return _tell(engine, arguments, begun, refused, started)


def _begin_elements(
    engine: Engine, command: str, name: str, elements: Sequence[Element]
) -> tuple[dict[str, int], dict[str, list[str]]]:
    """As ``_begin``, for the elements that ``name`` stands for; those that are so already are left alone."""
    wanted = [each["vjob"] for each in elements if each["state"] not in _DONE[command]]
    if not wanted:
        return {}, {f"vjobs {_NAME} are {elements[0]['state']} already": [name]}
    return _begin(engine, command, wanted)


def _tell(
    engine: Engine,
    arguments: argparse.Namespace,
    begun: Mapping[str, int],
    refused: dict[str, list[str]],
    started: float,
) -> int:
    """Watch what was begun, and tell how it ended. Raises OperationFailedError."""
    command = arguments.command
    if arguments.no_wait:
        answer: Sequence[Mapping[str, Any]] = [{"vjob": name, "operation": number} for name, number in begun.items()]
        plain = [f"operation {number}" for number in begun.values()]
    else:
        plain = []
        ended = {name: watch(engine, number, f"{command} {name}") for name, number in begun.items()}
        for name, operation in ended.items():
            if operation.get("state") == "failed":
                refused.setdefault(f"vjob {_NAME}: {operation.get('error') or 'failed'}", []).append(name)
            else:
                plain.append(done_sentence(f"{command} {name}", operation, started))
        answer = list(ended.values())
    faults = [sentence.replace(_NAME, fold(names)) for sentence, names in refused.items()]
    if arguments.json:
        print_document(arguments, {"operations": answer}, errors=faults)
    else:
        for line in plain:
            print(line)
    if faults:
        raise OperationFailedError("\n".join(map(printable, faults)))
    return 0


def _begin(engine: Engine, command: str, wanted: Sequence[str]) -> tuple[dict[str, int], dict[str, list[str]]]:
    """The operations that were begun, by element; and the sentences of those that were not, with the elements."""
    begun: dict[str, int] = {}
    refused: dict[str, list[str]] = {}
    for name in wanted:
        try:
            begun[name] = begin_on(engine, command, name)
        except (RefusedError, NotFoundError, ForbiddenError) as error:
            refused.setdefault(str(error).replace(name, _NAME), []).append(name)
    return begun, refused
