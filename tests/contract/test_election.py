"""Elections on a simulated ensemble with a virtual clock: faults that real servers have rarely, or not when asked to.

``test_coordination.py`` has real servers.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from contract.coordinations import OnEnsemble, campaign_in_vain

from rmsplugin.adapters.coordination.base import NEVER
from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.coordination.turns import Watch
from rmsplugin.errors import RefusedError, UnavailableError


@pytest.fixture
def simulated(tmp_path: Path) -> OnEnsemble:
    return OnEnsemble(tmp_path)


def lead(engines: OnEnsemble) -> Elected:
    one = engines.coordination()
    one.campaign()
    return one


def test_all_that_wait_are_members_the_leader_first(simulated: OnEnsemble) -> None:
    first, others = lead(simulated), [simulated.coordination() for _ in range(2)]
    for other in others:
        campaign_in_vain(other)
    assert others[0].members() == first.members() == ("engine1", "engine2", "engine3")
    assert "engine1 leads; engine2 stands by" in campaign_in_vain(others[0])


def test_an_engine_that_is_silent_knows_by_its_own_clock_before_the_next_one_leads(simulated: OnEnsemble) -> None:
    first, second = lead(simulated), simulated.coordination()
    leases = [simulated.lease(each) for each in (first, second)]
    campaign_in_vain(second)
    simulated.trees[first].cut = True  # a partition
    seen = []
    for _ in range(400):
        simulated.pass_time(0.1)
        for each in (first, second):
            with contextlib.suppress(UnavailableError):
                each.campaign()
        held = [each.held() for each in leases]
        assert held != [True, True]
        if not seen or seen[-1] != held:
            seen.append(held)
    assert seen == [[True, False], [False, False], [False, True]]


def test_the_next_leader_waits_for_the_lease_before_and_for_what_it_may_have_begun(simulated: OnEnsemble) -> None:
    first, second = lead(simulated), simulated.coordination()
    campaign_in_vain(second)
    simulated.pass_time(simulated.SESSION_S, silent=(first,))  # killed
    # It has seen for a session that nothing was renewed: so much of the wait has passed.
    assert f"waits {simulated.WAIT_S - simulated.SESSION_S:.1f} s" in campaign_in_vain(second)
    for _ in range(int(simulated.WAIT_S - simulated.SESSION_S) - 1):
        simulated.pass_time(1.0, silent=(first,))
        campaign_in_vain(second)
    simulated.pass_time(1.1, silent=(first,))
    second.campaign()
    assert simulated.lease(second).held()


def test_what_a_standing_engine_has_not_seen_counts_as_renewed_until_now(simulated: OnEnsemble) -> None:
    first, second = lead(simulated), simulated.coordination()
    campaign_in_vain(second)
    simulated.pass_time(1.0)
    first.campaign()
    simulated.trees[second].cut = True  # before it hears of that
    simulated.pass_time(2.0, silent=(first,))
    simulated.trees[second].cut = False
    simulated.pass_time(simulated.SESSION_S, silent=(first,))
    assert f"waits {simulated.WAIT_S - simulated.SESSION_S + 0.1:.1f} s" in campaign_in_vain(second)


def test_a_renewal_of_which_a_standing_engine_was_not_told_counts_as_sent_now(simulated: OnEnsemble) -> None:
    """It is not told where its connection has changed. It must not take what it had seen before for the last one."""
    first, second = lead(simulated), simulated.coordination()
    campaign_in_vain(second)
    simulated.ensemble._watchers.clear()
    simulated.pass_time(1.0)
    first.campaign()
    simulated.pass_time(simulated.SESSION_S, silent=(first,))
    assert f"waits {simulated.WAIT_S:.1f} s" in campaign_in_vain(second)


def test_the_last_renewal_is_known_to_one_that_did_not_campaign_again_before_the_servers_were_silent(
    simulated: OnEnsemble,
) -> None:
    first, second = lead(simulated), simulated.coordination()
    campaign_in_vain(second)
    for _ in range(3):
        simulated.pass_time(0.5)
        first.campaign()
    simulated.pass_time(0.1)
    simulated.ensemble.quorum = False  # the servers have no leader
    simulated.pass_time(2.0, silent=(first,))
    simulated.ensemble.quorum = True  # each session has its whole time anew
    simulated.pass_time(simulated.SESSION_S, silent=(first,))
    assert f"waits {simulated.WAIT_S - simulated.SESSION_S - 2.0:.1f} s" in campaign_in_vain(second)


def test_an_engine_goes_on_from_what_another_process_of_its_host_has_seen(simulated: OnEnsemble) -> None:
    first = lead(simulated)
    watch = Watch(simulated.ensemble.open(1000.0), "/rmsplugin/turn", simulated.clock)
    watch.note_turn()
    seen = watch.seen
    simulated.pass_time(2.0, silent=(first,))
    watch.note_turn()
    assert watch.seen == seen is not None
    simulated.pass_time(2.0, silent=(first,))
    assert f"waits {simulated.WAIT_S - 4.0:.1f} s" in campaign_in_vain(simulated.coordination(seen=seen))


def test_an_answer_that_was_overtaken_takes_nothing_back_that_is_known_of_the_last_turn(simulated: OnEnsemble) -> None:
    first, tree = lead(simulated), simulated.ensemble.open(1000.0)
    watch = Watch(tree, "/rmsplugin/turn", simulated.clock)
    watch.note_turn()

    def overtaken() -> None:
        first.campaign()
        tree.live()  # hears of it, and reads it

    tree.late = overtaken
    watch.note_turn()
    newest = simulated.ensemble.nodes["/rmsplugin/turn"].version
    assert watch.seen is not None and watch.seen.version == newest
    known, tree.late = watch.seen, lambda: watch.rest(known)
    first.campaign()
    watch.note_turn()
    assert watch.seen == known, "it has its own turn meanwhile"


def test_of_a_leader_whose_release_does_not_renew_its_turn_nothing_is_concluded(simulated: OnEnsemble) -> None:
    first, second = lead(simulated), simulated.coordination()
    node = simulated.ensemble.nodes["/rmsplugin/turn"]
    node.data = node.data.replace(b', "renewed": true', b"")
    campaign_in_vain(second)
    simulated.pass_time(simulated.SESSION_S, silent=(first,))
    assert f"waits {simulated.WAIT_S:.1f} s" in campaign_in_vain(second)


def test_nobody_waits_for_the_end_of_acts_that_are_harmless_late(simulated: OnEnsemble) -> None:
    first = simulated.coordination(late_is_harmless=True)
    first.campaign()
    second = simulated.coordination(late_is_harmless=True)
    campaign_in_vain(second)
    simulated.pass_time(simulated.SESSION_S, silent=(first,))
    second.campaign()
    assert simulated.lease(second).held() and second.epoch > 0


def test_nobody_waits_for_one_who_has_resigned_at_rest_and_all_wait_for_one_who_was_not(simulated: OnEnsemble) -> None:
    first, second, third = lead(simulated), simulated.coordination(), simulated.coordination()
    campaign_in_vain(second)
    first.resign(at_rest=True)
    second.campaign()
    campaign_in_vain(third)
    second.resign(at_rest=False)
    assert "waits 14.0 s" in campaign_in_vain(third)


def test_one_who_waits_for_the_leader_before_hands_the_wait_on_when_killed(simulated: OnEnsemble) -> None:
    first, second, third = lead(simulated), simulated.coordination(), simulated.coordination()
    campaign_in_vain(second), campaign_in_vain(third)
    simulated.pass_time(simulated.SESSION_S, silent=(first,))
    assert "waits 10.0 s" in campaign_in_vain(second)
    second.resign(at_rest=True)
    assert "waits 14.0 s" in campaign_in_vain(third)


def test_the_wait_for_longer_acts_outlives_a_leader_with_shorter_ones(simulated: OnEnsemble) -> None:
    first, second = simulated.coordination(act_s=60.0), simulated.coordination()
    first.campaign()
    campaign_in_vain(second)
    simulated.pass_time(simulated.SESSION_S, silent=(first,))
    assert "waits 60.0 s" in campaign_in_vain(second)
    second.resign(at_rest=False)
    assert "waits 64.0 s" in campaign_in_vain(simulated.coordination())


def test_a_leader_that_is_stopped_while_it_resigns_does_not_end_the_turn_of_the_next(simulated: OnEnsemble) -> None:
    first, second, third = lead(simulated), simulated.coordination(), simulated.coordination()
    campaign_in_vain(second)
    campaign_in_vain(third)

    def stopped() -> None:
        simulated.pass_time(simulated.SESSION_S, silent=(first,))
        for _ in range(int(simulated.WAIT_S - simulated.SESSION_S)):
            campaign_in_vain(second)
            simulated.pass_time(1.0, silent=(first,))
        second.campaign()

    simulated.trees[first].early = stopped
    first.resign(at_rest=True)
    assert simulated.lease(second).held()
    second.resign(at_rest=False)
    assert "waits 14.0 s" in campaign_in_vain(third), "the second one may have begun something"


def test_a_stopped_leader_that_goes_on_has_lost_whatever_is_answered_then(simulated: OnEnsemble) -> None:
    first, second = lead(simulated), simulated.coordination()
    campaign_in_vain(second)
    lease = simulated.lease(first)
    simulated.pass_time(8.0, silent=(first,))  # SIGSTOP
    assert not lease.held()  # SIGCONT: before it has asked anybody
    assert "does not lead any more" in campaign_in_vain(first)
    assert not lease.held()
    campaign_in_vain(second)
    for _ in range(int(simulated.WAIT_S - 8.0) - 1):
        simulated.pass_time(1.0)
        campaign_in_vain(second)
    simulated.pass_time(1.1)
    second.campaign()
    assert "engine2 leads; engine1 stands by" in campaign_in_vain(first)


def test_an_answer_that_comes_when_its_own_lease_has_ended_brings_none(simulated: OnEnsemble) -> None:
    one = lead(simulated)
    lease, epoch = simulated.lease(one), one.epoch
    simulated.trees[one].late = lambda: simulated.pass_time(simulated.VALID_S)
    assert "came too late" in campaign_in_vain(one)
    assert not lease.held() and not lease.lost()
    lease.renew()
    assert lease.held() and one.epoch == epoch


def test_a_lead_that_ran_out_goes_on_with_its_epoch_while_its_place_is_there(simulated: OnEnsemble) -> None:
    """As when the servers lose their own leader: they answer nobody for longer than a lease, and end no session."""
    first, second = lead(simulated), simulated.coordination()
    campaign_in_vain(second)
    leases, epoch = [simulated.lease(each) for each in (first, second)], first.epoch
    simulated.ensemble.quorum = False
    simulated.pass_time(simulated.VALID_S)
    for each in (first, second):
        campaign_in_vain(each)
    assert [each.held() for each in leases] == [False, False] and not leases[0].lost()
    simulated.pass_time(simulated.WAIT_S)
    simulated.ensemble.quorum = True
    assert "engine1 leads; engine2 stands by" in campaign_in_vain(second)
    leases[0].renew()
    assert leases[0].held() and first.epoch == epoch
    campaign_in_vain(second)
    simulated.pass_time(simulated.SESSION_S, silent=(first,))
    assert f"waits {simulated.WAIT_S - simulated.SESSION_S:.1f} s" in campaign_in_vain(second), "it was seen renewed"


def test_a_lead_that_ran_out_is_lost_once_the_next_one_may_have_begun(simulated: OnEnsemble) -> None:
    first, second = lead(simulated), simulated.coordination()
    campaign_in_vain(second)
    lease = simulated.lease(first)
    simulated.trees[first].cut = True
    simulated.pass_time(simulated.SESSION_S, silent=(first,))
    campaign_in_vain(first)
    assert not lease.held() and not lease.lost(), "it cannot know yet"
    campaign_in_vain(second)
    simulated.trees[first].cut = False
    with pytest.raises(UnavailableError, match="does not lead any more: its session has ended"):
        lease.renew()
    assert lease.lost()


def test_a_lease_counts_from_before_the_request(simulated: OnEnsemble) -> None:
    one = lead(simulated)
    began = simulated.clock.now
    simulated.trees[one].late = lambda: simulated.pass_time(2.0)
    one.campaign()
    assert one.valid_until() == pytest.approx(began + simulated.VALID_S)


def test_a_short_partition_and_lost_answers_keep_the_turn(simulated: OnEnsemble) -> None:
    one = lead(simulated)
    epoch, tree = one.epoch, simulated.trees[one]
    tree.cut = True
    simulated.pass_time(1.0)
    with pytest.raises(UnavailableError):
        one.campaign()
    assert simulated.lease(one).held()
    tree.cut = False
    tree.answers_lost = 1
    with pytest.raises(UnavailableError):
        one.campaign()
    one.campaign()
    assert one.epoch == epoch


def test_without_a_quorum_nobody_leads_and_afterwards_somebody_does(simulated: OnEnsemble) -> None:
    first, second = lead(simulated), simulated.coordination()
    campaign_in_vain(second)
    leases = [simulated.lease(each) for each in (first, second)]
    simulated.ensemble.quorum = False
    for _ in range(30):
        simulated.pass_time(1.0)
        campaign_in_vain(first), campaign_in_vain(second)
    assert [each.held() for each in leases] == [False, False]
    simulated.ensemble.quorum = True
    for _ in range(30):
        simulated.pass_time(0.5)
        for each in (first, second):
            with contextlib.suppress(UnavailableError):
                each.campaign()
    assert sorted(each.held() for each in leases) == [False, True]


@pytest.mark.parametrize("lost", range(9))
def test_whichever_answer_is_lost_on_the_way_to_the_lead_the_next_try_leads(simulated: OnEnsemble, lost: int) -> None:
    one = simulated.coordination()
    tree = simulated.trees[one]

    def lose_the_answer(left: int) -> None:
        if left:
            tree.late = lambda: lose_the_answer(left - 1)
        else:
            tree.answers_lost = 1

    lose_the_answer(lost)
    for _ in range(3):
        try:
            one.campaign()
        except UnavailableError:
            continue
    assert simulated.lease(one).held()
    assert one.members() == ("engine1",)


def test_a_place_that_an_administrator_removes_is_lost(simulated: OnEnsemble) -> None:
    first, second = lead(simulated), simulated.coordination()
    campaign_in_vain(second)
    place = next(path for path, node in simulated.ensemble.nodes.items() if node.session is simulated.trees[first])
    del simulated.ensemble.nodes[place]
    assert "waits 14.0 s" in campaign_in_vain(second), "the removed one may act for as long as its lease is valid"
    assert "node was removed" in campaign_in_vain(first)


@pytest.mark.parametrize("how", ["its session ended", "its place was removed"])
def test_one_that_stood_by_and_lost_its_place_takes_another_and_the_lead_in_its_turn(
    simulated: OnEnsemble, how: str
) -> None:
    first, second = lead(simulated), simulated.coordination()
    campaign_in_vain(second)
    if how == "its session ended":
        for _ in range(int(simulated.SESSION_S)):
            simulated.pass_time(1.0, silent=(second,))
            first.campaign()
    else:
        tree = simulated.trees[second]
        del simulated.ensemble.nodes[
            next(path for path, node in simulated.ensemble.nodes.items() if node.session is tree)
        ]
    campaign_in_vain(second)
    assert "engine1 leads; engine2 stands by" in campaign_in_vain(second)
    assert first.members() == ("engine1", "engine2")
    first.resign(at_rest=True)
    second.campaign()
    assert simulated.lease(second).held()


def test_a_turn_that_another_has_taken_meanwhile_is_not_taken_too(simulated: OnEnsemble) -> None:
    first, second = simulated.coordination(), simulated.coordination()
    tree = simulated.trees[first]

    def after(left: int) -> None:
        """The session of the first ends after so many of its requests, and the second leads."""
        if left:
            tree.late = lambda: after(left - 1)
            return
        tree.end()
        second.campaign()

    for left in range(2, 8):
        after(left)
        with contextlib.suppress(UnavailableError):
            first.campaign()
        tree.late = None
        assert [simulated.lease(each).held() for each in (first, second)] != [True, True]
        first.resign(at_rest=True), second.resign(at_rest=True)
        first, second = simulated.coordination(), simulated.coordination()
        tree = simulated.trees[first]


def test_engines_with_ledgers_at_two_places_are_refused_with_what_to_do(simulated: OnEnsemble) -> None:
    first, other = lead(simulated), simulated.coordination(place="backup:/var/lib/rmsplugin")
    with pytest.raises(
        RefusedError, match=r"has its ledger at head:.*stop all engines and remove the node /rmsplugin/turn"
    ):
        other.campaign()
    first.resign(at_rest=True)
    with pytest.raises(RefusedError, match=r"need one directory that they share \(cluster.shared_dir\)"):
        other.campaign()
    assert first.valid_until() == NEVER
    again = simulated.coordination()
    again.campaign()
    assert simulated.lease(again).held(), "a refused engine does not stand in the way"


def test_groups_of_a_killed_manager_pass_one_by_one_with_higher_epochs_of_their_own(simulated: OnEnsemble) -> None:
    first, second = (simulated.ensemble.open(simulated.SESSION_S) for _ in range(2))
    candidates = [Candidate(name, "site", simulated.SESSION_S, simulated.ACT_S) for name in ("one", "two")]
    groups = {
        group: [
            Elected(tree, f"/rmsplugin/owners/{group}", candidate, simulated.clock, own_session=False)
            for tree, candidate in zip((first, second), candidates, strict=True)
        ]
        for group in ("rack1", "rack2", "rack3")
    }
    for owner, _ in groups.values():
        owner.campaign()
    epochs = {group: owner.epoch for group, (owner, _) in groups.items()}
    assert len(set(epochs.values())) == len(groups)
    groups["rack3"][0].resign(at_rest=True)
    groups["rack3"][1].campaign()
    assert simulated.lease(groups["rack1"][0]).held(), "to hand over one group ends no other"
    for _, heir in list(groups.values())[:2]:
        campaign_in_vain(heir)
    first.cut = True
    for _ in range(int(simulated.SESSION_S + simulated.WAIT_S) + 1):
        simulated.pass_time(1.0)
        second.live()
        for _, heir in groups.values():
            with contextlib.suppress(UnavailableError):
                heir.campaign()
    for group, (owner, heir) in groups.items():
        assert [simulated.lease(each).held() for each in (owner, heir)] == [False, True]
        assert heir.epoch > epochs[group]


def test_a_turn_of_another_program_is_campaign_in_vain(simulated: OnEnsemble) -> None:
    lead(simulated).resign(at_rest=True)
    simulated.ensemble.nodes["/rmsplugin/turn"].data = b"7"
    with pytest.raises(RefusedError, match="holds no turn of an engine"):
        simulated.coordination().campaign()


def test_an_ensemble_that_was_set_up_again_gives_lower_epochs(simulated: OnEnsemble) -> None:
    one = lead(simulated)
    epoch = one.epoch
    simulated.ensemble.begin_anew(0)
    campaign_in_vain(one)
    one.campaign()
    assert one.epoch < epoch, "the ledger refuses it: tests/unit/engine/test_epoch_book.py"
