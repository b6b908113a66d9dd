"""Rules for several engines: the ensemble, the controllers with clocks and keys, and the directory that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmsplugin.adapters.coordination.candidates import Standing
from rmsplugin.adapters.coordination.servers import ServerFact, quorum
from rmsplugin.cli.check.cluster_facts import ClusterFacts, SharedFacts
from rmsplugin.cli.check.node_facts import NodeFacts
from rmsplugin.engine.controllers.controllers import CLOCKS_S, differences, host_of
from rmsplugin.engine.controllers.shared_writes import SLOW_S
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.settings import Settings

#: munge refuses a credential when clocks differ by its lifetime, 300 s.
_CLOCKS_ERROR_S = 60.0
#: A start of a vjob commits about ten times.
_LONG_WRITE_S = 0.1
#: A takeover makes a copy of the ledger; three are kept, and backups.
_COPIES = 4
_SPARE_BYTES = 256 << 20
#: Options of NFS.
_LATE_WRITES_LOST = {"soft", "softerr"}
_LOCAL_LOCKS = {"nolock", "local_lock=all", "local_lock=posix"}
#: File systems of one host.
_OF_ONE_HOST = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs"}
_UPGRADE = "see `Upgrading controllers one by one` in docs/operator/several-engines.md"


def judge_cluster(facts: ClusterFacts) -> Iterator[Finding]:
    """Judge what several engines need."""
    yield from _ensemble(facts.servers, answers=not isinstance(facts.standing, str))
    if isinstance(facts.standing, str):
        yield error("ensemble", facts.standing, "see [cluster] in the settings, and the logs of its servers")
    else:
        yield from _controllers(facts, facts.standing)
        yield from _clocks(facts.standing)
    if facts.shared is not None:
        yield from _shared(facts.shared, facts.standing)


def judge_way(settings: Settings) -> Iterator[Finding]:
    """Judge whether the way to the nodes' VMs is closed to an engine that another one has followed."""
    if settings.cluster.shared_dir is None:
        return
    if settings.through_agents:
        yield ok("hypervisor.connect", "engines reach VMs through the nodes' agents, which refuse one that is followed")
    else:
        yield warning(
            "hypervisor.connect",
            "is uri: an engine that is stopped, and goes on when another one leads, may still pause, save, move or end "
            "VMs for a moment",
            "remove connect from [hypervisor] in the settings of all hosts",
        )


def judge_epochs(facts: ClusterFacts, nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Judge which engines the nodes obey."""
    known = {node.name: node.agent.epoch for node in nodes if not isinstance(node.agent, str)}
    turns = facts.epochs or dict.fromkeys(known, facts.epoch)
    known = {name: epoch for name, epoch in known.items() if turns.get(name)}  # of the others no engine answers
    if not facts.epoch or not known:
        return
    higher = [name for name, epoch in known.items() if epoch is not None and epoch > turns[name]]
    lower = [name for name, epoch in known.items() if epoch is None or epoch < turns[name]]
    turn = "that of its group" if facts.epochs else f"epoch {facts.epoch}"
    if higher:
        yield error(
            "epochs",
            f"{_some(higher)} obeyed an engine of a higher epoch than the one that leads ({turn}), and refuses it",
            "see `Engines that stand by` in docs/operator/several-engines.md: an ensemble that was set back?",
        )
    if lower:
        yield warning(
            "epochs",
            f"{_some(lower)} has not heard of this turn ({turn}): an engine of the turn before is not "
            "refused there yet",
            "it hears of it with the first act there; nodes with an older node agent: install this release",
        )
    if not higher and not lower:
        yield ok("epochs", f"all {len(known)} nodes that answer obey no engine before {turn}")


def _ensemble(servers: Sequence[ServerFact], *, answers: bool) -> Iterator[Finding]:
    silent = [each for each in servers if each.problem]
    needed, serving = quorum(len(servers)), len(servers) - len(silent)
    names = ", ".join(f"{each.address} ({each.problem})" for each in silent)
    if silent and serving < needed and not answers:
        yield error(
            "ensemble",
            f"{serving} of {len(servers)} servers serve, {needed} are needed: nobody leads. Silent: {names}",
            "start the servers; `systemctl status zookeeper` on their hosts",
        )
    elif silent:
        yield warning(
            "ensemble",
            f"{names} cannot be asked; {serving} of {len(servers)} servers serve, {needed} are needed",
            "start the server, or let it answer `srvr`: 4lw.commands.whitelist=srvr in zoo.cfg, its port open to here",
        )
    if len(servers) < 3 or len(servers) % 2 == 0:
        yield warning(
            "ensemble",
            f"has {len(servers)} servers: "
            + ("the loss of one ends it" if len(servers) < 3 else "an even number bears no more losses than one less"),
            "use three, or five",
        )
    if len(versions := sorted({each.version for each in servers if not each.problem})) > 1:
        yield warning("ensemble", f"has servers of releases {', '.join(versions)}", "upgrade the others, too")
    if not silent:
        leader = next((each.address for each in servers if each.mode in ("leader", "standalone")), "none of them")
        slowest = max(each.seconds for each in servers)
        yield ok(
            "ensemble",
            f"{len(servers)} servers of ZooKeeper {versions[0]} serve, led by {leader}; the slowest answers in "
            f"{1000 * slowest:.0f} ms",
        )


def _controllers(facts: ClusterFacts, standing: Sequence[Standing]) -> Iterator[Finding]:
    if not standing:
        yield error("controllers", "no engine is there, and none leads", "start them: systemctl start rmsplugin-engine")
        return
    hosts = [host_of(each) for each in standing]
    if len(standing) == 1:
        yield warning(
            "controllers",
            f"the engine on {hosts[0]} is alone: nobody takes over if its host dies",
            "start the engine of another controller; its log says why it ended",
        )
    else:
        yield ok("controllers", f"the engine on {hosts[0]} leads; {', '.join(hosts[1:])} stand by")
    own = facts.about["host"]
    if own not in hosts:
        yield warning("controllers", "no engine of this host is there", "start it: systemctl start rmsplugin-engine")
    for each in standing:
        if host_of(each) != own:
            yield from (warning("controllers", what, _remedy(what)) for what in differences(facts.about, each))
    if facts.leader and facts.leader != own:
        yield ok("munge", f"this host and {facts.leader}, where the engine leads, have the same key")
    if len(standing) > 1 and {each.about.get("agent_key") for each in standing} == {facts.about.get("agent_key")}:
        yield ok("controllers", f"have the same key for nodes: {facts.about['agent_key']}")


def _remedy(what: str) -> str:
    return _UPGRADE if "release" in what else "copy it from one controller to all, and restart the engine there"


def _clocks(standing: Sequence[Standing]) -> Iterator[Finding]:
    known = {host_of(each): each.ahead_s for each in standing if each.ahead_s is not None}
    if not known:
        return
    first, last = min(known, key=lambda host: known[host]), max(known, key=lambda host: known[host])
    apart_s, furthest_s = known[last] - known[first], max(known.values(), key=abs)
    said = f"the clock of {last} is {apart_s:.1f} s ahead of that of {first}"
    if abs(furthest_s) > max(apart_s, CLOCKS_S):
        said = f"the clocks of the controllers are off by {furthest_s:+.1f} s from that of the ensemble's leader"
    worst_s = max(apart_s, abs(furthest_s))
    if worst_s > CLOCKS_S:
        level = error if worst_s > _CLOCKS_ERROR_S else warning
        yield level("clocks", said, "run chrony or ntpd on all controllers and servers of the ensemble")
    else:
        yield ok("clocks", f"those of the controllers and of the ensemble's leader differ by {worst_s:.2f} s at most")


def _shared(shared: SharedFacts, standing: Sequence[Standing] | str) -> Iterator[Finding]:
    subject = shared.path
    if not shared.place.startswith("the shared directory "):
        yield error(subject, shared.place, "mount the file system that all controllers have")
        return
    others = [] if isinstance(standing, str) else [each for each in standing if each.place != shared.place]
    if others:
        yield error(
            subject,
            f"is another directory than that of {_some([host_of(each) for each in others])}",
            "mount the same file system on all controllers",
        )
    hosts = set() if isinstance(standing, str) else {host_of(each) for each in standing}
    if shared.file_system in _OF_ONE_HOST and len(hosts) < 2:
        yield warning(
            subject,
            f"lies on {shared.file_system}, a file system of this host alone, and no other host uses it",
            "mount the file system that all controllers have",
        )
    if shared.lock:
        yield error(subject, f"no file can be locked there: {shared.lock}", "mount NFS with locks (nolock is wrong)")
    yield from _mounted(shared)
    if shared.root_key:
        yield error(
            subject,
            f"the key of root in guests cannot be used: {shared.root_key}",
            "take guest_root_key and guest_root_key.pub from a backup",
        )
    yield from _space(shared)
    if isinstance(shared.write_s, str):
        yield error(subject, f"cannot be written: {shared.write_s}", "see its file server")
    elif shared.write_s > _LONG_WRITE_S:
        yield (error if shared.write_s > SLOW_S else warning)(
            subject,
            f"a small write takes {1000 * shared.write_s:.0f} ms; the start of a vjob needs about ten",
            "give it a faster disk, or a file server with a cache that outlives a loss of power",
        )
    elif not others:
        yield ok(
            subject,
            f"is the one of all controllers ({shared.file_system or 'unknown file system'}); a small write takes "
            f"{1000 * shared.write_s:.1f} ms",
        )


def _mounted(shared: SharedFacts) -> Iterator[Finding]:
    if lost := sorted(shared.mounted & _LATE_WRITES_LOST):
        yield error(
            shared.path,
            f"is mounted {lost[0]}: a write of the ledger that the file server answers late fails, and may be lost",
            "mount it hard, as Slurm's StateSaveLocation: what writes there waits for the file server then",
        )
    if local := sorted(shared.mounted & _LOCAL_LOCKS):
        yield warning(
            shared.path,
            f"is mounted with {local[0]}: locks hold on this host only, so a ledger that an engine of another host "
            "has open can be opened here, and damaged",
            "mount it without that option; NFS before version 4 needs rpc.statd for locks",
        )


def _space(shared: SharedFacts) -> Iterator[Finding]:
    wanted = _COPIES * shared.ledger_bytes + _SPARE_BYTES
    if shared.free_bytes < wanted:
        level = error if shared.free_bytes < shared.ledger_bytes else warning
        yield level(
            shared.path,
            f"has {shared.free_bytes >> 20} MiB free; the ledger has {shared.ledger_bytes >> 20}, and each new leader "
            "makes a copy",
            f"give it {wanted >> 20} MiB",
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
