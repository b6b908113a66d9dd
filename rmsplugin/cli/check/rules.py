"""Rules for the site's placement rules: whether they can be kept, and whom each selects."""

from __future__ import annotations

from collections.abc import Iterator

from rmsplugin.cli.check.facts import SlurmFacts, number, some
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.model.wording import counted
from rmsplugin.settings import Settings
from rmsplugin.settings.rules import PlacementRule, why_not_by_groups


def judge_rules(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge each rule of the settings, and tell which vjobs of the queue it selects."""
    for name, rule in settings.rule.items():
        subject, faults = f"rule {name}", 0
        for fault in (
            *_of_nodes(subject, rule, settings, facts),
            *_of_licenses(subject, rule, facts),
            *_of_groups(subject, rule, settings),
        ):
            faults += 1
            yield fault
        if not faults:
            yield ok(subject, f"{_words(rule)}{_selected(rule, settings, facts)}")


def _words(rule: PlacementRule) -> str:
    words = [rule.kind, *([f"per {rule.per}"] if rule.per != "all" else [])]
    words += [f"at most {rule.most}"] if rule.most is not None else []
    words += [f"on {rule.nodes}"] if rule.nodes else []
    return " ".join([*words, *(["in the end"] if rule.discrete else [])])


def _selected(rule: PlacementRule, settings: Settings, facts: SlurmFacts) -> str:
    if rule.kind in ("reserve", "online"):
        return ""
    if isinstance(facts.queue, str):
        return f"; whom it selects is not known: {facts.queue}"
    ours = [(job, traits) for job, traits in facts.queue if traits.partition in settings.slurm.partitions]
    found = [job for job, traits in ours if rule.selects(traits)]
    return f"; selects {len(found)} of {len(ours)} jobs in the queue{': ' if found else ''}{some(found)}"


def _of_nodes(subject: str, rule: PlacementRule, settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    hosts = facts.vm_hosts(settings)
    strange = sorted(rule.hosts.difference(hosts))
    if rule.hosts and len(strange) == len(rule.hosts):
        yield error(subject, f"none of its nodes is a VM host: {some(strange)}", "correct nodes in the settings")
        return
    if strange:
        yield warning(subject, f"names nodes that are no VM hosts: {some(strange)}", "correct nodes in the settings")
    for partition in settings.slurm.partitions if rule.kind in ("fence", "ban") else ():
        own = set(facts.nodes_of(settings.partition[partition].hosts))
        left = own & rule.hosts if rule.kind == "fence" else own - rule.hosts
        if own and not left and partition in (rule.partitions or settings.slurm.partitions):
            yield warning(
                subject,
                f"leaves its vjobs of partition {partition} no VM host: they wait for ever",
                "give it another node, or have it select by partitions",
            )
    for node in sorted(rule.hosts.intersection(hosts)) if rule.kind == "reserve" else ():
        row = facts.nodes[node]
        cpus, memory_mib = number(row.get("CPUTot", "")), number(row.get("RealMemory", ""))
        if rule.cpus > cpus or rule.memory_mib > memory_mib:
            yield error(
                subject,
                f"keeps {counted(rule.cpus, 'CPU')} and {rule.memory_mib} MiB of {node}, "
                f"which has {cpus} and {memory_mib}",
                "keep less, or leave the node out",
            )


def _of_groups(subject: str, rule: PlacementRule, settings: Settings) -> Iterator[Finding]:
    """Where there may be managers: whether the engines of groups can keep it."""
    why = why_not_by_groups(rule, settings.group.values())
    if why and settings.cluster.coordination == "zookeeper":
        yield warning(subject, f"managers do not start with it: {why}", "change the rule, or run `rmsplugin engine`")


def _of_licenses(subject: str, rule: PlacementRule, facts: SlurmFacts) -> Iterator[Finding]:
    unknown = [name for name in rule.licenses if name not in facts.licenses]
    if unknown:
        yield warning(
            subject,
            f"Slurm has no licence {', '.join(unknown)}: nobody can ask for it",
            "correct licenses in the settings",
        )
