"""Mail form: a summary for an operator, in plain text of 78 columns, as cron and the timer mail it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict

from rmsplugin.cli.report.fields import TOTAL_FIELDS
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.table import Table, duration, local_time, parse_format, short_bytes
from rmsplugin.report.document import Head, Total

_WIDTH = 78
#: So many users are named, those with the most CPU time first.
_USERS = 10
_COLUMNS = "name%-14,jobs%6,ended%6,cpuhours%12,wait%10,asleep%11,completion%11"


def mail_lines(head: Head) -> Iterator[str]:
    """The summary."""
    for line in _lines(head):
        yield from textwrap.wrap(line, _WIDTH, subsequent_indent="  ") if len(line) > _WIDTH else [line]


def _lines(head: Head) -> Iterator[str]:
    yield f"rmsplugin, {local_time(head.since)} to {local_time(head.until)}"
    yield ""
    if not head.totals["all"]:
        yield "No vjob was there in this time."
    else:
        (total,) = head.totals["all"]
        yield from _jobs(total)
        yield from _gains(head, total)
        yield from _switches(head)
        yield from _energy(head)
        yield ""
        yield from _users(head)
    if head.notes:
        yield ""
        yield "What this report cannot know, or assumes:"
        yield from (printable(f"- {note.sentence}.") for note in head.notes)


def _jobs(total: Total) -> Iterator[str]:
    yield (
        f"{total.jobs} jobs were there, {total.ended} ran and ended. Together they ran for {duration(total.run_s)},"
        f" waited for {duration(total.wait_s)}, slept for {duration(total.asleep_s)}."
    )
    yield f"{total.suspends} suspends, {total.resumes} resumes, {total.migrations} live migrations of VMs."
    own = total.worth
    if own.wait_s is not None and own.completion_s is not None and own.slowdown is not None:
        yield (
            f"Of those that ended: wait {duration(own.wait_s.mean)} on average, 95 of 100 up to"
            f" {duration(own.wait_s.p95)}; completion {duration(own.completion_s.mean)} and"
            f" {duration(own.completion_s.p95)}; bounded slowdown {own.slowdown.mean:.2f} and {own.slowdown.p95:.2f}."
        )


def _energy(head: Head) -> Iterator[str]:
    for found in head.energy:
        cost = "" if found.cost is None else f", which cost {found.cost:.2f}"
        carbon = "" if found.co2_kg is None else f", with {found.co2_kg:.1f} kg of CO2"
        emptied = "" if found.kwh_not_emptied is None else f", {found.kwh_not_emptied:.1f} kWh with no node emptied"
        yield (
            f"By the watts of their classes nodes took {found.kwh:.1f} kWh{cost}{carbon}, and were switched off"
            f" {found.switched_off} times; it would have been {found.kwh_all_on:.1f} kWh with all of them on"
            f"{emptied}, and {found.kwh_oracle:.1f} kWh by an oracle."
        )


def _gains(head: Head, total: Total) -> Iterator[str]:
    for policy, compared in total.without.items():
        there = compared.worth
        if there.completion_s is None:
            continue
        sign = "sooner" if compared.gained_s >= 0 else "later"
        yield (
            f"Without context switches, under {policy}: completion {duration(there.completion_s.mean)} on average, 95"
            f" of 100 up to {duration(there.completion_s.p95)}. {there.jobs} jobs ended"
            f" {duration(abs(compared.gained_s))} {sign} here, all together: {compared.sooner} sooner,"
            f" {compared.later} later."
        )


def _switches(head: Head) -> Iterator[str]:
    took = [switch.seconds for switch in head.switches if switch.seconds is not None]
    failed = sum(switch.state == "failed" for switch in head.switches)
    if head.switches:
        mean = f", {duration(sum(took) / len(took))} each on average" if took else ""
        yield f"{len(head.switches)} context switches{mean}; in {failed} of them something failed."
    for kind, cost in head.costs.items():
        if cost.actions:
            moved = short_bytes(cost.bytes)
            yield f"{kind}: {cost.actions} times a VM, {duration(cost.vm_seconds)} of VM time, {moved}B."


def _users(head: Head) -> Iterator[str]:
    users = sorted(head.totals["user"], key=lambda total: -total.cpu_s)
    yield from Table(parse_format(_COLUMNS, TOTAL_FIELDS)).lines([asdict(total) for total in users[:_USERS]])
    if len(users) > _USERS:
        yield f"and {len(users) - _USERS} more users"
