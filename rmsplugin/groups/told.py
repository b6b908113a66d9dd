"""Told: a summary as JSON, with which the engine of a group tells the leader of its room.

The rules that close a class of nodes to vjobs are not told: the leader knows those of all vjobs, and the hosts of each
group (``giving``). An engine knows those of its own vjobs only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmsplugin.errors import RefusedError
from rmsplugin.groups.giving import Heard, Packed
from rmsplugin.groups.relieving import Hot
from rmsplugin.groups.summary import GroupState, NodeClass, Summary
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState


def view(summary: Summary) -> dict[str, Any]:
    """The summary as JSON."""
    return {
        "name": summary.name,
        "state": str(summary.state),
        "nodes": summary.nodes,
        "up": summary.up,
        "classes": [
            {
                "size": _amount(each.size),
                "nodes": each.nodes,
                "free": _amount(each.free),
                "holes": [[centi, mib, count] for (centi, mib), count in each.holes.items()],
            }
            for each in summary.classes
        ],
        "largest": _amount(summary.largest),
    }


def heard(answer: Mapping[str, Any]) -> tuple[int, Heard]:
    """What the engine of a group has answered to ``GET /v1/summary``: its epoch, and what it says.

    Raises:
        RefusedError: it cannot be read; its release is another one.
    """
    try:
        epoch, serial = answer["seen"]
        said = Heard(
            (int(epoch), int(serial)),
            frozenset(map(int, answer["released"])),
            {int(job_id): VJobState(state) for job_id, state in answer["vjobs"].items()},
            _summary(answer["summary"]),
            # An older release does not tell these.
            can_go=frozenset(map(int, answer.get("can_go", ()))),
            going=frozenset(map(int, answer.get("going", ()))),
            packed={
                int(job_id): Packed(str(each["parcel"]), str(each["to"]))
                for job_id, each in answer.get("packed", {}).items()
            },
            unclean=frozenset(map(int, answer.get("unclean", ()))),
            takes="packed" in answer,
            hot=_hot(answer.get("hot")),
        )
        return int(answer["epoch"]), said
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RefusedError(
            f"the engine of a group says what this release does not understand ({error!r}): are the releases of the "
            "controllers the same?"
        ) from None


def hot_view(hot: Hot | None) -> dict[str, Any] | None:
    """Who would have room without whom, as JSON; None: the group is not hot."""
    return None if hot is None else {"waits": hot.waits, "vjobs": list(hot.vjobs)}


def _hot(said: Mapping[str, Any] | None) -> Hot | None:
    return None if said is None else Hot(int(said["waits"]), tuple(map(int, said["vjobs"])))


def _amount(resources: Resources) -> list[float]:
    return [resources.cpus, resources.memory_mib]


def _resources(said: Any) -> Resources:
    cpus, memory_mib = said
    return Resources(float(cpus), int(memory_mib))


def _summary(said: Mapping[str, Any]) -> Summary:
    return Summary(
        str(said["name"]),
        GroupState(said["state"]),
        int(said["nodes"]),
        int(said["up"]),
        tuple(
            NodeClass(
                _resources(each["size"]),
                frozenset(),
                int(each["nodes"]),
                _resources(each["free"]),
                {(int(centi), int(mib)): int(count) for centi, mib, count in each["holes"]},
            )
            for each in said["classes"]
        ),
        _resources(said["largest"]),
    )
