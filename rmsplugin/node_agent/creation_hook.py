"""Creation hook: the platform asks it before it creates a VM or takes one in, and does not if the hook refuses.

The platform's own hook calls it (a program in ``hooks/``). It refuses by its exit status; its standard error reaches
the caller.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rmsplugin.adapters.platform.node_base import Facts
from rmsplugin.errors import RmspluginError
from rmsplugin.node_agent import epoch, owner
from rmsplugin.node_agent.config import load
from rmsplugin.node_agent.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmsplugin.adapters.platform.node_base import Creation

_LIMIT_BYTES = 1 << 20


def answer(platform: Creation, words: Sequence[str]) -> int:
    """Answer the platform; its description of the VM is on standard input. Return the exit status: 1 refuses."""
    description = sys.stdin.buffer.read(_LIMIT_BYTES + 1)
    if not platform.creates(words):
        return 0
    wrong = _fault(platform, words, description)
    if wrong:
        print(f"rmsplugin refuses {words[0][:80]}: {wrong}", file=sys.stderr)
    return 1 if wrong else 0


def _fault(platform: Creation, words: Sequence[str], description: bytes) -> str:
    if len(description) > _LIMIT_BYTES:
        return "its XML is too long"
    try:
        settings = load(None)
        knows_leader = not settings.several_engines or owner.is_known(settings.vm_path)
        facts = Facts(epoch.highest(epoch.of_node(settings.vm_path)), _is_filtered, knows_leader)
        return platform.refusal(words, description.decode(), settings, facts)
    except (AgentError, ValueError) as error:
        return str(error)
    except (OSError, RmspluginError) as error:  # what cannot be looked at allows nothing
        return str(AgentError.of(error))


def _is_filtered(interface: str) -> bool:
    from rmsplugin.node_agent import guest_filter  # here, since most VMs need none of it

    return guest_filter.is_kept(interface)
