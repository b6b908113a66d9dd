"""Rules for Slurm: what slurm.conf and job_submit.lua must say for vjobs to work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.cli.check.finding import Finding, error, ok, warning
from rmsplugin.engine.site import slurm_would_preempt
from rmsplugin.settings import Settings

OLDEST_RELEASE = (22, 5)

_HOOKS = ("PrologSlurmctld", "EpilogSlurmctld", "Prolog", "Epilog")


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """What Slurm said, and what lies beside its configuration on this host."""

    unreachable: str = ""  # why Slurm did not answer
    host: str = ""  # name of this host
    config: Mapping[str, str] = field(default_factory=dict)  # scontrol show config
    partitions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # scontrol show partition
    nodes: tuple[str, ...] = ()  # of the vjob partitions
    cpus: int = 0  # of those nodes
    texts: Mapping[str, str | None] = field(default_factory=dict)  # path -> content; None: not readable here

    def text(self, path: str) -> str | None:
        """Content of a file of this host."""
        return self.texts.get(path)


SITE_FILE = "/etc/rmsplugin/site.lua"


def job_submit_path(config: Mapping[str, str]) -> str:
    """Where slurmctld reads job_submit.lua."""
    return config.get("SLURM_CONF", "/etc/slurm/slurm.conf").rpartition("/")[0] + "/job_submit.lua"


def hook_paths(config: Mapping[str, str], name: str) -> list[str]:
    """The programs of one hook; releases from 23.11 on may have several, shown as Prolog[0], Prolog[1], ..."""
    shown = (value for key, value in config.items() if re.fullmatch(rf"{name}(\[\d+\])?", key))
    return [path for value in shown for path in value.split(",") if path not in ("", "(null)")]


def judge_slurm(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge Slurm's configuration."""
    if facts.unreachable:
        yield error("slurm", facts.unreachable, "start slurmctld, or set slurm.bin_dir to the directory of scontrol")
        return
    yield from _controller(facts)
    yield from _release(facts.config)
    yield from _account(settings, facts.config)
    yield from _submission(settings, facts)
    for name in _HOOKS:
        yield from _hook(name, facts)
    yield from _preemption(facts.config)
    for name in settings.slurm.partitions:
        yield from _partition(name, facts.partitions.get(name))
    yield from _times(settings, facts.config)


def _controller(facts: SlurmFacts) -> Iterator[Finding]:
    shown = (value for key, value in facts.config.items() if key.startswith("SlurmctldHost"))
    controllers = [value.partition("(")[0] for value in shown]
    if controllers and facts.host.partition(".")[0] not in {name.partition(".")[0] for name in controllers}:
        yield warning(
            "this host",
            f"is {facts.host}, not the controller: what is said of files here does not count",
            f"run the check on {' or '.join(controllers)}",
        )


def _release(config: Mapping[str, str]) -> Iterator[Finding]:
    text = config.get("SLURM_VERSION", "")
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        yield warning("slurm", f"its release cannot be told ({text or 'nothing'})", "report this, please")
    elif (int(match[1]), int(match[2])) < OLDEST_RELEASE:
        yield error("slurm", f"release {text} is older than 22.05", "upgrade Slurm")
    else:
        yield ok("slurm", f"release {text} answers")


def _account(settings: Settings, config: Mapping[str, str]) -> Iterator[Finding]:
    account = config.get("SlurmUser", "").partition("(")[0]
    if account != settings.engine.user:
        yield error(
            "SlurmUser",
            f"is {account}, but engine.user is {settings.engine.user}: Slurm would not obey the engine",
            f'set user = "{account}" in [engine], and give state_dir and agent_key to it',
        )
    else:
        yield ok("SlurmUser", f"is {account}, as engine.user")


def _submission(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    plugins = facts.config.get("JobSubmitPlugins", "").split(",")
    if "lua" not in plugins:
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
    yield from _site_file(settings, facts.text(SITE_FILE))


def _site_file(settings: Settings, text: str | None) -> Iterator[Finding]:
    if text is None:
        listed = ["vjob"]  # what the example job_submit.lua takes without the file
        where = f"{SITE_FILE} is not there, so job_submit.lua"
    else:
        table = re.search(r"partitions\s*=\s*\{([^}]*)\}", re.sub(r"--[^\n]*", "", text))
        listed = re.findall(r"[\"']([^\"']+)[\"']", table[1]) if table else []
        where = SITE_FILE
    wanted = list(settings.slurm.partitions)
    if sorted(listed) != sorted(wanted):
        yield error(
            SITE_FILE,
            f"{where} wraps the jobs of {', '.join(listed) or 'no partition'}, "
            f"but slurm.partitions is {', '.join(wanted)}",
            "name the same partitions in both; then scontrol reconfigure, and restart the engine",
        )
    else:
        yield ok(SITE_FILE, f"the same partitions as slurm.partitions: {', '.join(wanted)}")


def _hook(name: str, facts: SlurmFacts) -> Iterator[Finding]:
    paths = hook_paths(facts.config, name)
    needed = name == "PrologSlurmctld"
    judge = error if needed else warning
    why = "VMs boot in it" if needed else "the engine learns later of what happened, in its next cycle"
    remedy = f"{name}=/etc/rmsplugin/hooks/{name.lower().replace('slurmctld', '_slurmctld')} in slurm.conf"
    if not paths:
        yield judge(name, f"is not set: {why}", remedy)
        return
    texts = {path: facts.text(path) for path in paths}
    if any(text is not None and "rmsplugin-hook" in text for text in texts.values()):
        yield ok(name, f"is {', '.join(paths)}")
    elif name.endswith("Slurmctld") and all(text is None for text in texts.values()):
        yield judge(name, f"{', '.join(paths)} cannot be read here", "run this check on slurmctld's host")
    elif any(text is None for text in texts.values()):
        yield ok(name, f"is {', '.join(paths)} (on the nodes; not readable here)")
    else:
        yield judge(name, f"{', '.join(paths)} does not run rmsplugin-hook: {why}", f"{remedy}, or call it from there")


def _preemption(config: Mapping[str, str]) -> Iterator[Finding]:
    mode, kind = config.get("PreemptMode", "OFF"), config.get("PreemptType", "preempt/none")
    fault = slurm_would_preempt(RmsSnapshot(jobs=(), preempt_mode=mode, preempt_type=kind))
    if fault:
        yield error(
            "PreemptMode",
            f"{fault}; the engine only observes",
            "PreemptType=preempt/none and PreemptMode=OFF in slurm.conf; PreemptMode=SUSPEND on the partitions only",
        )
    else:
        yield ok("PreemptMode", f"{mode} with {kind}: Slurm itself preempts nothing")


def _partition(name: str, found: Mapping[str, str] | None) -> Iterator[Finding]:
    subject = f"partition {name}"
    if found is None:
        yield error(
            subject,
            "is in slurm.partitions, but not in Slurm",
            f"PartitionName={name} Nodes=... PreemptMode=SUSPEND OverSubscribe=FORCE:64 in slurm.conf",
        )
        return
    if found.get("Nodes", "(null)") in ("", "(null)"):
        yield error(subject, "has no nodes", f"PartitionName={name} Nodes=... in slurm.conf")
    if not found.get("OverSubscribe", "").startswith("FORCE"):
        yield error(
            subject,
            f"has OverSubscribe={found.get('OverSubscribe', 'NO')}: Slurm keeps a resumed job's cores from it",
            f"PartitionName={name} ... OverSubscribe=FORCE:64 in slurm.conf: the engine decides what fits",
        )
    else:
        yield ok(subject, f"has OverSubscribe={found['OverSubscribe']}")
    modes = set(found.get("PreemptMode", "OFF").upper().split(","))
    if "GANG" in modes or "CANCEL" in modes:
        yield error(
            subject,
            f"has PreemptMode={found['PreemptMode']}, which the engine cannot honour",
            f"PartitionName={name} ... PreemptMode=SUSPEND (context switches on), REQUEUE (likewise) or OFF",
        )
    elif modes & {"SUSPEND", "REQUEUE"}:
        yield ok(subject, f"has PreemptMode={found['PreemptMode']}: context switches are on")
    else:
        yield ok(subject, f"has PreemptMode={found.get('PreemptMode', 'OFF')}: its vjobs are never suspended")


def _times(settings: Settings, config: Mapping[str, str]) -> Iterator[Finding]:
    kill_wait = _leading_number(config.get("KillWait", ""))
    if kill_wait is not None and kill_wait < 5:
        yield warning(
            "KillWait",
            f"is {kill_wait} s: too short for the wrapper to pass SIGTERM on and bring the last output",
            "KillWait=30 in slurm.conf",
        )
    elif kill_wait is not None:
        yield ok("KillWait", f"is {kill_wait} s")
    limit = _leading_number(config.get("PrologEpilogTimeout", ""))
    if limit is not None and limit <= settings.slurm.prolog_wait_s:
        yield warning(
            "PrologEpilogTimeout",
            f"is {limit} s, not above slurm.prolog_wait_s ({settings.slurm.prolog_wait_s:g} s): "
            "Slurm kills the hook that waits for the VMs, and requeues the job",
            "raise PrologEpilogTimeout in slurm.conf, or lower slurm.prolog_wait_s",
        )
    append = config.get("JobFileAppend", "0").startswith("1")
    yield ok(
        "JobFileAppend",
        "is 1: a requeued job's output goes on in its files"
        if append
        else "is 0: Slurm empties a requeued job's output files, and the wrapper writes them again from the start",
    )


def _leading_number(text: str) -> int | None:
    match = re.match(r"\d+", text)
    return int(match[0]) if match else None
