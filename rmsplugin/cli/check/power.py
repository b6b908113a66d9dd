"""Rules for power: the BMCs that the settings name, and the lines of slurm.conf without which no node comes back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from rmsplugin.adapters.power.base import PowerDriver, PowerReading, PowerState
from rmsplugin.adapters.power.factory import open_power
from rmsplugin.adapters.rms import slurm_records
from rmsplugin.adapters.rms.base import RmsNode
from rmsplugin.cli.check.facts import SlurmFacts, some
from rmsplugin.errors import RmspluginError
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.settings import Settings

_AT_ONCE = 32
_EXAMPLE = "SuspendProgram=/etc/rmsplugin/hooks/suspend_program and ResumeProgram=/etc/rmsplugin/hooks/resume_program"

#: What each BMC said, or why it said nothing, by node.
Readings = Mapping[str, PowerReading | str]


def check_power(settings: Settings, facts: SlurmFacts, hosts: Collection[str]) -> tuple[list[Finding], frozenset[str]]:
    """Ask the BMC of each VM host once, and judge what they say; nothing where the settings name no BMC.

    Returns:
        What was found, and the hosts that are switched off: nothing else there can be looked at.
    """
    if not settings.power.driver:
        return [], frozenset()
    try:
        driver = open_power(settings.power)
    except RmspluginError as fault:
        return [error("power", str(fault), "install it, or use other drivers")], frozenset()
    readings = probe_power(driver, hosts)
    off = switched_off(facts, readings)
    found = [*judge_slurms_power(settings, facts), *judge_power(facts, readings, len(hosts))]
    found += judge_sensors(settings, readings)
    if off:
        found.append(ok("power", f"{len(off)} are switched off, and are not looked at: {some(sorted(off))}"))
    return found, off


def switched_off(facts: SlurmFacts, readings: Readings) -> frozenset[str]:
    """The nodes whose BMCs say off, and that Slurm does not have."""
    off = {node for node, said in readings.items() if not isinstance(said, str) and said.state is PowerState.OFF}
    return frozenset(node for node in off if not _as_slurm_has_it(facts, node).up)


def probe_power(driver: PowerDriver, hosts: Collection[str]) -> Readings:
    """Ask each BMC once, many at a time; each question has the bound of its driver."""

    def asked(node: str) -> PowerReading | str:
        try:
            return driver.reading(node)
        except RmspluginError as fault:
            return str(fault)

    nodes = [node for node in hosts if driver.drives(node)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(nodes, pool.map(asked, nodes), strict=True))


def judge_power(facts: SlurmFacts, readings: Readings, hosts: int) -> Iterator[Finding]:
    """Judge what the BMCs said of ``hosts`` VM hosts."""
    fine = []
    for node, reading in readings.items():
        fault = _fault(facts, node, reading)
        if fault is None:
            fine.append(node)
        else:
            yield fault
    if fine:
        yield ok("power", f"BMCs of {len(fine)} of {hosts} VM hosts answer: {some(fine)}")


def judge_sensors(settings: Settings, readings: Readings) -> Iterator[Finding]:
    """Judge whether nodes that may be hot have a sensor that tells it."""
    silent = [
        node
        for node, reading in readings.items()
        if settings.power.heat_of(node) is not None
        and not isinstance(reading, str)
        and reading.state is PowerState.ON
        and reading.temperature_c is None
    ]
    if silent:
        yield warning(
            "temperature",
            f"power.hot_c is set, but the BMCs of {len(silent)} VM hosts tell no temperature: {some(silent)}",
            "see `temperature` and temperature_sensors of [power.driver.NAME] in docs/settings.md",
        )


def _fault(facts: SlurmFacts, node: str, reading: PowerReading | str) -> Finding | None:
    subject = f"power of {node}"
    if isinstance(reading, str):
        return error(subject, reading, "see [power.driver.NAME] in docs/settings.md")
    if reading.state is PowerState.UNKNOWN:
        return warning(
            subject,
            "the BMC says neither on nor off",
            "ask again; if it stays so, see says_on and says_off in docs/settings.md",
        )
    found = _as_slurm_has_it(facts, node)
    if reading.state is PowerState.OFF and found.up:
        return error(
            subject,
            f"the BMC says off, but Slurm has the node as {found.state}: it is the BMC of another node",
            "mend address or addresses of [power.driver.NAME]",
        )
    return None


def _as_slurm_has_it(facts: SlurmFacts, node: str) -> RmsNode:
    return slurm_records.node(node, 0, 0, facts.nodes.get(node, {}).get("State", "UNKNOWN"))


def judge_slurms_power(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge the lines of slurm.conf for power saving."""
    if facts.unreachable:
        return
    saving = slurm_records.power_saving(facts.config)
    if not saving.enabled:
        yield warning("power saving", "slurm.conf has no SuspendProgram and ResumeProgram", f"{_EXAMPLE} in slurm.conf")
        return
    slowest_s = max(driver.shutdown_s for driver in settings.power.driver.values())
    if saving.suspend_timeout_s <= slowest_s:
        yield warning(
            "power saving",
            f"SuspendTimeout is {saving.suspend_timeout_s} s, but a node may take {slowest_s:.0f} s to shut down: "
            "Slurm would want it back too early",
            f"SuspendTimeout={round(slowest_s) + 60} in slurm.conf",
        )
    for name in settings.hosts_partitions:
        if facts.partitions.get(name, {}).get("SuspendTime", "INFINITE") == "INFINITE":
            yield warning(
                "power saving",
                f"partition {name} has no SuspendTime: Slurm powers none of its nodes down or up",
                f"SuspendTime=30000000 in the line PartitionName={name}",
            )
