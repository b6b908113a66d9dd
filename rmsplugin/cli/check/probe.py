"""Probe: gathers the facts that the rules judge. Changes nothing but this process's own user."""

from __future__ import annotations

import grp
import os
import pwd
import re
import socket
import sqlite3
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import permutations
from pathlib import Path
from typing import Any, TypeVar

from rmsplugin.adapters import munge
from rmsplugin.adapters.nodes.base import MemoryBounds, MemoryReport, NodeLooks
from rmsplugin.adapters.platform.base import Platform
from rmsplugin.cli.check.facts import SITE_FILE, Association, SlurmFacts, number, words
from rmsplugin.cli.check.host import FileFact, HostFacts
from rmsplugin.cli.check.node_facts import NodeFacts, PairFacts
from rmsplugin.cli.check.slurm import hook_paths
from rmsplugin.cli.check.submission import job_submit_path, module_paths
from rmsplugin.cli.shared.connection import connect
from rmsplugin.cli.shared.sentences import pause_sentence
from rmsplugin.engine.context.hearing import CANNOT_HEAR
from rmsplugin.engine.ledger.ledger_file import read_only
from rmsplugin.engine.ledger.site_ledgers import of_engines, site_ledgers
from rmsplugin.engine.serve.ears import silent_doors
from rmsplugin.errors import RefusedError, RmspluginError, UnavailableError
from rmsplugin.settings import Settings
from rmsplugin.settings.rules import Traits, license_names

T = TypeVar("T")

_AT_ONCE = 16
#: The longest silence of the engine that is put up with, in seconds.
_ENGINE_S = 5.0

#: The queue, a job a line: id, account, partition, user, licences and name.
_QUEUE = ["--all", "--noheader", "--sort=i", "--format=%i|%a|%P|%u|%W|%j"]

#: So many suspends tell how fast memory is saved here.
_SUSPENDS = 50


def become_engine_user(settings: Settings) -> None:
    """Look with the engine's eyes: root sees, and may do, what the engine cannot.

    Raises:
        RefusedError: we are neither root nor the engine's user.
    """
    name = settings.engine.user
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        raise RefusedError(f"there is no account {name}, which engine.user names; Slurm's packages make it") from None
    if os.geteuid() not in (0, account.pw_uid):
        raise RefusedError(f"the check has to be run by {name}, or by root: try sudo rmsplugin check")
    if os.geteuid() == 0 and account.pw_uid != 0:
        os.initgroups(name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
        os.environ.update(HOME=str(settings.engine.state_dir), USER=name, LOGNAME=name)
        for variable in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            os.environ.pop(variable, None)


def probe_host(settings: Settings, settings_file: Path) -> HostFacts:
    """Look at this host."""
    known_hosts = settings.nodes.known_hosts
    status = _value_or_reason(lambda: connect(settings).status(within_s=_ENGINE_S))
    return HostFacts(
        user=pwd.getpwuid(os.geteuid()).pw_name,
        settings_file=_file(settings_file),
        state_dir=_file(settings.engine.state_dir),
        shared_dir=None if settings.cluster.shared_dir is None else _file(settings.cluster.shared_dir),
        agent_key=_file(settings.nodes.agent_key),
        known_hosts=_file(known_hosts),
        known_hosts_text=_text(str(known_hosts)) or "",
        engine=status if isinstance(status, str) else "",
        held=() if isinstance(status, str) else tuple(str(held["vjob"]) for held in status.get("held", [])),
        paused="" if isinstance(status, str) or not (pause := status.get("paused")) else pause_sentence(pause),
        munge=_failure(lambda: munge.decode(munge.encode(b"rmsplugin check"))),
        deaf=(*silent_doors(settings), *([] if isinstance(status, str) else _deaf(status))),
    )


def _deaf(status: Mapping[str, Any]) -> list[str]:
    """What an engine, or a manager for all, says of those that cannot hear."""
    said = [*status.get("problems", ()), *(status.get("cluster") or {}).get("degraded", ())]
    return [str(each) for each in said if CANNOT_HEAR in str(each)]


def probe_slurm(settings: Settings) -> SlurmFacts:
    """Ask slurmctld, and read what lies beside its configuration."""
    try:
        config = parse_config(_scontrol(settings, ["show", "config"]))
        listed = {
            kind: parse_rows(_scontrol(settings, ["--all", "--oneliner", "show", kind]), key)
            for kind, key in (
                ("partition", "PartitionName"),
                ("node", "NodeName"),
                ("reservation", "ReservationName"),
                ("license", "LicenseName"),
            )
        }
    except RmspluginError as error:
        return SlurmFacts(unreachable=str(error))
    hooks = ("PrologSlurmctld", "EpilogSlurmctld", "Prolog", "Epilog")
    paths = [job_submit_path(config), *module_paths(config), SITE_FILE]
    paths += [path for hook in hooks for path in hook_paths(config, hook)]
    named = {group for row in listed["partition"].values() for group in words(row.get("AllowGroups", ""))}
    return SlurmFacts(
        host=socket.gethostname(),
        now=time.time(),
        config=config,
        partitions=listed["partition"],
        nodes=listed["node"],
        reservations=listed["reservation"],
        licenses={name: number(row.get("Total", "")) for name, row in listed["license"].items()},
        groups={name: _members(name, settings.engine.user) for name in named - {"ALL"}},
        associations=_value_or_reason(lambda: _associations(settings)),
        queue=_value_or_reason(lambda: parse_queue(_run_program(settings, "squeue", _QUEUE))) if settings.rule else (),
        saved_bytes_per_s=_slowest_saves(settings),
        texts={path: _text(path) for path in paths},
    )


def _members(group: str, user: str) -> tuple[str, ...]:
    """Who is in the group; of users whose first group it is, only ``user`` is looked for."""
    try:
        found = grp.getgrnam(group)
        account = pwd.getpwnam(user)
    except KeyError:
        return ()
    return (*found.gr_mem, *([user] if account.pw_gid == found.gr_gid else []))


def _associations(settings: Settings) -> tuple[Association, ...]:
    fields = "format=user,maxjobs,maxsubmitjobs"
    text = _run_program(settings, "sacctmgr", ["-nP", "show", "assoc", f"user={settings.engine.user}", fields])
    rows = (line.split("|") for line in text.splitlines())
    return tuple(
        Association(*(int(value) if value.isdecimal() else None for value in row[1:3]))
        for row in rows
        if row[0] == settings.engine.user
    )


def _slowest_saves(settings: Settings) -> float:
    """``saved_bytes_per_s`` of the ledger in which it is least, of those that have it."""
    speeds = (saved_bytes_per_s(each.path) for each in of_engines(site_ledgers(settings)))
    return min((speed for speed in speeds if speed), default=0.0)


def saved_bytes_per_s(ledger: Path) -> float:
    """How fast one VM's memory was saved in the last suspends that the ledger has; 0 if it has none."""
    sql = (
        "select sum(bytes_total), sum(ended - created) from (select bytes_total, ended, created from actions "
        "where kind = 'suspend' and state = 'done' and bytes_total > 0 and ended > created order by id desc limit ?)"
    )
    if not ledger.exists():
        return 0.0
    try:
        with closing(read_only(ledger, busy_s=5)) as database:
            size, seconds = database.execute(sql, [_SUSPENDS]).fetchone()
    except sqlite3.Error:  # of another release, or none
        return 0.0
    return float(size) / float(seconds) if size and seconds else 0.0


def probe_nodes(
    hypervisor: Platform, agents: NodeLooks, names: Iterable[str], *, done: Callable[[str], None]
) -> list[NodeFacts]:
    """Look at each node; ``done`` is told when one has been looked at."""

    def look_at_node(name: str) -> NodeFacts:
        info = _value_or_reason(lambda: hypervisor.host_info(name))
        before = time.time()
        try:
            agent = agents.check(name)
        except RmspluginError as error:
            return NodeFacts(name, info, str(error), fault=type(error))
        finally:
            done(name)
        return NodeFacts(name, info, agent, agent.time - (before + time.time()) / 2)

    return _all(look_at_node, names)


def probe_bounds(agents: MemoryBounds, names: Sequence[str]) -> dict[str, MemoryReport | str]:
    """What VMs whose memory is observed may take of each node; changes nothing."""
    reports = _all(lambda name: _value_or_reason(lambda: agents.bound_memory(name, 0)), names)
    return dict(zip(names, reports, strict=True))


def probe_mounts(agents: NodeLooks, names: Sequence[str]) -> dict[str, Mapping[str, Any] | str]:
    """What each node tells of what guests mount."""
    found = _all(lambda name: _value_or_reason(lambda: agents.mounts(name)), names)
    return dict(zip(names, found, strict=True))


def probe_pairs(agents: NodeLooks, names: Sequence[str], *, done: Callable[[str], None]) -> list[PairFacts]:
    """Try the way from each node to each other one."""

    def try_way(pair: tuple[str, str]) -> PairFacts:
        source, destination = pair
        reach = _value_or_reason(lambda: agents.reach(source, destination))
        done(f"{source} -> {destination}")
        return PairFacts(source, destination, reach)

    return _all(try_way, permutations(names, 2))


K = TypeVar("K")


def _all(look: Callable[[K], T], keys: Iterable[K]) -> list[T]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(look, keys))


def _value_or_reason(ask: Callable[[], T]) -> T | str:
    try:
        return ask()
    except RmspluginError as error:
        return str(error)


def _failure(attempt: Callable[[], object]) -> str:
    """Why the attempt failed; nothing if it did not."""
    try:
        attempt()
    except RmspluginError as error:
        return str(error)
    return ""


def _file(path: Path) -> FileFact:
    try:
        found = path.stat()
    except OSError:
        return FileFact(str(path))
    try:
        owner = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        owner = str(found.st_uid)
    return FileFact(str(path), owner, stat.S_IMODE(found.st_mode))


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _scontrol(settings: Settings, arguments: list[str]) -> str:
    return _run_program(settings, "scontrol", arguments)


def _run_program(settings: Settings, command: str, arguments: list[str]) -> str:
    program = f"{settings.slurm.bin_dir}/{command}" if settings.slurm.bin_dir else command
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=settings.slurm.command_timeout_s,
        )
    except OSError as error:
        raise UnavailableError(f"{program} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{command} did not answer within {settings.slurm.command_timeout_s:g} s") from None
    if done.returncode != 0:
        reason = " ".join((done.stderr or done.stdout).split())
        raise UnavailableError(f"{command} {' '.join(arguments)} failed: {reason}")
    return done.stdout


def parse_config(text: str) -> dict[str, str]:
    """Read `scontrol show config`: KEY = VALUE lines; the first of a key counts (cgroup.conf's part comes last)."""
    config: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            config.setdefault(key.strip(), value.strip())
    return config


def parse_queue(text: str) -> tuple[tuple[str, Traits], ...]:
    """Read the queue: by id, what rules select jobs by."""
    found = []
    for line in text.splitlines():
        job, account, partition, user, licenses, name = line.split("|", 5)
        names = license_names("" if licenses == "(null)" else licenses)
        found.append((job, Traits(name, user, account, partition, names)))
    return tuple(found)


def parse_rows(text: str, key: str) -> dict[str, dict[str, str]]:
    """Read `scontrol --oneliner show ...`: a line of KEY=VALUE for each, by the value of ``key``."""
    pair = re.compile(r"(?:^|\s)([A-Za-z][\w/:]*)=(.*?)(?=\s+[A-Za-z][\w/:]*=|\s*$)")
    rows = (dict(pair.findall(line)) for line in text.splitlines())
    return {row[key]: row for row in rows if key in row}
