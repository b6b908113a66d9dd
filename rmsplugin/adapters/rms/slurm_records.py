"""Slurm records: reads nodes, partitions, reservations and the configuration as scontrol prints them.

Pure: text in, values out. The times are seconds since the epoch, so scontrol has to run with SLURM_TIME_FORMAT=%s.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from rmsplugin.adapters.rms.base import MailWish, NodePower, Overseers, Readings, RmsNode, RmsPartition, RmsReservation
from rmsplugin.adapters.rms.power_saving import KeptOn, PowerSaving
from rmsplugin.errors import RefusedError
from rmsplugin.model.hostlist import expand

# A node in one of these states can take no new job, and its former jobs are gone or out of reach.
_NODE_DOWN = {
    *("DOWN", "ERROR", "FUTURE", "INVAL", "NOT_RESPONDING", "NO_RESPOND", "POWERED_DOWN", "POWERING_DOWN"),
    *("POWER_DOWN", "POWERING_UP", "REBOOT_ISSUED", "UNKNOWN"),
}
_NODE_DRAINING = {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"}

# Slurm writes the author and the time of the reason behind it; the comments of admins may follow.
_REASON = re.compile(r" Reason=(.*?)(?: \[[^\[\]\s@]+@[^\[\]\s]+\](?= [A-Z]\w*=|\s*$)|\s*$)")
_NONE = ("", "(null)", "N/A", "n/a")
_RECORDS = ("NodeName=", "PartitionName=", "ReservationName=")
_PROMPT = "scontrol: "
_YEAR_S = 365 * 86400.0


def answers(text: str) -> str:
    """What a scontrol says that reads its questions from a pipe, without its prompts.

    Built with readline, as usual, it repeats each question behind its prompt.
    """
    return "\n".join(map(_without_prompts, text.split("\n")))  # no other thread has a turn during one long substitution


def _without_prompts(line: str) -> str:
    while line.startswith(_PROMPT):
        line = line.removeprefix(_PROMPT)
    return line


def nodes(text: str) -> dict[str, RmsNode]:
    """Read the output of ``scontrol show node -o``, among other records or alone."""
    found = {}
    for line, record in _records(text, "NodeName"):
        reason = _REASON.search(line) if " Reason=" in line else None
        found[record["NodeName"]] = node(
            record["NodeName"],
            int(record["CPUTot"]),
            int(record["RealMemory"]),
            record["State"],
            features=words(record.get("ActiveFeatures", "")),
            reason=reason[1].strip() if reason else "",
            address=record.get("NodeAddr", ""),
            taken=(_number(record.get("CPUAlloc", "")) or 0, _number(record.get("AllocMem", "")) or 0),
            readings=readings(record),
            boot_time=epoch(record.get("BootTime", "")),
            port=port(record.get("Port", "")),
        )
    return found


def port(text: str) -> int:
    """A port, the first one of several; 0: there is none."""
    first = text.partition("-")[0]
    return int(first) if first.isdecimal() else 0


def power(flags: Collection[str]) -> NodePower:
    """The power of a node with these words in its state."""
    if not {"POWER_DOWN", "POWERING_DOWN"}.isdisjoint(flags):
        return NodePower.GOING_OFF
    if not {"POWER_UP", "POWERING_UP"}.isdisjoint(flags):
        return NodePower.COMING_ON
    if "POWERED_DOWN" in flags:
        # With a job on it, Slurm powers it up in a moment.
        return NodePower.OFF if {"ALLOCATED", "MIXED"}.isdisjoint(flags) else NodePower.COMING_ON
    return NodePower.ON


def needs_repair(node: RmsNode) -> bool:
    """Whether Slurm took the node for down because it did not register in time when it was powered up.

    Raises:
        RefusedError: it is down for another reason, or drained.
    """
    if "DOWN" not in node.flags:
        return False
    if node.draining or not node.reason.startswith("ResumeTimeout reached"):
        raise RefusedError(f"Slurm has {node.name} as {node.state} ({node.reason or 'no reason'}): an admin has to say")
    return True


def power_saving(configuration: Mapping[str, str]) -> PowerSaving:
    """The settings of slurm.conf for powering nodes down and up."""
    return PowerSaving(
        suspend_program=program(configuration.get("SuspendProgram", "")),
        resume_program=program(configuration.get("ResumeProgram", "")),
        suspend_timeout_s=seconds(configuration.get("SuspendTimeout", ""), 30),
        resume_timeout_s=seconds(configuration.get("ResumeTimeout", ""), 60),
        nodes=kept_on(configuration.get("SuspendExcNodes", "")),
        partitions=words(configuration.get("SuspendExcParts", "")),
        states=words(configuration.get("SuspendExcStates", "")),
    )


def program(text: str) -> str:
    """Read the path of a program; empty if there is none."""
    return "" if text in _NONE else text


def seconds(text: str, default: int) -> int:
    """Read a number of seconds, which is printed as ``60 sec``."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else default


def kept_on(text: str) -> tuple[KeptOn, ...]:
    """Read SuspendExcNodes, such as ``n[10-20]:4,m1``; what is no host list keeps nothing on."""
    found = []
    for part in re.split(r",(?![^\[]*\])", text) if text not in _NONE else ():
        names, _, count = part.partition(":")
        with contextlib.suppress(ValueError):
            found.append(KeptOn(frozenset(expand(names)), int(count) if count.isdecimal() else None))
    return tuple(found)


def readings(record: Mapping[str, str]) -> Readings:
    """What slurmd measured on a node; Slurm writes "N/A" or "n/s" for what it does not know, and 0 W for no meter."""
    load = record.get("CPULoad", "")
    return Readings(
        cpu_load=float(load) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", load) else None,
        memory_free_mib=_number(record.get("FreeMem", "")),
        watts=_number(record.get("CurrentWatts", "")) or None,
        temperature_c=_number(record.get("ExtSensorsTemp", "")),
    )


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def node(
    name: str,
    cpus: int,
    memory_mib: int,
    state: str,
    *,
    features: tuple[str, ...] = (),
    reason: str = "",
    address: str = "",
    taken: tuple[int, int] = (0, 0),
    readings: Readings | None = None,
    boot_time: int = 0,
    port: int = 0,
) -> RmsNode:
    """Make a node from Slurm's facts.

    ``state`` has all its flags, such as "IDLE*+DRAIN"; ``taken`` are CPUs and MiB that jobs have.
    """
    up, draining, its_power = _state(state)
    return RmsNode(
        name=name,
        cpus=cpus,
        memory_mib=memory_mib,
        up=up,
        draining=draining,
        state=state,
        features=features,
        reason=reason,
        address=address,
        cpus_taken=taken[0],
        memory_taken_mib=taken[1],
        readings=readings or Readings(),
        power=its_power,
        boot_time=boot_time,
        port=port,
    )


@lru_cache
def _state(text: str) -> tuple[bool, bool, NodePower]:
    """Whether a node with this state is up, whether it drains, and its power: thousands of nodes have a few states."""
    flags = set(re.findall(r"[A-Z_]+", text))
    # "*": slurmd does not answer (Slurm before 23.02 has no word for it).
    return not flags & _NODE_DOWN and "*" not in text, bool(flags & _NODE_DRAINING), power(flags)


def partitions(text: str) -> dict[str, RmsPartition]:
    """Read the output of ``scontrol show partition -a -o``."""
    return {
        record["PartitionName"]: RmsPartition(
            name=record["PartitionName"],
            up=record["State"] == "UP",
            nodes=expand(record["Nodes"]),
            preempt_mode=record["PreemptMode"],
            priority_tier=int(record["PriorityTier"]),
            grace_time_s=int(record["GraceTime"]),
            exclusive=record.get("OverSubscribe") == "EXCLUSIVE",
            hidden=record.get("Hidden") == "YES",
            allow_groups=tuple(group for group in words(record.get("AllowGroups", "")) if group != "ALL"),
            max_time_s=limit_s(record.get("MaxTime", "")),
        )
        for _, record in _records(text, "PartitionName")
    }


def leaf_switches(text: str) -> tuple[tuple[str, ...], ...]:
    """Read the output of ``scontrol show topology -o``: the nodes of each switch that has no others below it.

    "No topology information available" is none. Blocks, of releases that have them, count as leaf switches.
    """
    found = [record for _, record in _records(text, "SwitchName") if record.get("Level", "0") == "0"]
    found += [record for _, record in _records(text, "BlockName")]
    return tuple(expand(record.get("Nodes", "")) for record in found)


def reservations(text: str) -> dict[str, RmsReservation]:
    """Read the output of ``scontrol show reservation -o``; "No reservations in the system" is none."""
    return {
        record["ReservationName"]: RmsReservation(
            name=record["ReservationName"],
            start_time=epoch(record["StartTime"]),
            end_time=epoch(record["EndTime"]),
            nodes=expand(record.get("Nodes", "")),
            licenses=licenses(record.get("Licenses", "")),
            users=words(record.get("Users", "")),
            flags=words(record.get("Flags", "")),
        )
        for _, record in _records(text, "ReservationName")
    }


def configuration(text: str) -> dict[str, str]:
    """Read the output of ``scontrol show config``, among other records or alone."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith(_RECORDS))
    return {key.strip(): value.strip() for key, sign, value in pairs if sign}


def licenses(text: str) -> dict[str, int]:
    """Read ``Licenses`` of the configuration or of a reservation, ``vjobgate:1,matlab:4``: the number of each."""
    found = {}
    for each in words(text):
        name, _, count = re.sub("[*=]", ":", each).partition(":")
        found[name] = int(count) if count.isdecimal() else 1
    return found


def words(text: str) -> tuple[str, ...]:
    """Split a list at its commas; Slurm's words for nothing are an empty list."""
    return () if text in _NONE else tuple(text.split(","))


def epoch(text: str) -> int:
    """Read a time in seconds since the epoch; 0 for "N/A", "Unknown" and the like."""
    return int(text) if text.isdecimal() else 0


def duration_s(text: str) -> int:
    """Read ``[[DAYS-]HH:]MM:SS``; 0 for Slurm's words for none."""
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return 0
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def limit_s(text: str) -> float:
    """Read a time limit; infinite for UNLIMITED, for Slurm's year in its place, and if there is none."""
    return unless_a_year(float(duration_s(text))) if ":" in text else math.inf


def unless_a_year(seconds: float) -> float:
    """A time limit; infinite for 365 days, which Slurm writes now and then of a job that has no limit."""
    return math.inf if seconds == _YEAR_S else seconds


def _records(text: str, first: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The lines that begin with this key, with the values of each."""
    for line in text.splitlines():
        if line.startswith(f"{first}="):
            # Of equal keys the first one counts: free text stands last, so it cannot change the values before it.
            words = [word.split("=", 1) for word in reversed(line.split()) if "=" in word]
            yield line, dict(words)


def preempt_type(configuration: Mapping[str, str]) -> str:
    """PreemptType of slurm.conf. Newer releases of Slurm have no plugin for preempt/none, and print `(null)`."""
    said = configuration.get("PreemptType", "")
    return "preempt/none" if said in _NONE else said


def preempt_exempt_s(configuration: Mapping[str, str]) -> float | None:
    """PreemptExemptTime of slurm.conf; None if it is not set.

    A time of 0 is Slurm's default and prints the same as none, so it counts as not set; -1, printed as NONE, means in
    slurm.conf that nothing is exempt.
    """
    said = configuration.get("PreemptExemptTime", "")
    return 0.0 if said == "NONE" else float(duration_s(said)) or None


def kill_wait_s(configuration: Mapping[str, str]) -> int | None:
    """KillWait of slurm.conf, which is printed as ``30 sec``; None if there is no such number."""
    match = re.match(r"\d+", configuration.get("KillWait", ""))
    return int(match[0]) if match else None


def private_data(configuration: Mapping[str, str]) -> frozenset[str]:
    """PrivateData of slurm.conf, such as ``jobs,usage``; ``none`` is nothing."""
    words = configuration.get("PrivateData", "").lower().split(",")
    return frozenset(word.strip() for word in words) - {"", "none", "(null)"}


def overseers(users: str, accounts: str) -> Overseers:
    """Read users with their AdminLevel, and accounts with their coordinators, as ``sacctmgr -P`` prints them."""
    levels = (line.partition("|") for line in users.splitlines())
    coordinated = (line.partition("|") for line in accounts.splitlines())
    return Overseers(
        operators=frozenset(user for user, _, level in levels if level in ("Operator", "Administrator")),
        coordinators={account: frozenset(words(names)) for account, _, names in coordinated if names},
    )


def mail_wish(text: str) -> MailWish | None:
    """Read whom and of what a job has mailed, as ``scontrol show job`` prints it; None: nobody of anything.

    Of an array that is not split off each element is printed; they ask for the same.
    """
    user = re.search(r"^ +UserId=[^\s()]*\((\d+)\)", text, re.MULTILINE)
    wish = re.search(r"^ +MailUser=(\S+) MailType=(\S+)$", text, re.MULTILINE)
    return MailWish(int(user[1]), wish[1], frozenset(wish[2].split(","))) if user and wish else None


def requeue_exits(configuration: Mapping[str, str]) -> frozenset[int]:
    """RequeueExit and RequeueExitHold of slurm.conf, such as ``1-3,100``; texts that are no code to Slurm are none."""
    codes: set[int] = set()
    for name in ("RequeueExit", "RequeueExitHold"):
        for each in configuration.get(name, "").split(","):
            if match := re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", each.strip()):
                codes.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(codes)
