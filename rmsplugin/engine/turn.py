"""Turn: a new leader of several hosts has all nodes obey it before it looks at what the one before has done.

The other order would miss what the one before does in between, and has written nowhere but in its own ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor, wait

from rmsplugin.adapters.nodes.base import Turns
from rmsplugin.adapters.rms.base import Rms
from rmsplugin.engine.observe.rooms import vm_hosts
from rmsplugin.errors import DeposedError, RmspluginError, UnavailableError
from rmsplugin.settings import Settings

log = logging.getLogger(__name__)

#: The longest wait for nodes: a connection to a dead one is given up within 10 s.
_WITHIN_S = 12.0
_PARALLEL = 64
#: The longest wait for the names of the nodes: often the slurmctld was on the host that has just gone.
_NAMES_S = 2.0
#: How many nodes are named in a sentence.
_NAMED = 10


def obeyed_by_all(
    settings: Settings,
    rms: Rms,
    nodes: Turns,
    remembered: Callable[[], Collection[str]] | None = None,
    *,
    of_group: bool = False,
) -> frozenset[str]:
    """Have all VM hosts that answer obey no engine of a lower epoch. Those that do not learn it with the first act.

    Args:
        settings: of the site.
        rms: tells which nodes are VM hosts.
        nodes: their agents.
        remembered: the nodes on which the engine before has acted, which are asked where Slurm does not answer soon;
            None: Slurm is waited for.
        of_group: the engine is that of a group: one host that has heard of a higher epoch does not end its turn.

    Returns:
        The hosts that have heard of a higher epoch.

    Raises:
        DeposedError: a node has heard of a higher epoch, which only a later engine of these hosts can have.
    """
    try:
        names: Collection[str] = _names(settings, rms, None if remembered is None else _NAMES_S)
    except RmspluginError as error:
        names = () if remembered is None else remembered()
        others = f"{len(names)} nodes are known from the ledger, others" if names else "nodes"
        log.warning(
            "%s learn the epoch of this turn one by one, since Slurm does not tell their names: %s", others, error
        )
    silent, refusing = _ask(nodes, names)
    if refusing and not of_group:
        raise next(iter(refusing.values()))
    for refusal in refusing.values():
        log.warning("a host refuses this turn, although its epoch is above all of the ensemble: %s", refusal)
    if silent:
        named = ", ".join(silent[:_NAMED]) + (", ..." if len(silent) > _NAMED else "")
        log.warning("%d of %d nodes have not taken the epoch of this turn yet: %s", len(silent), len(names), named)
    return frozenset(refusing)


def _names(settings: Settings, rms: Rms, within_s: float | None) -> list[str]:
    """The names of the VM hosts. Raises RmspluginError where Slurm does not tell them in time."""
    if within_s is None:
        return vm_hosts(settings, rms.snapshot())
    pool = ThreadPoolExecutor(1, thread_name_prefix="names")
    asked = pool.submit(rms.snapshot)
    pool.shutdown(wait=False)
    try:
        return vm_hosts(settings, asked.result(within_s))
    except TimeoutError:
        raise UnavailableError(f"it is not waited for longer than {within_s:g} s") from None


def _ask(nodes: Turns, names: Collection[str]) -> tuple[list[str], dict[str, DeposedError]]:
    """The nodes that have not taken the epoch, and the refusals of those that have heard of a higher one."""
    pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="obey")
    asked = {name: pool.submit(nodes.obey, name) for name in names}
    wait(asked.values(), timeout=_WITHIN_S)
    pool.shutdown(wait=False, cancel_futures=True)
    silent: list[str] = []
    refusing: dict[str, DeposedError] = {}
    for name, answer in asked.items():
        error = answer.exception() if answer.done() and not answer.cancelled() else RmspluginError("silent")
        if isinstance(error, DeposedError):
            refusing[name] = error
        elif isinstance(error, RmspluginError):
            silent.append(name)
        elif error is not None:
            raise error
    return silent, refusing
