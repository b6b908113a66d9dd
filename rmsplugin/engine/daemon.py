"""Daemon: puts the engine together; runs cycles periodically, and whenever something happened, until told to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pwd
import signal
import stat
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import sdnotify

from rmsplugin import __version__
from rmsplugin.adapters.absent import Absent
from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.coordination.assignments import Assignments
from rmsplugin.adapters.coordination.tree import Tree
from rmsplugin.adapters.coordination.words_of_managers import DEAF, WordsOfManagers
from rmsplugin.adapters.guests.base import Guests
from rmsplugin.adapters.guests.keys import generate_keypair, public_of
from rmsplugin.adapters.guests.ssh import SshGuests
from rmsplugin.adapters.knock import knock
from rmsplugin.adapters.lease.base import Lease
from rmsplugin.adapters.lease.factory import ASKS_A_SESSION, Opened, open_lease
from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.nodes.passages import passages_of
from rmsplugin.adapters.nodes.ssh import NodeAgents
from rmsplugin.adapters.platform.base import Platform
from rmsplugin.adapters.platform.factory import open_platform
from rmsplugin.adapters.platform.native.platform import NativePlatform
from rmsplugin.adapters.power.factory import open_power
from rmsplugin.adapters.rms.factory import open_rms
from rmsplugin.adapters.rms.slurm_reading import Handed
from rmsplugin.client import EngineClient
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.capacity.memory_care import MemoryCare
from rmsplugin.engine.context.acts import Acts, only_led
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.context.fronts import KNOCK_PERIOD_S
from rmsplugin.engine.context.hearing import TEST_PERIOD_S
from rmsplugin.engine.context.steady_clock import SteadyClock
from rmsplugin.engine.controllers.about import about
from rmsplugin.engine.controllers.controllers import LOOK_S, Controllers
from rmsplugin.engine.controllers.deaf_entries import DeafEntries
from rmsplugin.engine.controllers.given_to import MANAGER, GivenTo
from rmsplugin.engine.controllers.shared_writes import SharedWrites
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.decide.parameters import most_processes, proposer_limits, refuse_unknown_policy
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.execute.switch import Switch
from rmsplugin.engine.leadership import Leadership
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.ledger_file import LEDGER_NAME
from rmsplugin.engine.ledger.takeover import nodes_of_last_turn, take_over
from rmsplugin.engine.ledger.whereabouts import note_shared, require_taken_back, shared_ledgers
from rmsplugin.engine.metrics.metrics import open_metrics
from rmsplugin.engine.observe.queue_watch import MOST, QueueWatch
from rmsplugin.engine.observe.vm_events import VMEvents
from rmsplugin.engine.parted import Parted
from rmsplugin.engine.periodic import Periodic
from rmsplugin.engine.schedule.jobs import jobs_of
from rmsplugin.engine.schedule.programs import Programs
from rmsplugin.engine.schedule.runs import Runs
from rmsplugin.engine.schedule.timetable import Timetable
from rmsplugin.engine.serve.ears import Ears, ways_in
from rmsplugin.engine.serve.requests import Requests
from rmsplugin.engine.serve.service import Service
from rmsplugin.engine.shared_dir import ROOT_KEY, identity_of
from rmsplugin.engine.territory.begun_anew import BegunAnew
from rmsplugin.engine.territory.own_rms import own_rms
from rmsplugin.engine.territory.territory import Territory, territory_of
from rmsplugin.engine.turn import obeyed_by_all
from rmsplugin.engine.watchdog import Watchdog, kill_unless
from rmsplugin.errors import LedgerError, RmspluginError, SettingsError
from rmsplugin.latency import keep_for_good, switch_threads_often
from rmsplugin.presence import is_there
from rmsplugin.proposer.pool import Proposers
from rmsplugin.settings import GROUPS_DIR, Settings

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds between two checks whether a batch job was submitted.
_SUBMISSIONS_S = 0.03
#: Seconds between two checks whether Slurm has told of a change in its queue.
_PULSE_S = 0.2
#: Likewise in the engine of a group, to which the leader hands it: all are to look at the same time.
_HANDED_PULSE_S = 0.05
#: Seconds between two checks whether wrappers that are to go on were heard of.
_WRAPPERS_S = 1.0
#: Seconds between two checks whether the host's clock was set.
_CLOCK_S = 10.0
#: Seconds between two looks whether the leader of the groups has written.
_LEADER_S = 0.5
#: The answer to who has the lead handed over may take so long: later it would be refused, in seconds.
_ANSWER_S = 0.2
#: Seconds between two looks whether a child of the program before has ended.
_REAP_S = 0.5
#: Seconds between two tries of a write to the shared directory.
_SHARED_S = 5.0
#: So long an engine whose lease ran out stands still at most, in seconds. Servers of ZooKeeper that have lost their
#: leader notice within 10 s by Debian's settings, and have another one some seconds later.
STILL_S = 30.0
#: A cycle that takes longer, in seconds, stands still: no question of one lasts for more than some minutes.
_LONGEST_CYCLE_S = 1800.0
#: Seconds between two looks of a group's engine whether its cycles go on.
STILL_LOOK_S = 30.0
#: Seconds between two checks of an ending engine whether all operations have ended.
_LOOK_S = 0.02


def main(settings: Settings, config: Path, group: str = "") -> int:
    """Run the engine in the foreground until SIGTERM or SIGINT. Returns the exit code.

    Args:
        settings: as they were read.
        config: the file that they were read from, for the commands that the engine runs.
        group: whose engine this is; empty: of all groups.
    """
    log_to_stderr(group)
    command = f"rmsplugin engine --group {group}" if group else "rmsplugin engine"
    switch_threads_often()
    try:
        settings = settings.of_group(group) if group else settings
        state_dir = prepare_state_dir(settings)
        shared_dir = settings.cluster.shared_dir
        shared = "" if shared_dir is None else identity_of(shared_dir)
        opened = open_lease(settings, state_dir, shared, about(settings))
        leadership = Leadership(opened.lease, settings.cluster.session_s / ASKS_A_SESSION, STILL_S)
        proposer = Proposers(proposer_limits(settings), most_processes(settings))
        if not _wait_for(leadership, settings, proposer.warm_up):
            proposer.close()
            leadership.release(at_rest=True)
            return 0
    except RmspluginError as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 2
    daemon = None
    try:
        daemon = Daemon(settings, state_dir, config.absolute(), opened, proposer)
        keep_for_good()
        asyncio.run(daemon.run(partial(_release, leadership, daemon)))
    except LedgerError as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 2
    except RmspluginError as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 1
    finally:
        _release(leadership, daemon)
    if daemon.hands_over:
        _begin_anew()
    # Threads that wait on a hypervisor are bounded, but may exceed the patience of a service's stop. Their operations
    # are in the ledger, and are taken up at the next start.
    logging.shutdown()
    os._exit(0)


def _release(leadership: Leadership, daemon: Daemon | None) -> None:
    leadership.release(at_rest=daemon is None or daemon.at_rest())


def _begin_anew() -> None:
    """Stand by as a new program in this process: it has no threads of this one, and is of a release installed since."""
    log.info("the lead is handed over; this process begins anew")
    logging.shutdown()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _wait_for(leadership: Leadership, settings: Settings, stand_by: Callable[[], object]) -> bool:
    """Wait until this engine leads, or is told to end, and keep it leading. Returns whether it leads.

    Args:
        leadership: of this engine.
        settings: as they were read.
        stand_by: called where another engine leads: what can be done before this one does.

    Raises:
        UnavailableError: another engine runs here, and nothing says which one is to go on when it ends.
        RefusedError: this engine can never lead.
    """
    if settings.cluster.coordination == "local":
        leadership.lease.acquire()
        return True
    told_to_end = threading.Event()
    before = {number: signal.signal(number, lambda *_: told_to_end.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    notifier = sdnotify.SystemdNotifier()
    notifier.notify("READY=1\nSTATUS=standing by")
    over = threading.Event()
    reaper = threading.Thread(target=_reap, args=(over,), name="reaper", daemon=True)
    reaper.start()

    def tell(why: str) -> None:
        notifier.notify(f"STATUS=waiting: {why}")
        stand_by()

    leads = leadership.wait(told_to_end, tell, Watchdog().feed)
    over.set()
    reaper.join()
    for number, handler in before.items():
        signal.signal(number, handler)
    if leads:
        leadership.keep(_end_at_once)
        log.info("this engine leads, with epoch %d of the ensemble", leadership.lease.epoch)
        notifier.notify("STATUS=leading")
    return leads


def _reap(over: threading.Event) -> None:
    """Take the ends of children that the program before has left in this process.

    The only one of its own is the proposer. Where that has ended, too, whoever asks it finds that there is none.
    """
    with contextlib.suppress(ChildProcessError):
        while not over.wait(_REAP_S):
            os.waitpid(-1, os.WNOHANG)


def _end_at_once(why: str) -> None:
    """End the process as a kill would: another engine may lead. It takes up what the ledger has under way."""
    log.critical("this engine has lost its lease, and ends: %s", why)
    logging.shutdown()
    os._exit(1)


class Daemon:
    """One engine."""

    def __init__(self, settings: Settings, state_dir: Path, config: Path, opened: Opened, proposer: Proposers) -> None:
        """Put it together.

        Args:
            settings: as they were read.
            state_dir: of this engine.
            config: the settings file.
            opened: the lease of this process, held.
            proposer: it may have been started already.
        """
        lease, self._settings = opened.lease, settings
        self.hands_over = False
        self._anew: BegunAnew | None = None  # for the engine of a group, once it runs
        self._ends = False
        self._cycles = Periodic("cycle", self._run_cycle, settings.engine.cycle_s)
        self.context = open_context(settings, state_dir, lease, tree=opened.tree, deposed=_end_at_once)
        watched = (*settings.slurm.partitions, *settings.hosts_partitions)
        queue = QueueWatch(self.context.rms, self.context.slurm, watched, self.wake, lambda: self.cycle.report.seconds)
        self._others = (
            Periodic("watch", queue.ask_slurm, _PULSE_S if self.context.territory is None else _HANDED_PULSE_S),
            Periodic(
                "submissions", queue.ask_slurm_if_submitted, min(_SUBMISSIONS_S, settings.engine.watch_s), most=MOST
            ),
            Periodic("memory", self._watch_memory, settings.memory.watch_s),
            Periodic("wrappers", self._watch_wrappers, _WRAPPERS_S),
            Periodic("hearing", self._ears().test_hearing, TEST_PERIOD_S),
            Periodic("fronts", self.context.fronts.knock_at_all, KNOCK_PERIOD_S),
            Periodic("clock", self._watch_clock, _CLOCK_S),
            *self._watch_controllers(opened),
            *self._watch_the_leader(),
            *self._watch_the_manager(opened),
            *self._watch_all_managers(opened),
        )
        self.executor = Executor(self.context, workers=settings.engine.workers, on_end=self._operation_ended)
        self.context.hypervisor.listen(VMEvents(self.executor.is_busy, self.wake).heard)
        self.memory_care = MemoryCare(self.context)
        placing = Placing(self.context, self.executor, self.memory_care)
        self.switch = Switch(self.context, self.executor, placing, self.memory_care)
        refuse_unknown_policy(settings)
        self.proposer = proposer
        self.cycle = Cycle(self.context, self.memory_care, self.executor, placing, self.switch, self.proposer)
        capacities = Capacities(settings, self.context.ledger, self.context.clock, self.context.demanded_cpus)
        self.metrics = open_metrics(capacities, self.cycle, self.context.agents_told)
        self._programs = Programs(config)
        jobs = jobs_of(self.context, self._programs, self.cycle.gate, lambda: self.cycle.seen)
        runs, clock = Runs(self.context.ledger, self.context.clock), self.context.clock
        self.timetable = Timetable(jobs, runs, self.context.ledger.schedule.last, clock.of_the_host)
        requests = Requests(self.context, self.executor, placing, self.cycle, self.wake)
        self.service = Service(self.context, requests, self.cycle, self.timetable, self.controllers, leads=lease.held)

    def _ears(self) -> Ears:
        by_munge = bool(self._settings.listens_at)
        return Ears(self.context.hearing, self.context.clock.now, ways_in(self._settings), by_munge=by_munge)

    def _watch_controllers(self, opened: Opened) -> list[Periodic]:
        """Make ``controllers``, None for an engine that is alone, and what looks after them."""
        self.controllers: Controllers | None = None
        if opened.elected is None:
            return []
        cluster = self._settings.cluster
        writes = None if cluster.shared_dir is None else SharedWrites(cluster.shared_dir)
        self.controllers = Controllers(opened.elected, about(self._settings), cluster.servers, writes)
        looks = [Periodic("controllers", self.controllers.see, LOOK_S)]
        return looks if writes is None else [*looks, Periodic("shared directory", writes.try_one, _SHARED_S)]

    def _watch_the_leader(self) -> list[Periodic]:
        """Have a cycle run when the leader of the groups has written; none for an engine that has all groups."""
        if (territory := self.context.territory) is None:
            return []

        def wake_if_told() -> None:
            if territory.news():
                self.wake()

        return [Periodic("leader's word", wake_if_told, _LEADER_S)]

    def _watch_the_manager(self, opened: Opened) -> list[Periodic]:
        """End where another manager has the group; none for an engine that no manager has started."""
        manager, cluster = os.environ.get(MANAGER, ""), self._settings.cluster
        if not manager or opened.tree is None or self.context.territory is None:
            return []
        assigned = Assignments(opened.tree, f"{cluster.path.rpartition(f'/{GROUPS_DIR}/')[0]}/assigned")
        end = partial(os.kill, os.getpid(), signal.SIGTERM)
        given = GivenTo(assigned, self.context.territory.group, manager, cluster.session_s / 2, end)
        return [Periodic("manager", given.note_owner, cluster.session_s / ASKS_A_SESSION)]

    def _watch_all_managers(self, opened: Opened) -> list[Periodic]:
        """Know when a manager that wrappers may ask cannot hear; none for an engine that has all groups."""
        context = self.context
        if opened.tree is None or context.territory is None:
            return []
        managers = WordsOfManagers(opened.tree, self._settings.site_path, DEAF)
        entries = DeafEntries(managers, context.hearing, context.clock.now)
        return [Periodic("deaf managers", entries.note_deaf, TEST_PERIOD_S)]

    def _operation_ended(self) -> None:
        """Let the steps that waited for the operation go on at once, whatever the cycle is doing."""
        try:
            self.switch.advance()
        except Exception:
            log.exception("the context switch does not go on; the next cycle tries again")
        self.wake()

    def at_rest(self) -> bool:
        """Whether nothing that this engine has begun at its neighbours is under way."""
        return not self.executor.busy() and self.context.acts.at_rest()

    def wake(self) -> None:
        """Have a cycle run soon; many calls before it starts make one cycle."""
        self._cycles.wake()

    async def run(self, release: Callable[[], None]) -> None:
        """Serve and cycle until a signal asks to end, or another engine is to lead; ``release``: of its lease."""
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)

        def hand_over() -> None:
            self.hands_over = not ended.is_set()
            ended.set()

        if self.controllers is not None:
            later = partial(loop.call_later, _ANSWER_S, hand_over)
            self.controllers.on_hand_over(lambda: loop.call_soon_threadsafe(later))
        if self.context.territory is not None:
            strangers = self.context.territory.strangers
            self._anew = BegunAnew(lambda: loop.call_soon_threadsafe(hand_over), strangers)
        await self.service.open()
        if self.metrics is not None:
            await self.metrics.listener.open()
        self.proposer.warm_up()
        adopted = self.executor.adopt()
        self.timetable.start()
        for periodic in (self._cycles, *self._others):
            periodic.start()
        log.info("rmsplugin %s is up; took up %d operations", __version__, adopted)
        notifier = sdnotify.SystemdNotifier()
        notifier.notify("READY=1")
        watchdog = asyncio.create_task(self._watch_cycles())
        await ended.wait()
        self._ends = True
        notifier.notify("STATUS=handing over" if self.hands_over else "STOPPING=1")
        for periodic in (self._cycles, *self._others):
            periodic.close()
        self.timetable.close()
        self._programs.close()
        self.switch.close()
        ended.clear()
        await self._let_end(ended)
        self.executor.close()
        # The next one need not wait for the last connections. No request is answered from here on.
        await asyncio.to_thread(release)
        self.proposer.close()
        if self.metrics is not None:
            await self.metrics.listener.close()
        await self.service.close()
        watchdog.cancel()

    async def _watch_cycles(self) -> None:
        """Have this process killed where cycles hang: by the service manager, or by itself where a manager has it."""
        if os.environ.get(MANAGER):
            await kill_unless(self._cycles_go_on, STILL_LOOK_S)
        else:
            await Watchdog().feed_while(self._cycles_go_on)

    def _cycles_go_on(self) -> bool:
        """Whether cycles begin and end, or no more are to begin: an end may wait for as long as the settings say.

        Slurm and nodes that do not answer make one last for minutes, not for more.
        """
        return self._ends or self._cycles.still_s < _LONGEST_CYCLE_S + self._settings.engine.cycle_s

    async def _let_end(self, told_again: asyncio.Event) -> None:
        """Wait for the operations under way, and begin none. Their jobs, hooks and wrappers are answered meanwhile."""
        bound_s = self._settings.engine.stop_wait_s
        deadline = time.monotonic() + bound_s
        if self.executor.busy():
            log.info("ending; operations on %d vjobs may end within %g s", len(self.executor.busy()), bound_s)
        while not self._ends_at_rest() and time.monotonic() < deadline and not told_again.is_set():
            await asyncio.sleep(_LOOK_S)
        self.hands_over &= not told_again.is_set()
        self.context.acts.end(now=True)
        left = len(self.executor.busy())
        log.info("ending%s", f"; operations on {left} vjobs are taken up at the next start" if left else "")

    def _ends_at_rest(self) -> bool:
        """Whether nothing is under way; nothing begins then. A cycle asks Slurm and nodes again and again."""
        return not self.executor.busy() and self.context.acts.end()

    def _watch_memory(self) -> None:
        """Give observed VMs that grow their shares of the memory left; a VM that has to wait is helped at once."""
        try:
            if self.memory_care.watch():
                self.wake()
        except RmspluginError as error:
            log.warning("observed VMs are not looked after now: %s", error)

    def _watch_wrappers(self) -> None:
        """Have a cycle run if a wrapper does not go on with its VMs, so that it is let go on soon."""
        if self.context.suspensions.news(self.context.signs.last, self.context.clock.now()):
            self.wake()

    def _watch_clock(self) -> None:
        """Keep the schedule right where the host's clock was set."""
        try:
            self.timetable.follow_host_clock()
        except RmspluginError as error:
            log.warning("the schedule is not looked after now: %s", error)

    def _run_cycle(self) -> None:
        with self.cycle.lock:
            # Called only now: a cycle that has waited for a preview sees the changes that woke it meanwhile.
            self._cycles.heard()
            self.cycle.run()
            if self._anew is not None and self.cycle.seen is not None:
                self._anew.where_refused(self.cycle.seen.refusing)
            self.service.page_changed()
            if self.metrics is not None:
                self.metrics.cycle_ended()


def open_context(
    settings: Settings,
    state_dir: Path,
    lease: Lease | None = None,
    *,
    tree: Tree | None = None,
    deposed: Callable[[str], None] = lambda why: None,
) -> Context:
    """Open the ledger and the adapters.

    Args:
        settings: of the site.
        state_dir: of this engine.
        lease: that of the engine, held, under whose epoch it acts.
        tree: its session in the ensemble, if there is one.
        deposed: see ``Acts``.

    Raises:
        LedgerError: the ledger cannot be used, or engines of higher epochs have led with it.
        DeposedError: another engine leads by now.
    """
    slurm, steady = settings.slurm, SteadyClock()
    # A lock on this host cannot be lost: an engine that has nothing else is asked nothing before each act.
    may_lose = lease is not None and settings.cluster.coordination != "local"
    acts = Acts()
    if lease is not None and may_lose:
        acts = Acts(lease.held, deposed, until=lease.held_until, lost=lease.lost)
    permit: Permit = acts.one if may_lose else nullcontext

    def led(adapter: T) -> T:
        return only_led(adapter, acts) if may_lose else adapter

    territory = open_territory(settings)
    handed = None if territory is None else open_readings(settings, territory)
    rms = led(
        open_rms(
            slurm.adapter,
            bin_dir=slurm.bin_dir,
            timeout_s=slurm.command_timeout_s,
            watch_s=settings.engine.watch_s,
            gate=slurm.gate,
            gate_reservation=slurm.gate_reservation,
            permit=permit,
            handed=handed,
        )
    )
    if territory is not None:
        rms = own_rms(rms, territory, settings)
    shared = shared_ledgers(settings)
    if lease is None or shared is None:
        if lease is not None:
            require_taken_back(state_dir, ROOT_KEY)
        ledger = Ledger(state_dir / LEDGER_NAME, clock=steady.now)
        epoch = ledger.epochs.highest() if lease is None else ledger.epochs.begin_turn(lease.epoch)
        calls = _agents(settings, epoch, permit)
        agents = led(calls)
    else:
        epoch = lease.epoch
        calls = _agents(settings, epoch, permit)
        agents = led(calls)
        parted = None if tree is None else Parted(settings, shared.parent.parent, tree)
        change = None
        if parted is not None:
            change = parted.for_all() if territory is None else parted.for_a_group(territory)
        begun = time.monotonic()
        remembered = partial(_own_of_last_turn, shared, territory)
        refusing = obeyed_by_all(settings, rms, agents, remembered, of_group=territory is not None)
        if territory is not None:
            territory.strangers = refusing
        obeyed = time.monotonic()
        path = take_over(shared, epoch, local=state_dir / LEDGER_NAME, leads=lease.held, change=change)
        if parted is not None and territory is None and change is not None:
            parted.joined(epoch)
        taken_s = time.monotonic() - obeyed
        log.info("nodes were asked to obey in %.1f s, and the ledger was taken over in %.1f s", obeyed - begun, taken_s)
        note_shared(state_dir, shared)
        ledger = Ledger(path, clock=steady.now, exclusive=True)
    steady.not_before(ledger.newest_time())
    private, public = shared_root_keys(settings, state_dir)
    hypervisor: Platform
    if settings.native:
        hypervisor, guests = NativePlatform(rms, settings.slurm.partitions), cast(Guests, Absent("guests"))
    else:
        hypervisor = led(open_platform(settings, passages_of(settings, epoch, calls.obey), cast(NodeAgents, calls)))
        guests = led(SshGuests(private))
    return Context(
        settings=settings,
        ledger=ledger,
        clock=Clock(now=steady.now, ahead_s=steady.ahead_s, problem=steady.problem),
        rms=rms,
        hypervisor=hypervisor,
        nodes=agents,
        guests=guests,
        root_public_key=public,
        power=open_power(settings.power, permit=permit),
        epoch=epoch,
        acts=acts,
        territory=territory,
        knock=knock,
    )


def open_readings(settings: Settings, territory: Territory) -> Handed | None:
    """What the managers' leader reads of Slurm; None for an engine that no manager has started."""
    if not os.environ.get(MANAGER):
        return None
    # An engine that is alone does without them.
    from rmsplugin.engine.territory.leaders_pulse import LeadersPulse
    from rmsplugin.engine.territory.leaders_readings import LeadersReadings

    manager = EngineClient.unix(settings.managers_socket)
    readings = LeadersReadings(manager, lambda: territory.version[0])
    return Handed(LeadersPulse(manager).latest, readings.texts, territory.note_own_reading)


def open_territory(settings: Settings) -> Territory | None:
    """What is this engine's own; None for an engine of all groups."""
    shared = settings.cluster.shared_dir
    if not settings.territory or shared is None:
        return None
    territory = territory_of(settings.territory, shared)
    territory.hear()
    return territory


def _own_of_last_turn(shared: Path, territory: Territory | None) -> list[str]:
    """The nodes of the last turn; of a group its hosts only.

    The ledger names hosts of other groups, too: states were copied there. One that learnt this epoch would refuse its
    own engine, whose epoch may be lower.
    """
    names = nodes_of_last_turn(shared)
    return names if territory is None else [name for name in names if name in territory.hosts]


def _agents(settings: Settings, epoch: int, permit: Permit) -> Nodes:
    if settings.native:
        return cast(Nodes, Absent("node agents"))
    nodes = settings.nodes
    # Where nothing is shared, agents need not know of groups.
    group = settings.territory if nodes.shared else ""
    return NodeAgents(
        nodes.agent_user, str(nodes.agent_key), str(nodes.known_hosts), epoch=epoch, group=group, permit=permit
    )


def shared_root_keys(settings: Settings, state_dir: Path) -> tuple[str, str]:
    """The key pair of ``root_keys`` that all controllers have; that of the first one, if it had one before."""
    shared = settings.cluster.shared_dir
    if shared is None:
        return root_keys(state_dir)
    if not is_there(shared / ROOT_KEY) and is_there(state_dir / ROOT_KEY):
        _write_keys(shared / ROOT_KEY, root_keys(state_dir)[0])
    return root_keys(shared)


def root_keys(state_dir: Path) -> tuple[str, str]:
    """The engine's own key pair, root in every guest; made at the first start. Returns (private, public)."""
    path = state_dir / ROOT_KEY
    if not is_there(path):
        _write_keys(path, generate_keypair().private_openssh)
    private = path.read_text()
    public = public_of(private)
    if not is_there(path.with_suffix(".pub")):
        path.with_suffix(".pub").write_text(public + "\n")
    return private, public


def _write_keys(path: Path, private: str) -> None:
    """Write the private key, unless the engine of another group is faster."""
    new = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(private)
        file.flush()
        os.fsync(file.fileno())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink()


def prepare_state_dir(settings: Settings) -> Path:
    """The state directory, checked: it is the engine's own, and closed to others.

    Raises:
        SettingsError: it is not, or the engine runs as another user than the settings say.
    """
    path = settings.engine.state_dir
    user = pwd.getpwuid(os.geteuid()).pw_name
    if user != settings.engine.user:
        raise SettingsError(f"runs as {user}, but engine.user is {settings.engine.user}: start it as that user")
    _make_private(path, "engine.state_dir", "holds keys", parents=True)
    if settings.territory:
        # Only the manager connects, which runs as the same user and says for whom it asks.
        _make_private(settings.engine.socket.parent, "the directory of groups' sockets", "is for the manager alone")
    return path


def _make_private(path: Path, what: str, why: str, *, parents: bool = False) -> None:
    """Make a directory, if it is not there. Raises SettingsError if it is not the engine's alone."""
    try:
        path.mkdir(mode=0o700, parents=parents, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise SettingsError(f"{what} {path}: {error.strerror}") from None
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        user = pwd.getpwuid(os.geteuid()).pw_name
        raise SettingsError(f"{what} {path} {why}: chown it to {user} and chmod 700 it")


def log_to_stderr(group: str = "") -> None:
    """Have the log of this process on its standard error, for the service manager or a person.

    Args:
        group: in each line, for several engines of one manager write side by side; empty: nothing.
    """
    said = f"group {group}: " if group else ""
    # journald adds the time itself; elsewhere a person wants to see it.
    stamp = "" if "JOURNAL_STREAM" in os.environ else "%(asctime)s "
    logging.basicConfig(
        level=logging.INFO, format=f"{stamp}%(levelname)s %(name)s: {said}%(message)s", stream=sys.stderr
    )
    logging.getLogger("paramiko").setLevel(logging.WARNING)
