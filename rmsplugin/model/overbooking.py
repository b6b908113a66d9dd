"""Overbooking: VMs are booked with fewer CPUs than they have, so that the VMs of a node have more together than it has.

The ratio is the ``overbook`` of BtrPlace (Hermenier, Lawall, Muller: BtrPlace, IEEE TDSC 10(5), 2013), of VMs and not
of nodes: so VMs of several partitions, each with a ratio of its own, share nodes.
"""

from __future__ import annotations

#: The largest ratio; beyond it a CPU would be booked with less than a few hundredths.
MOST_OVERBOOKING = 16.0


def overbooked(cpus: float, ratio: float) -> float:
    """The CPUs to be booked for a VM that has ``cpus``: whole hundredths, rounded down, and at least one if it has any.

    Rounded down, three VMs of one CPU are on a node of one CPU by a ratio of 3. So by each VM less than a hundredth of
    a CPU too little may be booked.

    Args:
        cpus: at most two decimals.
        ratio: from 1 to ``MOST_OVERBOOKING``: CPUs of VMs for each CPU of a node.
    """
    centi_cpus = round(cpus * 100)
    return max(min(1, centi_cpus), int(centi_cpus / ratio + 1e-6)) / 100
