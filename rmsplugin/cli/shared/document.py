"""Document: what a command prints with --json: its answer, then ``meta``, ``errors`` and ``warnings``, as in Slurm.

docs/json-output.json has the form of each (``rmsplugin.cli.json_forms``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rmsplugin import __version__
from rmsplugin.cli.shared.printable import printable

#: Keys are added to documents of this version; one that leaves, or changes its meaning, makes another version.
VERSION = 1


def print_document(
    arguments: argparse.Namespace,
    answer: Mapping[str, Any],
    *,
    errors: Iterable[str] = (),
    warnings: Iterable[str] = (),
    default: Callable[[Any], Any] | None = None,
) -> None:
    """Print the answer of a command.

    Args:
        arguments: of the command line.
        answer: the keys of the command.
        errors: what could not be done, in sentences.
        warnings: what else a reader of the answer has to know, likewise.
        default: makes something that JSON has of what it has not.
    """
    whole = {**answer, **end_of_document(arguments, errors=errors, warnings=warnings)}
    print(json.dumps(whole, indent=1, allow_nan=False, default=default))


def tell(arguments: argparse.Namespace, answer: Mapping[str, Any], sentence: str) -> None:
    """Print the answer where a document was asked for, and else the sentence."""
    if arguments.json:
        print_document(arguments, answer)
    else:
        print(printable(sentence))


def end_of_document(
    arguments: argparse.Namespace, *, errors: Iterable[str] = (), warnings: Iterable[str] = ()
) -> dict[str, Any]:
    """The keys that each document ends in; of groups that did not answer it warns. Who asks has printed a document."""
    arguments.printed = True
    command = [arguments.command, *([arguments.what] if getattr(arguments, "what", None) else [])]
    return {
        "meta": {"version": VERSION, "rmsplugin": __version__, "command": command},
        "errors": [{"description": sentence} for sentence in errors],
        "warnings": [{"description": sentence} for sentence in (*warnings, *getattr(arguments, "missing", ()))],
    }


def print_failure(arguments: argparse.Namespace, sentences: Iterable[str]) -> None:
    """Where a document was asked for and none was printed: print one with nothing but what failed."""
    if getattr(arguments, "json", False) and not getattr(arguments, "printed", False):
        print_document(arguments, {}, errors=sentences)
