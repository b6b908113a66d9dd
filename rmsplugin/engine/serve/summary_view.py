"""Summary view: what the engine of a group tells the leader of its groups, all of it as it is at one instant."""

from __future__ import annotations

from typing import Any

from rmsplugin.engine.decide.deciding import DecidedGroups
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.territory.territory import Territory, number_of
from rmsplugin.errors import RefusedError
from rmsplugin.groups import told
from rmsplugin.groups.forming import Group
from rmsplugin.groups.summary import summaries
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_names import parse_vm_name


def summary_view(
    ledger: Ledger, territory: Territory | None, epoch: int, decided: DecidedGroups | None
) -> dict[str, Any]:
    """The answer to the leader.

    Args:
        ledger: of the group.
        territory: what is the group's own.
        epoch: of this engine.
        decided: the cluster as it was decided about last; None: nothing was decided yet, so no node takes VMs.

    Raises:
        RefusedError: this is the engine of all groups.
    """
    if territory is None:
        raise RefusedError("this engine has all groups, and no leader")
    group = Group(territory.group, tuple(sorted(territory.hosts)))
    configuration = Configuration((), (), {}) if decided is None else decided.configuration
    (summary,) = summaries(configuration, [group])
    # What follows is read after this: whom the cycle suspends to go is noted before it is done with a text, and the
    # copies of a vjob before it is noted no more.
    done, hot, parting = territory.done, territory.hot, territory.parting
    with ledger.transaction():
        seen, released, vjobs = ledger.given.seen(), ledger.given.released(), ledger.vjobs()
        going, packed = parting | {each.number for each in ledger.parcels.copies()}, ledger.parcels.vjobs()
        left = {parsed[0] for _, vm in ledger.nodes.left_behind() if (parsed := parse_vm_name(vm)) is not None}
    if seen != done:
        # It is just being followed: what is not given up yet may be a moment later.
        seen, released = done, frozenset()
    states: dict[int, VJobState] = {}
    for vjob in vjobs:
        number = number_of(vjob.display_id, vjob.job_id)
        if states.get(number, VJobState.WAITING) is VJobState.WAITING:
            states[number] = vjob.state
    return {
        "group": group.name,
        "epoch": epoch,
        "seen": list(seen),
        "released": sorted(released),
        "summary": told.view(summary),
        "can_go": sorted(territory.can_go & states.keys()),
        "going": sorted(going),
        "packed": {str(number): {"parcel": parcel, "to": to} for number, (parcel, to) in packed.items()},
        "hot": told.hot_view(hot),
        "unclean": sorted((left | packed.keys()) - states.keys()),
        "vjobs": {str(number): str(state) for number, state in states.items()},
    }
