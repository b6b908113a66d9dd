"""The ledger keeps the vjobs and VMs that it has read, and reads changed ones alone: as if it read all of them anew."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from examples import few
from fresh_ledger import in_memory, laid_down
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsplugin.engine.ledger import records
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.ledger.samples import Sample
from rmsplugin.errors import NotFoundError, RmspluginError
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.model.vm_phase import VMPhase

_JOBS = 16

#: An act on a ledger, by a name for the failing example: the job, and a number for all else.
Act = tuple[str, int, int]


def row(job_id: int, submitted: float) -> VJobRow:
    state = VJobState.WAITING
    geometry = Geometry(2, 1, 512)
    return VJobRow(job_id, str(job_id), "u", 1, "p", geometry, state, "", submitted=submitted, state_since=0.0)


def vm(job_id: int, index: int, number: int = 0) -> VMRow:
    name = f"vjob{job_id}-{index}"
    return VMRow(
        name, job_id, index, f"uuid{number}", "mac", f"10.0.{number}.{job_id % 8}", f"n{number}", memory_mib=512
    )


def add(ledger: Ledger, job_id: int, number: int) -> None:
    ledger.add_vjob(row(job_id, float(number)))


def renew(ledger: Ledger, job_id: int, number: int) -> None:
    ledger.renew_vjob(row(job_id, float(number)))


def tell(ledger: Ledger, job_id: int, number: int) -> None:
    ledger.update_vjob(job_id, reason=f"reason {number}")


def tell_reasons(ledger: Ledger, job_id: int, number: int) -> None:
    ledger.tell_reasons({job_id: f"told {number}", 1: f"told {number}"})


def move(ledger: Ledger, job_id: int, number: int) -> None:
    states = list(VJobState)
    ledger.transition(job_id, states[number % len(states)], "moved")


def place(ledger: Ledger, job_id: int, number: int) -> None:
    ledger.set_vms(job_id, [vm(job_id, index, number) for index in reversed(range(number % 3))])


def phase(ledger: Ledger, job_id: int, number: int) -> None:
    phases = list(VMPhase)
    ledger.enter_phase(f"vjob{job_id}-0", phases[number % len(phases)], host="n1", destination="n2")


def change_vm(ledger: Ledger, job_id: int, number: int) -> None:
    ledger.update_vm(f"vjob{job_id}-0", centi_cpus=number)


def touch(ledger: Ledger, job_id: int, number: int) -> None:
    ledger.touch(f"vjob{job_id}-0", f"n{number}")


def sample(ledger: Ledger, job_id: int, number: int) -> None:
    vjob, vms = ledger.vjob(job_id), ledger.vms(job_id)
    ledger.samples.record([(vjob, each, Sample(each.name, 0.0, number, None, number)) for each in vms])


def forget(ledger: Ledger, job_id: int, number: int) -> None:
    with suppress(AssertionError):  # something of it has begun
        ledger.forget_vjob(job_id)


def read_ahead(ledger: Ledger, job_id: int, number: int) -> None:
    ledger.read_ahead()


def prune(ledger: Ledger, job_id: int, number: int) -> None:
    ledger.prune(1.0)


ACTS: dict[str, Callable[[Ledger, int, int], None]] = {
    each.__name__: each
    for each in (
        add,
        renew,
        tell,
        tell_reasons,
        move,
        place,
        phase,
        change_vm,
        touch,
        sample,
        forget,
        prune,
        read_ahead,
    )
}
ACTS["read_ahead"] = read_ahead

acts = st.tuples(st.sampled_from(sorted(ACTS)), st.integers(1, _JOBS + 2), st.integers(0, 20))
#: Acts that are one transaction; whether all is asked after each of them, and after it; and whether it is undone.
transactions = st.tuples(st.lists(acts, min_size=1, max_size=4), st.booleans(), st.booleans(), st.booleans())


class UndoneError(Exception):
    """Raised to undo a transaction."""


def check(ledger: Ledger) -> None:
    """Compare all that is kept with what the database has."""
    vjobs = ledger._read("select * from vjobs where state != 'terminated' order by submitted, job_id", ())
    vms = [records.read_vm(each) for each in ledger._read("select * from vms order by job_id, idx", ())]
    for each in vjobs:  # before all are read anew
        assert ledger.vjob(each["job_id"]) == ledger.find_vjob(each["display_id"]) == records.read_vjob(each)
    for job_id in range(1, _JOBS + 3):
        assert ledger.vms(job_id) == [each for each in vms if each.job_id == job_id]
    among = ledger.vms_among(range(_JOBS, 0, -3))
    assert [*among] == sorted({each.job_id for each in vms} & {*range(_JOBS, 0, -3)})
    assert all(several == [each for each in vms if each.job_id == job_id] for job_id, several in among.items())
    assert ledger.vjobs() == [records.read_vjob(each) for each in vjobs]
    assert ledger.vms() == vms
    live = {each["job_id"] for each in vjobs if VJobState(each["state"]).is_live}
    alive = [each for each in vms if each.job_id in live]
    assert ledger.live_vms() == alive
    assert [each for several in ledger.live_vms_by_job().values() for each in several] == alive
    assert list(ledger.live_vms_by_job()) == sorted({each.job_id for each in alive})
    for nodes in ({"n1"}, {"n2", "n3"}, {f"n{number}" for number in range(20)}):
        assert ledger.live_vms_on(nodes) == [each for each in alive if {each.host, each.destination} & nodes]
    assert ledger.places_of_live_vms() == {place for each in alive for place in (each.host, each.destination)} - {""}
    assert ledger.addresses() == {each.address for each in vms}
    assert ledger.numbers_of_addresses() == {int(IPv4Address(each.address)) for each in vms}


def act(ledger: Ledger, todo: Act) -> None:
    """Do what may be done; what may not be leaves all as it was."""
    name, job_id, number = todo
    with suppress(RmspluginError):
        ACTS[name](ledger, job_id, number)


@settings(max_examples=few(200))
@given(st.lists(transactions, max_size=12), st.integers(0, 20), st.sampled_from([3, _JOBS]))
def test_what_is_kept_is_what_the_database_has(
    todo: list[tuple[list[Act], bool, bool, bool]], first: int, jobs: int
) -> None:
    with in_memory() as directory, closing(Ledger(laid_down(directory / "ledger.sqlite"), clock=lambda: 0.5)) as ledger:
        for job_id in range(1, jobs + 1):  # of many a change is of the smaller part; of few, all are read anew
            ledger.add_vjob(row(job_id, float(job_id * first % 7)))
            if job_id % 2:
                ledger.set_vms(job_id, [replace(vm(job_id, 0), host="n1")])
                ledger.transition(job_id, VJobState.STARTING, "")
                ledger.transition(job_id, VJobState.RUNNING, "")
        check(ledger)
        for several, asked, asked_then, undone in todo:
            with suppress(UndoneError), ledger.transaction():
                for each in several:
                    act(ledger, each)
                    if asked:
                        check(ledger)
                if undone:
                    raise UndoneError
            if asked_then:
                check(ledger)
        check(ledger)


def test_what_is_as_it_was_is_not_read_again() -> None:
    with in_memory() as directory, closing(Ledger(laid_down(directory / "ledger.sqlite"))) as ledger:
        for job_id in range(1, _JOBS + 1):
            ledger.add_vjob(row(job_id, 0.0))
            ledger.set_vms(job_id, [vm(job_id, 0)])
        vjobs, vms = ledger.vjobs(), ledger.vms()
        ledger.update_vjob(3, reason="another one")
        ledger.touch("vjob4-0", "n9")
        again = zip((*vjobs, *vms), (*ledger.vjobs(), *ledger.vms()), strict=True)
        assert [was.job_id for was, now in again if was is not now] == [3, 4]


def test_what_has_gone_since_it_was_read_ahead_is_gone() -> None:
    with in_memory() as directory, closing(Ledger(laid_down(directory / "ledger.sqlite"))) as ledger:
        for job_id in range(1, _JOBS + 1):
            ledger.add_vjob(row(job_id, 0.0))
            ledger.set_vms(job_id, [vm(job_id, 0)])
        check(ledger)
        ledger.update_vjob(3, reason="another one")
        ledger.touch("vjob4-0", "n9")
        ledger.read_ahead()
        ledger.transition(3, VJobState.TERMINATED, "")
        ledger.set_vms(4, [])
        check(ledger)


def test_vms_live_as_long_as_their_vjob() -> None:
    with in_memory() as directory, closing(Ledger(laid_down(directory / "ledger.sqlite"))) as ledger:
        for job_id in range(1, _JOBS + 1):
            ledger.add_vjob(row(job_id, 0.0))
            ledger.set_vms(job_id, [vm(job_id, 0, 1)])
            for state in (VJobState.STARTING, VJobState.RUNNING):
                ledger.transition(job_id, state, "")
        check(ledger)
        ledger.transition(3, VJobState.STOPPING, "")
        ledger.transition(3, VJobState.TERMINATED, "")
        check(ledger)
        ledger.set_vms(3, [])
        check(ledger)


@pytest.mark.parametrize("count", [2, _JOBS])
def test_addresses_of_vms_that_have_gone_are_free(count: int) -> None:
    with in_memory() as directory, closing(Ledger(laid_down(directory / "ledger.sqlite"))) as ledger:
        for job_id in range(1, count + 1):
            ledger.add_vjob(row(job_id, 0.0))
            ledger.set_vms(job_id, [vm(job_id, 0, job_id)])
        check(ledger)
        for job_id in (1, 2):
            ledger.set_vms(job_id, [])
        check(ledger)


def test_a_display_id_is_of_who_has_it_now() -> None:
    with in_memory() as directory, closing(Ledger(laid_down(directory / "ledger.sqlite"))) as ledger:
        ledger.add_vjob(replace(row(7, 0.0), display_id="5_1"))
        assert (len(ledger.vjobs()), ledger.find_vjob("5_1").job_id) == (1, 7)
        ledger.transition(7, VJobState.TERMINATED, "")
        ledger.renew_vjob(replace(row(7, 0.0), display_id="6_1"))
        assert len(ledger.vjobs()) == 1
        assert ledger.find_vjob("6_1").job_id == 7
        with pytest.raises(RmspluginError):
            ledger.find_vjob("5_1")


def test_reasons_are_told_all_or_none() -> None:
    with in_memory() as directory, closing(Ledger(laid_down(directory / "ledger.sqlite"))) as ledger:
        for job_id in (1, 2):
            ledger.add_vjob(row(job_id, 0.0))
        check(ledger)
        ledger.update_vjob(2, priority=7)
        ledger.tell_reasons({1: "one", 2: "two"})
        check(ledger)
        assert [(vjob.reason, vjob.priority) for vjob in ledger.vjobs()] == [("one", 0), ("two", 7)]
        with pytest.raises(NotFoundError):
            ledger.tell_reasons({1: "another one", 3: "three"})
        assert [vjob.reason for vjob in ledger.vjobs()] == ["one", "two"]
