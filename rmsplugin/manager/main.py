"""Main: puts a manager together, and runs it until it is told to end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

import sdnotify

from rmsplugin import __version__
from rmsplugin.adapters.coordination.assignments import Assignments
from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.coordination.epoch_files import EpochFiles
from rmsplugin.adapters.coordination.local import Local
from rmsplugin.adapters.coordination.members import Member, Members
from rmsplugin.adapters.coordination.servers import ServerFact, ask_servers
from rmsplugin.adapters.coordination.words_of_managers import DEAF, FITNESS, WordsOfManagers
from rmsplugin.adapters.coordination.zookeeper import ZooKeeperTree
from rmsplugin.adapters.lease.clocked import ClockedLease, steady_s
from rmsplugin.adapters.lease.factory import ASKS_A_SESSION
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.engine.context.hearing import TEST_PERIOD_S, Hearing
from rmsplugin.engine.controllers.about import about
from rmsplugin.engine.controllers.controllers import LOOK_S
from rmsplugin.engine.daemon import STILL_S, log_to_stderr, prepare_state_dir
from rmsplugin.engine.decide.grouping import Grouping
from rmsplugin.engine.periodic import Periodic
from rmsplugin.engine.serve.browsers import Browsers
from rmsplugin.engine.serve.doors import HostNames
from rmsplugin.engine.serve.ears import Ears
from rmsplugin.engine.serve.front import Front
from rmsplugin.engine.serve.rights import Rights
from rmsplugin.engine.serve.turns import Turns
from rmsplugin.engine.shared_dir import identity_of
from rmsplugin.engine.territory.territory import GIVEN, SITE_DIR
from rmsplugin.engine.watchdog import Watchdog
from rmsplugin.errors import RefusedError, RmspluginError, SettingsError, UnavailableError
from rmsplugin.groups import told
from rmsplugin.groups.giving import Heard
from rmsplugin.manager.child import command
from rmsplugin.manager.children import Children
from rmsplugin.manager.deafness import Deafness
from rmsplugin.manager.entry import Entry
from rmsplugin.manager.fitness import TELL_S, TEST_S, Fitness, patience_s, require_fit
from rmsplugin.manager.group_handover import GroupHandover
from rmsplugin.manager.handing import Handed, Hands
from rmsplugin.manager.handing_down import HandingDown
from rmsplugin.manager.leader import Leader
from rmsplugin.manager.looking import LeadersLook
from rmsplugin.manager.placed import Placed
from rmsplugin.manager.pulse import SharedPulse
from rmsplugin.manager.queue import SlurmQueue
from rmsplugin.manager.readings import Reading, Readings
from rmsplugin.manager.site import Site
from rmsplugin.manager.standing import OwnStatus
from rmsplugin.manager.stillness import Stillness
from rmsplugin.manager.watching import GroupTurns
from rmsplugin.settings import Settings

log = logging.getLogger(__name__)

#: Seconds between two times at which a manager says whether it hears.
_TELL_S = 1.0
#: Seconds between two turns of the leader, and the longest wait for the summaries of groups.
_GIVE_S, _HEAR_S = 1.0, 1.0
#: The most of the time that turns of the leader take: each reads all of Slurm.
_GIVE_PART = 0.2
#: An engine may take so much longer to end than ``engine.stop_wait_s``, in seconds.
_END_S = 15.0
#: Seconds between two looks whether engines stand still.
_STILLNESS_S = 5.0
#: A request between managers has another one inside.
_BODY_MAX = 256 * 1024


def main(settings: Settings, config: Path) -> int:
    """Run a manager in the foreground until SIGTERM or SIGINT. Returns the exit code."""
    log_to_stderr()
    try:
        manager = Manager(settings, config.absolute())
    except RmspluginError as error:
        print(f"rmsplugin manager: {error}", file=sys.stderr)
        return 2
    try:
        asyncio.run(manager.run())
    except RmspluginError as error:
        print(f"rmsplugin manager: {error}", file=sys.stderr)
        return 1
    return 0


class Manager:
    """One manager."""

    def __init__(self, settings: Settings, config: Path) -> None:
        """Put it together.

        Raises:
            SettingsError: the settings are none of managers.
            UnavailableError: another engine or manager runs on its state directory.
        """
        cluster = settings.cluster
        if cluster.coordination != "zookeeper" or cluster.shared_dir is None:
            raise SettingsError(
                'managers need cluster.coordination = "zookeeper" and cluster.shared_dir; without them, run '
                "`rmsplugin engine`"
            )
        settings.require_kept_by_groups()
        self._settings, self._servers = settings, tuple[ServerFact, ...]()
        state_dir = prepare_state_dir(settings)
        place = f"the shared directory {identity_of(cluster.shared_dir)}"
        self._own_lock = ClockedLease(Local(state_dir))
        self._own_lock.acquire()
        self._tree = ZooKeeperTree(cluster.servers, cluster.session_s, cluster.session_s / ASKS_A_SESSION)
        said = about(settings)
        own = Member(name_of(settings), said)
        # What a leader does is to write texts: those of one that has lost are read by nobody (EpochFiles), and what it
        # writes to the ensemble names the version that it replaces, and tells only who starts an engine.
        candidate = Candidate(own.name, place, cluster.session_s, 0.0, said, late_is_harmless=True)
        commands = self._commands = self._open_slurm()
        hearing = Hearing()
        # Its doors are looked at by the engines that it starts.
        ears = Ears(hearing, time.monotonic, (), by_munge=bool(settings.engine.listen))
        deafness = Deafness(hearing, WordsOfManagers(self._tree, cluster.path, DEAF), own.name)
        fitness = Fitness(
            partial(require_fit, deafness.why, commands.require_answer),
            WordsOfManagers(self._tree, cluster.path, FITNESS),
            own.name,
            patience_s(settings.slurm.command_timeout_s),
        )
        elected = Elected(self._tree, f"{cluster.path}/site", candidate, steady_s, own_session=False)
        self._site = Site(
            own.name,
            Members(self._tree, f"{cluster.path}/managers", own),
            ClockedLease(elected),
            Assignments(self._tree, f"{cluster.path}/assigned"),
            lambda: next(iter(elected.members()), ""),
            passed_over=fitness.passed_over,
            doubted=fitness.doubted,
        )
        files = EpochFiles(cluster.shared_dir / SITE_DIR, GIVEN)
        self._placed = Placed(files)
        self._watched = GroupTurns(self._tree, lambda group: settings.of_group(group).cluster.path)
        self._children = Children(
            lambda group: command(str(config), group, self._watched.told(group), own.name),
            settings.engine.stop_wait_s + _END_S,
        )
        stillness = Stillness(self._children, self._socket_of, cluster.session_s + STILL_S)
        rights = Rights.of_site(settings.engine)
        self._uids = rights.engine_uids
        self._engine_uid = max(self._uids)
        self._hands = Hands(settings, self._site, self._socket_of, self._engine_uid, why_ended=self._children.why_ended)
        self._readings = Readings(commands.read)
        watched = (*settings.slurm.partitions, *settings.hosts_partitions)
        tell = partial(commands.pulse, watched)
        self._look = LeadersLook(
            self._readings, self._read, tell, lambda: self._site.lease.epoch, settings.engine.cycle_s
        )
        self._leader = self._make_leader(files, commands)
        status = OwnStatus(
            said,
            self._site,
            self._placed,
            self._leader,
            self._children,
            lambda: self._servers,
            lambda: deafness.deaf,
            fitness.unfit,
        )
        self._turns = Turns("entry")
        names = HostNames()
        trusted = settings.engine.trusted_hosts
        handover = GroupHandover(self._site, self._hands, rights, names, trusted, fitness)
        self._pulse = SharedPulse(self._site, self._hands, tell, settings.engine.cycle_s)
        handing_down = HandingDown(self._site, self._readings, self._hands)
        entry = Entry(
            settings,
            self._placed,
            self._hands,
            self._uids,
            status.tell,
            names,
            handover=handover,
            handing_down=handing_down,
            pulse=self._pulse,
        )
        self._front = Front(
            settings.engine,
            self._uids,
            entry,
            self._turns,
            browsers=Browsers(settings.page, self._uids),
            body_max=_BODY_MAX,
            unheard=deafness.note,
            hears=deafness.hears,
        )
        self._periodic = (
            Periodic("site", self._stay, cluster.session_s / ASKS_A_SESSION),
            Periodic("leader", self._lead, _GIVE_S, most=_GIVE_PART),
            Periodic("ensemble", self._see_servers, LOOK_S),
            Periodic("stillness", stillness.look_at_engines, _STILLNESS_S),
            Periodic("hearing", ears.test_hearing, TEST_PERIOD_S),
            Periodic("deafness", deafness.tell, _TELL_S),
            Periodic("fitness-test", fitness.test, TEST_S),
            Periodic("fitness", fitness.tell, TELL_S),
        )
        self._loop: asyncio.AbstractEventLoop | None = None

    def _open_slurm(self) -> SlurmCli:
        """Slurm by its commands, whatever ``slurm.adapter`` says: what they print is handed down."""
        slurm = self._settings.slurm
        return SlurmCli(
            slurm.bin_dir,
            slurm.command_timeout_s,
            watch_s=self._settings.engine.watch_s,
            gate=slurm.gate,
            gate_reservation=slurm.gate_reservation,
        )

    def _make_leader(self, files: EpochFiles, commands: SlurmCli) -> Leader:
        settings = self._settings
        return Leader(
            self._site.lease,
            self._look,
            Grouping(settings, commands.leaf_switches),
            SlurmQueue(settings, commands),
            files,
            self._hear,
            self._site.set_groups,
            settings.engine.cycle_s,
            settings.cluster.migration_domains,
        )

    def _socket_of(self, group: str) -> str:
        return str(self._settings.of_group(group).engine.socket)

    async def run(self) -> None:
        """Manage until a signal asks to end."""
        ended, self._loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, ended.set)
        await self._front.open()
        for periodic in self._periodic:
            periodic.start()
        notifier = sdnotify.SystemdNotifier()
        notifier.notify("READY=1")
        watchdog = asyncio.create_task(Watchdog().feed_while(lambda: True))
        log.info("rmsplugin %s manages groups as %s", __version__, self._site.name)
        await ended.wait()
        notifier.notify("STOPPING=1")
        for periodic in self._periodic:
            periodic.close()
        # Others get the groups at once; their engines wait until those of this manager have ended.
        await asyncio.to_thread(self._site.leave)
        await asyncio.to_thread(self._children.close)
        await self._front.close()
        await self._pulse.close()
        await self._readings.close()
        self._commands.end_pulse()
        await self._hands.close()
        self._turns.close()
        await asyncio.to_thread(self._tree.close)
        watchdog.cancel()

    # -- what is done again and again ------------------------------------------------------------------------------

    def _stay(self) -> None:
        self._site.turn()
        self._watched.note_turns(self._site.assignments)
        self._placed.read()
        self._children.want(self._site.own)

    def _lead(self) -> None:
        if not self._site.lease.held():
            self._commands.end_pulse()  # none has to stay here
        self._leader.turn()

    def _read(self) -> Reading:
        """A reading of Slurm that is begun now. Raises UnavailableError."""
        if self._loop is None:
            raise UnavailableError("this manager has not begun yet")
        return asyncio.run_coroutine_threadsafe(self._readings.fresh(), self._loop).result()

    def _see_servers(self) -> None:
        self._servers = tuple(ask_servers(self._settings.cluster.servers))

    def _hear(self, groups: Collection[str]) -> Mapping[str, tuple[int, Heard]]:
        """What the engines of groups say; those that are silent are left out."""
        if self._loop is None or not groups:
            return {}
        request = Handed("GET", "/v1/summary", uid=self._engine_uid)
        asking = self._hands.ask_each(dict.fromkeys(groups, request), _HEAR_S, rests=False)
        replies, _ = asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        found = {}
        for group, reply in replies.items():
            try:
                found[group] = told.heard(reply)
            except RefusedError as error:
                log.warning("group %s: %s", group, error)
        return found


def name_of(settings: Settings) -> str:
    """The name of this host's manager, which is the same after a restart."""
    port = settings.engine.listen.rpartition(":")[2]
    return f"{socket.gethostname()}:{port}" if port else socket.gethostname()
