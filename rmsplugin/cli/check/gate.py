"""Rules for the gate: the licence that keeps vjobs pending, and the reservation that nobody else may use."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rmsplugin.cli.check.facts import Row, SlurmFacts, number, words
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.settings import Settings

#: The engine renews the reservation when half a year is left; with less than this it evidently does not.
_SOON_S = 90 * 86400.0


def judge_gate(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge licence and reservations."""
    gate = settings.slurm.gate
    total = facts.licenses.get(gate, 0)
    if total < 1:
        yield error(
            "Licenses",
            f"has no {gate} (slurm.gate), the licence for which vjobs wait: they are refused at submission",
            f"Licenses={gate}:1 in slurm.conf, beside the site's own licences; then restart slurmctld",
        )
        return
    yield ok("Licenses", f"has {gate}")
    yield from _reservation(settings, facts, total)
    for name, row in facts.reservations.items():
        if name != settings.slurm.gate_reservation and reserved(row, gate):
            yield error(
                f"reservation {name}",
                f"has {gate}: jobs that may use this reservation start without the engine's leave",
                f"scontrol delete ReservationName={name}, or make it anew without Licenses={gate}",
            )


def _reservation(settings: Settings, facts: SlurmFacts, total: int) -> Iterator[Finding]:
    name, gate = settings.slurm.gate_reservation, settings.slurm.gate
    subject, anew = f"reservation {name}", f"scontrol delete ReservationName={name}; the engine makes it anew"
    row = facts.reservations.get(name)
    if row is None:
        yield error(
            subject,
            f"is not there: the licence {gate} is free, so vjobs start without the engine's leave",
            "start the engine, which makes it: systemctl start rmsplugin-engine",
        )
        return
    held = reserved(row, gate)
    if held < total:
        yield error(
            subject,
            f"holds {held} of the {total} licences {gate}: for each one left a vjob starts without the engine's leave",
            f"Licenses={gate}:1 in slurm.conf, restart slurmctld; {anew}",
        )
    strangers = [user for user in words(row.get("Users", "")) if user != settings.engine.user]
    strangers += words(row.get("Groups", "")) + words(row.get("Accounts", ""))
    if strangers or settings.engine.user not in words(row.get("Users", "")):
        yield error(
            subject,
            f"is for {', '.join(strangers) or 'nobody'}: it has to be for {settings.engine.user} "
            "alone, or jobs of others start in it without the engine's leave",
            anew,
        )
    yield from _time(subject, row, facts.now)


def _time(subject: str, row: Row, now: float) -> Iterator[Finding]:
    try:
        start = datetime.fromisoformat(row.get("StartTime", "")).timestamp()
        left_s = datetime.fromisoformat(row.get("EndTime", "")).timestamp() - now
    except ValueError:
        yield warning(subject, f"ends at {row.get('EndTime', 'no time')}, which cannot be read", "report this, please")
        return
    if start > now:
        yield error(
            subject,
            f"begins only at {row['StartTime']}: until then vjobs start without the engine's leave",
            f"scontrol update {subject.replace('reservation ', 'ReservationName=')} StartTime=now",
        )
    elif left_s < _SOON_S:
        yield warning(
            subject,
            f"ends in {max(0.0, left_s) / 86400:.0f} days: the engine renews it half a year before; "
            "so the engine does not run, or Slurm refuses",
            "rmsplugin status says why; until the engine runs: "
            f"scontrol update {subject.replace('reservation ', 'ReservationName=')} Duration=365-0",
        )
    else:
        yield ok(subject, f"keeps the licence, for {left_s / 86400:.0f} days more")


def reserved(row: Row, license_name: str) -> int:
    """How many licences of that name a reservation has."""
    for part in words(row.get("Licenses", "")):
        name, _, count = part.replace("=", ":").partition(":")
        if name == license_name:
            return number(count) if count else 1
    return 0
