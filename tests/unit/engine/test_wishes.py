"""Wishes for room that balloons make, which several threads tell and ask."""

from __future__ import annotations

from at_once import at_once

from rmsplugin.engine.capacity.wishes import WISH_S, Wishes


def test_a_wish_lasts_until_it_comes_true_or_is_too_old() -> None:
    now = [100.0]
    wishes = Wishes(lambda: now[0])
    wishes.wish("n1", 256)
    wishes.wish("n2", 512)
    assert (wishes.nodes(), wishes.room_mib("n1"), wishes.room_mib("n3")) == ({"n1", "n2"}, 256, 0)
    wishes.come_true("n1")
    assert (wishes.nodes(), wishes.room_mib("n1")) == ({"n2"}, 0)
    now[0] += WISH_S / 2
    wishes.wish("n3", 64)
    now[0] += WISH_S / 2
    assert wishes.nodes() == {"n3"}
    assert wishes.room_mib("n2") == 0


def test_no_wish_is_lost_where_others_look_at_them_meanwhile() -> None:
    wishes = Wishes(lambda: 100.0)
    at_once(lambda number: wishes.wish(f"n{number}", number), lambda _: wishes.nodes())
    assert wishes.nodes() == {f"n{number}" for number in range(1000)}
