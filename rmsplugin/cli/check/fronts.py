"""Rules for fronts: the vjob partitions, and their nodes, on which wrappers run and Slurm counts what vjobs have."""

from __future__ import annotations

from collections.abc import Iterator

from rmsplugin.cli.check.facts import Row, SlurmFacts, modes, partitions_of, some, words
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.settings import Settings

_NOT_USABLE = ("DOWN", "DRAIN", "FAIL", "INVAL", "NOT_RESPONDING", "POWERED_DOWN")
_EXAMPLE = "NodeName=front1 CPUs=1024 RealMemory=4194304"


def judge_fronts(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge the vjob partitions and their nodes."""
    fronts: dict[str, None] = {}
    for name in settings.slurm.partitions:
        row = facts.partitions.get(name)
        if row is None:
            yield error(
                f"partition {name}",
                "is in slurm.partitions, but not in Slurm",
                f"{_EXAMPLE} and PartitionName={name} Nodes=front1 PreemptMode=REQUEUE in slurm.conf",
            )
            continue
        yield from _partition(settings, facts, name, row)
        fronts |= dict.fromkeys(facts.nodes_of(name))
    yield from _other_users(settings, facts, tuple(fronts))
    yield from _registration(facts, tuple(fronts))


def _partition(settings: Settings, facts: SlurmFacts, name: str, row: Row) -> Iterator[Finding]:
    subject, fronts = f"partition {name}", facts.nodes_of(name)
    yield from partition_is_up(subject, row)
    if not fronts:
        yield error(subject, "has no nodes", f"{_EXAMPLE} and PartitionName={name} Nodes=front1 ... in slurm.conf")
        return
    yield from _preempt_mode(subject, row, facts.preempt_type)
    yield from _sharing(subject, row)
    hosts = facts.nodes_of(settings.partition[name].hosts)
    both = [node for node in fronts if node in hosts]
    if both:
        yield error(
            subject,
            f"has {some(both)}, which are VM hosts of {settings.partition[name].hosts}: Slurm would "
            "count each vjob twice, and rooms would find no node without wrappers",
            f"{_EXAMPLE} for a service host, and Nodes=front1 instead of the VM hosts in PartitionName={name}",
        )
        return
    yield from _usable(subject, facts, fronts)
    yield from _size(subject, facts, fronts, hosts)


def partition_is_up(subject: str, row: Row) -> Iterator[Finding]:
    """Judge the state of a partition."""
    state = row.get("State", "UP")
    if state != "UP":
        name = subject.removeprefix("partition ")
        yield error(
            subject, f"is {state}: Slurm starts nothing in it", f"scontrol update PartitionName={name} State=UP"
        )


def _preempt_mode(subject: str, row: Row, preempt_type: str) -> Iterator[Finding]:
    shown, found = row.get("PreemptMode", "OFF"), modes(row)
    remedy = "PreemptMode=REQUEUE (context switches on) or OFF on it in slurm.conf"
    if found & {"GANG", "CANCEL"}:
        yield error(subject, f"has PreemptMode={shown}, which the engine cannot honour", remedy)
    elif "SUSPEND" in found and preempt_type != "preempt/none":
        yield error(
            subject,
            f"has PreemptMode=SUSPEND with PreemptType={preempt_type}: Slurm itself would suspend wrappers",
            f"{remedy}; SUSPEND only with PreemptType=preempt/none",
        )
    elif found & {"SUSPEND", "REQUEUE"}:
        yield ok(subject, f"has PreemptMode={shown}: context switches are on")
    else:
        yield ok(
            subject, f"has PreemptMode={shown}: its vjobs are not suspended, except where a native job takes their node"
        )


def _sharing(subject: str, row: Row) -> Iterator[Finding]:
    shown = row.get("OverSubscribe", "NO")
    if shown == "EXCLUSIVE":
        yield error(
            subject,
            "has OverSubscribe=EXCLUSIVE: each front takes one vjob at a time",
            "leave OverSubscribe out of it in slurm.conf",
        )
    elif shown.startswith("FORCE"):
        yield warning(
            subject,
            f"has OverSubscribe={shown}, which the first version needed: Slurm counts CPUs of its jobs several times",
            "leave OverSubscribe out of it in slurm.conf",
        )


def _usable(subject: str, facts: SlurmFacts, fronts: tuple[str, ...]) -> Iterator[Finding]:
    unusable = [name for name in fronts if any(word in facts.nodes[name].get("State", "") for word in _NOT_USABLE)]
    for name in unusable:
        row = facts.nodes[name]
        reason, remedy = row.get("Reason", ""), f"mend the node; then scontrol update NodeName={name} State=RESUME"
        if "INVAL" in row.get("State", "") or "Low " in reason:
            remedy = (
                f"SlurmdParameters=config_overrides in the slurm.conf of {name}, and "
                "SlurmctldParameters=node_reg_mem_percent=0.1 on the controller; then "
                f"scontrol update NodeName={name} State=RESUME"
            )
        judge = error if len(unusable) == len(fronts) else warning
        why = f": {reason}" if reason else ""
        yield judge(subject, f"Slurm starts no wrapper on front {name}, which is {row['State'].lower()}{why}", remedy)
    if not unusable:
        yield ok(subject, f"its wrappers run on {some(fronts)}")


def _size(subject: str, facts: SlurmFacts, fronts: tuple[str, ...], hosts: tuple[str, ...]) -> Iterator[Finding]:
    """Slurm counts vjobs' CPUs while they run, and their memory while they run or sleep."""
    cpus, wanted = facts.cpus(fronts), facts.cpus(hosts)
    if cpus < wanted:
        yield warning(
            subject,
            f"its fronts have {cpus} CPUs in Slurm, its VM hosts {wanted}: vjobs cannot use all CPUs of the VM hosts",
            f"CPUs={wanted} or more, in all, on the fronts' NodeName lines: Slurm only counts with this number",
        )
    memory, running = facts.memory_mib(fronts), facts.memory_mib(hosts)
    if memory < 2 * running:
        left = max(0, memory - running)
        yield warning(
            subject,
            f"its fronts have {memory} MiB in Slurm, its VM hosts {running}: {left} MiB "
            "for vjobs that sleep, which keep their memory in Slurm",
            f"RealMemory={2 * running} or more, in all, on the fronts' NodeName lines: Slurm only "
            "counts with this number",
        )


def _other_users(settings: Settings, facts: SlurmFacts, fronts: tuple[str, ...]) -> Iterator[Finding]:
    """Jobs of other partitions on fronts find memory that is only a number, and take wrappers' places."""
    known = {*settings.slurm.partitions, *settings.hosts_partitions}
    for name in sorted({name for front in fronts for name in partitions_of(facts.nodes[front])} - known):
        shared = [front for front in fronts if name in partitions_of(facts.nodes[front])]
        yield warning(
            f"partition {name}",
            f"has {some(shared)}, on which wrappers run: the CPUs and memory that Slurm counts "
            "there are only numbers, and its jobs would not find them",
            f"take {some(shared)} out of its Nodes in slurm.conf, or close it to users (AllowGroups)",
        )


def _registration(facts: SlurmFacts, fronts: tuple[str, ...]) -> Iterator[Finding]:
    """A slurmd that reports less than slurm.conf says has its node set to inval."""
    if not fronts:
        return
    slurmd = words(facts.config.get("SlurmdParameters", ""))
    slurmctld = words(facts.config.get("SlurmctldParameters", ""))
    if "config_overrides" in slurmd:
        yield ok("SlurmdParameters", "has config_overrides: fronts may have more in Slurm than their hosts really have")
    elif any(word.startswith("node_reg_mem_percent=") for word in slurmctld):
        yield ok(
            "SlurmctldParameters",
            "has node_reg_mem_percent: fronts may have more memory in Slurm than their hosts really have",
        )
    else:
        yield warning(
            "SlurmctldParameters",
            f"has no node_reg_mem_percent: Slurm refuses {some(fronts)} when a host has less memory than its NodeName "
            "line says",
            "SlurmctldParameters=node_reg_mem_percent=0.1, and on the fronts SlurmdParameters=config_overrides",
        )
