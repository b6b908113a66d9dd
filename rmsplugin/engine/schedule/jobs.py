"""Jobs: all that the schedule of the settings has done."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rmsplugin.cron import Cron, zone_of
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.schedule.calibration import measuring_ledgers, propose_durations
from rmsplugin.engine.schedule.job import ScheduledJob
from rmsplugin.engine.schedule.late_copies import over_elsewhere
from rmsplugin.engine.schedule.ledger_jobs import back_up, retain
from rmsplugin.engine.schedule.programs import Programs
from rmsplugin.engine.schedule.report_mail import mail_report
from rmsplugin.engine.schedule.sweep import Sweep
from rmsplugin.engine.territory.territory import Territory
from rmsplugin.engine.upkeep.gate import Gate
from rmsplugin.errors import UnavailableError
from rmsplugin.settings import GROUPS_DIR

_NOT_SET = "there are no times for it in [schedule]"


def jobs_of(
    context: Context, programs: Programs, gate: Gate, seen: Callable[[], Observation | None]
) -> tuple[ScheduledJob, ...]:
    """All jobs, also those that never run.

    Args:
        context: settings, ledger, adapters and clock.
        programs: runs commands.
        gate: of the cycle.
        seen: the last look at the cluster; None: there was none yet.
    """
    settings, schedule, clock = context.settings, context.settings.schedule, context.clock
    path = context.ledger.path
    backup_dir = backups(settings.cluster.shared_dir or settings.engine.state_dir, schedule.backup_dir)
    if settings.territory:
        backup_dir = backup_dir / GROUPS_DIR / settings.territory
    no_report = "" if schedule.report_to else "schedule.report_to names nobody"

    def report() -> str:
        server, sender, to = schedule.mail_server, schedule.mail_from, schedule.report_to
        return mail_report(programs, server, sender, to, schedule.timezone)

    def calibration() -> str:
        return propose_durations(
            context.ledger, measuring_ledgers(settings, context.ledger), clock.now(), context.durations.values()
        )

    def renew() -> str:
        look = seen()
        if look is None:
            raise UnavailableError("no cycle has looked at Slurm yet")
        return gate.renew(look.rms)

    return tuple(
        _timed(schedule.timezone, *each)
        for each in (
            (
                "ledger-backup",
                "copies the ledger, and checks the copy",
                schedule.ledger_backup,
                lambda: back_up(path, backup_dir, schedule.backup_keep),
            ),
            (
                "ledger-retention",
                "forgets what ended long ago, makes the ledger smaller, checks it",
                schedule.ledger_retention,
                lambda: retain(context.ledger, path, clock.now(), settings.engine.keep_days),
            ),
            (
                "report",
                "mails the summary of yesterday",
                schedule.report,
                partial(_once_for_all_groups, context.territory, report),
                no_report,
            ),
            (
                "calibration",
                "proposes other durations of actions",
                schedule.calibration,
                partial(_once_for_all_groups, context.territory, calibration),
            ),
            (
                "sweep",
                "removes saved states that nobody needs any more from nodes",
                schedule.sweep,
                Sweep(
                    context.settings,
                    context.ledger,
                    context.clock,
                    context.nodes,
                    context.stores,
                    seen,
                    partial(over_elsewhere, context.rms, context.territory),
                ).remove_unneeded,
            ),
            ("gate", "renews the reservation of the gate", schedule.gate, renew),
        )
    )


def _once_for_all_groups(territory: Territory | None, act: Callable[[], str]) -> str:
    """Do what concerns the whole site, if this engine is that of the first group, or of all. Returns what came of it.

    Raises:
        UnavailableError: it is not known yet which group is the first.
    """
    if territory is not None:
        if not territory.groups:
            raise UnavailableError("the leader's word was not read yet: it is not known which group does it")
        if territory.group != (first := min(territory.groups)):
            return f"the engine of group {first} does it, for all groups"
    return act()


def backups(home: Path, chosen: Path | None) -> Path:
    """The directory of backups of the ledger; ``home``: of the engine's files."""
    return chosen or home / "backups"


def _timed(timezone: str, name: str, what: str, expression: str, act: Callable[[], str], off: str = "") -> ScheduledJob:
    off = off if expression else _NOT_SET
    cron = None if off else Cron.parse(expression, zone_of(timezone))
    return ScheduledJob(name, what, expression, act, off, cron)
