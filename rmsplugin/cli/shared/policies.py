"""Policies as options of commands: names of the product's, and of those of a site; and who decides by them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmsplugin.model.policy_names import POLICIES, choices, is_offered, named

if TYPE_CHECKING:
    from rmsplugin.proposing.propose import Decides

#: For the help of an option.
ANY = f"{', '.join(POLICIES)}; or a policy of your own, by the name of its entry point or as MODULE:FUNCTION"


def policy_name(text: str) -> str:
    """The name of a policy, for argparse. Nothing of a site's is loaded: that may do anything.

    Raises:
        ArgumentTypeError: there is none of that name.
    """
    try:
        name = named(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if name not in POLICIES and ":" not in name and not is_offered(name):
        raise argparse.ArgumentTypeError(f"there is no policy {name!r}; {choices()}")
    return name


@contextmanager
def deciding(policy: str) -> Iterator[Decides]:
    """What decides by a policy: this process, or one of its own for a policy of the site.

    Args:
        policy: as ``policy_name`` gives it.

    Raises:
        OwnPolicyError: a policy of the site cannot be loaded.
    """
    if policy in POLICIES:
        from rmsplugin.proposing.propose import decided

        yield decided
        return
    from rmsplugin.proposer.policy_process import PolicyProcess

    with PolicyProcess(policy) as own:
        yield own.decide


def refuse_unloadable(policies: Iterable[str]) -> None:
    """Load the policies of the site, each in a process of its own, before anything is computed.

    Raises:
        OwnPolicyError: one cannot be loaded.
    """
    for policy in policies:
        if policy not in POLICIES:
            with deciding(policy):
                pass
