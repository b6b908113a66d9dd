"""Policies as options of commands: names of the product's, and of those of a site."""

from __future__ import annotations

import argparse

from rmsplugin.model.policy_names import POLICIES, named

#: For the help of an option.
ANY = f"{', '.join(POLICIES)}; or a policy of your own, by the name of its entry point or as MODULE:FUNCTION"


def policy_name(text: str) -> str:
    """The name of a policy, for argparse; one of a site is loaded.

    Raises:
        ArgumentTypeError: there is none, or it cannot be loaded.
    """
    try:
        name = named(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if name not in POLICIES:
        from rmsplugin.decision.own_policies import PolicyError, find

        try:
            find(name)
        except PolicyError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return name
