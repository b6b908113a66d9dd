"""Rules for platform native: the partitions whose jobs are paused where they are, and what Slurm has to count there."""

from __future__ import annotations

from collections.abc import Iterator

from rmsplugin.cli.check.facts import Row, SlurmFacts, modes, number, partitions_of, some, tier, words
from rmsplugin.cli.check.fronts import partition_is_up
from rmsplugin.engine.observe.site import switches
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.settings import Settings

#: What Slurm shows where it has no default of memory.
_NO_DEFAULT = ("", "UNLIMITED", "(null)", "0")


def judge_native(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge partitions, nodes, and how Slurm gives CPUs and memory away."""
    for name in settings.slurm.partitions:
        row = facts.partitions.get(name)
        if row is None:
            yield error(
                f"partition {name}",
                "is in slurm.partitions, but not in Slurm",
                f"PartitionName={name} Nodes=... PreemptMode=REQUEUE in slurm.conf",
            )
        else:
            yield from _partition(settings, facts, name, row)
    yield from _own_nodes(settings, facts)
    yield from _preemption(settings, facts)
    yield from _selection(facts.config)
    yield from _cores(settings, facts)
    yield from _prolog_flags(facts.config)


def _partition(settings: Settings, facts: SlurmFacts, name: str, row: Row) -> Iterator[Finding]:
    subject, nodes = f"partition {name}", facts.nodes_of(name)
    yield from partition_is_up(subject, row)
    if not nodes:
        yield error(subject, "has no nodes", f"PartitionName={name} Nodes=... in slurm.conf")
        return
    yield from _same_nodes(settings, facts, name, nodes)
    shown = row.get("OverSubscribe", "NO")
    if shown.startswith("FORCE") or shown == "EXCLUSIVE":
        yield error(
            subject,
            f"has OverSubscribe={shown}: Slurm gives jobs other CPUs than they ask for, and the engine counts those",
            "leave OverSubscribe out of it in slurm.conf",
        )
    if modes(row) & {"GANG", "CANCEL"}:
        yield error(
            subject,
            f"has PreemptMode={row['PreemptMode']}, which the engine cannot honour",
            "PreemptMode=REQUEUE (its jobs are paused) or OFF (they are not) on it in slurm.conf",
        )
    elif switches(row.get("PreemptMode", "OFF")):
        yield ok(subject, f"its jobs on {some(nodes)} are paused for others (PreemptMode={row['PreemptMode']})")
    else:
        yield ok(subject, f"its jobs on {some(nodes)} are never paused (PreemptMode={row.get('PreemptMode', 'OFF')})")
    yield from _default_memory(facts, subject, row)


def _own_nodes(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """The CPUs of a paused job are free in Slurm's books: a job without a gate takes them, and the paused one waits."""
    native = set(settings.slurm.partitions)
    others: dict[str, list[str]] = {}
    for node, row in facts.nodes.items():
        names = partitions_of(row)
        for other in sorted(names - native) if names & native else ():
            others.setdefault(other, []).append(node)
    for other, shared in others.items():
        yield error(
            f"partition {other}",
            f"has {some(shared)}, where jobs are paused: its jobs take the CPUs of a paused one, which then waits",
            f"take {some(shared)} out of the Nodes of {other} in slurm.conf, or add {other} to slurm.partitions",
        )


def _same_nodes(settings: Settings, facts: SlurmFacts, name: str, nodes: tuple[str, ...]) -> Iterator[Finding]:
    """Of two partitions with nodes in common the engine counts nodes by the one that both name as hosts."""
    for other in settings.slurm.partitions[: settings.slurm.partitions.index(name)]:
        common = set(nodes) & set(facts.nodes_of(other))
        hosts = settings.partition[name].hosts
        if common and (hosts != settings.partition[other].hosts or set(nodes) != set(facts.nodes_of(other))):
            theirs = settings.partition[other].hosts
            yield error(
                f"partition {name}",
                f"has some nodes in common with {other}, and not the same nodes and hosts as {other}",
                f'the same Nodes for both in slurm.conf, and [partition.{name}] hosts = "{theirs}" in the settings; or '
                "no node in common",
            )


def _default_memory(facts: SlurmFacts, subject: str, row: Row) -> Iterator[Finding]:
    said = [row.get(key, "") for key in ("DefMemPerCPU", "DefMemPerNode")]
    said += [facts.config.get(key, "") for key in ("DefMemPerCPU", "DefMemPerNode")]
    if all(value in _NO_DEFAULT for value in said):
        yield warning(
            subject,
            "has no default memory: a job that asks for none is held, unless site.lua has default_memory_per_cpu_mib",
            "DefMemPerCPU=1024 in slurm.conf, or default_memory_per_cpu_mib = 1024 in site.lua",
        )


def _preemption(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Slurm's own preemption requeues or kills a job that the engine would only pause."""
    if facts.preempt_type == "preempt/none":
        yield ok("PreemptType", "is preempt/none: Slurm itself preempts no job")
        return
    rows = {name: facts.partitions[name] for name in settings.slurm.partitions if name in facts.partitions}
    tiers = {tier(row) for row in rows.values() if switches(row.get("PreemptMode", "OFF"))}
    if facts.preempt_type != "preempt/partition_prio" or (tiers and max(map(tier, rows.values())) > min(tiers)):
        yield error(
            "PreemptType",
            f"is {facts.preempt_type}: Slurm itself requeues jobs that the engine would only pause",
            "PreemptType=preempt/none in slurm.conf; or, with preempt/partition_prio, the same PriorityTier for all "
            f"of {some(list(rows))}",
        )


def _selection(config: Row) -> Iterator[Finding]:
    kind, parameters = config.get("SelectType", ""), config.get("SelectTypeParameters", "").upper()
    if kind == "select/linear" or "MEMORY" not in parameters:
        yield error(
            "SelectType",
            f"is {kind or 'not set'} with {parameters or 'no parameters'}: Slurm does not count memory, and a job "
            "beside a paused one would take its memory",
            "SelectType=select/cons_tres and SelectTypeParameters=CR_CPU_Memory in slurm.conf; restart slurmctld",
        )
    else:
        yield ok("SelectType", f"is {kind} with {parameters}")


def _cores(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Where Slurm gives whole cores away, a job may have more CPUs than it asked for."""
    parameters = facts.config.get("SelectTypeParameters", "").upper()
    if "CR_CPU" in parameters:
        return
    threads = [
        node
        for name in settings.slurm.partitions
        for node in facts.nodes_of(name)
        if number(facts.nodes[node].get("ThreadsPerCore", "1")) > 1
    ]
    if threads:
        yield error(
            "SelectTypeParameters",
            f"is {parameters}, and {some(list(dict.fromkeys(threads)))} have several threads in a core: Slurm gives "
            "jobs whole cores, and the engine counts the CPUs that they ask for",
            "SelectTypeParameters=CR_CPU_Memory in slurm.conf, or CPUs= as many as cores on their NodeName lines",
        )


def _prolog_flags(config: Row) -> Iterator[Finding]:
    if set(words(config.get("PrologFlags", ""))) & {"Alloc", "Contain", "X11"}:
        yield ok("PrologFlags", f"is {config['PrologFlags']}")
    else:
        yield error(
            "PrologFlags",
            "has no Alloc: a job may be paused before the prolog has run on all of its nodes",
            "PrologFlags=Alloc in slurm.conf",
        )
