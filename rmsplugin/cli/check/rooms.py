"""Rules for rooms: the hosts partitions, from which the engine borrows nodes, and who else uses these nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rmsplugin.adapters.rms.slurm_records import preempt_exempt_s
from rmsplugin.cli.check.facts import Row, SlurmFacts, modes, number, partitions_of, some, tier, time_limit_s, words
from rmsplugin.cli.check.fronts import partition_is_up
from rmsplugin.engine.observe.rooms import shortest_room_s
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.settings import Settings

_PREEMPTED = "preempt/partition_prio"


def judge_rooms(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge the hosts partitions, and that SlurmUser may have rooms there."""
    for name in settings.hosts_partitions:
        row = facts.partitions.get(name)
        if row is None:
            yield error(
                f"partition {name}",
                "is the `hosts` of a [partition.NAME] in the settings, but not in Slurm",
                f"{_line(settings, name)} in slurm.conf",
            )
        elif name in settings.slurm.partitions:
            yield error(
                f"partition {name}",
                "is a vjob partition and its own hosts partition: its nodes would host VMs without "
                "rooms, beside native jobs",
                f"make a second partition, {_line(settings, 'vmhosts')}, and name it in hosts; put fronts into {name}",
            )
        else:
            yield from _partition(settings, facts, name, row)
    yield from _two_partitions(settings, facts)
    yield from _account(settings, facts)


def native_use(settings: Settings, facts: SlurmFacts, name: str) -> tuple[list[str], list[str]]:
    """The nodes of a hosts partition that native partitions have, too, and these partitions."""
    ours = {*settings.slurm.partitions, *settings.hosts_partitions}
    shared = [node for node in facts.nodes_of(name) if partitions_of(facts.nodes[node]) - ours]
    return shared, sorted({found for node in shared for found in partitions_of(facts.nodes[node])} - ours)


def _line(settings: Settings, name: str) -> str:
    return (
        f"PartitionName={name} Nodes=... Hidden=YES AllowGroups={settings.engine.user} OverSubscribe=EXCLUSIVE "
        "PriorityTier=1 PreemptMode=CANCEL GraceTime=300"
    )


def _partition(settings: Settings, facts: SlurmFacts, name: str, row: Row) -> Iterator[Finding]:
    subject = f"partition {name}"
    yield from partition_is_up(subject, row)
    nodes = facts.nodes_of(name)
    if not nodes:
        yield error(subject, "has no nodes: there is no VM host", f"{_line(settings, name)} in slurm.conf")
        return
    yield ok(subject, f"has the VM hosts {some(nodes)}")
    yield from _closed(settings, facts, subject, row)
    if row.get("OverSubscribe") != "EXCLUSIVE":
        yield error(
            subject,
            f"has OverSubscribe={row.get('OverSubscribe', 'NO')}: Slurm could start other jobs beside VMs",
            f"PartitionName={name} ... OverSubscribe=EXCLUSIVE in slurm.conf",
        )
    yield from _time_limit(settings, name, row)
    yield from _overlap(settings, facts, name, row)


def _closed(settings: Settings, facts: SlurmFacts, subject: str, row: Row) -> Iterator[Finding]:
    user, name = settings.engine.user, subject.removeprefix("partition ")
    if row.get("Hidden", "NO") != "YES":
        yield warning(
            subject, "is not hidden: users see a partition that they cannot use", f"PartitionName={name} ... Hidden=YES"
        )
    groups = row.get("AllowGroups", "ALL")
    remedy = f"PartitionName={name} ... AllowGroups={user} in slurm.conf: a group that has {user} alone in it"
    if groups == "ALL":
        yield error(subject, "has AllowGroups=ALL: any user can take its nodes from the engine", remedy)
        return
    members = {member for group in words(groups) for member in facts.groups.get(group, ())}
    if user not in members:
        yield error(subject, f"has AllowGroups={groups}, which {user} is not in: the engine gets no room", remedy)
    elif members - {user, "root"}:
        others = sorted(members - {user, "root"})
        yield warning(subject, f"has AllowGroups={groups}, with {some(others)} in it, who can take its nodes", remedy)


def _time_limit(settings: Settings, name: str, row: Row) -> Iterator[Finding]:
    longest, hosts = time_limit_s(row.get("MaxTime", "UNLIMITED")), settings.hosts_of(name)
    if longest is not None and longest < hosts.room_time_limit_s:
        yield error(
            f"partition {name}",
            f"has MaxTime={row['MaxTime']}, less than room_time_limit ({hosts.room_time_limit}) of [hosts.{name}]: "
            "Slurm starts no room",
            f'PartitionName={name} ... MaxTime=INFINITE in slurm.conf, or room_time_limit = "{row["MaxTime"]}"',
        )
    shortest_s = shortest_room_s(number(row.get("GraceTime", "0")))
    if hosts.room_time_limit_s < shortest_s:
        yield error(
            f"partition {name}",
            f"has GraceTime={row['GraceTime']}, too much for room_time_limit ({hosts.room_time_limit}) of "
            f"[hosts.{name}]: VMs would leave as soon as they have come",
            f'room_time_limit = "{math.ceil(shortest_s / 60)}" or more (minutes), or a lower GraceTime',
        )


def _overlap(settings: Settings, facts: SlurmFacts, name: str, row: Row) -> Iterator[Finding]:
    """Judge what happens where native jobs want the same nodes."""
    shared, natives = native_use(settings, facts, name)
    rooms = settings.hosts_of(name).rooms
    subject = f"partition {name}"
    if not shared:
        yield ok(subject, f"no native partition has its nodes; rooms = {rooms}")
        return
    faults = list(_never_gives_way(facts, name, row, natives))
    yield from faults
    if rooms == "hold":
        yield warning(
            subject,
            f"rooms = hold, but {some(natives)} has {some(shared)}, too: the engine keeps these "
            "nodes even while no vjob runs",
            f'rooms = "elastic" in [hosts.{name}]; or take these nodes out of {some(natives)}',
        )
    if not faults:
        exempt_s = preempt_exempt_s(facts.config)
        fresh = f", {exempt_s:.0f} s after they began or later (PreemptExemptTime)" if exempt_s else ""
        yield ok(subject, f"its rooms give way to jobs of {some(natives)}{fresh}")
        yield from _grace(settings, facts, name, row)


def _never_gives_way(facts: SlurmFacts, name: str, row: Row, natives: list[str]) -> Iterator[Finding]:
    subject, starve = f"partition {name}", f"jobs of {some(natives)} wait for its rooms to end, which they do not"
    if facts.preempt_type != _PREEMPTED:
        yield error(
            "PreemptType",
            f"is {facts.preempt_type}, and {name} shares nodes with {some(natives)}: {starve}",
            f"PreemptType={_PREEMPTED} and PreemptMode=REQUEUE in slurm.conf (the vjob partitions with "
            "PreemptMode=REQUEUE or OFF), and restart slurmctld; or take the nodes out of the native partitions",
        )
        return
    if modes(row) != {"CANCEL"}:
        yield error(
            subject,
            f"has PreemptMode={row.get('PreemptMode', 'OFF')}: {starve}",
            f"PartitionName={name} ... PreemptMode=CANCEL in slurm.conf",
        )
    for native in natives:
        # Slurm's listing names every partition that a node's does.
        above = tier(facts.partitions.get(native, {}))
        if above <= tier(row):
            yield error(
                f"partition {native}",
                f"has PriorityTier={above}, {name} on the same nodes {tier(row)}: its jobs never take a node back",
                f"PartitionName={native} ... PriorityTier={tier(row) + 9} in slurm.conf",
            )


def _grace(settings: Settings, facts: SlurmFacts, name: str, row: Row) -> Iterator[Finding]:
    """Compare GraceTime with what it takes to save all VMs of a full node; only then is nothing ever lost."""
    grace_s = number(row.get("GraceTime", "0"))
    memory_mib = max(facts.memory_mib((node,)) for node in facts.nodes_of(name))
    durations = settings.durations
    if facts.saved_bytes_per_s:
        needed_s = durations.suspend_s + memory_mib * 1048576 / facts.saved_bytes_per_s
        how = f"at the {facts.saved_bytes_per_s / 1048576:.0f} MiB/s that a VM was saved with here"
    else:
        needed_s = durations.suspend_s + memory_mib * durations.suspend_s_per_mib
        how = "by suspend_s and suspend_s_per_mib of [durations]; nothing was measured here yet"
    said = f"has GraceTime={grace_s} s; to save a full node of {memory_mib} MiB takes {needed_s:.0f} s ({how})"
    if grace_s < needed_s:
        yield warning(
            f"partition {name}",
            f"{said}: VMs that cannot migrate might not be saved in time, and then begin anew",
            f"PartitionName={name} ... GraceTime={int(needed_s * 1.2) + 1} in slurm.conf, or a faster nodes.store",
        )
    else:
        yield ok(f"partition {name}", said)


def _two_partitions(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    for name, row in facts.nodes.items():
        found = sorted(partitions_of(row) & set(settings.hosts_partitions))
        if len(found) > 1:
            yield error(
                f"node {name}",
                f"is in {' and '.join(found)}: the engine holds it with one room, and the settings "
                "of that room's partition count",
                "leave it in one hosts partition; vjob partitions may name the same one",
            )


def _account(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge that the accounting lets SlurmUser submit as many rooms as there are VM hosts."""
    if not facts.config.get("AccountingStorageType", "").endswith("slurmdbd"):
        yield warning(
            "accounting",
            "there is none: where slurmctld forgets an ended job while the engine is down, the "
            "vjob is not ended until an operator confirms it",
            "run slurmdbd, and set AccountingStorageType=accounting_storage/slurmdbd",
        )
    enforced = set(words(facts.config.get("AccountingStorageEnforce", "").lower()))
    if not enforced & {"associations", "limits", "safe", "qos", "wckeys", "all"}:
        return
    user, hosts = settings.engine.user, facts.vm_hosts(settings)
    if isinstance(facts.associations, str):
        yield warning(
            "accounting",
            f"cannot be asked about {user}: {facts.associations}",
            "start slurmdbd; see sacctmgr show assoc",
        )
    elif not facts.associations:
        yield error(
            "accounting",
            f"has no association of {user}, and AccountingStorageEnforce refuses jobs without one: "
            "the engine gets no room",
            f"sacctmgr add user {user} account=root",
        )
    elif enforced & {"limits", "safe", "all"}:
        limits = [found for one in facts.associations for found in (one.max_jobs, one.max_submit) if found is not None]
        if limits and min(limits) < len(hosts):
            yield warning(
                "accounting",
                f"{user} may have {min(limits)} jobs, and there are {len(hosts)} VM hosts: each room is a job",
                f"sacctmgr modify user {user} set MaxJobs=-1 MaxSubmitJobs=-1",
            )
        else:
            yield ok("accounting", f"{user} may submit rooms")
    else:
        yield ok("accounting", f"{user} may submit rooms")
