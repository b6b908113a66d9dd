"""Cluster probe: looks at the ensemble, at the other controllers, and at the directory that they share.

In the shared directory it writes a page and takes a lock, in files of its own that it removes.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import statistics
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from cryptography.hazmat.primitives import serialization

from rmsplugin.adapters.coordination.candidates import Standing, standing
from rmsplugin.adapters.coordination.servers import ask_servers
from rmsplugin.adapters.coordination.zookeeper import ZooKeeperTree
from rmsplugin.cli.check.cluster_facts import ClusterFacts, SharedFacts
from rmsplugin.cli.shared.connection import connect
from rmsplugin.engine.controllers.about import about
from rmsplugin.engine.controllers.shared_writes import write_once
from rmsplugin.engine.ledger.site_ledgers import of_engines, site_ledgers
from rmsplugin.engine.shared_dir import ROOT_KEY, identity_of
from rmsplugin.errors import RmspluginError
from rmsplugin.settings import Settings

T = TypeVar("T")

#: How long the engine and the ensemble, and the shared directory, may take.
_ANSWER_S, _SHARED_S = 5.0, 20.0
_WRITES = 9
#: Blanks, tabs, ends of lines and backslashes in /proc/self/mountinfo.
_ESCAPED = re.compile(r"\\([0-7]{3})")


def probe_cluster(settings: Settings) -> ClusterFacts | None:
    """Look at what several engines need; None for one that is alone."""
    cluster = settings.cluster
    if cluster.coordination == "local":
        return None
    leader, epoch, epochs = _leader(settings)
    return ClusterFacts(
        about(settings),
        tuple(ask_servers(cluster.servers)),
        _standing(settings),
        leader,
        epoch,
        None if cluster.shared_dir is None else _shared(settings, cluster.shared_dir),
        epochs,
    )


def _leader(settings: Settings) -> tuple[str, int, dict[str, int]]:
    """The host of the engine, or of the manager that leads; the epoch; and by node that of its group's engine."""
    try:
        engine = connect(settings)
        status = engine.status(within_s=_ANSWER_S)
        turns = {group["name"]: group["epoch"] or 0 for group in status.get("groups", ())}
        groups = engine.groups() if turns else []
    except RmspluginError:
        return "", 0, {}  # said of the engine
    epochs = {host: turns.get(group["name"], 0) for group in groups for host in group["hosts"]}
    return str(status.get("host", "")), int(status.get("epoch", 0)), epochs


def _standing(settings: Settings) -> tuple[Standing, ...] | str:
    cluster = settings.cluster
    try:
        tree = ZooKeeperTree(cluster.servers, cluster.session_s, _ANSWER_S)
    except RmspluginError as error:
        return str(error)
    try:
        return tuple(standing(tree, cluster.path) or standing(tree, f"{cluster.path}/site"))
    except RmspluginError as error:
        return str(error)
    finally:
        tree.close()


def _shared(settings: Settings, path: Path) -> SharedFacts:
    """Look at the shared directory, in a thread that is left alone if the directory hangs."""
    hangs = f"does not answer within {_SHARED_S:g} s: is its file server there?"
    return _within(_SHARED_S, lambda: _shared_facts(settings, path), SharedFacts(str(path), hangs))


def _within(seconds: float, look_there: Callable[[], T], otherwise: T) -> T:
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(look_there()), daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else otherwise


def _shared_facts(settings: Settings, path: Path) -> SharedFacts:
    try:
        place = f"the shared directory {identity_of(path)}"
        space, ledgers = os.statvfs(path), of_engines(site_ledgers(settings))
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        file_system, options = file_system_of(path, mounts)
        return SharedFacts(
            str(path),
            place,
            file_system,
            _write_s(path),
            _lock(path),
            space.f_bavail * space.f_frsize,
            sum(each.path.stat().st_size for each in ledgers),
            _root_key(path),
            options,
        )
    except (RmspluginError, OSError) as error:
        return SharedFacts(str(path), str(error))


def file_system_of(path: Path, mounts: str) -> tuple[str, frozenset[str]]:
    """Type and options of the file system that has the path, by ``mounts``, which is /proc/self/mountinfo."""
    best, found = "", ("", frozenset[str]())
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), left.split()[4])
        if len(point) >= len(best) and path.resolve().is_relative_to(point):
            file_system, _, options = right.split(" ", 2)
            best, found = point, (file_system, frozenset(options.split(",")))
    return found


def _write_s(path: Path) -> float | str:
    try:
        return statistics.median(write_once(path) for _ in range(_WRITES))
    except OSError as error:
        return error.strerror or str(error)


def _lock(path: Path) -> str:
    """Why a lock of SQLite's kind cannot be had there; empty if it can."""
    file = path / f".lock-{socket.gethostname()}-{uuid.uuid4().hex}"
    try:
        with file.open("xb") as locked:
            fcntl.lockf(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.strerror or str(error)
    finally:
        with suppress(OSError):  # a file system for reading only refuses that of a file that is not there, too
            file.unlink()
    return ""


def _root_key(path: Path) -> str:
    """What is wrong with the key of root in guests; empty if nothing is, or if no engine has led with it yet."""
    if not (path / ROOT_KEY).exists():
        return ""
    try:
        key = serialization.load_ssh_private_key((path / ROOT_KEY).read_bytes(), None)
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        same = (path / f"{ROOT_KEY}.pub").read_bytes().split()[:2] == public.split()
    except (OSError, ValueError) as error:
        return str(error)
    return "" if same else f"{ROOT_KEY}.pub is not its public half"
