"""Node agent: ``rmsplugin-node``, the forced command behind the engine's (and the other nodes') ssh key.

Every call is a process of its own, which loads what it needs: the verbs (``calls``); or the answer to the platform on
this node before it creates a VM (``creation_hook``), with the option of a platform's hook.
"""

from __future__ import annotations

import os
import sys

from rmsplugin.adapters.platform.node_factory import HOOK_OPTIONS, platform_on_node
from rmsplugin.open_directories import OWN_UMASK


def main() -> int:
    """Do one verb, or answer one hook; return the exit status."""
    os.umask(OWN_UMASK)
    if sys.argv[1:] and sys.argv[1] in HOOK_OPTIONS:
        from rmsplugin.node_agent import creation_hook

        return creation_hook.answer(platform_on_node(HOOK_OPTIONS[sys.argv[1]]), sys.argv[2:])
    from rmsplugin.node_agent import calls

    return calls.answer_once(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
