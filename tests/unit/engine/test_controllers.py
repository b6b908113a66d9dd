"""What the leader tells of the other controllers, and to whom it hands over."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from unit.check_facts import settings
from unit.hosts import Hosts

from rmsplugin.adapters.coordination.servers import ServerFact
from rmsplugin.adapters.guests.keys import generate_keypair
from rmsplugin.engine.controllers import controllers, shared_writes
from rmsplugin.engine.controllers.about import about, digest_of, fingerprint, own_url
from rmsplugin.engine.controllers.controllers import Controllers
from rmsplugin.engine.controllers.shared_writes import SharedWrites, write_once
from rmsplugin.errors import RefusedError, UnavailableError


def seen(hosts: Hosts, **options: Any) -> dict[str, Any]:
    """What the leader tells after a look."""
    leader = hosts.leader(**options)
    leader.see()
    return leader.view()


def degraded(hosts: Hosts, **options: Any) -> str:
    (sentence,) = seen(hosts, **options)["degraded"]
    assert isinstance(sentence, str)
    return sentence


def test_those_who_stand_by_are_told_in_their_order() -> None:
    assert seen(Hosts("head", "backup", "third")) == {
        "leads_since": 1000.0,
        "standbys": [{"host": name, "url": f"http://{name}:6830", "version": "1.0"} for name in ("backup", "third")],
        "degraded": [],
    }


def test_before_the_first_look_nothing_is_said_to_be_missing() -> None:
    assert Hosts("head").leader().view()["degraded"] == []


def test_a_leader_that_is_alone_is_degraded() -> None:
    assert degraded(Hosts("head")) == "no other engine stands by: nobody leads if this host dies"


@pytest.mark.parametrize(
    ("silent", "words"),
    [
        (1, "1 of 3 servers of the ensemble do not serve: zoo1:2181 (refused); one more, and nobody leads"),
        (2, "zoo1:2181 (refused), zoo2:2181 (refused); nobody leads without a quorum"),
    ],
)
def test_servers_that_do_not_serve_are_named(silent: int, words: str) -> None:
    hosts = Hosts("head", "backup")
    for number in range(silent):
        hosts.servers[number] = ServerFact(hosts.servers[number].address, "refused")
    assert words in degraded(hosts)


def test_an_ensemble_that_answers_no_more_is_said_until_it_does() -> None:
    hosts = Hosts("head", "backup")
    leader = hosts.leader()
    leader.see()
    hosts.ensemble.quorum = False
    leader.see()
    (sentence,) = leader.view()["degraded"]
    assert "the ensemble has not answered for 0 s" in sentence
    hosts.ensemble.quorum = True
    leader.see()
    assert leader.view()["degraded"] == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"ledger": "m022", "version": "0.9"}, "its release 0.9 cannot read this ledger"),
        ({"settings": "77"}, "the settings of backup differ"),
        ({"agent_key": "SHA256:x"}, "the key nodes.agent_key of backup is another one"),
        ({"ahead_s": 3.0}, "the clock of backup differs by +3.0 s"),
    ],
)
def test_what_another_controller_has_otherwise_is_said(other: Any, words: str) -> None:
    hosts = Hosts("head")
    hosts.join("backup", **other)
    assert words in degraded(hosts)


def test_another_release_has_other_settings() -> None:
    hosts = Hosts("head")
    hosts.join("backup", settings="77", version="1.1", ledger="m024")
    assert seen(hosts)["degraded"] == []


def test_one_that_stands_by_says_its_time_again_and_again() -> None:
    hosts = Hosts("head")
    offset = [0.0]
    backup = hosts.join("backup")
    backup._time_of_day = lambda: hosts.clock.now + offset[0]
    offset[0] = 5.0
    hosts.clock.now += 2.0
    hosts.campaign()
    assert seen(hosts)["degraded"] == [], "not at each campaign"
    for _ in range(7):
        hosts.clock.now += 3.0
        hosts.campaign()
    assert "differs by +5.0 s" in degraded(hosts)


# -- the shared directory ------------------------------------------------------------------------------------------


def test_a_write_is_safe_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    assert write_once(tmp_path) >= 0
    assert len(synced) == 1 and list(tmp_path.iterdir()) == []


def fails(_: Path) -> float:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda _: 0.01, ""),
        (lambda _: 1.5, "is slow: a small write took 1.5 s"),
        (fails, "cannot be written: No space left on device"),
    ],
)
def test_a_shared_directory_is_said_to_be_slow_or_full(
    tmp_path: Path, write: Callable[[Path], float], words: str
) -> None:
    writes = SharedWrites(tmp_path, write)
    writes.try_one()
    assert words in writes.problem() and bool(words) == bool(writes.problem())
    hosts = Hosts("head", "backup")
    assert seen(hosts, writes=writes)["degraded"] == [*filter(None, [writes.problem()])]


def test_a_write_that_hangs_is_said_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_writes, "SLOW_S", 0.0)
    begun, let_go = threading.Event(), threading.Event()

    def hang(_: Path) -> float:
        begun.set()
        let_go.wait(PATIENCE_S)
        return 0.0

    writes = SharedWrites(tmp_path, hang)
    thread = threading.Thread(target=writes.try_one)
    thread.start()
    begun.wait(PATIENCE_S)
    assert "has not taken a write for 0 s" in writes.problem()
    let_go.set()
    thread.join(PATIENCE_S)
    assert writes.problem() == ""


# -- handing over --------------------------------------------------------------------------------------------------


def campaigning(hosts: Hosts, leader: Controllers, to: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whom the leader chooses, while all engines go on campaigning."""
    monkeypatch.setattr(controllers.time, "sleep", lambda _: hosts.campaign())  # type: ignore[attr-defined]
    return controllers.host_of(leader.next(to))


@pytest.mark.parametrize(("to", "host"), [("", "backup"), ("third", "third"), ("third.site", "third")])
def test_the_one_that_is_chosen_leads_next_with_a_higher_epoch(
    to: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Hosts("head", "backup", "third", "fourth")
    told: list[str] = []
    leader, first = hosts.leader(), hosts.engines["head"]
    leader.on_hand_over(lambda: told.append("handed over"))
    assert campaigning(hosts, leader, to, monkeypatch) == host
    epoch = first.epoch
    leader.hand_over()
    assert told == ["handed over"]
    first.resign(at_rest=True)
    hosts.engines.pop("head")
    hosts.campaign()
    assert hosts.engines[host].epoch > epoch
    hosts.engines[host].resign(at_rest=True)
    hosts.engines.pop(host)
    hosts.campaign()
    assert all(engine.epoch > epoch for engine in hosts.engines.values() if engine.valid_until() > 0)


def test_one_that_reads_an_older_ledger_only_is_passed_over_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts("head")
    hosts.join("backup", ledger="m022", version="0.9")
    leader = hosts.leader()
    for to in ("", "backup"):
        with pytest.raises(RefusedError, match=r"release 0.9, which cannot read this ledger: nothing was done"):
            leader.next(to)
    hosts.join("third")
    assert campaigning(hosts, leader, "", monkeypatch) == "third"


def test_nobody_or_a_host_without_an_engine_is_refused() -> None:
    hosts = Hosts("head")
    leader = hosts.leader()
    with pytest.raises(RefusedError, match="no other engine stands by: nothing was done"):
        leader.next("")
    hosts.join("backup")
    with pytest.raises(RefusedError, match=r"no engine stands by on third: nothing was done. Those that do: backup"):
        leader.next("third")
    hosts.ensemble.quorum = False
    with pytest.raises(UnavailableError):
        leader.next("")


def waits_with(hosts: Hosts, alive: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """While the leader waits time passes, and these engines are heard of."""

    def sleep(seconds: float) -> None:
        hosts.clock.now += seconds
        for name in alive:
            hosts.engines[name].standing()

    monkeypatch.setattr(controllers.time, "sleep", sleep)  # type: ignore[attr-defined]


def test_one_that_was_killed_is_waited_for_until_its_session_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts("head", "backup", "third")
    waits_with(hosts, ["head", "third"], monkeypatch)
    monkeypatch.setattr(controllers, "_MAKE_WAY_S", 1.0)  # less than a session
    assert hosts.leader().next("third").name == "third:1"


def test_where_one_does_not_make_way_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts("head", "backup", "third")
    waits_with(hosts, ["head", "backup", "third"], monkeypatch)
    leader = hosts.leader()
    with pytest.raises(RefusedError, match=r"backup:1 stands before third:1, and does not make way"):
        leader.next("third")
    hosts.campaign()
    assert [each["host"] for each in seen(hosts)["standbys"]] == ["backup", "third"]


# -- about ---------------------------------------------------------------------------------------------------------


def test_what_an_engine_says_of_itself_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = generate_keypair()
    (tmp_path / "key").write_text(keys.private_openssh)
    monkeypatch.setattr("socket.gethostname", lambda: "head")
    told = about(settings(nodes={"agent_key": tmp_path / "key"}))
    assert told["host"] == "head" and told["ledger"] >= "m023" and told["agent_key"].startswith("SHA256:")
    assert not any(word in " ".join(told.values()) for word in keys.private_openssh.split()[4:])
    assert fingerprint(tmp_path / "none") == ""


def test_what_is_an_engines_own_makes_no_difference() -> None:
    first = settings(engine={"listen": "10.0.0.1:6830", "state_dir": "/a"})
    assert digest_of(first) == digest_of(settings(engine={"listen": "10.0.0.2:6830", "state_dir": "/b"}))
    assert digest_of(first) != digest_of(settings(engine={"cycle_s": 7}))


@pytest.mark.parametrize(
    ("listen", "own"),
    [
        ("10.0.0.2:6830", "http://10.0.0.2:6830"),
        ("0.0.0.0:6830", "http://head:6830"),
        ("10.0.0.9:6830", "http://head:6830"),
    ],
)
def test_the_address_of_an_engine_is_found_among_all(listen: str, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "head.site")
    urls = "http://other:6830 http://10.0.0.2:6830 http://head:6830"
    assert own_url(settings(engine={"listen": listen, "url": urls})) == own
    assert own_url(settings(engine={"listen": "", "url": "http://other:6830"})) == ""
