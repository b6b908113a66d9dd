"""Facts: what `rmsplugin check` is told of podman, runc and CRIU on this node. Nothing is changed."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from rmsplugin.adapters.platform.podman.on_node import container, criu, groups, program
from rmsplugin.errors import OperationFailedError, TimedOutError

#: What each program may take, and all together: who asks waits for 30 s (``NodeAgents``), and for other facts too.
_EACH_S, _ALL_S = 5.0, 20.0


def seen(references: Iterable[str]) -> dict[str, Any]:
    """By word: the versions of the programs ("" where one is missing), and what is wrong with what they need.

    Commands that did not end in time are under ``silent``; what they would have told is "".

    Args:
        references: names of the images.
    """
    looks = _Looks()
    versions = {name: looks.at(f"{name} --version", partial(program.version, name)) for name in program.NAMES}
    return {
        **versions,
        "kernel": platform.release(),
        "criu_check": looks.at("criu check", _criu_check) if versions["criu"] else "",
        "hook": os.access(criu.HOOK, os.X_OK),
        "freezer": (groups.ROOT / "freezer").is_dir() or groups.has_version_2(),
        "images": {each: looks.at("podman images", partial(_image, each)) for each in sorted(references)},
        "silent": looks.silent,
    }


class _Looks:
    """Commands that are run one after the other, within a time of them all; one that is silent is not asked again."""

    def __init__(self) -> None:
        self._end = time.monotonic() + _ALL_S
        self.silent: list[str] = []

    def at(self, command: str, ask: Callable[[float], str]) -> str:
        """What a command tells within the seconds that it is given; "" if it does not end."""
        left_s = min(_EACH_S, self._end - time.monotonic())
        if command not in self.silent:
            try:
                return ask(left_s)
            except TimedOutError:
                self.silent.append(command)
        return ""


def _image(reference: str, timeout_s: float) -> str:
    try:
        return container.image_id(reference, timeout_s)
    except TimedOutError:
        raise
    except OperationFailedError:
        return ""  # there is no podman, which is told


def _criu_check(timeout_s: float) -> str:
    """What CRIU says that this kernel lacks; "" if it lacks nothing."""
    done = program.ended(["criu", "check"], timeout_s)
    if done is None or done.returncode == 0:
        return ""
    return " ".join(done.stderr.split())[-300:] or f"exit status {done.returncode}"
