"""The brake: how many vjobs may be restarted or requeued in one cycle, and whose."""

from __future__ import annotations

import pytest

from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.reconcile.brake import Brake, Held
from rmsplugin.engine.reconcile.reconcile import Directive


def lost(**counts: int) -> list[Held]:
    """That many lost vjobs of each user."""
    users = [user for user, count in counts.items() for _ in range(count)]
    why = Directive(OperationKind.RESTART, "lost", absence=True)
    return [Held(number, str(number), user, why, proved=True) for number, user in enumerate(users)]


@pytest.mark.parametrize(
    ("counts", "live", "through"),
    [
        ({"ada": 3}, 9, "ada"),
        ({"ada": 4}, 9, ""),
        ({"ada": 4, "bob": 3}, 9, "bob"),
        ({"ada": 4, "bob": 2, "cleo": 1}, 9, "bob cleo"),
        ({"ada": 2, "bob": 2}, 9, ""),  # nobody alone is to blame
        ({"ada": 4, "bob": 4}, 9, ""),
        ({"ada": 9, "bob": 2, "cleo": 2}, 13, ""),
        ({"ada": 20, "bob": 20}, 400, ""),
        ({"ada": 21, "bob": 20}, 400, "bob"),
    ],
    ids=str,
)
def test_too_many_at_once_are_held_back_but_those_of_one_user_hold_back_no_others(
    counts: dict[str, int], live: int, through: str
) -> None:
    brake = Brake()
    wanted = lost(**counts)
    let = brake.let_through(wanted, live)
    assert {held.user for held in let} == set(through.split())
    assert len(let) == sum(counts[user] for user in through.split()) <= max(3, live / 20)
    assert sorted(held.job_id for held in (*let, *brake.held)) == [held.job_id for held in wanted]
