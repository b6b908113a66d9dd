"""The forecast: when each vjob of the queue is likely to run, by the next switch and by time limits."""

from __future__ import annotations

from dataclasses import replace

from unit.queues import Queue, nodes

from rmsplugin.decision.forecast import forecast
from rmsplugin.model.elements import NodeState, running_on
from rmsplugin.model.vjob import VJobState


def starts(queue: Queue, **moved: str) -> dict[str, float | None]:
    """The forecast, if the next switch lets the VMs in ``moved`` run on these nodes."""
    before = queue.configuration
    updates = {name.replace("_", "-"): running_on(node) for name, node in moved.items()}
    return forecast(before, before.with_locations(updates))


def test_what_the_next_switch_lets_run_begins_now() -> None:
    queue = Queue(*nodes(2)).add("a", "n1", time_limit_s=100, ran_s=40).add("b").add("c", "zz:n1")
    assert starts(queue, b_0="n2") == {"b": 0.0, "c": 60.0}


def test_each_runs_when_all_its_vms_fit_beside_those_ahead_of_it() -> None:
    queue = Queue(*nodes(2)).add("a", "n1", time_limit_s=100, ran_s=0).add("b", "n2", time_limit_s=30, ran_s=10)
    queue.add("wide", vms=2, time_limit_s=50).add("next", time_limit_s=10).add("last")
    assert starts(queue) == {"wide": 100.0, "next": 150.0, "last": 150.0}


def test_who_has_no_limit_never_gives_room_as_far_as_is_known() -> None:
    queue = Queue(*nodes(1)).add("a", "n1", time_limit_s=None).add("b", time_limit_s=5)
    assert starts(queue) == {"b": None}


def test_one_that_fits_on_no_node_keeps_nobody_waiting() -> None:
    queue = Queue(*nodes(2)).add("a", "n1", time_limit_s=20).add("long", "n2", time_limit_s=500)
    queue.add("huge", cpus=9).add("b", time_limit_s=5)
    assert starts(queue) == {"huge": None, "b": 20.0}


def test_nodes_that_take_nobody_are_not_counted_on() -> None:
    queue = Queue(*nodes(1), *[replace(each, name="n9", state=NodeState.DRAINING) for each in nodes(1)])
    queue.add("a", "n1", time_limit_s=20).add("b", "n9", time_limit_s=5).add("c")
    assert starts(queue) == {"c": 20.0}


def test_one_that_its_user_put_to_sleep_has_no_time() -> None:
    queue = Queue(*nodes(1)).add("a", "zz:n1", target=VJobState.SLEEPING).add("b")
    assert starts(queue) == {"b": 0.0}


def test_a_long_queue_is_looked_at_up_to_a_bound() -> None:
    queue = Queue(*nodes(4)).add("a", "n1", time_limit_s=20)
    for number in range(20):
        queue.add(f"v{number}", cpus=1, time_limit_s=10)
    told = forecast(queue.configuration, queue.configuration, looks=30)
    assert told["v0"] == 0.0 and told["v19"] is None
