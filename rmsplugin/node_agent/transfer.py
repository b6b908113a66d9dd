"""Transfer: copies a saved state from one node's store to another's, over ssh, and digests it where it arrives.

``reach`` tries the way that copies will take, and ways that must be closed, for ``rmsplugin check``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from rmsplugin.node_agent import digests, files
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.node_agent.values import Reply, Report, VMName
from rmsplugin.node_agent.verbs import Agent, incoming_path, lock_state

_REACH_TIMEOUT_S = 12.0
_HEARD_MOST = 64 << 10


def send(agent: Agent, vm: VMName, node: str, digest: tuple[int, str], report: Report, checkpoint: int = 0) -> Reply:
    """Copy the final file, of this size and digest, to the other node's store."""
    size, blake2b = digest
    final, _ = agent.state_paths(vm, False, checkpoint)
    with lock_state(final, vm, agent.still_wanted, checkpoint, shared=True):
        found = files.size_of(final)
        if found is None:
            raise AgentError("not_found", f"no state of {vm.name}")
        if found != size:
            raise AgentError("corrupt", f"the state of {vm.name} has {found} bytes, not {size}")
        words = ["receive", vm.name, str(size), blake2b, *(["--checkpoint", str(checkpoint)] if checkpoint else [])]
        with subprocess.Popen(
            [*_ssh(agent), node, shlex.join(words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdin and process.stdout and process.stderr
            output, errors = _Heard(process.stdout), _Heard(process.stderr)
            try:
                _pour(final, process.stdin, report)
            finally:
                said = output.end(), errors.end()
    return _answer(node, *said)


def reach(agent: Agent, node: str) -> Reply:
    """Try the other node's agent and its platform from here."""
    wrong = _attempt([*_ssh(agent), node, "space"])
    return {
        "agent": wrong,
        # A harmless verb that no node may call: if it is obeyed, so are harmful ones.
        "unrestricted": not wrong and not _attempt([*_ssh(agent), node, "check"]),
        **agent.platform.reach(node),
    }


def _attempt(command: list[str]) -> str:
    """Run a command; return the last line of its errors if it fails, else an empty text."""
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
        # A node that dies in the middle must not block the copy for ever.
        "ServerAliveInterval": "10",
        "ServerAliveCountMax": "3",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-F", "/dev/null", "-T", "-i", agent.config.node_key, *words, "-l", agent.config.agent_user, "--"]


def _pour(path: Path, pipe: IO[bytes], report: Report) -> None:
    """Write the file into the pipe, as far as the other side reads it, and close the pipe in any case.

    That side digests the arriving bytes. It stops reading when it fails, and when it has the file already; its answer
    tells which.

    Raises:
        BrokenPipeError: nobody listens to the report any more.
    """
    done, pulse = 0, files.Pulse(report)
    try:
        with open(path, "rb") as file:
            while (chunk := file.read(files.CHUNK_BYTES)) and _is_taken(pipe, chunk):
                done += len(chunk)
                pulse.beat(done)
    finally:
        with suppress(BrokenPipeError):  # it writes what is left
            pipe.close()


def _is_taken(pipe: IO[bytes], chunk: bytes) -> bool:
    try:
        pipe.write(chunk)
    except BrokenPipeError:
        return False
    return True


class _Heard:
    """What a process says, taken as it comes: a process whose words nobody takes waits when the pipe is full."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._kept = b""
        self._thread = threading.Thread(target=self._listen, args=(pipe.fileno(),), daemon=True)
        self._thread.start()

    def end(self) -> bytes:
        """Wait until it says no more; the last 64 KiB of it."""
        self._thread.join()
        return self._kept

    def _listen(self, descriptor: int) -> None:
        while said := os.read(descriptor, _HEARD_MOST):
            self._kept = (self._kept + said)[-_HEARD_MOST:]


def _answer(node: str, output: bytes, errors: bytes) -> Reply:
    try:
        answer: Any = json.loads(output.splitlines()[-1])
        if "error" not in answer:
            return {}
        kind, message = answer["kind"], str(answer["error"])
    except (IndexError, ValueError, TypeError, KeyError):
        message = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise AgentError("failed", f"no copy to {node}: {message or 'its agent did not answer'}") from None
    raise AgentError(kind if kind in ("no_space", "corrupt", "exists") else "failed", f"{node}: {message}")


def receive(agent: Agent, vm: VMName, size: int, blake2b: str, checkpoint: int = 0) -> Reply:
    """Receive the state that ``send`` brings on standard input; nothing happens if it is here already.

    Another node calls this, and must not be able to remove files here: another state of the VM is left alone, and so is
    a file that the platform may be writing.
    """
    final, _ = agent.state_paths(vm, False, checkpoint)
    incoming = incoming_path(final)
    with lock_state(final, vm, agent.still_wanted, checkpoint):
        found = files.size_of(final)
        if found == size and digests.digest_of(final) == (size, blake2b):
            return {"bytes": size}
        if found is not None:
            raise AgentError("exists", f"another state of {vm.name} is here")
        files.remove(incoming)
        if files.free_bytes(final.parent) < size:
            raise AgentError("no_space", f"{final.parent} has no room for {size} bytes")
        try:
            _take(incoming, size, blake2b)
            agent.platform.require_restorable(incoming)
        except BaseException:
            files.remove(incoming)
            raise
        incoming.rename(final)
        files.sync_directory(final.parent)
    return {"bytes": size}


def _take(incoming: Path, size: int, blake2b: str) -> None:
    """Write standard input to the file."""
    digest = hashlib.blake2b()
    source = sys.stdin.buffer
    with files.create(incoming) as file:
        remaining = size
        while remaining and (chunk := source.read(min(files.CHUNK_BYTES, remaining))):
            digest.update(chunk)
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
