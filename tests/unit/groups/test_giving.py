"""What the leader gives to groups next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unit.groups.summed import heard, live

from rmsplugin.groups.given import Given, Place
from rmsplugin.groups.giving import Heard, Packed, Patience, Wishes, give, groups_after
from rmsplugin.model.rules import allowing

GROUPS = {"a": ("a1", "a2"), "b": ("b1", "b2")}


def given(**vjobs: Place) -> Given:
    return Given(1, 0, GROUPS, {int(job[1:]): place for job, place in vjobs.items()})


FULL, EMPTY = [0, 0], [4, 4]


def test_a_new_vjob_goes_to_a_group_with_room_in_the_order_of_the_queue() -> None:
    groups = {"a": heard("a", [2, 0]), "b": heard("b", FULL)}
    found = give(given(), [live(1, 2), live(2)], groups)
    assert found.vjobs[1] == Place("a")
    assert found.vjobs[2].to is None, "it waits where it is given"


def test_a_new_vjob_goes_where_its_hosts_are_though_no_summary_knows_them() -> None:
    groups = {"a": heard("a", [1, 1]), "b": heard("b", EMPTY)}
    assert give(given(), [live(1, rules=allowing(frozenset({"b2"})))], groups).vjobs == {1: Place("b")}


def test_a_silent_group_gets_nothing_and_keeps_what_it_has() -> None:
    found = give(given(j1=Place("b")), [live(2)], {"a": heard("a", FULL)})
    assert found.vjobs == {1: Place("b"), 2: Place("a")}


def test_before_anything_was_given_all_engines_have_to_be_heard_for_they_may_have_vjobs() -> None:
    one = {"a": heard("a", EMPTY)}
    assert give(given(), [live(1)], one).vjobs == {}
    both = one | {"b": heard("b", EMPTY, j1="sleeping")}
    assert give(given(), [live(1)], both).vjobs == {1: Place("b")}


def test_what_one_engine_has_is_not_noted_before_all_are_heard_else_others_would_lose_theirs() -> None:
    one = {"a": heard("a", EMPTY, j1="running")}
    first = give(given(), [live(1), live(2)], one).vjobs
    assert first == {}
    both = one | {"b": heard("b", EMPTY, j2="running")}
    assert give(given(), [live(1), live(2)], both).vjobs == {1: Place("a"), 2: Place("b")}


def test_a_vjob_that_waits_without_room_is_wished_where_there_is_some() -> None:
    groups = {"a": heard("a", FULL, j1="waiting"), "b": heard("b", EMPTY)}
    assert give(given(j1=Place("a")), [live(1)], groups).vjobs == {1: Place("a", "b")}


def test_a_vjob_that_has_room_where_it_waits_stays_though_another_group_has_less_left() -> None:
    groups = {"a": heard("a", EMPTY, j1="waiting"), "b": heard("b", [1, 0])}
    found = give(given(j1=Place("a")), [live(1)], groups)
    assert found == Wishes({1: Place("a")}, frozenset({1}))


def test_the_room_that_one_is_wished_to_is_not_promised_to_another() -> None:
    groups = {"a": heard("a", FULL, seen=(0, 9), j1="waiting", j2="waiting"), "b": heard("b", [1, 0])}
    before = given(j1=Place("a", "b"), j2=Place("a"))
    assert give(before, [live(1), live(2)], groups).vjobs == {1: Place("a", "b"), 2: Place("a")}


def test_who_has_begun_stays_and_so_do_those_that_sleep_or_wait_for_something_else() -> None:
    states = {"j1": "running", "j2": "sleeping", "j3": "starting", "j4": "waiting"}
    groups = {"a": heard("a", FULL, **states), "b": heard("b", EMPTY)}
    before = given(j1=Place("a"), j2=Place("a"), j3=Place("a"), j4=Place("a"))
    queue = [live(1), live(2), live(3), live(4, eligible=False)]
    assert give(before, queue, groups).vjobs == before.vjobs


def test_a_wish_is_given_only_when_the_owner_has_released_by_this_very_text() -> None:
    before = given(j1=Place("a", "b"))
    groups = {"a": heard("a", FULL, seen=(1, 0), released=[1]), "b": heard("b", EMPTY)}
    assert give(before, [live(1)], groups).vjobs == {1: Place("b")}
    early = groups | {"a": heard("a", FULL, seen=(0, 9), released=[1])}
    assert give(before, [live(1)], early).vjobs == before.vjobs
    assert give(before, [live(1)], {"b": groups["b"]}).vjobs == before.vjobs, "the owner is silent"


def test_a_wish_ends_when_the_vjob_has_begun() -> None:
    groups = {"a": heard("a", FULL, j1="running"), "b": heard("b", EMPTY)}
    assert give(given(j1=Place("a", "b")), [live(1)], groups).vjobs == {1: Place("a")}


def test_one_that_its_engine_does_not_release_stays_and_is_wished_nowhere_again() -> None:
    groups = {"a": heard("a", FULL, j1="waiting"), "b": heard("b", EMPTY)}
    found = give(given(j1=Place("a", "b")), [live(1)], groups)
    assert found == Wishes({1: Place("a")}, kept=frozenset({1}))
    assert give(given(j1=Place("a")), [live(1)], groups, kept=found.kept) == found
    assert give(given(j1=Place("a")), [], groups | {"a": heard("a", FULL)}, kept=found.kept) == Wishes({})


def test_one_that_slurm_may_queue_again_keeps_its_group() -> None:
    before, groups = given(j1=Place("a")), {"a": heard("a", EMPTY)}
    assert give(before, [], groups, known=[1]).vjobs == before.vjobs


def test_a_vjob_is_left_out_when_neither_slurm_nor_its_engine_has_it() -> None:
    before = given(j1=Place("a"), j2=Place("a"), j3=Place("b"))
    assert give(before, [], {"a": heard("a", EMPTY, j2="stopping")}).vjobs == {2: Place("a"), 3: Place("b")}


def test_who_was_refused_for_fragments_tries_another_group_for_some_time() -> None:
    groups = {"a": heard("a", EMPTY, j1="waiting"), "b": heard("b", EMPTY)}
    patience, before = Patience(60, 600), given(j1=Place("a"))
    for now in (0.0, 59.0, 60.0):
        found = give(before, [live(1)], groups, patience.refused(now))
        assert found.vjobs == before.vjobs
        patience.note(found, now)
    assert give(before, [live(1)], groups, patience.refused(61)).vjobs == {1: Place("a", "b")}
    assert patience.refused(661) == {}


def test_one_that_is_given_elsewhere_begins_its_patience_anew() -> None:
    patience = Patience(60, 600)
    patience.note(Wishes({1: Place("a")}, frozenset({1})), 0)
    patience.note(Wishes({1: Place("b")}, frozenset({1})), 59)
    patience.note(Wishes({1: Place("b")}, frozenset({1})), 61)
    assert patience.refused(62) == {}


def test_hosts_go_from_a_group_to_another_only_when_it_has_no_vjob_and_says_so() -> None:
    formed = {"a": ("a1",), "b": ("b1", "b2", "a2")}
    nothing = {"a": heard("a", EMPTY), "b": heard("b", EMPTY)}
    assert groups_after(given(), formed, nothing) == (formed, ())
    stays = {"a": ("a1", "a2"), "b": ("b1", "b2")}
    for before, groups in (
        (given(j1=Place("a")), nothing),
        (given(j1=Place("b", "a")), nothing),
        (given(), {"b": nothing["b"]}),
        (given(), nothing | {"a": heard("a", EMPTY, j1="running")}),
    ):
        found, wrong = groups_after(before, formed, groups)
        assert (found, wrong) == (stays, ("group a keeps a2 until it has no vjob any more",))


def test_new_hosts_come_at_once_and_a_group_with_vjobs_outlives_its_settings() -> None:
    found, wrong = groups_after(given(j1=Place("b")), {"a": ("a1", "a2", "a3")}, {})
    assert found == {"a": ("a1", "a2", "a3"), "b": ("b1", "b2")}
    assert wrong == ("group b keeps b1, b2 until it has no vjob any more",)


# -- vjobs that sleep ----------------------------------------------------------------------------------------------


def hot(**changed: Any) -> dict[str, Heard]:
    """Group a has no room for vjob 1, which sleeps there and can go; group b has room. ``changed``: of group a."""
    a = replace(heard("a", FULL, j1="sleeping"), can_go=frozenset({1}), takes=True)
    return {"a": replace(a, **changed), "b": replace(heard("b", EMPTY), takes=True)}


SLEEPER = [live(1, eligible=False)]
PACKED = {1: Packed("abc", "b")}


def test_a_vjob_that_sleeps_without_room_is_wished_elsewhere_after_a_while() -> None:
    first = give(given(j1=Place("a")), SLEEPER, hot())
    assert (first.vjobs, first.longing) == ({1: Place("a")}, {1})
    patience = Patience(90, 600)
    patience.note(first, 0)
    assert patience.ripe(89) == frozenset()
    assert patience.ripe(90) == {1}
    assert give(given(j1=Place("a")), SLEEPER, hot(), ripe=[1]).vjobs == {1: Place("a", "b")}
    patience.note(Wishes({}), 91)
    assert patience.ripe(500) == frozenset(), "there was room for it meanwhile"


def test_a_vjob_that_sleeps_where_there_is_room_stays() -> None:
    groups = hot(summary=heard("a", EMPTY).summary)
    assert give(given(j1=Place("a")), SLEEPER, groups, ripe=[1]).longing == frozenset()


def test_a_saved_state_does_not_leave_its_migration_domain_where_there_are_some() -> None:
    for domains in ((("a", "c"),), (("b", "c"),)):
        found = give(given(j1=Place("a")), SLEEPER, hot(), ripe=[1], domains=domains)
        assert (found.vjobs, found.longing) == ({1: Place("a")}, frozenset()), domains
    within = (("c", "b"), ("b", "a"))
    assert give(given(j1=Place("a")), SLEEPER, hot(), ripe=[1], domains=within).vjobs == {1: Place("a", "b")}
    assert give(given(j1=Place("a")), SLEEPER, hot(), {1: {"b"}}, ripe=[1], domains=within).vjobs == {1: Place("a")}


def test_a_vjob_that_has_no_state_yet_leaves_the_domain_in_which_it_waits() -> None:
    groups = {"a": heard("a", FULL, j1="waiting"), "b": heard("b", EMPTY)}
    assert give(given(j1=Place("a")), [live(1)], groups, domains=(("a", "c"),)).vjobs == {1: Place("a", "b")}


def test_a_vjob_that_sleeps_and_cannot_go_stays() -> None:
    assert give(given(j1=Place("a")), SLEEPER, hot(can_go=frozenset()), ripe=[1]).vjobs == {1: Place("a")}


def test_it_does_not_go_where_something_of_it_is_left_or_to_an_older_release_or_to_an_engine_that_reads_late() -> None:
    for changed in ({"unclean": frozenset({1})}, {"takes": False}, {"seen": (0, 9)}):
        groups = hot()
        groups["b"] = replace(groups["b"], **changed)  # type: ignore[arg-type]
        assert give(given(j1=Place("a")), SLEEPER, groups, ripe=[1]).vjobs == {1: Place("a")}, changed


def test_the_wish_stands_while_its_states_are_copied_and_is_taken_back_when_they_are_not() -> None:
    before = given(j1=Place("a", "b"))
    assert give(before, SLEEPER, hot(seen=(0, 9))).vjobs == before.vjobs, "the engine has not read it"
    assert give(before, SLEEPER, hot(going=frozenset({1}))).vjobs == before.vjobs
    found = give(before, SLEEPER, hot())
    assert found.vjobs == {1: Place("a")}
    assert found.kept == frozenset(), "it may go another time"


def test_a_vjob_that_was_packed_is_given_with_its_parcel_by_this_very_text_only() -> None:
    before = given(j1=Place("a", "b"))
    packed = {"vjobs": {}, "packed": PACKED, "can_go": frozenset()}
    assert give(before, SLEEPER, hot(**packed)).vjobs == {1: Place("b", None, "abc")}
    assert give(before, SLEEPER, hot(**packed, seen=(0, 9))).vjobs == before.vjobs
    elsewhere = {**packed, "packed": {1: Packed("abc", "c")}}
    assert give(before, SLEEPER, hot(**elsewhere)).vjobs == {1: Place("a")}, "its states are not in b"


def test_the_parcel_is_named_until_it_was_taken_in_and_the_vjob_is_not_moved_on_before() -> None:
    before = given(j1=Place("b", None, "abc"))
    groups = hot(vjobs={}, packed=PACKED, can_go=frozenset())
    full = replace(heard("b", FULL), takes=True)
    room = groups | {"a": replace(groups["a"], summary=heard("a", EMPTY).summary), "b": full}
    assert give(before, [live(1)], room, ripe=[1]).vjobs == before.vjobs
    taken = groups | {"b": replace(full, vjobs=heard("b", FULL, j1="sleeping").vjobs)}
    assert give(before, SLEEPER, taken).vjobs == {1: Place("b")}


def test_what_was_packed_is_not_left_out_and_its_group_not_given_up() -> None:
    before = given(j1=Place("a", "b"))
    groups = hot(vjobs={}, packed=PACKED, seen=(0, 9))
    assert give(before, [], groups).vjobs == before.vjobs
    assert give(given(), SLEEPER, groups).vjobs == {1: Place("a")}, "nobody else can have it"
    formed = {"c": ("a1", "a2"), "b": GROUPS["b"]}
    for changed in ({"packed": PACKED}, {"unclean": frozenset({1})}):
        kept, said = groups_after(given(), formed, hot(vjobs={}, **changed))
        assert kept["a"] == GROUPS["a"] and said
