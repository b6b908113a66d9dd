"""Managers on a simulated ensemble with a virtual clock: who is there, who leads, and who has which group."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from contract.managers_in_time import GROUPS, SESSION_S, Managers
from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsplugin.adapters.coordination.assignments import Assignment
from rmsplugin.errors import NotFoundError, UnavailableError


@pytest.fixture
def managers() -> Managers:
    made = Managers()
    for name in ("a", "b"):
        made.join(name)
    made.turns(2)
    return made


def test_all_know_who_is_there_and_groups_are_given_evenly(managers: Managers) -> None:
    for site in managers.sites.values():
        assert {name: each.about["url"] for name, each in site.members.items()} == {
            "a": "http://a:6",
            "b": "http://b:6",
        }
    assert sorted(managers.owners().values()) == ["a", "a", "b", "b"]
    assert managers.sites["a"].own | managers.sites["b"].own == GROUPS.keys()
    assert not managers.sites["a"].own & managers.sites["b"].own


def test_one_that_joins_has_its_share_and_the_others_keep_theirs(managers: Managers) -> None:
    before = managers.owners()
    managers.join("c")
    managers.turns(2)
    after = managers.owners()
    assert sorted(after.values()) in (["a", "b", "b", "c"], ["a", "a", "b", "c"])
    assert {after[name] for name in GROUPS if after[name] != before[name]} == {"c"}


def restart(managers: Managers, name: str, ledger: str) -> None:
    """A manager ends in order, and starts again with another release."""
    managers.sites.pop(name).leave()
    managers.turns(2)
    managers.join(name, ledger)
    managers.turns(2)


def of(managers: Managers, name: str) -> set[str]:
    return {group for group, owner in managers.owners().items() if owner == name}


def test_a_group_that_a_newer_release_had_goes_to_no_older_one_while_a_newer_one_is_there(managers: Managers) -> None:
    """Engines of an older release refuse such a ledger: the group would have an owner, and no engine."""
    restart(managers, "b", "m2")
    newer = of(managers, "b")
    assert len(newer) == 2
    managers.join("c")
    managers.turns(2)
    assert of(managers, "b") == newer and len(of(managers, "c")) == 1
    managers.sites.pop("c").leave()
    managers.turns(2)
    assert of(managers, "b") == newer, "a has two, as before"
    managers.join("d", "m2")
    managers.turns(2)
    assert len(of(managers, "d")) == 1
    newer = of(managers, "b") | of(managers, "d")
    managers.sites.pop("d").leave()
    managers.turns(2)
    assert of(managers, "b") >= newer


def test_a_group_that_a_newer_release_had_goes_back_to_it_from_an_older_one(managers: Managers) -> None:
    """While no newer one is there, an older one has it, and says why its engine does not run."""
    restart(managers, "b", "m2")
    (last, _) = sorted(of(managers, "a"))
    managers.sites["b"].keep_at(last, "b", "alice")
    managers.turns(2)
    newer = of(managers, "b")
    assert len(newer) == 3, "none went to a in exchange"
    managers.sites.pop("b").leave()
    managers.turns(2)
    assert of(managers, "a") == GROUPS.keys()
    managers.join("b", "m2")
    managers.turns(2)
    assert of(managers, "b") == newer
    restart(managers, "a", "m2")
    assert len(of(managers, "a")) == 2


@pytest.mark.parametrize("killed", ["a", "b"])
def test_the_groups_of_one_that_is_killed_go_to_the_other_whoever_leads(managers: Managers, killed: str) -> None:
    managers.kill(killed)
    managers.turns(2 * SESSION_S + 3)  # a lost lead is waited for once more
    assert set(managers.owners().values()) == {"a", "b"} - {killed}
    (left,) = managers.sites.values()
    assert left.own == GROUPS.keys()
    assert left.members.keys() == {left.name}


def test_one_that_leaves_is_followed_at_once(managers: Managers) -> None:
    leader = managers.leader()
    del managers.sites[leader.name]
    leader.leave()
    managers.turns(1.0)
    (left,) = managers.sites.values()
    assert left.lease.held() and left.own == GROUPS.keys()


def test_one_that_starts_again_within_its_session_keeps_its_groups(managers: Managers) -> None:
    before = managers.owners()
    (follower,) = [name for name, site in managers.sites.items() if not site.lease.held()]
    old = managers.trees[follower]
    managers.join(follower)  # its node of before is there still
    managers.turns(0.5)
    assert managers.owners() == before
    old.end()
    managers.turns(1.0)
    assert managers.owners() == before


def test_one_that_is_cut_off_keeps_what_it_knew_and_says_why(managers: Managers) -> None:
    (follower,) = [name for name, site in managers.sites.items() if not site.lease.held()]
    site = managers.sites[follower]
    own = site.own
    managers.trees[follower].cut = True
    managers.turns(2 * SESSION_S)
    assert site.own == own and site.problem
    assert set(managers.owners().values()) == {managers.leader().name}
    managers.trees[follower].cut = False
    managers.turns(3)
    assert not site.problem
    assert len(site.own) == 2


def test_a_group_that_is_no_more_is_nobodys(managers: Managers) -> None:
    leader = managers.leader()
    fewer = {name: hosts for name, hosts in GROUPS.items() if name != "g0"}
    leader.set_groups(fewer)
    leader.turn()
    assert managers.owners().keys() == fewer.keys()


def test_a_new_leader_moves_nothing_before_it_knows_the_groups(managers: Managers) -> None:
    leader = managers.leader()
    before = managers.owners()
    del managers.sites[leader.name]
    leader.leave()
    (left,) = managers.sites.values()
    left.turn()
    assert left.lease.held()
    assert left.assignments.keys() == before.keys()


# -- what an operator wants --------------------------------------------------------------------------------------------


def other_of(owner: str) -> str:
    return {"a": "b", "b": "a"}[owner]


@pytest.mark.parametrize("at", ["a", "b"])
def test_a_group_goes_where_an_operator_wants_it_whichever_manager_he_asks(managers: Managers, at: str) -> None:
    before = managers.owners()
    target = other_of(before["g0"])
    managers.sites[at].keep_at("g0", target, "alice")
    managers.leader().turn()
    assert managers.leader().assignments["g0"].kept == target, "who has carried it out tells of it at once"
    managers.turns(1.0)
    after = managers.owners()
    assert after["g0"] == target
    assert sorted(after.values()) == ["a", "a", "b", "b"], "another one has gone in exchange"
    managers.turns(20)
    assert managers.owners() == after, "it stays"
    for site in managers.sites.values():
        assert (site.assignments["g0"].kept, site.assignments["g0"].kept_by) == (target, "alice")


def test_it_stays_under_another_leader_and_when_managers_join(managers: Managers) -> None:
    target = next(name for name, site in managers.sites.items() if not site.lease.held())
    for group in GROUPS:
        managers.leader().keep_at(group, target, "alice")
    managers.turns(1.0)
    assert set(managers.owners().values()) == {target}
    before = managers.leader()
    managers.join("c")
    managers.turns(1.0)
    assert set(managers.owners().values()) == {target}
    del managers.sites[before.name]
    before.leave()
    managers.turns(4.0)
    assert managers.leader().name != before.name
    assert set(managers.owners().values()) == {target}


def test_it_is_over_when_that_manager_is_gone_and_does_not_come_back_with_it(managers: Managers) -> None:
    (follower,) = [site for site in managers.sites.values() if not site.lease.held()]
    for group in GROUPS:
        follower.keep_at(group, follower.name, "alice")
    managers.turns(1.0)
    assert set(managers.owners().values()) == {follower.name}
    del managers.sites[follower.name]
    follower.leave()
    managers.turns(1.0)
    leader = managers.leader()
    assert set(managers.owners().values()) == {leader.name}
    assert all((each.kept, each.kept_by) == ("", "") for each in leader.assignments.values())
    managers.join(follower.name)
    managers.turns(2.0)
    assert sorted(managers.owners().values()) == ["a", "a", "b", "b"]


def test_it_is_over_when_an_operator_takes_it_back(managers: Managers) -> None:
    for group in GROUPS:
        managers.leader().keep_at(group, "a", "alice")
    managers.turns(1.0)
    for group in GROUPS:
        managers.leader().keep_at(group, "", "bob")
    managers.turns(1.0)
    assert sorted(managers.owners().values()) == ["a", "a", "b", "b"]
    assert all((each.kept, each.kept_by) == ("", "") for each in managers.leader().assignments.values())


def test_a_wish_is_written_again_where_the_leader_has_written_meanwhile_and_nothing_of_either_is_lost(
    managers: Managers,
) -> None:
    site = managers.leader()
    store, target = site._store, other_of(managers.owners()["g0"])
    read, writes = store.one, iter(("n7",))

    def one(name: str) -> Assignment | None:
        found = read(name)
        if found is not None and (host := next(writes, "")):
            store.write(name, replace(found, hosts=(host,)))  # as the leader does, between the read and the write
        return found

    store.one = one  # type: ignore[method-assign]
    site.keep_at("g0", target, "alice")
    found = read("g0")
    assert found is not None and (found.hosts, found.kept, found.kept_by) == (("n7",), target, "alice")
    with pytest.raises(NotFoundError, match="no group g9 any more"):
        site.keep_at("g9", target, "alice")


def test_a_leader_that_has_read_before_the_wish_does_not_write_over_it(managers: Managers) -> None:
    leader = managers.leader()
    target, all_of = other_of(managers.owners()["g0"]), leader._store.all
    told = iter([True])

    def all_before() -> dict[str, Assignment]:
        found = all_of()
        if next(told, False):
            leader._store.write("g0", replace(found["g0"], kept=target, kept_by="alice"))
        return found

    leader._store.all = all_before  # type: ignore[method-assign]
    leader.set_groups({**GROUPS, "g0": ("n0", "n8")})
    leader.turn()
    assert all_of()["g0"].kept == target
    managers.turns(1.0)
    assert managers.owners()["g0"] == target


def test_a_manager_that_joined_before_the_wish_is_never_taken_for_gone(managers: Managers) -> None:
    """The leader reads in two steps: a manager may join, and a group be wished there, between them."""
    leader = managers.leader()
    all_of = leader._store.all
    told = iter([True])

    def joined_then_all() -> dict[str, Assignment]:
        if next(told, False):
            managers.join("c").turn()
            leader._store.write("g0", replace(all_of()["g0"], kept="c", kept_by="alice"))
        return all_of()

    leader._store.all = joined_then_all  # type: ignore[method-assign]
    leader.turn()
    managers.turns(1.0)
    assert managers.owners()["g0"] == "c"
    assert leader.assignments["g0"].kept == "c"


def other_than(name: str) -> str:
    """A manager that is asked to have a group go to this one."""
    return "b" if name == "a" else "a"


FAULTS = st.sampled_from(["cut", "mend", "lose an answer", "end a session", "pause", "keep"])


@given(st.lists(st.tuples(FAULTS, st.sampled_from("abc"), st.integers(1, 12)), max_size=12))
@settings(max_examples=few(200), deadline=None)
def test_whatever_fails_no_two_lead_and_all_groups_have_an_owner_that_is_there_in_the_end(
    faults: list[tuple[str, str, int]],
) -> None:
    managers = Managers()
    for name in "abc":
        managers.join(name)
    for fault, name, halves in faults:
        tree = managers.trees[name]
        if fault in ("cut", "mend"):
            tree.cut = fault == "cut"
        elif fault == "lose an answer":
            tree.answers_lost += 1
        elif fault == "end a session":
            with contextlib.suppress(Exception):
                tree.end()
        elif fault == "keep":
            with contextlib.suppress(UnavailableError, NotFoundError):
                managers.sites[other_than(name)].keep_at(f"g{halves % 4}", name, "alice")
        for _ in range(halves):
            managers.turns(0.5)
            assert sum(site.lease.held() for site in managers.sites.values()) <= 1
    for tree in managers.trees.values():
        tree.cut, tree.answers_lost = False, 0
    managers.turns(4 * SESSION_S)
    for each in managers.leader().assignments.values():
        assert each.kept in ("", each.manager), "what is wished is so, or is not wished any more"
    for group in GROUPS:
        managers.leader().keep_at(group, "", "alice")
    managers.turns(2.0)
    numbers = [len(site.own) for site in managers.sites.values()]
    assert sorted(numbers) == [1, 1, 2]
