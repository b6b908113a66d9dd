"""The share of a user: what one has beyond it goes to others that have waited long enough, if they fit into it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from properties.test_slowdown_oracle import alike, decided, parameters

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.rounds import applied
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob
from rmsplugin.model.vjob import VJobState

RUNS = VJobState.RUNNING


def shared(random: Random) -> tuple[Configuration, Parameters]:
    """A cluster of which each user may have a part; nobody's user is known of some."""
    configuration, tunables = alike(random), parameters(random)
    users = ("", "ann", "ann", "ann", "ben", "cy")
    vjobs = tuple(replace(vjob, user=random.choice(users)) for vjob in configuration.vjobs)
    share, wait_s = random.choice((0.1, 0.25, 0.4, 0.6)), random.choice((0.0, 100.0, 1000.0))
    bounded = replace(tunables.slowdown, user_share=share, user_share_s=wait_s)
    return replace(configuration, vjobs=vjobs), replace(tunables, slowdown=bounded)


def may_be_taken(vjob: VJob, tunables: Parameters) -> bool:
    """Whether nothing else protects one that runs: its switches, PreemptExemptTime, PreemptMode."""
    durations, mib = tunables.durations, max(vm.demand.memory_mib for vm in vjob.vms)
    switch_s = sum(kind.constant_s + kind.s_per_mib * mib for kind in (durations.suspend, durations.resume))
    rested = vjob.state_s is None or vjob.state_s >= max(tunables.exempt_s, 10 * switch_s)
    return vjob.preemptible and rested


def surplus(runs: list[VJob], places: int, share: float) -> list[VJob]:
    """What users have beyond their share, but for one vjob each: that which has run least."""
    held: dict[str, int] = {}
    found = []
    for vjob in sorted(runs, key=lambda each: -each.ran_s):
        has = held.get(vjob.user, 0)
        if vjob.user and has and has + len(vjob.vms) > share * places + 1e-6:
            found.append(vjob)
        else:
            held[vjob.user] = has + len(vjob.vms)
    return found


def test_nobody_has_more_than_a_share_while_others_have_waited_that_fit_into_it() -> None:
    taken = waits = 0
    for seed in range(1500):
        configuration, tunables = shared(Random(seed))
        then = applied(configuration, decided(configuration, tunables))
        share, wait_s = tunables.slowdown.user_share, tunables.slowdown.user_share_s
        places = round(sum(node.capacity.cpus for node in then.nodes))
        runs = [vjob for vjob in then.vjobs if then.state(vjob) is RUNS]
        free = places - sum(len(vjob.vms) for vjob in runs)
        over = [vjob for vjob in surplus(runs, places, share) if may_be_taken(vjob, tunables)]
        for vjob in then.vjobs:
            if then.state(vjob) is RUNS or vjob.waited_s < wait_s or not vjob.user:
                continue
            own = [each for each in runs if each.user == vjob.user]
            ahead = [
                each for each in then.vjobs if each.user == vjob.user and then.state(each) is not RUNS and each != vjob
            ]
            if ahead or (own and sum(len(each.vms) for each in own) + len(vjob.vms) > share * places):
                continue  # its user has, or is to have, his share himself
            there = [each for each in over if each.user != vjob.user and each.priority <= vjob.priority]
            assert free + sum(len(each.vms) for each in there) < len(vjob.vms), f"seed {seed}: {vjob.name}"
            waits += 1
        before = [vjob for vjob in configuration.vjobs if configuration.state(vjob) is RUNS]
        taken += any(then.state(vjob) is not RUNS for vjob in surplus(before, places, share))
    assert taken > 50 and waits > 50, "hardly anybody made way, or waited: nothing is looked at"


def test_what_was_decided_with_shares_is_not_decided_otherwise_at_once() -> None:
    for seed in range(600):
        configuration, tunables = shared(Random(seed))
        decision = decided(configuration, tunables)
        again = decided(applied(configuration, decision), tunables)
        assert again.states == decision.states, f"seed {seed}: {again.reasons}"


def test_without_a_share_users_make_no_difference() -> None:
    for seed in range(200):
        configuration, tunables = shared(Random(seed))
        free = replace(tunables, slowdown=replace(tunables.slowdown, user_share=1.0))
        nobodys = replace(configuration, vjobs=tuple(replace(vjob, user="") for vjob in configuration.vjobs))
        assert decided(configuration, free).states == decided(nobodys, tunables).states
