"""Policy names: those of the product by whether they switch, as ``rmsplugin.decision.policies`` has them, and others.

Apart from the policies: to import those takes longer than the settings or `--help` may take.
"""

from __future__ import annotations

import re

#: Those for which counting processors is enough where VMs are alike; all that switch nothing; and those that do.
COUNTING = ("fcfs", "easy")
STATIC = (*COUNTING, "conservative")
SWITCHING = ("easy-preempt", "rjsp", "rjsp-exact", "mixed", "slowdown", "load-sharing", "v-reconfiguration")
POLICIES = STATIC + SWITCHING

#: The group of entry points by which an installed package offers policies of its own.
GROUP = "rmsplugin.policies"

#: A function in a module, and the name of an entry point.
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_ENTRY = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)


def named(name: str) -> str:
    """The name, if it could be one of a policy; whether a policy of a site is installed is not looked at here.

    Raises:
        ValueError: it could not.
    """
    if name in POLICIES or _FUNCTION.fullmatch(name) or _ENTRY.fullmatch(name):
        return name
    raise ValueError(f"{name!r} is no name of a policy: {choices()}")


def is_offered(name: str) -> bool:
    """Whether an installed package offers an entry point of this name. Nothing of it is loaded."""
    from importlib import metadata  # not what each command waits for

    return bool(metadata.entry_points(group=GROUP, name=name))


def choices() -> str:
    """What a policy may be, in words."""
    return f"there are {', '.join(POLICIES)}, entry points in {GROUP}, and functions as MODULE:FUNCTION"
