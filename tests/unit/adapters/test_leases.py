"""Leases: held by the clock, of two others, and as the settings say."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from rmsplugin.adapters.coordination.base import NEVER
from rmsplugin.adapters.lease.both import BothLeases
from rmsplugin.adapters.lease.clocked import ClockedLease, steady_s
from rmsplugin.adapters.lease.factory import longest_act_s, open_lease
from rmsplugin.errors import SettingsError, UnavailableError
from rmsplugin.settings import Settings, load

FILE = """\
[slurm]
partitions = ["vjob"]
command_timeout_s = 20
[partition.vjob]
hosts = "vmhosts"
[network]
pool = "10.0.0.10 - 10.0.0.20"
prefix_length = 24
[image.default]
kind = "kernel"
kernel = "/k"
initrd = "/i"
"""


def settings(directory: Path, more: str = "") -> Settings:
    path = directory / "rmsplugin.toml"
    path.write_text(FILE + more)
    return load(path)


class Told:
    """A ``Coordination`` that leads as it is told to."""

    def __init__(self) -> None:
        self.until, self.to = NEVER, 10.0
        self.answers = True
        self.epoch = 7
        self.resigned: list[bool] = []

    def campaign(self) -> None:
        if not self.answers:
            raise UnavailableError("no answer")
        self.until = self.to

    def valid_until(self) -> float:
        return self.until

    def members(self) -> tuple[str, ...]:
        return ()

    def resign(self, *, at_rest: bool) -> None:
        self.until = NEVER
        self.resigned.append(at_rest)


def test_it_is_held_while_the_clock_is_before_the_moment(tmp_path: Path) -> None:
    now = [0.0]
    coordination = Told()
    lease = ClockedLease(coordination, lambda: now[0])
    assert not lease.held()
    lease.acquire()
    assert lease.held() and lease.epoch == 7
    now[0] = 9.9
    assert lease.held()
    now[0] = 10.0
    assert not lease.held()
    with pytest.raises(UnavailableError):
        lease.epoch  # noqa: B018
    coordination.until = NEVER
    with pytest.raises(UnavailableError):
        lease.renew()


def test_one_that_has_run_out_is_held_again_where_the_service_says_so_and_one_that_is_lost_is_not() -> None:
    now = [0.0]
    coordination = Told()
    lease = ClockedLease(coordination, lambda: now[0])
    assert lease.lost()
    with pytest.raises(UnavailableError):
        lease.renew()
    lease.acquire()
    now[0], coordination.answers = 11.0, False
    with pytest.raises(UnavailableError):
        lease.renew()
    assert not lease.held() and not lease.lost()
    coordination.answers, coordination.to = True, 20.0
    lease.renew()
    assert lease.held()
    coordination.until = NEVER
    assert lease.lost()
    with pytest.raises(UnavailableError):
        lease.renew()
    assert coordination.until == NEVER, "it is not campaigned for anew"


def test_a_service_that_does_not_answer_ends_no_lease_before_its_time() -> None:
    now = [0.0]
    coordination = Told()
    lease = ClockedLease(coordination, lambda: now[0])
    lease.acquire()
    coordination.answers = False
    now[0] = 9.0
    lease.renew()
    assert lease.held()
    now[0] = 10.0
    with pytest.raises(UnavailableError):
        lease.renew()


def test_the_steady_clock_goes_on() -> None:
    assert steady_s() <= steady_s()


def test_two_leases_are_one_that_is_held_while_both_are() -> None:
    first, second = Told(), Told()
    both = BothLeases(ClockedLease(first, lambda: 0.0), ClockedLease(second, lambda: 0.0))
    second.answers = False
    with pytest.raises(UnavailableError):
        both.acquire()
    assert not both.held() and first.valid_until() > 0, "the first is kept meanwhile"
    with pytest.raises(UnavailableError):
        both.epoch  # noqa: B018
    second.answers = True
    both.acquire()
    assert both.held() and both.epoch == 7
    for first.until, second.until in ((3.0, 10.0), (10.0, 3.0)):
        assert both.held_until() == 3.0
    second.until = 10.0
    for lost in (first, second):
        lost.until = NEVER
        assert not both.held() and both.lost()
        with pytest.raises(UnavailableError):
            both.renew()
        lost.until = 10.0
    both.release(at_rest=False)
    assert (first.resigned, second.resigned, both.held()) == ([False], [False], False)


def test_settings_that_say_nothing_have_the_lock_of_this_host(tmp_path: Path) -> None:
    lease = open_lease(settings(tmp_path), tmp_path).lease
    lease.acquire()
    with pytest.raises(UnavailableError, match="another engine runs on"):
        open_lease(settings(tmp_path), tmp_path).lease.acquire()
    lease.release()


ZOOKEEPER = '[cluster]\ncoordination = "zookeeper"\nservers = ["127.0.0.1:1"]\nsession_s = 2\n'


def test_without_kazoo_the_settings_are_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(SettingsError, match=r"kazoo is not installed: pip install .rmsplugin\[ha\]"):
        open_lease(settings(tmp_path, ZOOKEEPER), tmp_path)


def test_an_engine_that_no_ensemble_answers_does_not_lead(tmp_path: Path) -> None:
    lease = open_lease(settings(tmp_path, ZOOKEEPER), tmp_path).lease
    with pytest.raises(UnavailableError, match="no server of ZooKeeper answers"):
        lease.acquire()
    assert not lease.held()
    lease.release()


def test_with_a_shared_directory_an_engine_has_its_state_directory_from_the_beginning(tmp_path: Path) -> None:
    """Nobody must win the ensemble's election, and then wait for a stopped engine of its own host."""
    lease = open_lease(settings(tmp_path, ZOOKEEPER), tmp_path, "0a1b").lease
    before = threading.active_count()
    with pytest.raises(UnavailableError, match="another engine runs on"):
        open_lease(settings(tmp_path, ZOOKEEPER), tmp_path, "0a1b")
    assert threading.active_count() == before, "who is refused does not try to reach the ensemble for ever"
    lease.release()
    open_lease(settings(tmp_path, ZOOKEEPER), tmp_path, "0a1b").lease.release()


def test_the_longest_act_is_a_command_a_fence_with_its_proof_or_an_order_to_a_bmc(tmp_path: Path) -> None:
    assert longest_act_s(settings(tmp_path)) == 20
    fence = '[nodes]\nfence = ["/fence", "{node}"]\nfence_timeout_s = 15\n'
    assert longest_act_s(settings(tmp_path, fence)) == 30
    words = '"/b", "{node}"'
    bmc = f'[power.driver.x]\nkind = "command"\nnodes = ["n1"]\nstatus = [{words}]\non = [{words}]\noff = [{words}]\n'
    assert longest_act_s(settings(tmp_path, bmc + "timeout_s = 45\n")) == 45
    assert longest_act_s(settings(tmp_path, bmc)) == 20
