"""What `rmsplugin check` says of podman, runc and CRIU on nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmsplugin.adapters.platform.checks_base import AgentFacts
from rmsplugin.adapters.platform.podman.checks import PodmanChecks
from rmsplugin.finding import Finding, Level
from rmsplugin.settings import Settings
from rmsplugin.settings.guests import Mount

SOUND: dict[str, Any] = {
    "podman": "5.4.2",
    "runc": "1.1.15",
    "criu": "4.2.1",
    "kernel": "6.12.0",
    "criu_check": "",
    "hook": True,
    "freezer": True,
    "images": {"localhost/guest:1": "ab"},
}
MOUNT = Mount(source="10.0.0.1:/home", target="/home")
SETTINGS = cast(Settings, SimpleNamespace(guest=SimpleNamespace(mounts=(MOUNT,))))


def facts(**changes: Any) -> AgentFacts:
    return cast(AgentFacts, SimpleNamespace(platform={**SOUND, **changes}))


def judged(agent: AgentFacts) -> list[Finding]:
    checks = PodmanChecks(SETTINGS)
    return [*checks.states("node n1", agent), *checks.guards("node n1", agent)]


def test_a_sound_node_is_in_order() -> None:
    assert [finding.level for finding in judged(facts())] == [Level.OK]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"criu": "3.17.1"}, "has CRIU 3.17.1"),  # Debian 12
        ({"criu": "4.1.1"}, "has CRIU 4.1.1"),  # Debian 13
        ({"criu": "4.2", "criu_check": "no userfaultfd"}, "cannot save containers with kernel 6.12.0: no userfaultfd"),
        ({"criu": ""}, "has no criu"),
        ({"podman": "", "runc": ""}, "has no podman, runc"),
        ({"hook": False}, "has no /etc/criu/rmsplugin"),
        ({"freezer": False}, "has no freezer"),
        ({"images": {"localhost/guest:1": ""}}, "has no image localhost/guest:1"),
        ({"silent": ["criu check"]}, "`criu check` does not end there"),
        ({"podman": "", "silent": ["podman --version"]}, "`podman --version` does not end there"),
        ({"images": {"localhost/guest:1": ""}, "silent": ["podman images"]}, "`podman images` does not end there"),
    ],
)
def test_a_node_that_lacks_something_is_told_what(change: dict[str, Any], says: str) -> None:
    errors = [finding for finding in judged(facts(**change)) if finding.level is Level.ERROR]
    assert len(errors) == 1 and says in errors[0].what
    assert errors[0].remedy


def test_a_node_that_lacks_a_directory_of_containers_is_told_so() -> None:
    [found] = PodmanChecks(SETTINGS).mounts("node n1", {"mounts": {}})
    assert found.level is Level.ERROR and "its settings name no mount /home" in found.what


def test_an_agent_that_tells_nothing_has_no_finding() -> None:
    assert judged(cast(AgentFacts, SimpleNamespace(platform={}))) == []


def test_images_of_one_name_that_differ_between_nodes_are_told() -> None:
    checks = PodmanChecks(cast(Settings, None))
    assert list(checks.states_between({"n1": facts(), "n2": facts()})) == []
    assert list(checks.states_between({"n1": facts(), "n2": facts(images={"localhost/guest:1": ""})})) == []
    [found] = checks.states_between({"n1": facts(), "n2": facts(images={"localhost/guest:1": "cd"})})
    assert "2 different images localhost/guest:1" in found.what


def test_of_a_criu_that_does_not_end_nobody_says_that_it_is_in_order() -> None:
    assert not [finding for finding in judged(facts(silent=["criu check"])) if finding.level is Level.OK]
