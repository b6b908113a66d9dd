"""Managers whose own host keeps them from their work neither lead nor have groups while another one could."""

from __future__ import annotations

import pytest
from contract.managers_in_time import GROUPS, SESSION_S, WHILE_S, Managers

from rmsplugin.manager.fitness import TEST_S

MUNGE = "it cannot read Slurm: munged does not answer"
#: A manager that is unfit has noticed it, and all have seen it say so for the while.
SEEN_S = WHILE_S + TEST_S + 4.0


@pytest.fixture(params=[("a", "b"), ("a", "b", "c")], ids=["two", "three"])
def managers(request: pytest.FixtureRequest) -> Managers:
    made = Managers()
    for name in request.param:
        made.join(name)
    made.turns(SEEN_S)
    return made


def standing(managers: Managers) -> tuple[str, int, dict[str, str]]:
    """Who leads, with which epoch, and who has which group."""
    leader = managers.leader()
    return leader.name, leader.lease.epoch, managers.owners()


def test_a_leader_that_is_unfit_gives_lead_and_groups_to_one_that_is_fit_and_takes_groups_again(
    managers: Managers,
) -> None:
    unfit = managers.leader().name
    managers.ills[unfit] = MUNGE
    before = standing(managers)
    managers.turns(WHILE_S - 2.0)
    assert standing(managers) == before, "that may pass"
    managers.turns(SEEN_S)
    leader, epoch, owners = standing(managers)
    assert leader != unfit and epoch > before[1] and unfit not in owners.values()
    assert owners.keys() == GROUPS.keys()
    assert all(each.unfit() == {unfit: MUNGE} for each in managers.fitness.values())
    managers.turns(5 * SEEN_S)
    assert standing(managers) == (leader, epoch, owners), "the lead goes nowhere else"
    del managers.ills[unfit]
    managers.turns(WHILE_S - 2.0)
    assert unfit not in managers.owners().values(), "it may fail again"
    managers.turns(SEEN_S)
    assert (managers.leader().name, managers.leader().lease.epoch) == (leader, epoch), "the lead stays"
    assert unfit in managers.owners().values()
    assert not managers.sites[unfit].problem


def test_nothing_moves_when_slurm_goes_away_for_all_or_comes_back(managers: Managers) -> None:
    before = standing(managers)
    for _ in range(3):
        managers.ills = dict.fromkeys(managers.sites, "it cannot read Slurm: connect failure")
        for _ in range(int(2 * SEEN_S)):
            managers.turns(1.0)
            assert standing(managers) == before
        managers.ills = {}
        for _ in range(int(2 * SEEN_S)):
            managers.turns(1.0)
            assert standing(managers) == before


@pytest.mark.parametrize("good_s", [5.0, 10.0])
def test_a_host_that_fails_now_and_then_does_not_have_lead_and_groups_go_to_and_fro(
    managers: Managers, good_s: float
) -> None:
    unfit = managers.leader().name
    seen = [standing(managers)]
    for _ in range(10):
        managers.ills[unfit] = MUNGE
        managers.turns(SEEN_S)
        del managers.ills[unfit]
        managers.turns(good_s)
        if standing(managers) != seen[-1]:
            seen.append(standing(managers))
    assert len(seen) == 2 and seen[1][0] != unfit


def test_a_manager_that_is_unfit_is_given_no_group_that_another_one_gives_away(managers: Managers) -> None:
    """In exchange for one that an operator takes away from it, too."""
    unfit = next(name for name, site in managers.sites.items() if not site.lease.held())
    managers.ills[unfit] = MUNGE
    managers.turns(TEST_S + 2.0)
    before = managers.owners()
    had = {group for group, owner in before.items() if owner == unfit}
    assert had, "it keeps what it has for a while"
    managers.leader().keep_at(min(had), managers.leader().name, "alice")
    managers.turns(1.0)
    assert {group for group, owner in managers.owners().items() if owner == unfit} == had - {min(had)}


def test_a_leader_that_is_unfit_goes_on_where_no_other_says_that_it_is_fit(managers: Managers) -> None:
    """Managers of releases before this say nothing."""
    unfit = managers.leader().name
    for name in managers.sites.keys() - {unfit}:
        managers.fitness.pop(name)
        managers.trees[name].remove(f"/r/fitness/{name}")
    before = standing(managers)
    managers.ills[unfit] = MUNGE
    managers.turns(3 * SEEN_S)
    assert standing(managers) == before


def test_where_the_one_that_is_fit_does_not_lead_the_other_does_and_gives_the_lead_up_no_more() -> None:
    managers = Managers()
    managers.join("a")
    managers.join("b")
    managers.turns(SEEN_S)
    unfit = managers.leader()
    (fit,) = managers.sites.keys() - {unfit.name}
    managers.sites[fit]._campaign = lambda: None  # type: ignore[method-assign]
    managers.sites[fit].lease.release()
    managers.ills[unfit.name] = MUNGE
    led = []
    for _ in range(200):
        managers.turns(1.0)
        led.append(unfit.lease.held())
    gaps = "".join("+" if each else "-" for each in led).strip("+").split("+")
    assert len(gaps) == 1 and 8 <= len(gaps[0]) <= 14, led
    assert set(managers.owners().values()) == {fit}


def test_when_the_only_one_that_is_fit_dies_the_others_lead_and_have_groups_again(managers: Managers) -> None:
    fit = managers.leader().name
    managers.ills = dict.fromkeys(managers.sites.keys() - {fit}, MUNGE)
    managers.turns(2 * SEEN_S)
    assert set(managers.owners().values()) == {fit}
    managers.kill(fit)
    managers.turns(3 * SESSION_S + 10.0)
    assert managers.leader().name != fit
    assert set(managers.owners().values()) == managers.sites.keys()
