"""Rules for submission: job_submit.lua loads the plugin, and site.lua says the same as the settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rmsplugin.cli.check.facts import SITE_FILE, Row, SlurmFacts
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.model.vm_memory import largest_request_mib
from rmsplugin.settings import Settings
from rmsplugin.settings.guests import ContainerImage
from rmsplugin.settings.nodes import Hypervisor

_MODULES = ("rmsplugin.lua", "rmsplugin_options.lua", "rmsplugin_native.lua")


#: The platform of a site.lua that names none, as of settings that name none.
DEFAULT_PLATFORM: str = Hypervisor.model_fields["platform"].default

#: Keys of the first version: the module takes an unknown key for a slip, and refuses all vjobs.
_GONE = ("min_vm_memory_mib", "slurm_memory_mib")

#: What Slurm takes unless SchedulerParameters has max_script_size.
_DEFAULT_SCRIPT_SIZE = 4 << 20


@dataclass(frozen=True, slots=True)
class SiteFile:
    """What site.lua says; what it leaves out is as the Lua module has it. None: said, but not as a plain value."""

    partitions: tuple[str, ...] | None = ("vjob",)
    gate: str | None = "vjobgate"
    images: tuple[str, ...] | None = ("default",)
    images_with_memory: tuple[str, ...] = ()
    numbers: Mapping[str, int] | None = None
    gone: tuple[str, ...] = ()  # keys that an earlier release knew
    platform: str | None = DEFAULT_PLATFORM


def configuration_directory(config: Row) -> str:
    """Where slurm.conf lies."""
    return config.get("SLURM_CONF", "/etc/slurm/slurm.conf").rpartition("/")[0]


def job_submit_path(config: Row) -> str:
    """Where slurmctld reads job_submit.lua."""
    return f"{configuration_directory(config)}/job_submit.lua"


def module_paths(config: Row) -> list[str]:
    """Where job_submit.lua looks for the plugin's modules, in its order."""
    directories = dict.fromkeys((configuration_directory(config), "/etc/slurm", "/usr/share/rmsplugin"))
    return [f"{directory}/{name}" for name in _MODULES for directory in directories]


def judge_submission(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge how jobs become vjobs."""
    if "lua" not in facts.config.get("JobSubmitPlugins", "").split(","):
        yield error(
            "JobSubmitPlugins",
            "does not name lua: jobs of the vjob partitions are not wrapped and run outside VMs",
            "JobSubmitPlugins=lua in slurm.conf, lua/job_submit.lua beside it; then restart slurmctld",
        )
        return
    path = job_submit_path(facts.config)
    text = facts.text(path)
    if text is None:
        yield error(path, "cannot be read here", "put lua/job_submit.lua there; run this check on slurmctld's host")
        return
    if not re.search(r"require\s*\(?,?\s*[\"']rmsplugin[\"']", text):
        yield error(
            path,
            "does not load rmsplugin: jobs of the vjob partitions run outside VMs",
            "copy the part between the marks of lua/job_submit.lua into it; scontrol reconfigure",
        )
        return
    yield ok(path, "loads rmsplugin")
    yield from _modules(facts)
    yield from _site_file(settings, facts)


def _modules(facts: SlurmFacts) -> Iterator[Finding]:
    paths = module_paths(facts.config)
    remedy = "copy all files of lua/ but job_submit.lua beside slurm.conf; then restart slurmctld"
    for name in _MODULES:
        places = [path for path in paths if path.endswith(f"/{name}")]
        found = next((path for path in places if facts.text(path) is not None), None)
        if found is None:
            yield error(places[0], "is not there: all jobs of the vjob partitions are refused", remedy)
        elif "gate" not in (facts.text(found) or ""):
            yield error(found, "is of an earlier release: it knows no gate, and holds jobs instead", remedy)


def read_site_file(text: str) -> SiteFile:
    """Read the plain values of site.lua."""
    code = re.sub(r"--[^\n]*", "", text)
    with_memory = re.search(r"\bimage_memory_mib\s*=\s*\{([^}]*)\}", code)
    pairs = re.findall(r"(?:\[\s*[\"']([^\"']+)[\"']\s*\]|(\w+))\s*=", with_memory[1]) if with_memory else []
    gate = re.search(r"\bgate\s*=\s*(?:[\"']([^\"']*)[\"'])?", code)
    platform = re.search(r"\bplatform\s*=\s*(?:[\"']([^\"']*)[\"'])?", code)
    return SiteFile(
        platform=platform[1] if platform else DEFAULT_PLATFORM,
        partitions=_list(code, "partitions", ()),
        gate=gate[1] if gate else "vjobgate",
        images=_list(code, "images", ("default",)),
        images_with_memory=tuple(quoted or plain for quoted, plain in pairs),
        numbers={key: int(value) for key, value in re.findall(r"\b(max_\w+)\s*=\s*(\d+)\b", code)},
        gone=tuple(key for key in _GONE if re.search(rf"\b{key}\s*=", code)),
    )


def _list(code: str, key: str, otherwise: tuple[str, ...]) -> tuple[str, ...] | None:
    said = re.search(rf"\b{key}\s*=\s*(?:\{{([^}}]*)\}})?", code)
    if said is None:
        return otherwise
    return None if said[1] is None else tuple(re.findall(r"[\"']([^\"']+)[\"']", said[1]))


def _site_file(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    text = facts.text(SITE_FILE)
    site = SiteFile() if text is None else read_site_file(text)
    where = SITE_FILE if text is not None else f"{SITE_FILE} is not there, so job_submit.lua"
    wanted = settings.slurm.partitions
    if site.partitions is not None and sorted(site.partitions) != sorted(wanted):
        yield error(
            SITE_FILE,
            f"{where} wraps the jobs of {', '.join(site.partitions) or 'no partition'}, "
            f"but slurm.partitions is {', '.join(wanted)}",
            "name the same partitions in both; then scontrol reconfigure, and restart the engine",
        )
    else:
        yield ok(SITE_FILE, f"the same partitions as slurm.partitions: {', '.join(wanted)}")
    if site.gone:
        yield error(
            SITE_FILE,
            f"has {', '.join(site.gone)}, which this release does not know: all vjobs are refused",
            f"take it out of {SITE_FILE} (image_memory_mib says what VMs need), then scontrol reconfigure",
        )
    if site.gate is not None and site.gate != settings.slurm.gate:
        yield error(
            SITE_FILE,
            f"{where} gates jobs by the licence {site.gate}, but slurm.gate is {settings.slurm.gate}",
            f'gate = "{settings.slurm.gate}" in {SITE_FILE}, then scontrol reconfigure; or another slurm.gate',
        )
    platform = settings.hypervisor.platform
    if site.platform is not None and site.platform != platform:
        yield error(
            SITE_FILE,
            f"{where} takes jobs for platform {site.platform}, but hypervisor.platform is {platform}",
            f'platform = "{platform}" in {SITE_FILE}, then scontrol reconfigure',
        )
    if not settings.native:
        yield from _images(settings, site)
        yield from _least(settings)
        yield from _script_size(facts, site.numbers or {})
    yield from _largest(settings, facts, site.numbers or {})


def _images(settings: Settings, site: SiteFile) -> Iterator[Finding]:
    if site.images is None:
        return
    unknown = [name for name in site.images if name not in settings.image]
    if unknown:
        yield error(
            SITE_FILE,
            f"offers the image {', '.join(unknown)}, which the settings do not have: its vjobs never start",
            f"a section [image.{unknown[0]}] in the settings, or take it out of `images`",
        )
    hidden = [name for name in settings.image if name not in site.images]
    if hidden:
        yield warning(
            SITE_FILE,
            f"does not offer the image {', '.join(hidden)} of the settings: users cannot choose it",
            f"add it to `images` in {SITE_FILE}, then scontrol reconfigure",
        )
    strange = [name for name in site.images_with_memory if name not in site.images]
    if strange:
        yield warning(
            SITE_FILE,
            f"image_memory_mib has {', '.join(strange)}, which is none of its images",
            "correct the name, or jobs with too little memory for their image are accepted and do not boot",
        )


def _least(settings: Settings) -> Iterator[Finding]:
    """Judge that VMs have for their jobs what was asked for."""
    for name, image in settings.image.items():
        if not image.overhead_mib and not isinstance(image, ContainerImage):
            yield warning(
                f"image.{name}",
                "has no overhead_mib: its kernel and tools take their memory from what jobs asked for",
                f"raise overhead_mib in [image.{name}] by what the engine's events memory-short "
                f"name; then adapt max_vm_memory_mib and image_memory_mib in {SITE_FILE}",
            )


def _script_size(facts: SlurmFacts, numbers: Mapping[str, int]) -> Iterator[Finding]:
    """Judge that job_submit.lua knows how long a script may be: Slurm looks at that when the plugin's line is there."""
    said = re.search(r"\bmax_script_size=(\d+)", facts.config.get("SchedulerParameters", ""))
    taken = int(said[1]) if said else _DEFAULT_SCRIPT_SIZE
    known = numbers.get("max_script_size", _DEFAULT_SCRIPT_SIZE)
    if known != taken:
        yield warning(
            SITE_FILE,
            f"takes scripts of {known} bytes with the plugin's line, but Slurm takes {taken} (SchedulerParameters)",
            f"max_script_size = {taken} in {SITE_FILE}; then scontrol reconfigure",
        )


def largest_requests(settings: Settings, facts: SlurmFacts) -> dict[str, tuple[int, str]]:
    """The largest requests that hosts and fronts can take, by site.lua's keys: CPUs or MiB, and whose bound it is."""
    if settings.native:
        return _largest_native_requests(settings, facts)
    hosts = facts.vm_hosts(settings)
    fronts = [name for partition in settings.slurm.partitions for name in facts.nodes_of(partition)]
    if not hosts or not fronts:
        return {}
    nodes = settings.nodes
    most = max(facts.memory_mib((name,)) for name in hosts) - nodes.memory_overhead_mib - nodes.memory_reserved_mib
    memory = min(largest_request_mib(most, image.overhead_mib) for image in settings.image.values())
    return {
        "max_vm_cpus": (max(facts.cpus((name,)) for name in hosts) - nodes.cpus_reserved, "the largest VM host has"),
        "max_vm_memory_mib": (memory, "the largest VM host has for a VM besides what its image takes"),
        "max_total_cpus": (max(facts.cpus((name,)) for name in fronts), "the largest front has in Slurm"),
        "max_total_memory_mib": (max(facts.memory_mib((name,)) for name in fronts), "the largest front has in Slurm"),
    }


def _largest_native_requests(settings: Settings, facts: SlurmFacts) -> dict[str, tuple[int, str]]:
    partitions = [facts.nodes_of(name) for name in settings.slurm.partitions]
    nodes = [name for names in partitions for name in names]
    if not nodes:
        return {}
    return {
        "max_vm_cpus": (max(facts.cpus((name,)) for name in nodes), "the largest node has"),
        "max_vm_memory_mib": (max(facts.memory_mib((name,)) for name in nodes), "the largest node has"),
        "max_total_cpus": (max(map(facts.cpus, partitions)), "the largest partition has"),
        "max_total_memory_mib": (max(map(facts.memory_mib, partitions)), "the largest partition has"),
    }


def _largest(settings: Settings, facts: SlurmFacts, numbers: Mapping[str, int]) -> Iterator[Finding]:
    """Judge that no job is accepted that no VM host, and no front, can ever have."""
    for key, (bound, whose) in largest_requests(settings, facts).items():
        if key not in numbers:
            if key.startswith("max_vm"):
                yield warning(
                    SITE_FILE,
                    f"has no {key}: a vjob that fits no node is accepted, and waits for ever",
                    f"{key} = {bound} in {SITE_FILE}; then scontrol reconfigure",
                )
        elif numbers[key] > bound:
            yield warning(
                SITE_FILE,
                f"has {key} = {numbers[key]}, more than the {bound} that {whose}: larger vjobs wait for ever",
                f"{key} = {bound} in {SITE_FILE}; then scontrol reconfigure",
            )
