"""Transfer: the copy of a saved state from one node's store to another's, over ssh, digested where it arrives.

``reach`` tries the ways that copies and migrations will take, for ``rmsplugin check``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from rmsplugin.node_agent import files
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.node_agent.verbs import Agent, Answer, VMName

_PROGRESS_INTERVAL_S = 0.5
_REACH_TIMEOUT_S = 12.0

#: Connects in a process of its own: libvirt's connect blocks in C for as long as the other side pleases.
_CONNECT = """
import sys, libvirt
libvirt.registerErrorHandler(lambda context, error: None, None)
try:
    libvirt.openReadOnly(sys.argv[1]).close()
except libvirt.libvirtError as error:
    sys.exit(str(error))
"""


def send(agent: Agent, vm: VMName, node: str, size: int, blake2b: str, report: Callable[[Answer], None]) -> Answer:
    """Copy the final file to the other node's store."""
    final, _ = agent.state_paths(vm, shared=False)
    with files.lock(final.parent, vm.identity, shared=True):
        found = files.size_of(final)
        if found is None:
            raise AgentError("not_found", f"no state of {vm.name}")
        if found != size:
            raise AgentError("corrupt", f"the state of {vm.name} has {found} bytes, not {size}")
        words = ["receive", vm.name, str(size), blake2b]
        with subprocess.Popen(
            [*_ssh(agent), node, shlex.join(words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdin and process.stdout and process.stderr
            _pour(final, process.stdin, report)
            output, errors = process.stdout.read(), process.stderr.read()
    return _answer(node, output, errors)


def reach(agent: Agent, node: str) -> Answer:
    """Try the other node's agent and its libvirt from here; what is wrong with each, or nothing."""
    uri = agent.config.migrate_uri.replace("{node}", node)
    return {
        "agent": _attempt([*_ssh(agent), node, "space"]),
        "libvirt": _attempt([sys.executable, "-c", _CONNECT, uri]),
    }


def _attempt(command: list[str]) -> str:
    """Run a command; return the last line of its errors when it fails, else nothing."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_REACH_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_REACH_TIMEOUT_S:g} s"
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
    return said or f"exit status {done.returncode}"


def _ssh(agent: Agent) -> list[str]:
    options = {
        "UserKnownHostsFile": agent.config.known_hosts,
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "IdentitiesOnly": "yes",
        "ConnectTimeout": "10",
        # A node that dies in the middle must not hold the copy for ever.
        "ServerAliveInterval": "10",
        "ServerAliveCountMax": "3",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-F", "/dev/null", "-T", "-i", agent.config.node_key, *words, "-l", agent.config.agent_user, "--"]


def _pour(path: Path, pipe: IO[bytes], report: Callable[[Answer], None]) -> None:
    """Write the file into the pipe, as far as the other side takes it. That side digests what arrives."""
    done, reported_at = 0, time.monotonic()
    # The other side stops listening when it fails, and when it has the file already; its answer says which.
    with suppress(BrokenPipeError), open(path, "rb") as file, pipe:
        while chunk := file.read(files.CHUNK_BYTES):
            pipe.write(chunk)
            done += len(chunk)
            if time.monotonic() - reported_at > _PROGRESS_INTERVAL_S:
                report({"bytes_done": done})
                reported_at = time.monotonic()


def _answer(node: str, output: bytes, errors: bytes) -> Answer:
    try:
        answer: Any = json.loads(output.splitlines()[-1])
        if "error" not in answer:
            return {}
        kind, message = answer["kind"], str(answer["error"])
    except (IndexError, ValueError, TypeError, KeyError):
        message = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise AgentError("failed", f"no copy to {node}: {message or 'its agent did not answer'}") from None
    raise AgentError(kind if kind in ("no_space", "corrupt") else "failed", f"{node}: {message}")


def receive(agent: Agent, vm: VMName, size: int, blake2b: str) -> Answer:
    """Take the state that ``send`` brings on standard input; nothing happens if it is here already."""
    final, partial = agent.state_paths(vm, shared=False)
    with files.lock(final.parent, vm.identity):
        if files.size_of(final) == size and files.digest_of(final) == (size, blake2b):
            return {"bytes": size}
        files.remove(partial)
        if files.free_bytes(final.parent) < size:
            raise AgentError("no_space", f"{final.parent} has no room for {size} bytes")
        try:
            _take(partial, size, blake2b)
        except BaseException:
            files.remove(partial)
            raise
        partial.rename(final)
        files.sync_directory(final.parent)
    return {"bytes": size}


def _take(partial: Path, size: int, blake2b: str) -> None:
    """Write standard input to the file; its first bytes, which say that it is complete, come last."""
    digest = hashlib.blake2b()
    head = b""
    source = sys.stdin.buffer
    with files.create(partial) as file:
        remaining = size
        while remaining and (chunk := source.read(min(files.CHUNK_BYTES, remaining))):
            digest.update(chunk)
            if remaining == size:
                head = chunk[: len(files.STATE_MAGIC)]
                chunk = bytes(len(head)) + chunk[len(head) :]
            file.write(chunk)
            remaining -= len(chunk)
        if remaining:
            raise AgentError("failed", f"the copy broke off {remaining} bytes before its end")
        if source.read(1):
            raise AgentError("failed", f"the copy is longer than {size} bytes")
        if digest.hexdigest() != blake2b:
            raise AgentError("corrupt", "what arrived is not what was saved")
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        file.write(head)
        file.flush()
        os.fsync(file.fileno())
