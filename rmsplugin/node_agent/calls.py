"""Calls: the words of a call of the node agent, and the verb that they name.

The words come in SSH_ORIGINAL_COMMAND, and from the command line only by hand. They are split, counted and checked,
and never given to a shell. Every call prints one JSON object, its last line. With the word ``serve`` the calls
themselves come on standard input (``serving``). With ``--peer``, for the key of another
node, the agent only takes copies and tells the room for them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rmsplugin.adapters.platform.node_factory import platform_on_node
from rmsplugin.errors import RmspluginError
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.node_agent.config import load
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.node_agent.owner import Claim
from rmsplugin.node_agent.values import Guard, Reply, VMName
from rmsplugin.node_agent.verbs import CONFIG_LIMIT_BYTES, SEED_LIMIT_BYTES, Agent, standard_input

if TYPE_CHECKING:
    from rmsplugin.node_agent.templates import Template
    from rmsplugin.node_agent.vm_verbs import VMVerbs

_COMMAND_LIMIT = 4096
# Texts: a call compiles those of its own words.
_NODE = r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}"
_BLAKE2B = r"[0-9a-f]{128}"
_MARKER = r"[0-9a-f]{32}"
#: A checkpoint's number, with a VM's index, is a place in the file of locks.
_NUMBER = r"[1-9][0-9]{0,11}"
_EPOCH = r"[1-9][0-9]{0,17}"
_BYTES = r"[0-9]{1,18}"
_KEY = r"[0-9a-f]{32}"
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MAC = r"[0-9a-f]{2}(:[0-9a-f]{2}){5}"
_ADDRESS = r"[0-9]{1,3}(\.[0-9]{1,3}){3}"
_MIB = r"[0-9]{1,9}"
_GROUP = r"(?!\.{1,2}$)[A-Za-z0-9_.+-]{1,64}"
_PATTERNS = (_NODE, _BLAKE2B, _MARKER, _NUMBER, _EPOCH, _BYTES, _KEY, _UUID, _MAC, _ADDRESS, _MIB, _GROUP)


def answer_once(arguments: list[str]) -> int:
    """Do one verb, or serve; return the exit status."""
    try:
        return _answer_once(arguments)
    except BrokenPipeError:
        # Nobody listens any more. Changes stay; Python must not try to flush again on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _answer_once(arguments: list[str]) -> int:
    try:
        peer, config_path, words = _words(arguments)
        if words == ["serve"] and not peer:
            return _serve(config_path)
    except AgentError as error:
        return _fail(error)
    return _answer(peer, config_path, words)


def _serve(config_path: str | None) -> int:
    from rmsplugin.node_agent import serving

    serving.load_everything()
    for pattern in _PATTERNS:
        re.compile(pattern)  # the processes of the calls find it compiled
    serving.Server(lambda words: _answer(False, config_path, words)).serve()
    return 0


def _answer(peer: bool, config_path: str | None, words: list[str]) -> int:
    try:
        answer = _do_verb(peer, config_path, words)
    except AgentError as error:
        return _fail(error)
    except BrokenPipeError:
        raise
    except (OSError, RmspluginError) as error:
        return _fail(AgentError.of(error))
    if answer is not None:
        _report(answer)
    return 0


def _fail(error: AgentError) -> int:
    _report({"error": str(error), "kind": error.kind, **error.facts})
    return 1


def _report(answer: Reply) -> None:
    print(json.dumps(answer), flush=True)


def _words(arguments: list[str]) -> tuple[bool, str | None, list[str]]:
    """Whether another node calls, the settings file, and the words of the call."""
    config_path = None
    peer = arguments[:1] == ["--peer"]
    if peer:
        arguments = arguments[1:]
    if arguments[:1] == ["--config"]:
        if len(arguments) < 2:
            raise AgentError("failed", "--config needs a file")
        config_path, arguments = arguments[1], arguments[2:]
    command = os.environ.get("SSH_ORIGINAL_COMMAND")
    if command is None:
        return peer, config_path, arguments
    if arguments:
        raise AgentError("failed", "a forced command takes its arguments from ssh alone")
    if len(command) > _COMMAND_LIMIT or not command.isprintable():
        raise AgentError("failed", "not a command of the node agent")
    try:
        return peer, config_path, shlex.split(command)
    except ValueError as error:
        raise AgentError("failed", f"not a command of the node agent: {error}") from None


def _do_verb(peer: bool, config_path: str | None, words: list[str]) -> Reply | None:
    verb, *rest = words or [""]
    shared = rest[-1:] == ["--shared"]
    if shared:
        del rest[-1]
    group = _take_group(rest)
    epoch = _take_epoch(rest)
    guard = _take_guard(rest)
    checkpoint = _take_checkpoint(rest)
    if peer and (shared or group or epoch is not None or (verb, len(rest)) not in _PEER_CALLS):
        raise AgentError("failed", f"not for the key of a node, which may bring copies only: {shlex.join(words)[:200]}")
    call = _CALLS.get((verb, len(rest)))
    if (
        call is None
        or (shared and verb not in _SHARED)
        or (group and not (shared or verb == "obey"))
        or (verb in _OF_GROUPS and not (shared and group))
        or (checkpoint and verb not in _OF_CHECKPOINTS)
        or (guard and verb not in _GUARDED)
    ):
        raise AgentError("failed", f"not a command of the node agent: {shlex.join(words)[:200]}")
    config = load(config_path)._replace(group=group)
    agent = Agent(config, platform_on_node(config.platform))
    # Another node brings copies for an engine whose epoch its own agent has checked.
    if not (peer or _is_look(verb, rest)):
        agent.obey(FIRST_EPOCH if epoch is None else epoch, shared or verb == "obey", _claim_of(verb, rest))
    return call(agent, rest, Options(shared, checkpoint, guard))


class Options(NamedTuple):
    """The options that may follow the words of a verb."""

    shared: bool  # the verb is about the store that all nodes mount
    checkpoint: int  # the verb is about the checkpoint with this number; 0: the VM's state
    guard: Guard | None  # the addresses to which the VM's interface is pinned


def _claim_of(verb: str, rest: list[str]) -> Claim | None:
    """The word of an engine that leads; None: it gives none."""
    if (verb, len(rest)) != ("obey", 2):
        return None
    until = None if rest[1] == "-" else int(_matching(_NUMBER, rest[1], "a number of milliseconds"))
    return Claim(_matching(_UUID, rest[0], "the id of a boot"), until)


def _is_look(verb: str, rest: list[str]) -> bool:
    """Whether the call changes nothing: an engine whose turn is over may look."""
    return verb in _LOOKS or (verb == "bound-memory" and not int(_matching(_MIB, rest[0], "a number of MiB")))


def _take_epoch(rest: list[str]) -> int | None:
    """The epoch of the asking engine; None if it gives none."""
    if rest[-2:-1] != ["--epoch"]:
        return None
    epoch = int(_matching(_EPOCH, rest[-1], "an epoch"))
    del rest[-2:]
    return epoch


def _take_group(rest: list[str]) -> str:
    """The group whose part of a shared store is meant; empty: the whole of it."""
    if rest[-2:-1] != ["--group"]:
        return ""
    group = _matching(_GROUP, rest[-1], "the name of a group")
    del rest[-2:]
    return group


def _take_guard(rest: list[str]) -> Guard | None:
    if rest[-3:-2] != ["--guard"]:
        return None
    guard = Guard(_matching(_MAC, rest[-2], "a MAC address"), _matching(_ADDRESS, rest[-1], "an IPv4 address"))
    del rest[-3:]
    return guard


def _take_checkpoint(rest: list[str]) -> int:
    if rest[-2:-1] != ["--checkpoint"]:
        return 0
    number = int(_matching(_NUMBER, rest[-1], "the number of a checkpoint"))
    del rest[-2:]
    return number


def _send(agent: Agent, rest: list[str], options: Options) -> Reply:
    from rmsplugin.node_agent import transfer  # here: the other verbs start faster without it

    vm, digest = VMName(rest[0]), (_size(rest[2]), _blake2b(rest[3]))
    return transfer.send(agent, vm, _node(rest[1]), digest, _report, options.checkpoint)


def _reach(agent: Agent, rest: list[str]) -> Reply:
    from rmsplugin.node_agent import transfer

    return transfer.reach(agent, _node(rest[0]))


def _bound_memory(agent: Agent, rest: list[str]) -> Reply:
    from rmsplugin.node_agent import control_group

    return control_group.bound(int(_matching(_MIB, rest[0], "a number of MiB")), agent.platform)


def _receive(agent: Agent, rest: list[str], options: Options) -> Reply:
    from rmsplugin.node_agent import transfer

    return transfer.receive(agent, VMName(rest[0]), _size(rest[1]), _blake2b(rest[2]), options.checkpoint)


def _template(agent: Agent, key: str, image: str) -> Template:
    from rmsplugin.node_agent.templates import Template

    key = _matching(_KEY, key, "the key of a template")
    return Template(agent.config, agent.platform, key, image, agent.still_wanted)


def _use_template(agent: Agent, rest: list[str], guard: Guard | None) -> Reply:
    """Standard input has the VM's other files: so a start has fewer processes to wait for."""
    from rmsplugin.node_agent.templates import COPIED

    vm, template = VMName(rest[0]), _template(agent, *rest[1:3])
    content = standard_input(CONFIG_LIMIT_BYTES + SEED_LIMIT_BYTES)
    agent.keep_guard(vm, guard)
    answer = template.use(vm, _matching(_UUID, rest[3], "a UUID"), _matching(_MAC, rest[4], "a MAC address"))
    if answer == COPIED:
        agent.put_files(vm, content, _size(rest[5]))
    return answer


def _vms(agent: Agent) -> VMVerbs:
    from rmsplugin.node_agent.vm_verbs import VMVerbs  # here: the other verbs start faster without it

    return VMVerbs(agent, _report)


#: Verb and number of words after it -> the call.
_CALLS: dict[tuple[str, int], Callable[[Agent, list[str], Options], Reply | None]] = {
    ("put-config", 1): lambda agent, rest, options: agent.put_config(VMName(rest[0]), options.guard),
    ("put-seed", 1): lambda agent, rest, options: agent.put_seed(VMName(rest[0])),
    ("make-overlay", 2): lambda agent, rest, options: agent.make_overlay(VMName(rest[0]), rest[1]),
    ("drop-config", 1): lambda agent, rest, options: agent.drop_config(VMName(rest[0])),
    ("stat", 1): lambda agent, rest, options: agent.stat(VMName(rest[0]), *options[:2]),
    ("seal", 1): lambda agent, rest, options: agent.seal(VMName(rest[0]), options.shared, _report, options.checkpoint),
    ("verify", 3): lambda agent, rest, options: agent.verify(
        VMName(rest[0]), _size(rest[1]), _blake2b(rest[2]), *options[:2]
    ),
    ("send", 4): _send,
    ("receive", 3): _receive,
    ("init-store", 2): lambda agent, rest, options: agent.init_store(
        _marker(rest[0]), _expected(rest[1]), options.shared
    ),
    ("put-aside", 2): lambda agent, rest, options: agent.put_aside(VMName(rest[0]), _size(rest[1]), options.shared),
    ("take-back", 2): lambda agent, rest, options: agent.take_back(VMName(rest[0]), _size(rest[1]), options.shared),
    ("drop-aside", 2): lambda agent, rest, options: agent.drop_aside(VMName(rest[0]), _size(rest[1]), options.shared),
    ("verify-aside", 4): lambda agent, rest, options: agent.verify_aside(
        VMName(rest[0]), _size(rest[1]), _size(rest[2]), _blake2b(rest[3]), options.shared
    ),
    ("drop-state", 1): lambda agent, rest, options: agent.drop_state(VMName(rest[0]), *options[:2]),
    ("use-checkpoint", 2): lambda agent, rest, options: agent.use_checkpoint(
        VMName(rest[0]), int(_matching(_NUMBER, rest[1], "the number of a checkpoint")), options.shared
    ),
    ("adopt", 0): lambda agent, rest, options: agent.adopt(standard_input(CONFIG_LIMIT_BYTES)),
    ("lend", 3): lambda agent, rest, options: agent.lend(
        VMName(rest[0]), _matching(_GROUP, rest[1], "the name of a group"), _size(rest[2])
    ),
    ("list", 0): lambda agent, rest, options: agent.list_files(options.shared),
    ("space", 0): lambda agent, rest, options: agent.space(options.shared),
    ("end-room", 1): lambda agent, rest, options: agent.end_room(int(_matching(_NUMBER, rest[0], "the id of a job"))),
    ("bound-memory", 1): lambda agent, rest, options: _bound_memory(agent, rest),
    ("use-template", 6): lambda agent, rest, options: _use_template(agent, rest, options.guard),
    ("await-guest", 4): lambda agent, rest, options: _template(agent, *rest[1:3]).await_guest(
        VMName(rest[0]), int(_matching(_NUMBER, rest[3], "a number of seconds"))
    ),
    ("keep-disk", 3): lambda agent, rest, options: _template(agent, *rest[1:]).keep_disk(VMName(rest[0])),
    ("settle-template", 3): lambda agent, rest, options: _template(agent, *rest[1:]).settle(VMName(rest[0])),
    ("refuse-template", 3): lambda agent, rest, options: _template(agent, *rest[1:]).refuse(VMName(rest[0])),
    ("vm-host", 0): lambda agent, rest, options: _vms(agent).host(),
    ("vm-list", 0): lambda agent, rest, options: _vms(agent).list(),
    ("vm-has", 1): lambda agent, rest, options: _vms(agent).has(VMName(rest[0])),
    ("vm-statistics", 0): lambda agent, rest, options: _vms(agent).statistics(),
    ("vm-used", 1): lambda agent, rest, options: _vms(agent).used(VMName(rest[0])),
    ("vm-boot", 2): lambda agent, rest, options: _vms(agent).boot(
        VMName(rest[0]), _milliseconds(rest[1]), standard_input(CONFIG_LIMIT_BYTES)
    ),
    ("vm-restore", 3): lambda agent, rest, options: _vms(agent).restore(
        VMName(rest[0]), _milliseconds(rest[1]), rest[2], standard_input(CONFIG_LIMIT_BYTES)
    ),
    ("vm-stop", 2): lambda agent, rest, options: _vms(agent).stop(VMName(rest[0]), _milliseconds(rest[1])),
    ("vm-save", 3): lambda agent, rest, options: _vms(agent).save(VMName(rest[0]), _milliseconds(rest[1]), rest[2]),
    ("vm-checkpoint", 3): lambda agent, rest, options: _vms(agent).checkpoint(
        VMName(rest[0]), _milliseconds(rest[1]), rest[2]
    ),
    ("vm-pause", 2): lambda agent, rest, options: _vms(agent).pause(VMName(rest[0]), _milliseconds(rest[1])),
    ("vm-unpause", 2): lambda agent, rest, options: _vms(agent).unpause(VMName(rest[0]), _milliseconds(rest[1])),
    ("vm-memory", 3): lambda agent, rest, options: _vms(agent).set_memory(
        VMName(rest[0]), _milliseconds(rest[1]), _at_least_one(rest[2])
    ),
    ("vm-cpus", 3): lambda agent, rest, options: _vms(agent).set_cpus(
        VMName(rest[0]), _milliseconds(rest[1]), _at_least_one(rest[2])
    ),
    ("vm-abort", 1): lambda agent, rest, options: _vms(agent).abort(VMName(rest[0])),
    # Its epoch was taken before the call.
    ("obey", 0): lambda agent, rest, options: {},
    ("obey", 2): lambda agent, rest, options: {},
    ("platform", 0): lambda agent, rest, options: agent.let_through(_report, look=False),
    ("look-at-platform", 0): lambda agent, rest, options: agent.let_through(_report, look=True),
    ("reach", 1): lambda agent, rest, options: _reach(agent, rest),
    ("check", 0): lambda agent, rest, options: agent.check(),
    ("look-at-mounts", 0): lambda agent, rest, options: agent.look_at_mounts(),
}
#: The verbs that another node's key may call. None takes anything away, or tells more than room and marker.
_PEER_CALLS = frozenset({("receive", 3), ("space", 0)})
#: The verbs that change nothing.
_LOOKS = frozenset({"stat", "verify", "verify-aside", "list", "space", "check", "reach", "await-guest"})
_LOOKS |= {"look-at-mounts", "look-at-platform", "vm-host", "vm-list", "vm-has", "vm-statistics", "vm-used"}
_SHARED = frozenset({"stat", "seal", "verify", "drop-state", "list", "space", "init-store"})
_SHARED |= {"put-aside", "take-back", "drop-aside", "verify-aside", "use-checkpoint"}
_OF_GROUPS = frozenset({"adopt", "lend"})
_SHARED |= _OF_GROUPS
_GUARDED = frozenset({"put-config", "use-template"})
_OF_CHECKPOINTS = frozenset({"stat", "seal", "verify", "send", "receive", "drop-state"})


def _matching(pattern: str, word: str, what: str) -> str:
    if not re.fullmatch(pattern, word):
        raise AgentError("failed", f"not {what}: {word[:80]!r}")
    return word


def _node(word: str) -> str:
    return _matching(_NODE, word, "the name of a node")


def _marker(word: str) -> str:
    return _matching(_MARKER, word, "the marker of a store")


def _expected(word: str) -> VMName | None:
    """The VM whose state is expected in a store; "-" for none."""
    return None if word == "-" else VMName(word)


def _size(word: str) -> int:
    return int(_matching(_BYTES, word, "a number of bytes"))


def _milliseconds(word: str) -> int:
    return int(_matching(_NUMBER, word, "a number of milliseconds"))


def _at_least_one(word: str) -> int:
    return int(_matching(_NUMBER, word, "a number of CPUs or of MiB"))


def _blake2b(word: str) -> str:
    return _matching(_BLAKE2B, word, "a BLAKE2b digest")
