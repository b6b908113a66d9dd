"""Node agents over ssh: one verified connection a node, each verb a forced command (docs/protocols.md section 4)."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from typing import Any

from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.nodes.answers import ExistsError, error_of, read_answer, with_epoch
from rmsplugin.adapters.nodes.base import (
    Digest,
    Guard,
    MemoryReport,
    NodeCheck,
    NodeFiles,
    PartialFile,
    Reach,
    RoomEnd,
    Space,
    StateFiles,
    Template,
    TemplateUse,
    seal_timeout_s,
)
from rmsplugin.adapters.nodes.claims import Claims
from rmsplugin.adapters.nodes.served import CONTENT_MAX, SERVED, NotServedError
from rmsplugin.adapters.nodes.served_link import ServedLink
from rmsplugin.adapters.nodes.ssh_link import Patience, Target
from rmsplugin.adapters.platform.base import Progress
from rmsplugin.adapters.ssh_library import paramiko
from rmsplugin.errors import TimedOutError, UnavailableError
from rmsplugin.model.epochs import FIRST_EPOCH

#: The VMs of one call: their names are shorter than the content of a call can be.
_ADOPTED = 1000
_LONG_CALLS = frozenset(
    {"seal", "verify", "verify-aside", "send", "await-guest", "vm-save", "vm-checkpoint", "vm-restore"}
)


class NodeAgents:
    """``Nodes`` over ssh: one kept connection a node, host keys verified against ``known_hosts_path``."""

    def __init__(
        self,
        user: str,
        key_path: str,
        known_hosts_path: str,
        *,
        connect_timeout_s: float = 10.0,
        call_timeout_s: float = 30.0,
        epoch: int = FIRST_EPOCH,
        group: str = "",
        permit: Permit = nullcontext,
    ) -> None:
        """Connect to nothing yet.

        Args:
            user: account of the node agent.
            key_path: private key that the account authorises for the forced command.
            known_hosts_path: host keys of all nodes; an unknown or changed one is refused.
            connect_timeout_s: bound of a connection; twice that if it turns out to have broken unnoticed.
            call_timeout_s: bound of the verbs that take no ``timeout_s``, and of a node's silence in a seal.
            epoch: the epoch of the asking engine.
            group: its group, which has a part of its own of the shared store; empty: all of it is the engine's.
            permit: of an act of the engine, for nodes that ask it to show that it leads.
        """
        self.key_path = key_path
        self.known_hosts_path = known_hosts_path
        self._target = Target(user, key_path, known_hosts_path, connect_timeout_s)
        self._call_timeout_s = call_timeout_s
        self._epoch, self._group, self._claims = epoch, group, Claims(permit)
        self._links: dict[str, ServedLink] = {}
        self._lock = threading.Lock()

    def put_config(self, node: str, vm: str, content: bytes, guard: Guard | None = None) -> None:
        """See ``Nodes``."""
        self._call(node, ["put-config", vm, *_with(guard)], content=content)

    def put_seed(self, node: str, vm: str, content: bytes) -> None:
        """See ``Nodes``."""
        self._call(node, ["put-seed", vm], content=content)

    def make_overlay(self, node: str, vm: str, base: str) -> None:
        """See ``Nodes``."""
        self._call(node, ["make-overlay", vm, base])

    def drop_config(self, node: str, vm: str) -> None:
        """See ``Nodes``."""
        self._call(node, ["drop-config", vm])

    def obey(self, node: str) -> None:
        """See ``Nodes``."""
        self._call(node, ["obey"])

    def end_room(self, node: str, job_id: int) -> RoomEnd:
        """See ``Nodes``."""
        answer = self._call(node, ["end-room", str(job_id)])
        return RoomEnd(answer["ended"], tuple(answer["vms"]))

    def stat(self, node: str, vm: str, *, shared: bool = False, checkpoint: int = 0) -> StateFiles:
        """See ``Nodes``."""
        answer = self._call(node, ["stat", vm, *_of(checkpoint)], shared=shared)
        final, part = answer["final"], answer["partial"]
        return StateFiles(
            final["bytes"] if final else None,
            PartialFile(part["bytes"], part["complete"]) if part else None,
            answer["free_bytes"],
        )

    def seal(
        self, node: str, vm: str, *, shared: bool = False, checkpoint: int = 0, progress: Progress | None = None
    ) -> Digest:
        """See ``Nodes``."""
        patience = Patience(self._call_timeout_s, silence_s=self._call_timeout_s)

        def advance(step: Mapping[str, int]) -> None:
            patience.heard(seal_timeout_s(step["bytes_total"], self._call_timeout_s))
            if progress:
                progress(step["bytes_done"], step["bytes_total"])

        words = ["seal", vm, *_of(checkpoint)]
        answer = self._call(node, words, shared=shared, patience=patience, advance=advance)
        return Digest(answer["bytes"], answer["blake2b"])

    def verify(
        self, node: str, vm: str, digest: Digest, *, timeout_s: float, shared: bool = False, checkpoint: int = 0
    ) -> None:
        """See ``Nodes``."""
        words = ["verify", vm, str(digest.size_bytes), digest.blake2b, *_of(checkpoint)]
        self._call(node, words, shared=shared, timeout_s=timeout_s)

    def send(
        self,
        source: str,
        destination: str,
        vm: str,
        digest: Digest,
        *,
        timeout_s: float,
        checkpoint: int = 0,
        progress: Progress | None = None,
        replaces: bool = True,
    ) -> None:
        """See ``Nodes``."""

        def advance(step: Mapping[str, int]) -> None:
            if progress:
                progress(step["bytes_done"], digest.size_bytes)

        words = ["send", vm, destination, str(digest.size_bytes), digest.blake2b, *_of(checkpoint)]
        try:
            self._call(source, words, timeout_s=timeout_s, advance=advance)
        except ExistsError:
            if not replaces:
                raise
            # A node may not remove files on another node; the engine may.
            self.drop_state(destination, vm, checkpoint=checkpoint)
            self._call(source, words, timeout_s=timeout_s, advance=advance)

    def drop_state(self, node: str, vm: str, *, shared: bool = False, checkpoint: int = 0) -> None:
        """See ``Nodes``."""
        self._call(node, ["drop-state", vm, *_of(checkpoint)], shared=shared)

    def use_checkpoint(self, node: str, vm: str, number: int, *, shared: bool = False) -> None:
        """See ``Nodes``."""
        self._call(node, ["use-checkpoint", vm, str(number)], shared=shared)

    def adopt(self, node: str, vms: Collection[str]) -> None:
        """See ``Nodes``."""
        names = sorted(vms)
        for first in range(0, len(names), _ADOPTED):
            content = "".join(f"{vm}\n" for vm in names[first : first + _ADOPTED])
            self._call(node, ["adopt"], shared=True, content=content.encode("ascii"))

    def lend(self, node: str, vm: str, group: str, digest: Digest) -> None:
        """See ``Nodes``."""
        self._call(node, ["lend", vm, group, str(digest.size_bytes)], shared=True)

    def put_aside(self, node: str, vm: str, number: int, *, shared: bool = False) -> bool:
        """See ``Nodes``."""
        return bool(self._call(node, ["put-aside", vm, str(number)], shared=shared)["state"])

    def take_back(self, node: str, vm: str, number: int, *, shared: bool = False) -> bool:
        """See ``Nodes``."""
        return bool(self._call(node, ["take-back", vm, str(number)], shared=shared)["state"])

    def drop_aside(self, node: str, vm: str, number: int, *, shared: bool = False) -> None:
        """See ``Nodes``."""
        self._call(node, ["drop-aside", vm, str(number)], shared=shared)

    def verify_aside(
        self, node: str, vm: str, number: int, digest: Digest, *, timeout_s: float, shared: bool = False
    ) -> None:
        """See ``Nodes``."""
        words = ["verify-aside", vm, str(number), str(digest.size_bytes), digest.blake2b]
        self._call(node, words, shared=shared, timeout_s=timeout_s)

    def init_store(self, node: str, marker: str, *, expected: str = "", shared: bool = False) -> str:
        """See ``Nodes``."""
        return str(self._call(node, ["init-store", marker, expected or "-"], shared=shared)["marker"])

    def space(self, node: str, *, shared: bool = False) -> Space:
        """See ``Nodes``."""
        found = self._call(node, ["space"], shared=shared)
        marker = found["marker"]
        return Space(int(found["free_bytes"]), None if marker is None else str(marker))

    def list_files(self, node: str, *, shared: bool = False) -> NodeFiles:
        """See ``Nodes``."""
        answer = self._call(node, ["list"], shared=shared)
        return NodeFiles(
            frozenset(answer["states"]),
            frozenset(answer["partials"]),
            frozenset(answer["configs"]),
        )

    def check(self, node: str) -> NodeCheck:
        """See ``Nodes``."""
        answer = self._call(node, ["check"])
        others = ("images", "templates", "platform")
        directories = {name: value for name, value in answer.items() if isinstance(value, dict) and name not in others}
        templates = answer.get("templates")
        return NodeCheck(
            answer["version"],
            directories,
            answer["images"],
            answer["time"],
            answer["bridge"],
            # An older release does not have them.
            answer.get("save_format", ""),
            frozenset(answer.get("restorable_formats", ())),
            answer.get("snapshot_format", ""),
            (templates["number"], templates["bytes"]) if templates else None,
            answer.get("qemu_hook"),
            tuple(answer.get("filter_tools", ())),
            answer.get("ports_closed"),
            frozenset(answer.get("writable_images", ())),
            answer.get("hidden_vm_dir", ""),
            answer.get("kvm_closed"),
            answer.get("guest_filter"),
            tuple(answer.get("unfiltered", ())),
            answer.get("epoch"),
            answer.get("platform") or {},
        )

    def bound_memory(self, node: str, mib: int) -> MemoryReport:
        """See ``Nodes``."""
        answer = self._call(node, ["bound-memory", str(mib)])
        return MemoryReport(
            answer["bounded"],
            answer["why"],
            answer["limit_mib"],
            answer["used_mib"],
            answer["waits"],
            answer["pressure"],
            tuple(answer["waiting"]),
        )

    def use_template(
        self,
        node: str,
        vm: str,
        template: Template,
        uuid: str,
        mac: str,
        config: bytes,
        seed: bytes = b"",
        guard: Guard | None = None,
    ) -> TemplateUse:
        """See ``Nodes``."""
        words = ["use-template", vm, template.key, template.image, uuid, mac, str(len(config)), *_with(guard)]
        answer = self._call(node, words, content=config + seed)
        return TemplateUse(answer["template"])

    def await_guest(self, node: str, vm: str, template: Template, *, timeout_s: float) -> bool:
        """See ``Nodes``."""
        words = ["await-guest", vm, template.key, template.image, str(max(1, int(timeout_s)))]
        return bool(self._call(node, words, timeout_s=timeout_s + self._call_timeout_s)["waiting"])

    def keep_disk(self, node: str, vm: str, template: Template) -> None:
        """See ``Nodes``."""
        self._call(node, ["keep-disk", vm, template.key, template.image])

    def settle_template(self, node: str, vm: str, template: Template) -> bool:
        """See ``Nodes``."""
        return bool(self._call(node, ["settle-template", vm, template.key, template.image])["kept"])

    def refuse_template(self, node: str, vm: str, template: Template) -> None:
        """See ``Nodes``."""
        self._call(node, ["refuse-template", vm, template.key, template.image])

    def mounts(self, node: str) -> Mapping[str, Any]:
        """See ``Nodes``."""
        return self._call(node, ["look-at-mounts"])

    def reach(self, node: str, other: str) -> Reach:
        """See ``Nodes``."""
        answer = self._call(node, ["reach", other])
        return Reach(answer["agent"], bool(answer.get("libvirt_open")), bool(answer.get("unrestricted")))

    def call(
        self,
        node: str,
        words: list[str],
        *,
        content: bytes = b"",
        timeout_s: float | None = None,
        advance: Callable[[Mapping[str, int]], None] | None = None,
    ) -> dict[str, Any]:
        """See ``AgentCalls``."""
        try:
            answer = self._answer(node, words, content=content, timeout_s=timeout_s, advance=advance)
        except TimedOutError as error:  # an agent that is there says itself that its time is over
            raise UnavailableError(str(error)) from None
        return _without_error(node, answer)

    def close(self) -> None:
        """See ``Nodes``."""
        with self._lock:
            links, self._links = list(self._links.values()), {}
        for link in links:
            link.close()

    def _call(
        self,
        node: str,
        words: list[str],
        *,
        shared: bool = False,
        content: bytes = b"",
        timeout_s: float | None = None,
        patience: Patience | None = None,
        advance: Callable[[Mapping[str, int]], None] | None = None,
    ) -> dict[str, Any]:
        """Run one verb and return the object it prints, unless it tells an error."""
        answer = self._answer(
            node, words, shared=shared, content=content, timeout_s=timeout_s, patience=patience, advance=advance
        )
        return _without_error(node, answer)

    def _answer(
        self,
        node: str,
        words: list[str],
        *,
        shared: bool = False,
        content: bytes = b"",
        timeout_s: float | None = None,
        patience: Patience | None = None,
        advance: Callable[[Mapping[str, int]], None] | None = None,
    ) -> dict[str, Any]:
        """Run one verb and return the object it prints; show the node that the engine leads, where it asks for that.

        Raises TimedOutError: it has printed none in time.
        """

        def call() -> dict[str, Any]:
            return self._answer_once(
                node, words, shared=shared, content=content, timeout_s=timeout_s, patience=patience, advance=advance
            )

        return self._claims.answer(call, lambda claim: self._answer_once(node, claim))

    def _answer_once(
        self,
        node: str,
        words: list[str],
        *,
        shared: bool = False,
        content: bytes = b"",
        timeout_s: float | None = None,
        patience: Patience | None = None,
        advance: Callable[[Mapping[str, int]], None] | None = None,
    ) -> dict[str, Any]:
        with self._lock:
            link = self._links.setdefault(node, ServedLink(node, self._target))
        timeout_s = self._call_timeout_s if timeout_s is None else timeout_s
        with link.slot(words[0] in _LONG_CALLS, timeout_s):
            return self._ask(link, self._in_full(words, shared), content, patience or Patience(timeout_s), advance)

    def _in_full(self, words: list[str], shared: bool) -> list[str]:
        # An agent of an older release knows no groups: it is told none where nothing is shared.
        group = ["--group", self._group] if self._group and (shared or words[0] == "obey") else []
        return [*words, *with_epoch(self._epoch), *group, *(["--shared"] if shared else [])]

    @staticmethod
    def _ask(
        link: ServedLink,
        words: list[str],
        content: bytes,
        patience: Patience,
        advance: Callable[[Mapping[str, int]], None] | None,
    ) -> dict[str, Any]:
        what = f"{words[0]} on {link.node}"
        patience.begin()
        try:
            if words[0] in SERVED and len(content) <= CONTENT_MAX:
                with suppress(NotServedError):
                    return link.serve(words, content, patience, what)
            with link.channel(patience.remaining_s) as channel:
                channel.settimeout(patience.remaining_s)
                channel.exec_command(shlex.join(words))
                if content:
                    channel.sendall(content)
                channel.shutdown_write()
                return read_answer(channel, patience, what, advance)
        except TimeoutError:
            raise TimedOutError(f"{what} did not end in time") from None
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise UnavailableError(f"{what}: the connection broke: {error}") from None


def _without_error(node: str, answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise error_of(node, answer)
    return answer


def _with(guard: Guard | None) -> list[str]:
    return ["--guard", guard.mac, guard.address] if guard is not None else []


def _of(checkpoint: int) -> list[str]:
    return ["--checkpoint", str(checkpoint)] if checkpoint else []
