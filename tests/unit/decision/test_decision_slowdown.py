"""Slowdown: each rule of "How slowdown decides" (docs/operator/policies.md), and what a decision says of it."""

from __future__ import annotations

import math

import pytest
from unit.queues import Queue, nodes, running, states

from rmsplugin.decision import slowdown as module
from rmsplugin.decision.near import Near, near
from rmsplugin.decision.parameters import ActionDuration, SlowdownParameters, SwitchDurations
from rmsplugin.decision.reasons import names
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.decision.room import Site
from rmsplugin.model.elements import VM, VJob
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing

#: Booting, suspending and resuming: 10 s each, whatever the memory; so that ten switches take 200 s.
EVEN = SwitchDurations(*[ActionDuration(10.0)] * 3)
EAGER = {"exempt_s": 0.0, "durations": EVEN}

#: What runs, needs 300 s more, and has not waited: its expansion is 1.
HALF_DONE = {"time_limit_s": 600.0, "ran_s": 300.0}


def bounded(max_delay_s: float = 1000.0, max_delay: float = 0.4) -> SlowdownParameters:
    return SlowdownParameters(max_delay=max_delay, max_delay_s=max_delay_s)


def against(waited: float, **known: object) -> Queue:
    """`r` has the only node; `a` is ready, and has waited for this time."""
    return Queue(*nodes(1)).add("r", "n1", **{**HALF_DONE, **known}).add("a", waited_s=waited, state_s=0.0)


def moved(queue: Queue, **tunables: object) -> bool:
    """Whether `r` makes way for `a`."""
    decision = queue.decide("slowdown", **{**EAGER, **tunables})
    found = states(decision)
    assert (found["a"], found["r"]) in (("running", "sleeping"), ("waiting", "running"))
    return found["a"] == "running"


# -- who goes first ---------------------------------------------------------------------------------------------------


def test_who_has_waited_longest_for_what_it_needs_starts_first_whatever_the_queue_says() -> None:
    queue = Queue(*nodes(1)).add("a", waited_s=100).add("b", waited_s=200)
    assert running(queue.decide("slowdown", **EAGER)) == {"b"}


def test_who_has_run_for_long_is_expected_to_run_for_long() -> None:
    # no limit, an hour: 19 hours more are expected; three hours of waiting are little for that
    queue = Queue(*nodes(1)).add("long", "zz:n1", ran_s=3600, waited_s=10800).add("a", waited_s=60)
    decision = queue.decide("slowdown", **EAGER)
    assert running(decision) == {"a"}
    assert str(decision.reasons["long"]).endswith(
        "is expected to need 20 hours more, has waited 3 hours: expansion 1.2"
    )


def test_without_a_limit_twenty_times_what_it_ran_is_expected_and_a_minute() -> None:
    queue = Queue(*nodes(1)).add("r", "n1", ran_s=60, preemptible=False).add("b", "zz:n1", ran_s=60, waited_s=1200)
    said = str(queue.decide("slowdown", **EAGER).reasons["b"])
    assert said.endswith("is expected to need 1200 s more, has waited 1200 s: expansion 2.0")


def test_who_asks_for_too_much_is_behind_the_honest_and_in_nobodys_way() -> None:
    known = {"ran_s": 900.0, "waited_s": 5000.0}
    queue = Queue(*nodes(1)).add("liar", "zz:n1", time_limit_s=86400, **known)
    queue.add("honest", "zz:n1", time_limit_s=1000, **known)
    assert running(queue.decide("slowdown", **EAGER)) == {"honest"}
    # before anybody has run, limits of a minute and of a day are alike: the order of submission decides
    fresh = Queue(*nodes(1)).add("liar", time_limit_s=86400, waited_s=9).add("honest", time_limit_s=60, waited_s=9)
    assert running(fresh.decide("slowdown", **EAGER)) == {"liar"}


def test_who_has_run_beyond_its_limit_is_expected_to_need_a_minute_more() -> None:
    queue = (
        Queue(*nodes(1)).add("r", "n1", preemptible=False).add("b", "zz:n1", time_limit_s=60, ran_s=999, waited_s=60)
    )
    assert "is expected to need 60 s more, has waited 60 s: expansion 2.0" in str(
        queue.decide("slowdown", **EAGER).reasons["b"]
    )


# -- who makes way ----------------------------------------------------------------------------------------------------


def test_one_makes_way_for_three_times_its_expansion_and_what_the_switch_loses_counts() -> None:
    # booting takes 10 s, suspending and resuming the other one 20 s: 30 s beside the 60 that are expected
    assert not moved(against(179))
    assert moved(against(180))


def test_the_sentences_of_a_switch_have_its_numbers() -> None:
    decision = against(180).decide("slowdown", **EAGER)
    assert str(decision.reasons["a"]) == ("is expected to need 60 s more, has waited 180 s: expansion 4.0; r makes way")
    assert decision.reasons["a"].code is ReasonCode.PREEMPTS
    assert str(decision.reasons["r"]) == "makes way for a: that has an expansion of 4.0, and this of 1.0"
    assert decision.reasons["r"].code is ReasonCode.PREEMPTED
    assert decision.reasons["r"].numbers == {"by": "a", "expansion": 1.0}
    refused = against(179).decide("slowdown", **EAGER).reasons["a"]
    assert refused.code is ReasonCode.DOES_NOT_PAY
    assert str(refused) == (
        "is expected to need 60 s more, has waited 179 s: expansion 4.0; to have r make way loses 30 s of its CPUs; "
        "with this loss its expansion is 3.0, and theirs at most 1.0"
    )
    assert refused.numbers == {"victims": "r", "lost_s": 30.0}
    early = against(119).decide("slowdown", **EAGER).reasons["a"]
    assert early.code is ReasonCode.NO_ROOM
    assert str(early) == (
        "needs 1 CPU and 0 MiB in 1 VM; 0 CPUs and 4096 MiB are free, nobody has to make way for it; "
        "is expected to need 60 s more, has waited 119 s: expansion 3.0"
    )


def test_what_the_other_one_has_waited_itself_protects_it() -> None:
    assert not moved(against(449, waited_s=300))  # its expansion is 2
    assert moved(against(450, waited_s=300))


def test_two_that_have_waited_alike_do_not_displace_each_other() -> None:
    assert not moved(against(5000, time_limit_s=60, ran_s=0, waited_s=5000))


@pytest.mark.parametrize("memory_mib", [512, 200_000])
def test_nobody_of_200_gb_is_suspended_for_one_of_30_s(memory_mib: int) -> None:
    queue = Queue(*nodes(1, memory_mib=400_000)).add("r", "n1", memory_mib=memory_mib, **HALF_DONE)
    queue.add("a", memory_mib=512, time_limit_s=30, waited_s=3000)
    decision = queue.decide("slowdown", exempt_s=0.0)
    assert (running(decision) == {"a"}) == (memory_mib == 512)
    if memory_mib > 512:
        assert decision.reasons["a"].code is ReasonCode.DOES_NOT_PAY


#: 10 s, and a second for each MiB that one node saves or restores.
GROWING = SwitchDurations(ActionDuration(10.0), *[ActionDuration(10.0, 1.0)] * 2)


@pytest.mark.parametrize(
    ("places", "lost_s"),
    [(("n1", "n2", "n3", "n4"), 10 + 2 * 110), (("n1", "n1", "n2", "n3"), 10 + 2 * 210), (("n1",) * 4, 10 + 2 * 410)],
)
def test_vms_of_one_node_share_its_storage_so_that_the_switch_takes_longer(
    places: tuple[str, ...], lost_s: float
) -> None:
    queue = Queue(*nodes(4, cpus=4, memory_mib=512)).add("r", *places, vms=4, memory_mib=100, **HALF_DONE)
    queue.add("a", vms=13, waited_s=130.0, memory_mib=1, state_s=0.0)
    refused = queue.decide("slowdown", **{**EAGER, "durations": GROWING}).reasons["a"]
    assert refused.code is ReasonCode.DOES_NOT_PAY, refused
    assert refused.numbers["lost_s"] == pytest.approx(10 + (lost_s - 10) * 4 / 13)


def test_a_state_is_restored_by_its_node_and_on_shared_storage_by_nobody_knows_whom() -> None:
    def begins_s(*places: str) -> float:
        queue = Queue(*nodes(2, cpus=2, memory_mib=512)).add("r", "n1", "n2", vms=2, memory_mib=100, **HALF_DONE)
        queue.add("a", *places, vms=4, waited_s=170.0, memory_mib=100, state_s=0.0)
        refused = queue.decide("slowdown", **{**EAGER, "durations": GROWING}).reasons["a"]
        assert refused.code is ReasonCode.DOES_NOT_PAY, refused
        return float(refused.numbers["lost_s"]) - 2 * 110 * 2 / 4  # type: ignore[arg-type]

    assert begins_s(*["zz:n1"] * 4) == pytest.approx(410)
    assert begins_s(*["zz:n1", "zz:n2"] * 2) == pytest.approx(210)
    assert begins_s(*["zz:shared"] * 4) == pytest.approx(110)


def test_the_switch_costs_by_what_each_has_of_the_cluster() -> None:
    # of ten CPUs the other one has eight, and this one two: 20 s of eight are 80 s of two
    def decided(waited_s: float) -> Decision:
        queue = Queue(*nodes(1, cpus=10)).add("stays", "n1", cpus=1, preemptible=False)
        queue.add("r", "n1", cpus=8, **HALF_DONE).add("a", cpus=2, waited_s=waited_s)
        return queue.decide("slowdown", **EAGER)

    assert decided(299).reasons["a"].numbers["lost_s"] == pytest.approx(90)
    assert "r" in running(decided(299))
    assert "a" in running(decided(300))


def test_what_may_not_be_preempted_makes_way_for_nobody() -> None:
    assert not moved(against(1e9, preemptible=False))
    queue = Queue(*nodes(1)).add("a", priority=9, waited_s=1e9).add("r", "n1", preemptible=False)
    assert not moved(queue)


def test_one_that_was_started_or_resumed_a_moment_ago_is_exempt() -> None:
    assert not moved(against(5000, state_s=299.0), exempt_s=300.0)
    assert moved(against(5000, state_s=300.0), exempt_s=300.0)
    decision = against(5000, state_s=299.0).decide("slowdown", **{**EAGER, "exempt_s": 300.0})
    assert decision.reasons["r"].code is ReasonCode.EXEMPT
    assert decision.reasons["r"].numbers == {"exempt_s": 1.0}


def test_and_for_ten_times_what_a_switch_of_it_takes() -> None:
    assert not moved(against(5000, state_s=199.0))
    assert moved(against(5000, state_s=200.0))
    slow = SwitchDurations(ActionDuration(10.0), ActionDuration(60.0), ActionDuration(60.0))
    assert not moved(against(50000, state_s=1199.0), durations=slow)
    assert moved(against(50000, state_s=1200.0), durations=slow)


@pytest.mark.parametrize(("state_s", "makes_way"), [(29.0, False), (30.0, True)])
def test_for_a_higher_tier_it_is_exempt_as_long_as_slurm_says_and_no_longer(state_s: float, makes_way: bool) -> None:
    queue = Queue(*nodes(2)).add("high", priority=1).add("b", waited_s=50000)
    queue.add("r", "n1", state_s=state_s, **HALF_DONE).add("s", "n2", state_s=state_s, **HALF_DONE)
    found = states(queue.decide("slowdown", **{**EAGER, "exempt_s": 30.0}))
    assert (found["high"] == "running") is makes_way
    said = str(queue.decide("slowdown", **{**EAGER, "exempt_s": 30.0}).reasons["high"])
    assert makes_way or said.endswith("; r and s would make way, exempt for 1 s more")
    # nobody of their tier has anything of it, however long it has waited
    assert (found["b"], [found["r"], found["s"]].count("running")) == ("waiting", 2 - makes_way)


@pytest.mark.parametrize(("state_s", "goes"), [(29.0, False), (30.0, True)])
def test_where_memory_is_short_it_is_exempt_as_long_as_slurm_says_and_no_longer(state_s: float, goes: bool) -> None:
    queue = Queue(*nodes(1, cpus=4, memory_mib=1000)).add("r", "n1", memory_mib=600, state_s=state_s, **HALF_DONE)
    queue.add("s", "n1", memory_mib=500, state_s=state_s, **HALF_DONE)
    assert running(queue.decide("slowdown", **{**EAGER, "exempt_s": 30.0})) == ({"r"} if goes else {"r", "s"})


def test_and_nobody_who_waits_has_anything_of_that() -> None:
    queue = Queue(*nodes(2, cpus=4, memory_mib=1000)).add("r", "n1", memory_mib=600, state_s=30.0, **HALF_DONE)
    queue.add("s", "n1", memory_mib=300, state_s=30.0, **HALF_DONE)
    queue.add("t", "n1", memory_mib=200, state_s=30.0, **HALF_DONE)
    queue.add("u", "n2", memory_mib=1000, state_s=30.0, **HALF_DONE).add("w", memory_mib=600, waited_s=50000)
    assert running(queue.decide("slowdown", **{**EAGER, "exempt_s": 30.0})) == {"r", "s", "u"}


def test_where_cpus_are_short_it_is_exempt_for_ten_switches_as_ever() -> None:
    queue = Queue(*nodes(1)).add("r", "n1", state_s=199.0, **HALF_DONE).add("s", "n1", state_s=199.0, **HALF_DONE)
    assert running(queue.decide("slowdown", **EAGER)) == {"r", "s"}
    queue = Queue(*nodes(1)).add("r", "n1", state_s=200.0, **HALF_DONE).add("s", "n1", state_s=200.0, **HALF_DONE)
    assert running(queue.decide("slowdown", **EAGER)) == {"r"}


def has_run(ran_s: float, waited_s: float) -> dict[str, float]:
    """One that needs 300 s more."""
    return {"ran_s": ran_s, "time_limit_s": ran_s + 300, "waited_s": waited_s}


def test_of_those_that_may_have_to_whoever_has_run_least_makes_way_first_and_as_few_as_needed() -> None:
    queue = Queue(*nodes(4)).add("x", "n1", **has_run(9000, 10)).add("y", "n2", **has_run(200, 30))
    queue.add("z", "n3", **has_run(400, 50)).add("w", "n4", **has_run(3000, 0))
    queue.add("a", vms=2, waited_s=5000)
    decision = queue.decide("slowdown", **EAGER)
    assert running(decision) == {"a", "x", "w"}
    assert str(decision.reasons["a"]).endswith("z and y make way")


@pytest.mark.parametrize(
    ("count", "told"), [(1, "v0"), (2, "v0 and v1"), (3, "v0, v1 and v2"), (5, "v0, v1, v2 and 2 more")]
)
def test_a_few_vjobs_are_told_by_name_as_in_a_sentence(count: int, told: str) -> None:
    assert names([VJob(f"v{number}", (VM(f"v{number}-0", Resources(1, 1)),)) for number in range(count)]) == told


def test_whom_many_short_ones_make_way_for_is_not_the_longest_again_and_again() -> None:
    """A job of two days that nobody waits for runs on while jobs of an hour make way for jobs of a minute."""
    queue = Queue(*nodes(2)).add("days", "n1", time_limit_s=172800, ran_s=90000)
    queue.add("hour", "n2", time_limit_s=3600, ran_s=600, waited_s=300).add("a", time_limit_s=60, waited_s=5000)
    assert running(queue.decide("slowdown", **EAGER)) == {"a", "days"}


def test_who_has_run_less_stays_all_the_same_where_another_makes_way_for_it() -> None:
    # `late` would make way for `a`; but three times `old`'s expansion is its own
    queue = Queue(*nodes(2)).add("old", "n1", **has_run(9000, 0)).add("late", "n2", **has_run(200, 1500))
    queue.add("a", waited_s=50000)
    decision = queue.decide("slowdown", **EAGER)
    assert running(decision) == {"a", "late"}
    assert str(decision.reasons["old"]) == "makes way for late: that has an expansion of 6.0, and this of 1.0"


def test_whom_a_wider_one_makes_way_for_leaves_what_fits_to_narrow_ones() -> None:
    # the wide one has run for as long, and is behind; what it frees is more than is needed, and `z` stays
    queue = Queue(*nodes(4)).add("z", "n1", waited_s=30, **HALF_DONE).add("wide", "n2", "n3", "n4", **HALF_DONE)
    queue.add("a", vms=2, waited_s=5000).add("b", waited_s=4000)
    assert running(queue.decide("slowdown", **EAGER)) == {"a", "b", "z"}


# -- tiers ------------------------------------------------------------------------------------------------------------


def test_a_higher_tier_comes_first_always() -> None:
    queue = Queue(*nodes(1)).add("a", priority=1, state_s=0.0).add("r", "n1", waited_s=9999, **HALF_DONE)
    assert moved(queue)
    decision = queue.decide("slowdown", **EAGER)
    assert str(decision.reasons["r"]) == "makes way for a: that is of a higher tier"
    ready = Queue(*nodes(1)).add("low", waited_s=9999).add("high", priority=1, waited_s=1)
    assert running(ready.decide("slowdown", **EAGER)) == {"high"}


def test_nobody_of_a_higher_tier_makes_way_however_long_one_has_waited() -> None:
    queue = Queue(*nodes(1)).add("r", "n1", priority=1, **HALF_DONE).add("a", waited_s=1e7)
    assert not moved(queue)


def test_a_lower_tiers_overdue_vjob_makes_way_for_a_higher_tier() -> None:
    queue = Queue(*nodes(1)).add("a", priority=1).add("r", "n1", waited_s=1e7, **HALF_DONE)
    assert moved(queue)


def test_the_overdue_of_a_lower_tier_take_nothing_of_the_protection_of_a_higher_one() -> None:
    queue = Queue(*nodes(1)).add("r", "n1", priority=1, waited_s=3000, **HALF_DONE).add("a", priority=1, waited_s=900)
    for number in range(9):
        queue.add(f"low{number}", waited_s=1e6)
    decision = queue.decide("slowdown", **EAGER, slowdown=bounded())
    assert running(decision) == {"r"}
    assert decision.reasons["r"].code is ReasonCode.OVERDUE


# -- shares of users --------------------------------------------------------------------------------------------------


def shared(share: float = 0.5, waits_s: float = 600.0) -> dict[str, object]:
    return {**EAGER, "slowdown": SlowdownParameters(user_share=share, user_share_s=waits_s)}


def test_what_a_user_has_beyond_his_share_makes_way_for_who_has_waited_long_enough() -> None:
    def decided(waited_s: float, share: float = 0.5, user: str = "ben") -> Decision:
        queue = Queue(*nodes(4))
        for number, ran_s in enumerate((900, 300, 600)):
            queue.add(f"ann{number}", f"n{number + 1}", user="ann", ran_s=ran_s, time_limit_s=86400, waited_s=90000)
        queue.add("cy", "n4", user="cy", ran_s=100, time_limit_s=86400)
        return queue.add("week", time_limit_s=604800, ran_s=60000, waited_s=waited_s, user=user).decide(
            "slowdown", **shared(share)
        )

    decision = decided(600)
    assert running(decision) == {"ann0", "ann2", "cy", "week"}, "what has run least of ann's is beyond her share"
    words = "makes way for week: that has waited 600 s, and with this its user has more than his share"
    assert str(decision.reasons["ann1"]) == words
    assert "week" not in running(decided(599))
    assert "week" not in running(decided(600, share=0.75))
    assert "week" not in running(decided(600, user="ann"))


def test_beyond_his_share_a_user_starts_where_nobody_else_can_and_makes_nobody_make_way() -> None:
    queue = Queue(*nodes(2)).add("a", "n1", user="ann", **HALF_DONE).add("more", user="ann", waited_s=9e4)
    assert running(queue.decide("slowdown", **shared())) == {"a", "more"}
    assert running(queue.add("b", user="ben").decide("slowdown", **shared())) == {"a", "b"}
    full = Queue(*nodes(2)).add("a", "n1", user="ann", **HALF_DONE).add("b", "n2", user="ben", **HALF_DONE)
    decision = full.add("more", user="ann", waited_s=9e4).decide("slowdown", **shared())
    assert running(decision) == {"a", "b"}
    assert str(decision.reasons["more"]).endswith(
        "its user would have more than his share, 50 % of the cluster, and nobody makes way for that"
    )


def test_one_vjob_a_user_may_have_however_large_it_is_and_a_tier_comes_first() -> None:
    wide = Queue(*nodes(4)).add("wide", "n1", "n2", "n3", "n4", user="ann", **HALF_DONE)
    wide.add("b", user="ben", waited_s=700, ran_s=60000, time_limit_s=604800)
    assert running(wide.decide("slowdown", **shared())) == {"wide"}
    high = Queue(*nodes(1)).add("a", user="ann", priority=1).add("more", user="ann", priority=1)
    assert running(high.add("low", user="ben", waited_s=9e4).decide("slowdown", **shared())) == {"a"}


# -- overdue ----------------------------------------------------------------------------------------------------------


def test_an_overdue_one_goes_first_whatever_the_expansions() -> None:
    queue = Queue(*nodes(1)).add("b", waited_s=999).add("late", "zz:n1", ran_s=500, time_limit_s=2500, waited_s=1001)
    decision = queue.decide("slowdown", **EAGER, slowdown=bounded())
    assert running(decision) == {"late"}
    before = Queue(*nodes(1)).add("b", waited_s=999).add("late", "zz:n1", ran_s=500, time_limit_s=2500, waited_s=1000)
    assert running(before.decide("slowdown", **EAGER, slowdown=bounded())) == {"b"}


def test_the_bound_is_a_part_of_what_was_asked_for() -> None:
    def starts(waited_s: float) -> bool:
        queue = Queue(*nodes(1)).add("b", waited_s=999)
        queue.add("late", "zz:n1", ran_s=5000, time_limit_s=10000, waited_s=waited_s)
        return "late" in running(queue.decide("slowdown", **EAGER, slowdown=bounded()))

    assert not starts(4000)
    assert starts(4001)


def test_for_an_overdue_one_others_make_way_whatever_it_costs() -> None:
    queue = against(1001, time_limit_s=86400, ran_s=3, waited_s=900)
    assert moved(queue, slowdown=bounded())
    decision = queue.decide("slowdown", **EAGER, slowdown=bounded())
    assert str(decision.reasons["r"]) == (
        "makes way for a: that has waited 1001 s in all, longer than its bound, and goes first"
    )
    assert not moved(against(999, time_limit_s=86400, ran_s=3, waited_s=900), slowdown=bounded())


def test_an_overdue_one_that_runs_makes_way_for_nobody_of_its_tier() -> None:
    known = {"time_limit_s": 4000.0, "ran_s": 1000.0}
    assert moved(against(900, waited_s=1600, **known), slowdown=bounded())
    queue = against(900, waited_s=1601, **known)
    assert not moved(queue, slowdown=bounded())
    reason = queue.decide("slowdown", **EAGER, slowdown=bounded()).reasons["r"]
    assert str(reason) == "has waited 1601 s in all, longer than its bound, and makes way for nobody of its tier"
    assert reason.numbers == {"waited_s": 1601.0}


def test_a_twentieth_of_the_cluster_is_protected_at_a_time() -> None:
    def decided(cpus: float) -> Decision:
        queue = Queue(*nodes(1, cpus=100)).add("fill", "n1", cpus=100 - 3 - cpus, preemptible=False)
        queue.add("old", "n1", cpus=3, waited_s=4000, ran_s=5000, state_s=5000.0)
        queue.add("new", "n1", cpus=cpus, waited_s=90000, ran_s=5000, state_s=4000.0)
        queue.add("a", cpus=cpus, waited_s=900)
        return queue.decide("slowdown", **EAGER, slowdown=SlowdownParameters(max_delay=0.01, max_delay_s=1000))

    assert running(decided(2)) == {"fill", "old", "new"}
    assert running(decided(3)) == {"fill", "old", "a"}


def test_who_runs_longest_keeps_its_protection_from_those_that_are_overdue_by_more() -> None:
    queue = Queue(*nodes(2)).add("r", "n1", waited_s=5000, ran_s=5000, state_s=300.0)
    queue.add("late", "n2", waited_s=90000, ran_s=5000, state_s=250.0).add("a", vms=2, waited_s=900)
    decision = queue.decide("slowdown", **EAGER, slowdown=bounded(max_delay=0.01))
    assert decision.reasons["r"].code is ReasonCode.OVERDUE
    assert decision.reasons["late"].code is not ReasonCode.OVERDUE


def test_where_many_are_overdue_those_are_that_are_so_by_much() -> None:
    def first(waited_s: float) -> bool:
        """Four are overdue; the last one of the queue by so much, and it is expected to need most."""
        queue = Queue(*nodes(1)).add("r", "n1", preemptible=False)
        for number in range(3):
            queue.add(f"b{number}", waited_s=1900)
        queue.add("late", waited_s=waited_s)
        return "goes first" in str(queue.decide("slowdown", **EAGER, slowdown=bounded()).reasons["late"])

    assert not first(1999)
    assert first(2000)


# -- Slurm's voice ----------------------------------------------------------------------------------------------------


def voiced(slurm_priority: str, **known: object) -> set[str]:
    """Of a fifth of the weight, and behind in the queue, `b` has waited four times as long."""
    queue = Queue(*nodes(1)).add("a", waited_s=100).add("b", waited_s=580, weight=0.2, **known)
    return running(queue.decide("slowdown", **EAGER, slowdown=SlowdownParameters(slurm_priority=slurm_priority)))  # type: ignore[arg-type]


def test_slurms_priority_is_a_weight_or_for_ties_or_the_order() -> None:
    assert voiced("weight") == {"a"}
    assert voiced("ties") == {"b"}
    assert voiced("order") == {"a"}


def test_a_reason_tells_what_the_weight_makes_of_an_expansion() -> None:
    queue = Queue(*nodes(1)).add("r", "n1", preemptible=True, state_s=0.0)
    decision = queue.add("a", waited_s=30, weight=1.5).add("b", waited_s=30).decide("slowdown", exempt_s=1e6)
    assert str(decision.reasons["a"]).endswith("expansion 2.2 (1.5 by its times, weighed 1.5 for its priority)")
    assert str(decision.reasons["b"]).endswith("expansion 1.5")


def test_a_tenth_of_the_weight_has_to_wait_ten_times_as_long_for_what_it_needs() -> None:
    def starts(waited_s: float) -> bool:
        queue = Queue(*nodes(1)).add("a", waited_s=120).add("b", waited_s=waited_s, weight=0.1)
        return running(queue.decide("slowdown", **EAGER)) == {"b"}

    assert not starts(1740)  # 30 times 0.1 is 3: a tie, and the queue decides
    assert starts(1746)


def test_with_the_order_nobody_makes_way_for_one_behind_it() -> None:
    order = SlowdownParameters(slurm_priority="order")
    assert not moved(against(80000), slowdown=order)
    ahead = Queue(*nodes(1)).add("a", waited_s=180).add("r", "n1", **HALF_DONE)
    assert moved(ahead, slowdown=order)
    ahead = Queue(*nodes(1)).add("a", waited_s=179).add("r", "n1", **HALF_DONE)
    assert not moved(ahead, slowdown=order)


def test_with_the_order_an_overdue_one_goes_first_all_the_same() -> None:
    order = SlowdownParameters(slurm_priority="order", max_delay_s=1000)
    assert moved(against(1001), slowdown=order)
    assert not moved(against(1000), slowdown=order)


# -- nodes, memory, pieces --------------------------------------------------------------------------------------------


def test_memory_alone_can_be_what_is_short() -> None:
    queue = Queue(*nodes(1, cpus=9, memory_mib=1000)).add("r", "n1", memory_mib=800, **HALF_DONE)
    queue.add("a", memory_mib=500, waited_s=5000).add("b", memory_mib=500, waited_s=100)
    decision = queue.decide("slowdown", **EAGER)
    assert running(decision) == {"a", "b"}


def pieces(memory_mib: int) -> Decision:
    queue = Queue(*nodes(2, cpus=2)).add("x", "n1", memory_mib=memory_mib, **HALF_DONE)
    queue.add("y", "n2", memory_mib=memory_mib, **HALF_DONE).add("a", cpus=2, memory_mib=64, waited_s=5000)
    return queue.decide("slowdown", **EAGER)


def test_room_in_pieces_is_joined_by_few_migrations() -> None:
    decision = pieces(128)
    assert running(decision) == {"x", "y", "a"}
    assert "free after few migrations" in str(decision.reasons["a"])
    assert decision.placement["x-0"] == decision.placement["y-0"] != decision.placement["a-0"]


def test_one_that_may_use_few_nodes_starts_where_others_can_leave_them_to_it() -> None:
    # all that is free is where `a` may not be; `r` fits there
    queue = Queue(*nodes(2)).add("r", "n1").add("a", rules=allowing(frozenset({"n1"})), waited_s=1.0)
    decision = queue.decide("slowdown", **EAGER)
    assert running(decision) == {"a", "r"}
    assert "free after few migrations" in str(decision.reasons["a"])


def test_where_few_would_not_do_those_that_yield_move_and_nobody_is_suspended() -> None:
    decision = pieces(129)  # more than the memory of `a`, twice
    assert running(decision) == {"x", "y", "a"}
    assert "free after some have moved" in str(decision.reasons["a"])


def test_many_vms_start_together_or_not_at_all() -> None:
    queue = Queue(*nodes(3)).add("r", "n1", **HALF_DONE).add("s", "n2", preemptible=False)
    queue.add("a", vms=3, waited_s=80000)
    decision = queue.decide("slowdown", **EAGER)
    assert running(decision) == {"r", "s"}
    assert "too few make way for it" in str(decision.reasons["a"])


def test_only_those_make_way_whose_room_it_can_use() -> None:
    queue = (
        Queue(*nodes(2))
        .add("r", "n1", **HALF_DONE)
        .add("s", "n2", preemptible=False, rules=allowing(frozenset({"n2"})))
    )
    queue.add("a", waited_s=80000, rules=allowing(frozenset({"n2"})))
    assert running(queue.decide("slowdown", **EAGER)) == {"r", "s"}


def test_whoever_is_in_transit_stays_and_nobody_counts_its_room_as_free() -> None:
    queue = Queue(*nodes(1)).add("r", "n1", in_transit=True, preemptible=False, rules=allowing(frozenset({"n1"})))
    queue.add("a", waited_s=80000)
    decision = queue.decide("slowdown", **EAGER)
    assert states(decision) == {"r": "running", "a": "waiting"}
    assert decision.reasons["r"].code is ReasonCode.IN_TRANSIT


def test_whoever_is_overdue_and_in_transit_takes_nobodys_protection() -> None:
    queue = Queue(*nodes(2)).add("r", "n1", waited_s=1601, time_limit_s=4000, ran_s=1000)
    queue.add("t", "n2", waited_s=9e5, in_transit=True, preemptible=False, rules=allowing(frozenset({"n2"})))
    queue.add("a", waited_s=900)
    assert queue.decide("slowdown", **EAGER, slowdown=bounded()).reasons["r"].code is ReasonCode.OVERDUE


@pytest.mark.parametrize(
    "wrong", [{"factor": 1.0}, {"factor": math.nan}, {"switches": -1.0}, {"max_delay_s": math.nan}, {"user_share": 0.0}]
)
def test_parameters_that_cannot_be_meant_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must be"):
        SlowdownParameters(**wrong)  # type: ignore[arg-type]


# -- who makes way is paused ------------------------------------------------------------------------------------------

PAUSED = {"exempt_s": 0.0, "durations": SwitchDurations(*[ActionDuration(0.1)] * 5, pauses=True)}


def asking(limit_s: float | None, its_wait_s: float = 0.0, **known: object) -> Queue:
    """`r` has the only node; `a` is ready, and has this limit."""
    queue = Queue(*nodes(1)).add("r", "n1", **{**HALF_DONE, **known})
    return queue.add("a", waited_s=its_wait_s, state_s=0.0, time_limit_s=limit_s)


def test_where_others_are_paused_one_that_asks_for_a_third_goes_first_without_having_waited() -> None:
    # after 10 minutes without a limit three hours more are expected
    known = {"time_limit_s": None, "ran_s": 600.0, "waited_s": 1000.0}
    assert moved(asking(600.0, **known), **PAUSED)
    assert not moved(asking(600.0, **known), **EAGER)
    reason = str(asking(600.0, **known).decide("slowdown", **PAUSED).reasons["r"])
    assert reason.endswith("makes way for a: that asks for 600 s, and this is expected to need 4 hours")


@pytest.mark.parametrize(("needs_s", "moves"), [(890.0, False), (920.0, True)])
def test_a_third_of_what_the_other_needs_is_enough_and_more_is_not(needs_s: float, moves: bool) -> None:
    assert moved(asking(300.0, time_limit_s=600.0 + needs_s, ran_s=600.0), **PAUSED) is moves


def test_who_asks_for_too_much_or_for_no_limit_waits_as_ever() -> None:
    known = {"time_limit_s": None, "ran_s": 600.0}
    for limit_s in (None, 86400.0):
        assert not moved(asking(limit_s, **known), **PAUSED)
        assert moved(asking(limit_s, 200.0, **known), **PAUSED)


def test_one_that_has_waited_for_longer_than_it_needs_is_not_paused_at_once() -> None:
    known = {"time_limit_s": 4200.0, "ran_s": 600.0, "waited_s": 3700.0}  # an hour is left
    assert not moved(asking(600.0, **known), **PAUSED)
    assert moved(asking(600.0, 62.0, **known), **PAUSED)


def test_one_that_was_paused_itself_does_not_go_on_at_the_expense_of_another_at_once() -> None:
    queue = Queue(*nodes(1)).add("r", "n1", time_limit_s=None, ran_s=600.0)
    queue.add("a", "zz:n1", time_limit_s=60.0, ran_s=10.0, state_s=0.0)
    assert not moved_of(queue.decide("slowdown", **PAUSED))


def moved_of(decision: Decision) -> bool:
    """Whether `r` makes way for `a`, which has begun before."""
    return states(decision)["a"] == "running"


def test_shares_count_for_who_goes_first_at_once() -> None:
    known = {"time_limit_s": None, "ran_s": 600.0, "weight": 20.0}
    for slurm_priority, moves in (("weight", False), ("ties", True), ("order", False)):
        slowdown = SlowdownParameters(slurm_priority=slurm_priority)
        assert moved(asking(60.0, **known), **PAUSED, slowdown=slowdown) is moves


def test_what_the_switch_loses_counts_for_who_goes_first_at_once() -> None:
    slow = SwitchDurations(ActionDuration(2000.0), *[ActionDuration(0.1)] * 4, pauses=True)  # to boot
    known = {"time_limit_s": 7200.0, "ran_s": 3600.0}
    assert not moved(asking(60.0, **known), exempt_s=0.0, durations=slow)
    assert moved(asking(60.0, **known), **PAUSED)


# -- who pays for a switch (0135) -------------------------------------------------------------------------------------


def burst(*waits_s: float) -> Queue:
    """A vjob of ten VMs has all ten nodes; so many of one VM are ready. A switch of it loses 200 s of one of them."""
    queue = Queue(*nodes(10)).add("wide", *(f"n{number}" for number in range(1, 11)), vms=10, **HALF_DONE)
    for number, waited_s in enumerate(waits_s):
        queue.add(f"s{number}", time_limit_s=60, waited_s=waited_s)
    return queue


def test_those_who_start_by_a_switch_share_what_it_loses() -> None:
    # alone: (w + 60 + 10 + 200) / (60 + 10 + 200) is 3 after 540 s; five: (w + 110) / 110 is after 220 s
    assert "wide" in running(burst(*[539] * 1).decide("slowdown", **EAGER))
    assert running(burst(*[541] * 1).decide("slowdown", **EAGER)) == {"s0"}
    assert "wide" in running(burst(*[219] * 5).decide("slowdown", **EAGER))
    assert running(burst(*[221] * 5).decide("slowdown", **EAGER)) == {f"s{number}" for number in range(5)}


def test_who_finds_no_room_bears_nothing() -> None:
    # ten find room, and bear 20 s each: (w + 90) / 90 is 3 after 180 s, however many more there are
    assert "wide" in running(burst(*[179] * 40).decide("slowdown", **EAGER))
    assert len(running(burst(*[181] * 40).decide("slowdown", **EAGER))) == 10


def test_who_would_not_be_made_way_for_bears_nothing() -> None:
    # three of them have an expansion of 2.7: nobody makes way for them, whatever it loses
    assert "wide" in running(burst(400, 100, 100, 100).decide("slowdown", **EAGER))
    assert "wide" not in running(burst(400, 250, 250, 250).decide("slowdown", **EAGER))


def test_for_whom_its_share_is_too_much_the_switch_is_not_made() -> None:
    # of three each would bear 67 s, which is too much for s2; the other two bear 100 s, for which 340 s are enough
    assert running(burst(350, 350, 250).decide("slowdown", **EAGER)) == {"s0", "s1", "s2"}
    assert "wide" in running(burst(330, 330, 250).decide("slowdown", **EAGER))


def test_a_refusal_says_who_would_bear_what_is_lost() -> None:
    refused = burst(300, 130).decide("slowdown", **EAGER).reasons["s0"]
    assert str(refused).endswith(
        "to have wide make way loses 110 s of its CPUs and of 1 other that would start by it; with this loss "
        "its expansion is 2.8, and theirs at most 1.0"
    )
    assert refused.numbers == {"victims": "wide", "lost_s": 110.0}


# -- what need not be asked again -------------------------------------------------------------------------------------


def test_of_many_alike_room_in_pieces_is_sought_once_until_somebody_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(site: Site, vjobs: list[VJob]) -> Near | None:
        asked.append(vjobs[-1].name)
        return near(site, vjobs)

    monkeypatch.setattr(module, "near", counted)
    queue = Queue(*nodes(2, cpus=3)).add("r", "n1", "n2", vms=2, cpus=2, **HALF_DONE)
    for number in range(8):
        queue.add(f"w{number}", cpus=2, time_limit_s=60, waited_s=50 - number)
    decision = queue.decide("slowdown", **EAGER)
    assert running(decision) == {"r"}
    assert asked == ["w0"]
    assert {str(decision.reasons[f"w{number}"])[:60] for number in (1, 7)} == {str(decision.reasons["w0"])[:60]}
    asked.clear()
    queue.add("x", cpus=1, time_limit_s=60, waited_s=46.5)  # between w3 and w4
    assert running(queue.decide("slowdown", **EAGER)) == {"r", "x"}
    assert asked == ["w0"]  # once x runs there is less than two CPUs: the sums say no
