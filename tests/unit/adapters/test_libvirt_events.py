"""What libvirt tells of VMs on the kept connection of a link: libvirt's own test driver tells it as QEMU's does."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

import libvirt
import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.platform.libvirt.events import matters
from rmsplugin.adapters.platform.libvirt.link import Connection, Link, start_event_loop
from rmsplugin.adapters.platform.libvirt.nodes import LibvirtNodes
from rmsplugin.adapters.platform.libvirt.ways import ByUri

#: A VM of this name is defined and running when the driver is opened.
VM = "test"


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[str]:
    start_event_loop()
    monkeypatch.setattr(libvirt.virConnect, "setKeepAlive", lambda *_: 0)  # the test driver has no peer
    return queue.Queue()


@pytest.fixture
def link(heard: queue.Queue[str]) -> Iterator[Link]:
    link = Link("n1", lambda: libvirt.open("test:///default"), 10.0, heard.put)
    # All connections to it are to the same VMs, also one of the test before that is being closed.
    act(link, lambda domain: domain.isActive() or domain.create())
    yield link
    link.close()


def act(link: Link, function: Callable[[libvirt.virDomain], object]) -> None:
    link.call("acting", lambda conn: function(conn.lookupByName(VM)), PATIENCE_S)


def test_the_end_of_a_vm_is_heard(link: Link, heard: queue.Queue[str]) -> None:
    act(link, lambda domain: domain.destroy())
    assert heard.get(timeout=PATIENCE_S) == VM


def test_that_a_vm_stands_still_is_heard_and_not_that_it_goes_on(link: Link, heard: queue.Queue[str]) -> None:
    act(link, lambda domain: domain.suspend())
    act(link, lambda domain: domain.resume())
    act(link, lambda domain: domain.destroy())
    assert [heard.get(timeout=PATIENCE_S) for _ in range(2)] == [VM, VM]
    assert heard.empty()


def test_nothing_is_heard_on_a_connection_that_was_closed(link: Link, heard: queue.Queue[str]) -> None:
    closed = Connection(lambda: libvirt.open("test:///default"), lambda name: heard.put("closed"))
    closed.use(lambda _conn: closed.retire())
    act(link, lambda domain: (domain.destroy(), domain.create(), domain.destroy()))
    # What the first end tells comes before all that the second one does.
    assert [heard.get(timeout=PATIENCE_S) for _ in range(2)] == [VM, VM]


def test_a_libvirt_that_tells_nothing_is_asked_all_the_same(
    heard: queue.Queue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise libvirt.libvirtError("this driver tells nothing")

    monkeypatch.setattr(libvirt.virConnect, "domainEventRegisterAny", refuse)
    link = Link("n1", lambda: libvirt.open("test:///default"), 10.0, heard.put)
    assert link.call("asking", lambda conn: str(conn.lookupByName(VM).name()), PATIENCE_S) == VM
    link.close()


def test_only_vms_of_ours_are_told(heard: queue.Queue[str]) -> None:
    nodes = LibvirtNodes(ByUri("test:///default"), 10.0, 10.0)
    told: list[tuple[str, str]] = []
    nodes.listen(lambda node, name: told.append((node, name)))
    for name in ("test", "vjob7-0", "vjob7", "vjob7-0 "):
        nodes._hear("n1", name)
    assert told == [("n1", "vjob7-0")]


@pytest.mark.parametrize(
    ("event", "detail", "does"),
    [
        (libvirt.VIR_DOMAIN_EVENT_STOPPED, libvirt.VIR_DOMAIN_EVENT_STOPPED_CRASHED, True),
        (libvirt.VIR_DOMAIN_EVENT_STOPPED, libvirt.VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN, True),
        (libvirt.VIR_DOMAIN_EVENT_STOPPED, libvirt.VIR_DOMAIN_EVENT_STOPPED_FAILED, True),
        (libvirt.VIR_DOMAIN_EVENT_STOPPED, libvirt.VIR_DOMAIN_EVENT_STOPPED_MIGRATED, False),
        (libvirt.VIR_DOMAIN_EVENT_STOPPED, libvirt.VIR_DOMAIN_EVENT_STOPPED_SAVED, False),
        (libvirt.VIR_DOMAIN_EVENT_SUSPENDED, libvirt.VIR_DOMAIN_EVENT_SUSPENDED_IOERROR, True),
        (libvirt.VIR_DOMAIN_EVENT_SUSPENDED, libvirt.VIR_DOMAIN_EVENT_SUSPENDED_MIGRATED, False),
        (libvirt.VIR_DOMAIN_EVENT_SUSPENDED, libvirt.VIR_DOMAIN_EVENT_SUSPENDED_RESTORED, False),
        (libvirt.VIR_DOMAIN_EVENT_CRASHED, libvirt.VIR_DOMAIN_EVENT_CRASHED_PANICKED, True),
        (libvirt.VIR_DOMAIN_EVENT_STARTED, libvirt.VIR_DOMAIN_EVENT_STARTED_BOOTED, False),
        (libvirt.VIR_DOMAIN_EVENT_RESUMED, libvirt.VIR_DOMAIN_EVENT_RESUMED_UNPAUSED, False),
    ],
)
def test_vms_that_are_saved_or_move_on_are_no_reason_to_look(event: int, detail: int, does: bool) -> None:
    assert matters(event, detail) is does
