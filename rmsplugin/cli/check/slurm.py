"""Rules for Slurm: what slurm.conf must say for vjobs to work. Its parts have modules of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.adapters.rms.slurm_records import preempt_type
from rmsplugin.cli.check.controllers import controllers, judge_controllers
from rmsplugin.cli.check.domains import judge_domains
from rmsplugin.cli.check.facts import Row, SlurmFacts, words
from rmsplugin.cli.check.fronts import judge_fronts
from rmsplugin.cli.check.gate import judge_gate
from rmsplugin.cli.check.memory import judge_partitions
from rmsplugin.cli.check.native import judge_native
from rmsplugin.cli.check.rooms import judge_rooms, native_use
from rmsplugin.cli.check.rules import judge_rules
from rmsplugin.cli.check.submission import judge_submission
from rmsplugin.cli.check.switching import judge_switching
from rmsplugin.engine.observe.site import time_slices
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.settings import Settings

OLDEST_RELEASE = (22, 5)

_HOOKS = {
    "PrologSlurmctld": "VMs boot in it",
    "EpilogSlurmctld": "the engine learns what happened only in its next cycle",
    "Prolog": "nothing checks that a node can host VMs before its room is used",
    "Epilog": "nothing ends VMs that are left on a node when its room ends, and nothing proves that there are none",
}

#: Where there are no VMs, nothing runs on the nodes, and both only tell the engine sooner.
_NATIVE_HOOKS = {
    "PrologSlurmctld": "the engine learns of a start by another hand only in its next cycle",
    "EpilogSlurmctld": _HOOKS["EpilogSlurmctld"],
}


def hook_paths(config: Mapping[str, str], name: str) -> list[str]:
    """The programs of one hook; releases from 23.11 on may have several, shown as Prolog[0], Prolog[1], ..."""
    shown = (value for key, value in config.items() if re.fullmatch(rf"{name}(\[\d+\])?", key))
    return [path for value in shown for path in words(value)]


def judge_slurm(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge Slurm's configuration."""
    if facts.unreachable:
        yield error("slurm", facts.unreachable, "start slurmctld, or set slurm.bin_dir to the directory of scontrol")
        return
    yield from _controller(facts)
    yield from judge_controllers(settings, facts)
    yield from _release(facts.config)
    yield from _account(settings, facts.config)
    yield from judge_submission(settings, facts)
    yield from judge_gate(settings, facts)
    if settings.native:
        yield from _of_native_jobs(settings, facts)
        return
    yield from judge_fronts(settings, facts)
    yield from judge_rooms(settings, facts)
    yield from judge_switching(settings, facts)
    needed = {"PrologSlurmctld"}
    if any(native_use(settings, facts, name)[0] for name in settings.hosts_partitions):
        needed.add("Epilog")  # it is the proof that no VM is left on a node that Slurm gives to somebody else
    for name in _HOOKS:
        yield from _hook(name, _HOOKS[name], facts, error if name in needed else warning)
    yield from _prolog_flags(facts.config)
    yield from _selection(facts.config)
    yield from _labels(facts.config)
    yield from _preemption(facts.config)
    yield from _times(settings, facts.config)
    yield from judge_partitions(settings, facts)
    yield from judge_rules(settings, facts)
    yield from judge_domains(settings, facts)


def _of_native_jobs(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge what is left where there are no VMs, fronts, rooms and rules."""
    yield from judge_native(settings, facts)
    for name, why in _NATIVE_HOOKS.items():
        yield from _hook(name, why, facts, warning)
    yield from _preemption(facts.config)


def _controller(facts: SlurmFacts) -> Iterator[Finding]:
    names = controllers(facts)
    if names and facts.host.partition(".")[0] not in {name.partition(".")[0] for name in names}:
        yield warning(
            "this host",
            f"is {facts.host}, not the controller: findings about files on this host do not count",
            f"run the check on {' or '.join(names)}",
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


def _hook(name: str, why: str, facts: SlurmFacts, judge: Callable[[str, str, str], Finding]) -> Iterator[Finding]:
    paths = hook_paths(facts.config, name)
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


def _prolog_flags(config: Row) -> Iterator[Finding]:
    flags = set(words(config.get("PrologFlags", "")))
    if not flags & {"Alloc", "Contain", "X11"}:
        yield warning(
            "PrologFlags",
            "has no Alloc: a room counts as held before its prolog has run",
            "PrologFlags=Alloc in slurm.conf",
        )
    else:
        yield ok("PrologFlags", f"is {config['PrologFlags']}")


def _selection(config: Row) -> Iterator[Finding]:
    kind, parameters = config.get("SelectType", ""), config.get("SelectTypeParameters", "").upper()
    if kind == "select/linear":
        yield error(
            "SelectType",
            "is select/linear: each front takes one vjob at a time",
            "SelectType=select/cons_tres and SelectTypeParameters=CR_Core_Memory in slurm.conf; restart slurmctld",
        )
    elif "MEMORY" not in parameters:
        yield warning(
            "SelectTypeParameters",
            f"is {parameters or 'not set'}: Slurm does not count memory, not even that of vjobs",
            "SelectTypeParameters=CR_Core_Memory in slurm.conf; restart slurmctld",
        )
    else:
        yield ok("SelectType", f"is {kind} with {parameters}")


def _labels(config: Row) -> Iterator[Finding]:
    """Judge how Slurm keeps jobs of other labels off nodes, if it does: fronts are nodes for it."""
    plugin, parameters = config.get("MCSPlugin", "mcs/none"), config.get("MCSParameters", "")
    if plugin in ("mcs/none", "(null)"):
        return
    if "select" in parameters.split(":")[0].split(","):
        yield warning(
            "MCSParameters",
            "has select: a front takes the wrappers of one label at a time, and vjobs of other labels wait for it",
            "ondemandselect in place of select in MCSParameters of slurm.conf, or a front for each label",
        )
    else:
        yield ok("MCSPlugin", f"is {plugin}: --exclusive=mcs keeps VMs of other labels apart")


def _preemption(config: Row) -> Iterator[Finding]:
    mode, kind = config.get("PreemptMode", "OFF"), preempt_type(config)
    fault = time_slices(RmsSnapshot(jobs=(), preempt_mode=mode, preempt_type=kind))
    if fault:
        yield error(
            "PreemptMode",
            f"{fault}; the engine only observes",
            "PreemptMode=OFF (with preempt/none) or REQUEUE (with preempt/partition_prio) in slurm.conf; restart "
            "slurmctld",
        )
    else:
        yield ok("PreemptMode", f"{mode} with {kind}: Slurm does not stop and continue wrappers by turns")


def _times(settings: Settings, config: Mapping[str, str]) -> Iterator[Finding]:
    kill_wait = _leading_number(config.get("KillWait", ""))
    if kill_wait is not None and kill_wait < 5:
        yield warning(
            "KillWait",
            f"is {kill_wait} s: too short for the wrapper to pass SIGTERM on and to bring the last output",
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
        "is 1: the output of a requeued job is appended to its files"
        if append
        else "is 0: Slurm empties the output files of a requeued job, and the wrapper writes them again from the start",
    )


def _leading_number(text: str) -> int | None:
    match = re.match(r"\d+", text)
    return int(match[0]) if match else None
