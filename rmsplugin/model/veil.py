"""Veil: takes a sentence that may name jobs of others from a user who may not know of these. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: What stands in the place of such a sentence.
NOT_TOLD = "not told: it may name jobs of others (PrivateData)"

_UNITS = r"CPUs?|CPU-seconds?|[KMGT]iB|s|seconds?|minutes?|hours?|days?|VMs?|nodes?|times?|more|W|%"
_AMOUNT = re.compile(rf"\d+(?:\.\d+)?(?= ?(?:{_UNITS})(?!\w))")
_TIME = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d(?::\d\d)?")
#: A number that is no part of a word, such as of a node's name or an address; and a VM's name.
_JOB = re.compile(r"(?<![\w.-])\d+(?:_\d+)?(?![\w.-]*\w)|\bvjob\d")


def veiled(sentence: str, own: Iterable[str]) -> str:
    """The sentence; or ``NOT_TOLD``, if it has a number that may be the id of a job, or a VM's name, and is not own.

    Args:
        sentence: as the engine has it.
        own: ids of jobs that may be told.
    """
    rest = sentence
    for job in own:
        rest = re.sub(rf"(?<![\w.-])(?:vjob{re.escape(job)}-\d+|{re.escape(job)})(?![\w-])", "", rest)
    rest = _AMOUNT.sub("", _TIME.sub("", rest))
    return NOT_TOLD if _JOB.search(rest) else sentence
