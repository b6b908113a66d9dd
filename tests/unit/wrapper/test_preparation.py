"""The process that puts together what a script's start needs, where it cannot be had."""

from __future__ import annotations

import subprocess
import sys

PREPARE = """
import os, resource
from rmsplugin.wrapper.attach.preparation import Preparation
limit, words = {limit}
before = os.listdir("/proc/self/fd")  # Python 3.14's libffi has a descriptor of its own
if limit:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
try:
    Preparation(*words)
except Exception as error:
    print(type(error).__name__, error)
print(os.listdir("/proc/self/fd") == before if not limit else "")
"""


def prepared(limit: str) -> list[str]:
    """What becomes of it in a process of its own."""
    code = PREPARE.format(limit=limit)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")


def test_without_a_descriptor_left_it_is_tried_again() -> None:
    for left in (3, 4, 5):
        assert prepared(f"{left}, ['x']")[0] == (
            "UnavailableError the start of the script could not be prepared: Too many open files"
        )


def test_words_that_no_process_can_have_are_a_failure_and_leave_nothing_open() -> None:
    said, the_same, _ = prepared("0, ['x' * (1 << 20)]")
    assert said == "OperationFailedError the start of the script could not be prepared: Argument list too long"
    assert the_same == "True", "open are those that were before"
