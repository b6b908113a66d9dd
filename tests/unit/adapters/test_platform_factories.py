"""Each platform of the settings has its parts: halves of engine and node, the rules of check, the files of setup."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from rmsplugin import defaults
from rmsplugin.adapters.platform.factory import CHECKS, FILES, PLATFORMS
from rmsplugin.adapters.platform.node_factory import HALVES, HOOK_OPTIONS, platform_on_node
from rmsplugin.errors import SettingsError
from rmsplugin.settings.nodes import Hypervisor

NAMES = set(get_args(Hypervisor.model_fields["platform"].annotation))


def test_each_platform_with_vms_has_its_parts() -> None:
    """Of plain jobs there is nothing on a node besides Slurm."""
    assert NAMES - {"native"} == set(PLATFORMS) == set(CHECKS) == set(HALVES) == set(FILES)
    assert set(HOOK_OPTIONS.values()) <= NAMES


def test_nodes_and_engine_have_the_same_default() -> None:
    assert Hypervisor.model_fields["platform"].default == defaults.PLATFORM


def test_a_platform_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match=r"hypervisor\.platform is 'none such'"):
        platform_on_node("none such")


@pytest.mark.parametrize("name", sorted(HALVES))
def test_the_nodes_half_costs_nothing_before_it_is_asked(name: str) -> None:
    """An agent starts for each call: a module that a call does not need is not imported."""
    code = (
        "import sys; from rmsplugin.adapters.platform.node_factory import platform_on_node; "
        f"platform_on_node({name!r}); print(*sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    ours = {each.removeprefix("rmsplugin.adapters.platform.") for each in said if "adapters.platform." in each}
    assert {each for each in ours if each.startswith(f"{name}.")} == {f"{name}.on_node", f"{name}.on_node.half"}
    assert not {"dataclasses", "subprocess", "xml"} & set(said)
