"""The engine's half: what it asks agents for, and what it never asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmsplugin.adapters.guests.used import Used
from rmsplugin.adapters.platform.base import ContainerImage, KernelImage, VMPower, VMSpec
from rmsplugin.adapters.platform.podman.on_node import network
from rmsplugin.adapters.platform.podman.platform import PodmanPlatform
from rmsplugin.errors import NotFoundError, OperationFailedError

NODE, VM = "n1", "vjob7-0"


class Agents:
    """Answers as told, and notes what was asked."""

    def __init__(self, **answers: dict[str, Any]) -> None:
        self.answers = {f"vm-{verb}": answer for verb, answer in answers.items()}
        self.asked: list[tuple[list[str], bytes, float | None]] = []

    def call(
        self,
        node: str,
        words: list[str],
        *,
        content: bytes = b"",
        timeout_s: float | None = None,
        advance: Callable[[Mapping[str, int]], None] | None = None,
    ) -> dict[str, Any]:
        self.asked.append((words, content, timeout_s))
        if advance:
            advance({"bytes_done": 3, "bytes_total": 0})
        return self.answers.get(words[0], {})


def spec(**changes: Any) -> VMSpec:
    values: dict[str, Any] = {
        "name": VM,
        "uuid": "u",
        "cpus": 2,
        "memory_mib": 64,
        "mac": "52:54:00:00:00:01",
        "bridge": "br0",
        "image": ContainerImage("localhost/guest:1", (("/home", True),)),
        "config_path": "/vm/config",
        "console_log": "",
        "network_filter": "nftables",
    }
    return VMSpec(**{**values, **changes})


def test_a_boot_describes_the_vm_and_gives_the_agent_less_time_than_it_waits() -> None:
    agents = Agents()
    PodmanPlatform(agents).boot(NODE, spec(), timeout_s=1.5)
    [(words, content, waits_s)] = agents.asked
    assert words == ["vm-boot", VM, "1500"]
    assert waits_s is not None and waits_s > 1.5
    said = json.loads(content)
    assert (said["cpus"], said["memory_mib"], said["filtered"]) == (2, 64, True)
    assert (said["reference"], said["mounts"]) == ("localhost/guest:1", [["/home", True]])
    assert (said["resized_cpus"], said["resized_memory_mib"]) == (0, 0)


def test_a_resized_vm_is_restored_with_its_size() -> None:
    agents = Agents()
    PodmanPlatform(agents).restore(NODE, spec(resized_cpus=1, resized_memory_mib=48), "/store/state", timeout_s=1)
    said = json.loads(agents.asked[0][1])
    assert (said["cpus"], said["memory_mib"]) == (2, 64)
    assert (said["resized_cpus"], said["resized_memory_mib"]) == (1, 48)


def test_agents_are_asked_for_another_size() -> None:
    agents = Agents()
    assert PodmanPlatform(agents).capabilities.bounds
    PodmanPlatform(agents).set_memory(NODE, VM, 48, timeout_s=2)
    PodmanPlatform(agents).set_cpus(NODE, VM, 1, timeout_s=2)
    assert [words for words, *_ in agents.asked] == [["vm-memory", VM, "2000", "48"], ["vm-cpus", VM, "2000", "1"]]


def test_what_is_no_container_is_not_asked_for() -> None:
    agents = Agents()
    platform = PodmanPlatform(agents)
    for vm in (spec(image=KernelImage("/k", "/i")), spec(network_filter="clean-traffic")):
        with pytest.raises(OperationFailedError, match="podman cannot"):
            platform.boot(NODE, vm, timeout_s=1)
        with pytest.raises(OperationFailedError, match="podman cannot"):
            platform.restore(NODE, vm, "/store/state", timeout_s=1)
    assert agents.asked == []


def test_what_the_platform_cannot_do_it_does_not_ask_for() -> None:
    agents = Agents()
    platform = PodmanPlatform(agents)
    can = platform.capabilities
    assert not (can.migrate or can.template or can.own_kernel or can.balloons)
    for call in (
        lambda: platform.migrate(VM, NODE, "n2", timeout_s=1),
        lambda: platform.template_key(NODE, spec()),
    ):
        with pytest.raises(OperationFailedError, match="podman cannot"):
            call()
    assert agents.asked == []


def test_a_vm_stands_still_when_who_asked_is_ready_and_is_looked_for_before() -> None:
    agents = Agents(has={"here": True})
    order: list[str] = []
    PodmanPlatform(agents).pause(
        NODE, VM, timeout_s=1, ready=lambda: order.extend(words[0] for words, *_ in agents.asked)
    )
    assert order == ["vm-has"]
    assert agents.asked[-1][0] == ["vm-pause", VM, "1000"]
    with pytest.raises(NotFoundError):
        PodmanPlatform(Agents(has={"here": False})).unpause(NODE, VM, timeout_s=1)


def test_what_agents_see_is_given_as_it_is() -> None:
    vms = {VM: {"power": "paused", "uuid": "u", "job_running": True}}
    counters = {"cpu_time_ns": 5, "cpu_delay_ns": None, "used_kib": 10, "most_kib": 64, "time_s": 9}
    agents = Agents(list={"vms": vms}, statistics={"vms": {VM: counters}})
    platform = PodmanPlatform(agents)
    seen = platform.list_vms(NODE)[VM]
    assert (seen.name, seen.node, seen.power, seen.uuid, seen.job_running) == (VM, NODE, VMPower.PAUSED, "u", True)
    found = platform.statistics(NODE)[VM]
    assert (found.cpu_time_ns, found.vcpu_delay_ns) == (5, None)
    assert (found.memory_rss_kib, found.memory_current_kib, found.memory_usable_kib) == (10, 64, 54)
    assert (found.cpus, found.received_bytes, found.sent_bytes) == (None, None, None), "an older release does not say"
    agents = Agents(statistics={"vms": {VM: {**counters, "cpus": 2, "received_bytes": 8, "sent_bytes": 9}}})
    found = PodmanPlatform(agents).statistics(NODE)[VM]
    assert (found.cpus, found.received_bytes, found.sent_bytes) == (2, 8, 9)


def test_a_container_receives_what_its_half_on_the_node_sends(tmp_path: Path) -> None:
    counts = tmp_path / VM / "statistics"
    counts.mkdir(parents=True)
    (counts / "rx_bytes").write_text("7\n")
    (counts / "tx_bytes").write_text("300\n")
    assert network.counted(VM, tmp_path) == (300, 7)
    assert network.counted("vjob1-0", tmp_path) == (None, None)


def test_what_a_container_has_used_is_what_its_agent_says() -> None:
    said = {"cpu_us": 9, "user_us": 8, "system_us": 1, "memory_bytes": 5, "peak_bytes": 6, "read_bytes": 2}
    used = PodmanPlatform(Agents(used={"used": said})).used(NODE, VM)
    assert used == Used(9, 8, 1, 5, 6, 2)


def test_the_progress_of_a_save_is_told() -> None:
    steps: list[tuple[int, int]] = []
    agents = Agents()
    PodmanPlatform(agents).save(NODE, VM, "/store/state", timeout_s=2, progress=lambda *step: steps.append(step))
    assert agents.asked[0][0] == ["vm-save", VM, "2000", "/store/state"]
    assert steps == [(3, 0)]
