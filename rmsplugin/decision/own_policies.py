"""Own policies: functions of a site that decide, found by name, called, and refused with a sentence where they err.

A function of a site is a policy like those in ``rmsplugin.decision.policies``: it gets a configuration and parameters,
and gives a decision. Nobody here knows what it does, so whatever it answers is judged before it counts
(``rmsplugin.decision.judging``), and it is asked twice: a policy is a pure function.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib import metadata

from rmsplugin.decision.judging import faults
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.part_types import kind_of
from rmsplugin.decision.result import Decision, Infeasible
from rmsplugin.errors import OwnPolicyError
from rmsplugin.known_objects import ForeignObjectError, require_known
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.policy_names import GROUP, choices

#: What a site writes. What it returns is nobody's word yet.
OwnPolicy = Callable[[Configuration, Parameters], object]
#: The package: no line of it tells a site where its policy errs.
_HERE = __file__.removesuffix("decision/own_policies.py")


@lru_cache(maxsize=16)
def find(name: str) -> OwnPolicy:
    """The function of a site's policy; its module is loaded, which may do anything.

    Args:
        name: of an entry point, or ``module:function``.

    Raises:
        OwnPolicyError: there is none, or it cannot be loaded.
    """
    try:
        policy = _function(name) if ":" in name else _entry_point(name)
    except OwnPolicyError:
        raise
    except (Exception, SystemExit) as error:
        raise OwnPolicyError(f"policy {name} cannot be loaded: {_told(error)}") from None
    if not callable(policy):
        raise OwnPolicyError(f"policy {name} is no function, but {kind_of(policy)}")
    own: OwnPolicy = policy
    return own


def _function(name: str) -> object:
    module, _, function = name.partition(":")
    loaded = importlib.import_module(module)
    if not hasattr(loaded, function):
        raise OwnPolicyError(f"policy {name}: module {module} has no {function}")
    found: object = getattr(loaded, function)
    return found


def _entry_point(name: str) -> object:
    found = tuple(metadata.entry_points(group=GROUP, name=name))
    if not found:
        raise OwnPolicyError(f"there is no policy {name!r}; {choices()}")
    if len({each.value for each in found}) > 1:
        offers = " and ".join(sorted(each.value for each in found))
        raise OwnPolicyError(f"two packages offer a policy {name}: {offers}; name one as MODULE:FUNCTION")
    loaded: object = found[0].load()
    return loaded


def decide_by(name: str, configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """The decision of a site's policy; where it errs there is none, and Infeasible says why.

    Args:
        name: of an entry point, or ``module:function``.
        configuration: nodes, queue (head first) and the place of each VM.
        parameters: tunables.
    """
    try:
        policy = find(name)
    except OwnPolicyError as error:
        return Infeasible(str(error), errs=True)
    first, again = (_asked(name, policy, configuration, parameters) for _ in range(2))
    if isinstance(first, Infeasible):
        return first
    net = parameters.search.net
    if first != again and not (net is not None and net.has_struck):
        return _fault(f"{name} is not pure: {_difference(configuration, first, again)}")
    return first


def _asked(name: str, policy: OwnPolicy, configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """What it answers, if that is a decision about this configuration; it gets a copy that it cannot spoil."""
    copy = Configuration(configuration.nodes, configuration.vjobs, dict(configuration.locations), checked=True)
    try:
        found = policy(copy, parameters)
    except (Exception, SystemExit) as error:
        return _fault(f"{name} failed: {_told(error)}")
    if isinstance(found, Infeasible):
        return Infeasible(f"policy {name}: {found.explanation}")
    if not isinstance(found, Decision):
        return _fault(f"{name} gave {kind_of(found)}, and not a Decision")
    try:
        require_known(found)
    except Exception as error:
        why = error if isinstance(error, ForeignObjectError) else f"what cannot be written: {_told(error)}"
        return _fault(f"{name} answered with {why}")
    wrong = next(faults(configuration, found), "")
    return _fault(f"{name}: {wrong}") if wrong else replace(found, policy=name, placement=dict(found.placement))


def _fault(words: str) -> Infeasible:
    return Infeasible(f"policy {words}", errs=True)


def _difference(configuration: Configuration, first: Decision, again: Decision | Infeasible) -> str:
    if isinstance(again, Infeasible):
        return f"asked again about the same, it decides nothing: {again.explanation}"
    for vjob in configuration.vjobs:
        one, other = first.states[vjob.name], again.states[vjob.name]
        if one is not other:
            return f"of two answers about the same, one has vjob {vjob.name} {one}, and the other {other}"
    return "two answers about the same differ in their placement or their reasons"


def _told(error: BaseException) -> str:
    """What went wrong, and where: the last line outside of rmsplugin and of Python's own import."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [each for each in frames if not each.filename.startswith((_HERE, "<frozen "))]
    place = f" ({where[-1].filename}, line {where[-1].lineno})" if where else ""
    words = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {words}{place}" if words else f"{type(error).__name__}{place}"
