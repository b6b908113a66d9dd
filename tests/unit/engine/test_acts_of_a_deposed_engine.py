"""Nothing that an engine does at its neighbours is begun after its lease has ended, whatever it does there.

The engine is stopped, as by SIGSTOP, for 20 s of a virtual clock, and goes on in the middle of what it did.
"""

from __future__ import annotations

import inspect
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmsplugin.adapters.coordination.elected import Candidate, Elected
from rmsplugin.adapters.guests.base import Guests
from rmsplugin.adapters.lease.clocked import ClockedLease, steady_s
from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.platform.base import Platform
from rmsplugin.adapters.rms.base import JobState, Rms
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.simulated.ensemble import SimulatedEnsemble
from rmsplugin.engine import daemon
from rmsplugin.engine.context.acts import Acts
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.reconcile.fencing import Fencing
from rmsplugin.errors import DeposedError, UnavailableError
from rmsplugin.settings import Settings

SESSION_S = 4.0
#: The methods of each neighbour that change nothing there. All others are acts. The wall refuses them alike: a method
#: that is new is refused, too, and this table says what it is.
LOOKS = {
    Rms: {
        "snapshot",
        "leaf_switches",
        "pulse",
        "job",
        "jobs",
        "unheard",
        "ended",
        "batch_script",
        "geometry",
        "mail_wish",
        "overseers",
    },
    Platform: {"listen", "host_info", "list_vms", "has_vm", "used", "statistics", "template_key", "close"},
    Nodes: {
        "stat",
        "verify",
        "list_files",
        "verify_aside",
        "space",
        "await_guest",
        "check",
        "mounts",
        "reach",
        "close",
    },
    Guests: {"wait_ready", "used", "script_ended"},
}
ACTS = {
    Rms: {
        "reserve_gate",
        "split",
        "open_gate",
        "close_gate",
        "hold",
        "suspend",
        "resume",
        "requeue",
        "cancel",
        "tell_end",
        "comment",
    }
    | {"request_room", "extend_room", "power_down", "power_up", "repair_node"},
    Platform: {
        "boot",
        "stop",
        "save",
        "checkpoint",
        "restore",
        "pause",
        "unpause",
        "set_memory",
        "set_cpus",
        "migrate",
        "abort_job",
    },
    Nodes: {"put_config", "put_seed", "make_overlay", "drop_config", "seal", "send", "drop_state", "use_checkpoint"}
    | {"put_aside", "take_back", "drop_aside", "init_store", "use_template", "keep_disk", "settle_template"}
    | {"refuse_template", "bound_memory", "obey", "adopt", "lend", "end_room"},
    Guests: {"configure", "set_clock", "set_cpus"},
}
NEIGHBOURS = {Rms: "rms", Platform: "hypervisor", Nodes: "nodes", Guests: "guests"}


class Engine:
    """An engine of several, its neighbours, and what has reached them."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.ensemble = SimulatedEnsemble(lambda: self.now)
        tree = self.ensemble.open(SESSION_S)
        candidate = Candidate("one", "head:/ledger", SESSION_S, 1.0)
        self.lease = lease = ClockedLease(Elected(tree, "/rmsplugin", candidate, lambda: self.now), lambda: self.now)
        lease.acquire()
        self.reached: list[str] = []
        self.told: list[str] = []
        for name in ("open_platform", "NodeAgents", "SshGuests"):
            monkeypatch.setattr(daemon, name, lambda *_, **__: self._neighbour())
        self.permits: list[Any] = []

        def open_rms(*_: Any, permit: Any, **__: Any) -> Any:
            self.permits.append(permit)
            return self._neighbour()

        monkeypatch.setattr(daemon, "open_rms", open_rms)
        self.settings = _settings(directory)
        self.context: Context = daemon.open_context(self.settings, directory, lease, deposed=self.told.append)
        self.context.acts._pause = self._renew

    def _renew(self) -> None:
        """What the thread that looks after the lease does, while an act waits."""
        self.now += 0.5
        with suppress(UnavailableError):
            self.lease.renew()

    def stopped(self, seconds: float = 20.0) -> None:
        self.now += seconds

    def _neighbour(self) -> Any:
        return cast(Any, Neighbour(self.reached))


class Neighbour:
    capabilities = frozenset[str]()

    def __init__(self, reached: list[str]) -> None:
        self._reached = reached

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: self._reached.append(name)


def _settings(directory: Path, **nodes: Any) -> Settings:
    return Settings.model_validate(
        {
            "cluster": {"coordination": "zookeeper", "servers": ["one:2181"]},
            "slurm": {"partitions": ["vjob"], "adapter": "cli"},
            "partition": {"vjob": {"hosts": "vmhosts"}},
            "network": {"pool": "10.0.0.10-10.0.0.20", "prefix_length": 24},
            "image": {"default": {"kind": "kernel", "kernel": "/k", "initrd": "/i"}},
            "nodes": nodes,
        }
    )


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    engine = Engine(tmp_path, monkeypatch)
    yield engine
    engine.context.ledger.close()


def methods(protocol: type) -> set[str]:
    return {name for name, found in inspect.getmembers(protocol, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize("protocol", NEIGHBOURS)
def test_each_method_is_an_act_or_a_look(protocol: type) -> None:
    assert methods(protocol) == ACTS[protocol] | LOOKS[protocol]
    assert not ACTS[protocol] & LOOKS[protocol]


@pytest.mark.parametrize(("protocol", "act"), [(each, act) for each in NEIGHBOURS for act in sorted(ACTS[each])])
def test_an_act_is_refused_once_the_lease_has_ended(engine: Engine, protocol: type, act: str) -> None:
    method = getattr(getattr(engine.context, NEIGHBOURS[protocol]), act)
    method("n1", "n2")
    assert (engine.reached, engine.told) == ([act], [])
    engine.stopped()
    with pytest.raises(DeposedError, match="its lease has ended"):
        method("n1", "n2")
    assert engine.reached == [act], "nothing has reached the neighbour"
    assert engine.told == ["the turn of this engine is over: its lease has ended"], "and the engine is told to end"


def test_the_lease_ends_at_eight_tenths_of_a_session(engine: Engine) -> None:
    engine.stopped(0.79 * SESSION_S)
    engine.context.rms.cancel(12)
    engine.stopped(0.02 * SESSION_S)
    engine.ensemble.begin_anew(0)
    with pytest.raises(DeposedError):
        engine.context.rms.cancel(12)


@pytest.mark.parametrize("protocol", NEIGHBOURS)
def test_an_act_waits_while_the_ensemble_answers_nobody_and_is_done_when_nobody_else_has_led(
    engine: Engine, protocol: type
) -> None:
    method = getattr(getattr(engine.context, NEIGHBOURS[protocol]), min(ACTS[protocol]))
    engine.ensemble.quorum, reached = False, []
    renew = engine.context.acts._pause

    def pause() -> None:
        reached.append(len(engine.reached))
        engine.ensemble.quorum = len(reached) > 5
        renew()

    engine.context.acts._pause = pause
    engine.stopped()
    method("n1", "n2")
    assert reached == [0] * 6, "nothing has reached the neighbour before"
    assert engine.reached == [min(ACTS[protocol])] and engine.told == []


def test_a_fence_is_not_begun_and_a_node_that_was_fenced_is_not_taken_for_gone(engine: Engine, tmp_path: Path) -> None:
    context, done = engine.context, tmp_path / "done"
    fence = _program(tmp_path / "fence", f"echo $0 >>{done}")
    status = _program(tmp_path / "status", f"echo $0 >>{done}; exit 2")
    settings = _settings(tmp_path, fence=(fence, "{node}"), fence_status=(status, "{node}"))
    asked: list[bool] = []
    for lasts in (0, 1):
        asked.clear()
        acts = Acts(lambda lasts=lasts: asked.append(True) or len(asked) <= lasts)  # type: ignore[misc]
        with pytest.raises(DeposedError):
            Fencing(settings, context.ledger, context.nodes, acts, context.hearing).fence("n1", "the engine")
        assert not context.ledger.nodes.gone()
        assert (done.read_text().split() if lasts else done.exists()) == ([fence] if lasts else False)


def test_a_fence_is_not_begun_by_an_engine_that_was_stopped_after_its_look(engine: Engine, tmp_path: Path) -> None:
    context, done = engine.context, tmp_path / "done"
    settings = _settings(tmp_path, fence=(_program(tmp_path / "fence", f"touch {done}"), "{node}"))
    leads = iter([True, False])
    acts = Acts(lambda: next(leads), until=lambda: steady_s() - 0.001)
    with pytest.raises(DeposedError):
        Fencing(settings, context.ledger, context.nodes, acts, context.hearing).fence("n1", "the engine")
    assert not done.exists() and not context.ledger.nodes.gone()


def test_an_act_is_told_until_when_it_may_be_begun(engine: Engine) -> None:
    with engine.context.acts.one() as until:
        assert until == engine.now + 0.8 * SESSION_S
    assert engine.permits == [engine.context.acts.one]


def test_a_requeue_is_broken_off_between_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is stopped after the first command; nothing else of the requeue is done."""
    done, asked = tmp_path / "done", list[bool]()
    _program(tmp_path / "scontrol", f"echo $* >>{done}")
    acts = Acts(lambda: asked.append(True) or len(asked) <= 1)  # type: ignore[func-returns-value]
    slurm = SlurmCli(str(tmp_path), permit=acts.one)
    suspended = SimpleNamespace(state=JobState.SUSPENDED, detail="SUSPENDED")
    monkeypatch.setattr(slurm, "_row", lambda _: SimpleNamespace(job=suspended, target="12"))
    with pytest.raises(DeposedError):
        slurm.requeue(12)
    assert done.read_text().splitlines() == ["requeue 12"]


def _program(path: Path, line: str) -> str:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)
