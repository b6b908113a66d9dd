"""Standing: the watts of a cluster in which nothing changes, with nodes that have nothing on or off. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rmsplugin.energy.power import PowerClass


@dataclass(frozen=True, slots=True)
class Standing:
    """Watts of all nodes together.

    Attributes:
        watts: with some nodes off.
        all_on_w: with all of them on.
        least_w: with each node off that has nothing, where that saves.
    """

    watts: float
    all_on_w: float
    least_w: float


def standing(
    classes: Mapping[str, PowerClass],
    cpus: Mapping[str, float],
    used_cpus: Mapping[str, float],
    occupied: Collection[str],
    off: Collection[str],
) -> Standing:
    """Add up the watts of nodes.

    Args:
        classes: of all nodes, by name.
        cpus: of each node that counts, by name.
        used_cpus: CPUs of it that are used; 0 for a node that is not there.
        occupied: the nodes that have something.
        off: the nodes that are off.
    """
    watts = all_on_w = least_w = 0.0
    for name, most in cpus.items():
        power, used = classes[name], used_cpus.get(name, 0.0)
        on_w = power.idle_w + (power.busy_w - power.idle_w) * (min(1.0, used / most) if most else 0.0)
        all_on_w += on_w
        watts += power.off_w if name in off else on_w
        least_w += on_w if name in occupied else min(power.idle_w, power.off_w)
    return Standing(watts, all_on_w, least_w)
