"""The campaign of faults on a minicluster: its dice, its cuts, its journal, and what it calls right or wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
from e2e.live import cut, well
from e2e.live.acts import Acts, Row, fates, leads, turns, two_of_one
from e2e.live.dice import CUT, KILL, KINDS, KINDS_OF_MANAGERS, ORDERS, STOP, Throw, one_of, orders, throws
from e2e.live.gaps import Gaps
from e2e.live.judge import counted
from e2e.live.site import Decision
from e2e.live.verdict import Round, code, sentence, table
from e2e.live.work import VJob, Work
from journal.check import check
from patience import PATIENCE_S

# --- dice ---


def test_a_seed_throws_the_same_faults_and_vjobs_each_time() -> None:
    assert [*islice(throws(7), 50)] == [*islice(throws(7), 50)] != [*islice(throws(8), 50)]
    assert [*islice(orders(7), 50)] == [*islice(orders(7), 50)] != [*islice(orders(8), 50)]


def test_every_fault_in_every_way_comes_in_the_middle_of_everything() -> None:
    thrown = [*islice(throws(1), 2000)]
    assert {(each.kind, each.way) for each in thrown} == {
        (name, way) for name, kind in KINDS.items() for way in kind.ways
    }
    assert {each.order for each in thrown} == {"", *ORDERS}
    assert all(2 <= each.seconds <= KINDS[each.kind].most_s for each in thrown)
    assert {each.kind for each in islice(throws(1, ["nfs"]), 20)} == {"nfs"}
    assert {each.kind for each in islice(throws(1, ["nfs", "ensemble"]), 40)} == {"nfs", "ensemble"}


def test_with_managers_their_engines_and_whole_hosts_of_them_fail_too() -> None:
    thrown = [*islice(throws(1, kinds=KINDS_OF_MANAGERS), 2000)]
    assert {each.kind for each in thrown} == {*KINDS, "engine", "halted"}
    assert {(each.kind, each.way) for each in thrown} == {
        (name, way) for name, kind in KINDS_OF_MANAGERS.items() for way in kind.ways
    }
    assert {each.kind for each in islice(throws(1, ["halted"], KINDS_OF_MANAGERS), 20)} == {"halted"}


def test_nothing_fails_on_a_front_until_slurm_begins_its_jobs_anew() -> None:
    assert all(KINDS[kind].most_s < 20 for kind in ("front", "munged", "controller"))


def test_vjobs_are_small_ones_gangs_and_such_that_go_first() -> None:
    options = Counter(each.options[0] for each in islice(orders(1), 300))
    assert options.keys() == {"-c", "-N", "-p"} and options["-c"] > options["-N"]


def test_a_number_chooses_any_of_several() -> None:
    assert {one_of(["a", "b", "c"], number / 100) for number in range(101)} == {"a", "b", "c"}


# --- cuts ---


@pytest.mark.skipif(shutil.which("nft") is None, reason="nftables are not installed")
@pytest.mark.parametrize("rules", [cut.of_engine(), cut.of_host(), *map(cut.of_daemon, cut.PORTS)])
def test_the_rules_of_a_cut_are_such(rules: str) -> None:
    done = subprocess.run(["unshare", "-rn", "nft", "--check", "-f", "-"], input=rules, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_host_that_is_cut_off_still_hears_itself() -> None:
    assert 'iifname != "lo" drop' in cut.of_host()


def test_an_engine_that_is_cut_off_leaves_the_server_of_its_host_in_the_ensemble() -> None:
    assert all(str(port) not in cut.of_engine() for port in cut.PEERS)
    assert "tcp dport 2181" not in cut.of_engine().partition("output")[0], "others may ask the server of its host"


# --- orders ---


class Ordered:
    """A minicluster of which two vjobs run and two sleep; there is room to migrate once something was suspended."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.states = {1: "running", 2: "running", 3: "sleeping", 4: "sleeping"}
        self.room = False
        self.suspends = True

    def vjobs(self) -> list[dict[str, Any]]:
        others = [{"job_id": 9, "state": state} for state in ("running", "sleeping")]
        return [{"job_id": job, "state": state} for job, state in self.states.items()] + others

    def run(self, program: str, order: str, job: str, *_: str, timeout_s: float) -> SimpleNamespace:
        self.said.append(f"{order} {job}")
        if order == "suspend" and self.suspends:
            self.states[int(job)], self.room = "sleeping", True
        refused = (order == "migrate" and not self.room) or (order == "suspend" and not self.suspends)
        return SimpleNamespace(code=int(refused), err="no room")

    def wait_action(self, job: str, order: str, timeout_s: float) -> None:
        assert order != "resume", "it was over at once"


def ordered(site: Any, order: str, whose: float = 0.0) -> str:
    work = Work(site, orders(1))
    work.all += [VJob(job, next(orders(1)), 0.0) for job in (1, 2, 3, 4)]
    return work.begin_order(Throw("nfs", "stop", 3.0, 0.0, order, whose, False))


def test_an_order_goes_to_the_vjob_that_the_dice_chose_among_those_that_can_follow_it() -> None:
    assert ordered(Ordered(), "suspend", 0.9) == "suspend 2"
    assert ordered(Ordered(), "resume", 0.9) == "resume 4, over or not begun"
    assert ordered(Ordered(), "") == ""
    site = Ordered()
    site.states = dict.fromkeys(site.states, "sleeping")
    assert ordered(site, "suspend") == ""


def test_where_there_is_no_room_another_one_makes_some_for_a_migration() -> None:
    site = Ordered()
    assert ordered(site, "migrate") == "migrate 2"
    assert site.said == ["migrate 1", "migrate 2", "suspend 1", "migrate 2"]
    site = Ordered()
    site.suspends = False
    assert ordered(site, "migrate") == "migrate refused" and "suspend 1" in site.said
    site.said.clear()
    assert ordered(site, "suspend") == "suspend refused"
    assert site.said == ["suspend 1", "suspend 2"]


# --- how long nobody decided ---


def decided(group: str, moment: float) -> Decision:
    return Decision(group, 7, "head", moment)


def test_the_longest_time_between_two_decisions_is_measured() -> None:
    gaps = Gaps([""])
    gaps.note([decided("", 500.0)])
    assert gaps.longest_s == {"": 0.0}, "nothing was seen before"
    for moments in ([503.0], [503.0], [], [519.0], [521.0], [520.0]):
        gaps.note([decided("", moment) for moment in moments])
    assert (gaps.longest_s, gaps.last) == ({"": 16.0}, {"": 521.0})


def test_each_group_has_gaps_of_its_own_and_the_engine_that_follows_ends_one() -> None:
    gaps = Gaps(["left", "right"])
    gaps.note([decided("right", 100.0), decided("left", 100.0)])
    assert not gaps.all_since(100.0)
    gaps.note([decided("left", 112.0), decided("left", 103.0)])  # of the one that follows, and of the one before
    assert gaps.longest_s == {"left": 9.0, "right": 0.0}
    assert not gaps.all_since(101.0), "one group has not decided since"
    gaps.note([decided("right", 102.0)])
    assert gaps.all_since(101.0)


def test_a_look_takes_in_what_engines_tell_and_when_slurm_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[object] = []
    site: Any = SimpleNamespace(decisions=lambda: [decided("", 100.0)])
    history: Any = SimpleNamespace(note=noted.append, look=lambda now: None)
    monkeypatch.setattr(well, "slurm_answers", lambda site: len(noted) > 0)
    recovery = well.Recovery(Gaps([""]))
    well.watch(site, 0.0, recovery, history)
    assert recovery.slurm_s is None and recovery.gaps.last == {"": 100.0} and noted == [[decided("", 100.0)]]
    well.watch(site, 0.0, recovery, history)
    assert recovery.slurm_s is not None


# --- acts ---

LOG = """\
2026-11-28 08:00:00,500 INFO rmsplugin.engine.leadership: waiting: another one leads
2026-11-28 08:00:01,250 INFO rmsplugin.engine.daemon: this engine leads, with epoch {} of the ensemble
"""


def row(number: int, created: float, ended: float = 0.0, vm: str = "vjob5-0", kind: str = "migrate") -> Row:
    return Row(number, vm, kind, "n1", "n2", "done" if ended else "running", created, ended)


def judged(*ledgers: tuple[int, float, list[Row]]) -> list[str]:
    acts = Acts()
    for ledger in ledgers:
        acts.read(*ledger)
    return check(acts.lines({epoch: (f"host{epoch}", began) for epoch, began, _ in ledgers})).breaches


def test_turns_begin_when_the_logs_say_so() -> None:
    found = turns({"head": LOG.format(7), "front2": LOG.format(12)})
    assert {epoch: host for epoch, (host, _) in found.items()} == {7: "head", 12: "front2"}
    assert found[7][1] % 1 == 0.25


def test_turns_of_a_group_are_those_of_its_own_engines() -> None:
    log = (
        LOG.format(7)
        + LOG.format(8).replace("this", "group left: this")
        + LOG.format(9).replace("this", "group a: this")
    )
    assert [[*turns({"head": log}, of)] for of in ("", "left", "a", "b")] == [[7], [8], [9], []]


def test_the_turns_of_managers_are_those_that_lead_the_site() -> None:
    log = LOG.format(7).replace("this engine", "this manager") + LOG.format(8).replace("this", "group left: this")
    assert [(lead.epoch, lead.host) for lead in leads({"head": log}, who="manager")] == [(7, "head")]


def test_an_epoch_that_two_had_and_one_that_came_late_are_found() -> None:
    later = LOG.replace("08:00:01", "08:00:02")
    assert two_of_one(leads({"head": LOG.format(7) + later.format(7), "front2": later.format(8)})) == []
    assert two_of_one(leads({"head": LOG.format(7), "front2": later.format(7)})) == [
        "epoch 7 of front2 comes after epoch 7 of head"
    ]
    assert two_of_one(leads({"head": LOG.format(9), "front2": later.format(8)})) == [
        "epoch 8 of front2 comes after epoch 9 of head"
    ]


def test_an_engine_that_decides_in_the_turn_of_the_next_one_is_found() -> None:
    def judged(moment: float) -> list[str]:
        acts = Acts()
        acts.read(7, 100, [row(1, 110, 115)])
        acts.read(9, 200, [row(2, 201, 205)])
        acts.decided(7, moment)
        acts.decided(7, 120.0)
        return check(acts.lines({7: ("head", 100), 9: ("front2", 200)})).breaches

    assert judged(199.0) == []
    assert judged(201.0) == ["head (7) and front2 (9) may both act at 200.0"]


def test_engines_that_act_one_after_the_other_are_right() -> None:
    assert judged((7, 100, [row(1, 110, 115)]), (9, 200, [row(1, 110, 115), row(2, 201, 205)])) == []


def test_an_act_that_the_next_engine_takes_up_is_that_of_the_first() -> None:
    assert judged((7, 100, [row(1, 110)]), (9, 200, [row(1, 110, 205), row(2, 210, 220)])) == []


def test_an_engine_that_begins_something_after_its_turn_is_found() -> None:
    breaches = judged((7, 100, [row(1, 110, 115), row(2, 203, 206)]), (9, 200, [row(1, 110, 115), row(2, 201, 205)]))
    assert any("may both act" in each for each in breaches)
    assert any("was let do, after" in each for each in breaches)


def test_two_acts_of_two_engines_on_one_vm_at_a_time_are_found() -> None:
    breaches = judged((7, 100, [row(1, 110, 230)]), (9, 200, [row(2, 201, 205)]))
    assert any("is under way" in each for each in breaches)


def test_a_script_that_began_twice_and_one_that_did_not_end_are_found() -> None:
    lines = [*fates(1, 10, 2, 20), *fates(2, 10, 1, 0), json.dumps({"kind": "over", "time": 30})]
    breaches = check(lines).breaches
    assert any("the script of vjob 1 began 2 times" in each for each in breaches)
    assert any("vjob 2 is lost" in each for each in breaches)
    assert check([*fates(1, 10, 1, 20), json.dumps({"kind": "over", "time": 30})]).breaches == []


# --- outputs ---


@pytest.mark.parametrize("text", ["", "1\n2\n", "1\n2", "1\nslurmstepd: error: x\n2\ncounted to 2\n", "1\n\n2\n"])
def test_an_output_so_far_is_right_where_each_line_is_there_once(text: str) -> None:
    assert counted(text, over=False) == ""


@pytest.mark.parametrize("text", ["1\n1\n", "2\n", "1\n3\n", "1\n2\n1\n", "1\n2\ncounted to 3\n"])
def test_lines_that_are_missing_or_there_twice_are_found(text: str) -> None:
    assert counted(text, over=False)


@pytest.mark.parametrize("text", ["", "1\n2\n", "1\n2\ncounted to 2", "1\ncounted to 1\n2\n"])
def test_an_output_that_lacks_its_end_is_found(text: str) -> None:
    assert counted(text, over=True)


# --- verdict ---


def test_the_table_has_a_line_for_each_kind_and_way() -> None:
    rounds = [
        Round("leader", "kill", 4.0, 20.5, 0.1, 9.0),
        Round("leader", "kill", 6.0, 22.0, None, None, wrong=["x"]),
        Round("nfs", "stop", 3.0, 1.0, 0.1, 2.0),
    ]
    head, kills, stops = table(rounds)
    assert head.split()[0] == "fault"
    assert "20.5 to 22.0" in kills and "0.1, 1 never" in kills and kills.endswith("1")
    assert stops.startswith("nfs stop")


def round_of(kind: str, way: str, decided_s: float | None, led_s: float | None = None) -> Round:
    return Round(kind, way, 4.0, decided_s, 0.1, 9.0, unled_s=led_s)


def test_what_came_later_than_the_bounds_is_told_and_is_not_wrong() -> None:
    assert round_of("leader", KILL, 15.9, 6.9).late() == []
    assert round_of("leader", CUT, 16.1, 7.1).late() == ["a leader", "a decision"]
    assert round_of("engine", KILL, None).late() == ["a decision"]
    late = [round_of("halted", STOP, 17.0), round_of("halted", STOP, 3.0)]
    assert sentence(late, 3, []).endswith("; after 1 a leader came later than 7 s, or a decision than 16 s")
    assert table(late)[1].split()[-2:] == ["1", "0"]
    assert code(late, 3, []) == 0


@pytest.mark.parametrize(("kind", "way"), [("quorum", KILL), ("slurmctld", CUT), ("engine", STOP), ("node", CUT)])
def test_nothing_is_late_where_the_fault_takes_what_the_others_need(kind: str, way: str) -> None:
    assert round_of(kind, way, 60.0, 60.0).late() == []


def test_the_exit_code_says_whether_all_was_right_or_nothing_was_tried() -> None:
    right, wrong = Round("nfs", "stop", 3.0, 1.0, 0.1, 2.0), Round("nfs", "stop", 3.0, 1.0, 0.1, 2.0, wrong=["x"])
    assert code([right], 3, []) == 0
    assert code([right, wrong], 3, []) == code([right], 3, ["x"]) == 1
    assert code([], 3, []) == code([right], 0, []) == 2
    assert sentence([right, wrong], 3, ["x"]).startswith("2 faults, 3 vjobs: 1 faults with something wrong after them")
    helped = Round("slurmctld", "stop", 3.0, 1.0, 0.1, 2.0, resumed=2, ended=1)
    assert sentence([helped], 3, []).endswith(
        "; Slurm drained 2 times for a job that it forgot; a slurmctld that did not end by itself was ended 1 times"
    )


# --- a cut, in two networks ---


class Networks:
    """Two networks with a cable between them, that go with a process each."""

    def __init__(self) -> None:
        words = ["unshare", "--net", "--", "sh", "-c", "ip link set lo up; echo; read -r line"]
        self.processes = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
        for process in self.processes:
            assert process.stdout is not None
            process.stdout.readline()
        there = str(self.processes[1].pid)
        self.run(0, "ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", there)
        for number in range(2):
            self.run(number, "ip", "address", "add", f"10.9.9.{number + 1}/24", "dev", "cable")
            self.run(number, "ip", "link", "set", "cable", "up")

    def run(self, number: int, *words: str, given: str = "") -> int:
        """Run a command in one of them; returns its exit code."""
        enter = ["nsenter", "--net", "--target", str(self.processes[number].pid), *words]
        return subprocess.run(enter, input=given, text=True, capture_output=True, timeout=PATIENCE_S).returncode

    def reaches(self, port: int, *, itself: bool = False) -> bool:
        """Whether the second one's port is reached from the first, or from itself, where something listens."""
        script = f"exec 3<>/dev/tcp/10.9.9.2/{port}"
        return self.run(1 if itself else 0, "timeout", "1", "bash", "-c", script) == 0

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nftables")
def test_a_cut_silences_what_it_is_about_and_leaves_the_rest() -> None:
    networks = Networks()
    listening = []
    try:
        for port in (22, 2181):
            listen = f"s = socket.create_server(('10.9.9.2', {port}))"
            script = f"import socket, time; {listen}; print(flush=True); time.sleep(600)"
            words = ["nsenter", "--net", "--target", str(networks.processes[1].pid), sys.executable, "-c", script]
            listening.append(subprocess.Popen(words, stdout=subprocess.PIPE))
            assert listening[-1].stdout is not None and listening[-1].stdout.readline()

        def seen(rules: str) -> tuple[bool, bool, bool]:
            assert networks.run(1, "nft", "-f", "-", given=rules) == 0
            found = (networks.reaches(22), networks.reaches(2181), networks.reaches(2181, itself=True))
            assert networks.run(1, "nft", "-f", "-", given=cut.no_more()) == 0
            return found

        assert seen(cut.of_daemon("sshd")) == (False, True, True)
        assert seen(cut.of_daemon("zookeeper")) == (True, False, False)
        assert seen(cut.of_engine()) == (True, True, False), "the server serves others"
        assert seen(cut.of_host()) == (False, False, True)
        assert networks.run(1, "nft", "-f", "-", given=cut.no_more()) == 0, "also where there is none"
        assert (networks.reaches(22), networks.reaches(2181)) == (True, True)
    finally:
        for process in listening:
            process.kill()
            process.communicate()
        networks.end()
