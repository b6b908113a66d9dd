"""Keeping: what prefer and resize share: the engine keeps something about each vjob, or refuses it in a sentence."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from rmsplugin.api import answers
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable
from rmsplugin.errors import ForbiddenError, NotFoundError, OperationFailedError, RefusedError, UnavailableError
from rmsplugin.model.job_names import fold

#: Asks for what is kept about the vjobs of a name.
Asks = Callable[[str], answers.Preferred | answers.Resized]

#: Stands for the vjob in a sentence that holds for several.
_NAME = "\0"


def keep_for_each(arguments: argparse.Namespace, ask: Asks, kept: Mapping[str, Any], said: str) -> int:
    """Ask for each vjob of the command line, and tell for which it is kept; ``said``: what is, after their names.

    Raises:
        OperationFailedError: it is not kept for all of them; for those that are named.
    """
    names = list(dict.fromkeys(name for named in arguments.jobs for name in named))
    done, refused = _ask_for_each(ask, names)
    faults = [sentence.replace(_NAME, fold(those)) for sentence, those in refused.items()]
    if arguments.json:
        print_document(arguments, {**kept, "vjobs": done}, errors=faults)
    elif done:
        print(printable(f"{fold(done)}: {said}"))
    if faults:
        raise OperationFailedError("\n".join(map(printable, faults)))
    return 0


def _ask_for_each(ask: Asks, names: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The vjobs for which it is kept; and sentences about the others, with their names."""
    done: list[str] = []
    refused: dict[str, list[str]] = {}
    for name in names:
        try:
            answer = ask(name)
        except (RefusedError, NotFoundError, ForbiddenError, UnavailableError) as error:
            refused.setdefault(str(error).replace(name, _NAME), []).append(name)
            continue
        done += answer["vjobs"]
        for vjob, why in answer["refused"].items():
            refused.setdefault(why.replace(vjob, _NAME), []).append(vjob)
    return done, refused
