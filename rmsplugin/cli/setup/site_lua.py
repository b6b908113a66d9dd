"""Site.lua and slurm.conf: what Slurm has to know, said by the settings and by Slurm's nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from rmsplugin.cli.check.facts import Row, SlurmFacts, number, words
from rmsplugin.cli.check.slurm import hook_paths
from rmsplugin.settings import Settings
from rmsplugin.settings.guests import Qcow2Image
from rmsplugin.settings.nodes import Hypervisor

WRAPPER = "/usr/bin/rmsplugin-job"
_HOOKS = {
    "PrologSlurmctld": "prolog_slurmctld",
    "EpilogSlurmctld": "epilog_slurmctld",
    "Prolog": "prolog",
    "Epilog": "epilog",
}
#: The least PrologEpilogTimeout that is told, in seconds.
_PROLOG_S = 300
#: What an image of kind qcow2 needs to boot, in MiB, where it has no overhead_mib of its own.
_DISK_LEAST_MIB = 256
_LEAST_MIB = 16


def site_lua(settings: Settings, bounds: Mapping[str, int]) -> str:
    """Return the content of site.lua.

    Args:
        settings: the site's.
        bounds: the largest requests (max_vm_cpus, ...), in CPUs and MiB, that hosts and fronts can take.
    """
    images = list(settings.image)
    if settings.native:
        return _returning(
            f"platform = {_text(settings.hypervisor.platform)},",
            f"partitions = {_list(settings.slurm.partitions)},",
            f"gate = {_text(settings.slurm.gate)},",
            *(f"{key} = {bound}," for key, bound in bounds.items()),
        )
    least = {name: _least(settings, name) for name in images}
    named = settings.hypervisor.platform != Hypervisor.model_fields["platform"].default
    return _returning(
        *([f"platform = {_text(settings.hypervisor.platform)},"] if named else []),
        f"partitions = {_list(settings.slurm.partitions)},",
        f"wrapper = {_text(WRAPPER)},",
        f"gate = {_text(settings.slurm.gate)},",
        f"images = {_list(images)},",
        "image_memory_mib = { " + ", ".join(f"[{_text(name)}] = {mib}" for name, mib in least.items()) + " },",
        *(f"{key} = {bound}," for key, bound in bounds.items()),
    )


def _returning(*lines: str) -> str:
    """A Lua file that returns a table of these lines."""
    head = "-- Made by `rmsplugin setup controller` from rmsplugin.toml and Slurm's nodes; yours to change.\n"
    return head + "return {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def _least(settings: Settings, name: str) -> int:
    image = settings.image[name]
    if image.overhead_mib or isinstance(image, Qcow2Image):
        return _LEAST_MIB if image.overhead_mib else _DISK_LEAST_MIB
    return 96


def _text(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _list(names: list[str] | tuple[str, ...]) -> str:
    return "{ " + ", ".join(map(_text, names)) + " }"


def slurm_conf(settings: Settings, facts: SlurmFacts) -> list[str]:
    """Return the lines that slurm.conf lacks, as Slurm has it now. A hook of the site that calls ours will do."""
    config = facts.config
    lines = []
    hooks = {name: file for name, file in _HOOKS.items() if name.endswith("Slurmctld") or not settings.native}
    for name, file in hooks.items():
        theirs = hook_paths(config, name)
        if not any("rmsplugin-hook" in (facts.text(path) or "") for path in theirs):
            call = f"        # or call it from {theirs[0]}" if theirs else ""
            lines.append(f"{name}=/etc/rmsplugin/hooks/{file}{call}")
    lines += _values(settings, config)
    if "lua" not in config.get("JobSubmitPlugins", "").split(","):
        lines.append("JobSubmitPlugins=lua        # with those of the site")
    if not re.search(rf"\b{re.escape(settings.slurm.gate)}:", config.get("Licenses", "")):
        lines.append(f"Licenses={settings.slurm.gate}:1        # with those of the site")
    return lines


def _values(settings: Settings, config: Row) -> Iterator[str]:
    """The values that do not do; what does as well as ours, by `rmsplugin check`, is left to the site."""
    if "alloc" not in words(config.get("PrologFlags", "").lower()):
        yield "PrologFlags=Alloc"
    wait_s = settings.slurm.prolog_wait_s
    if not settings.native and number(config.get("PrologEpilogTimeout", "")) <= wait_s:
        yield f"PrologEpilogTimeout={max(_PROLOG_S, math.ceil(2 * wait_s))}"
    if config.get("SelectType", "select/linear") == "select/linear":
        yield "SelectType=select/cons_tres"
    if "MEMORY" not in config.get("SelectTypeParameters", "").upper():
        # Of CPUs, where jobs have no VMs: cores of several threads would be given whole.
        yield f"SelectTypeParameters={'CR_CPU_Memory' if settings.native else 'CR_Core_Memory'}"
