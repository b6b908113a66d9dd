"""Settings of power: the BMCs that switch nodes, and the watts of nodes, in the words of a simulation's energy file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from rmsplugin.model.hostlist import HostList
from rmsplugin.settings.section import Section

_Watts = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
_Duration = Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)]
_Amount = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
_TimeOfDay = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
_Celsius = Annotated[float, Field(ge=-50, le=200, allow_inf_nan=False)]
#: A node has cooled so many degrees below the temperature from which on it is hot, if nothing else is set.
_COOLER_C = 5.0
_WORDS_FOR_NODE = ("{node}", "{address}")


class _Nodes(Section):
    """A section that is for some nodes."""

    nodes: Literal["*"] | tuple[str, ...] = Field(
        "*", description='its nodes as host lists of Slurm\'s, `["n[1-500]"]`; "*": all that no section before has'
    )

    @field_validator("nodes")
    @classmethod
    def _are_host_lists(cls, value: Literal["*"] | tuple[str, ...]) -> Literal["*"] | tuple[str, ...]:
        for each in value if value != "*" else ():
            HostList(each)
        return value

    def has(self, node: str) -> bool:
        """Whether it is for this node."""
        return self.nodes == "*" or any(HostList(each).among({node}) for each in self.nodes)


class PowerWatts(_Nodes):
    """A class of nodes: what they take, and how often they may be switched; the first one that names a node counts."""

    idle_w: _Watts = Field(..., description="watts of a node that is on and computes nothing")
    busy_w: _Watts = Field(..., description="watts with all its CPUs busy; in between linear")
    off_w: _Watts = Field(..., description="watts of a node that is off")
    transition_w: _Watts = Field(..., description="mean watts while it goes off or comes on")
    off_s: _Duration = Field(
        ..., description="time that it takes to go off; after ten switches the median of what they took counts"
    )
    on_s: _Duration = Field(
        ..., description="time from its order to come on until Slurm has it back; after ten switches as off_s"
    )
    least_on_s: _Duration = Field(0.0, description="least time that a node stays on after it came on")
    least_off_s: _Duration = Field(
        0.0,
        description="least time that a node is off before it comes on for an expected need; it comes on at once for a "
        "vjob that waits",
    )
    hot_c: _Celsius | None = Field(None, description="as power.hot_c, of these nodes; none: that one")
    cool_c: _Celsius | None = Field(None, description="as power.cool_c, of these nodes")
    cycles_a_day: Annotated[int, Field(ge=0, le=10000)] | None = Field(
        None, description="how often a node may be switched off within 24 hours; none: any number"
    )

    @model_validator(mode="after")
    def _ordered(self) -> PowerWatts:
        if not self.off_w <= self.idle_w <= self.busy_w:
            raise ValueError("has to have off_w at most idle_w, and idle_w at most busy_w")
        _heat(self.hot_c, self.cool_c)
        return self


class PowerPrice(Section):
    """The price of a kilowatt-hour, from a time of day on until the next one; the last one lasts until the first."""

    begin: _TimeOfDay = Field(..., description="time of day of the host that makes the report, as HH:MM")
    price: _Amount = Field(..., description="of a kilowatt-hour, in any currency")


class PowerCarbon(Section):
    """The CO2 of a kilowatt-hour, from a time of day on until the next one; the last one lasts until the first."""

    begin: _TimeOfDay = Field(..., description="time of day of the host that makes the report, as HH:MM")
    grams: _Amount = Field(..., description="grams of CO2 of a kilowatt-hour")


class _Driver(_Nodes):
    """What all kinds of BMCs have."""

    address: str = Field(
        "{node}",
        pattern=r"^[A-Za-z0-9._:-]*\{node\}[A-Za-z0-9._:-]*$",
        description="the BMC of {node}: its name or address, with `:PORT` if need be, e.g. {node}-bmc",
    )
    addresses: dict[str, Annotated[str, Field(pattern=r"^[A-Za-z0-9.:\[\]][A-Za-z0-9._:\[\]-]{0,252}$")]] = Field(
        default_factory=dict, description="by node, the BMCs that `address` does not give"
    )
    timeout_s: float = Field(15.0, gt=0, le=600, description="bound of one command, or of one request")
    shutdown_s: float = Field(
        120.0,
        ge=0,
        le=3600,
        description="time that a node's operating system has to shut down; then its power is cut. 0: at once",
    )

    def address_of(self, node: str) -> str:
        """The BMC of the node."""
        return self.addresses.get(node) or self.address.replace("{node}", node)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None


class CommandDriver(_Driver):
    """BMCs by commands of the site's: ipmitool, xCAT, Warewulf, powerman, ..., each run without a shell."""

    kind: Literal["command"]
    off: tuple[str, ...] = Field(
        ...,
        description="a program with its arguments that cuts the power of {node}, whose BMC is {address}; it ends with "
        "0 when the BMC has taken the order",
    )
    on: tuple[str, ...] = Field(..., description="the same to switch it on")
    status: tuple[str, ...] = Field(..., description="the same to ask; its output is read by says_on and says_off")
    shutdown: tuple[str, ...] = Field(
        (), description="the same to have its operating system shut down, before `off`; empty: none"
    )
    watts: tuple[str, ...] = Field((), description="the same to read watts; empty: none")
    temperature: tuple[str, ...] = Field((), description="the same to read temperatures; empty: none")
    status_exits: tuple[int, ...] = Field(
        (0,), description="exit codes with which the output of `status` counts; fence agents end with 2 for off"
    )
    says_on: str = Field(
        r"(?im)(?:^|\bis\s|[:=])\s*on\s*$",
        description="regular expression of Python's that the output of `status` matches if the node is on, and not if "
        "it is off; the default takes `Chassis Power is on`, `n1: on`, `Status: ON`",
    )
    says_off: str = Field(
        r"(?im)(?:^|\bis\s|[:=])\s*off\s*$",
        description="the same for off. The node counts as off only if this matches and says_on does not",
    )
    watts_value: str = Field(
        r"(?i)([0-9]+(?:\.[0-9]+)?)\s*w(?:atts?)?\b",
        description="regular expression whose group is a number of watts in the output of `watts`; the first match "
        "counts",
    )
    temperature_value: str = Field(
        r"(?i)(-?[0-9]+(?:\.[0-9]+)?)\s*(?:°|degrees\s*)?c\b",
        description="the same for degrees Celsius in the output of `temperature`; of several matches the highest "
        "counts",
    )

    @field_validator("off", "on", "status", "shutdown", "watts", "temperature")
    @classmethod
    def _program(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not value[0].startswith("/"):
            raise ValueError("must begin with the absolute path of a program")
        if value and not any(name in word for word in value[1:] for name in _WORDS_FOR_NODE):
            raise ValueError("must name the node: {node} or {address} in one of the arguments")
        return value

    @field_validator("off", "on", "status")
    @classmethod
    def _is_there(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("must name a program")
        return value

    @field_validator("says_on", "says_off")
    @classmethod
    def _says(cls, value: str) -> str:
        return _pattern(value).pattern

    @field_validator("watts_value", "temperature_value")
    @classmethod
    def _value(cls, value: str) -> str:
        if _pattern(value).groups != 1:
            raise ValueError("must have one group in parentheses: the number")
        return value


class RedfishDriver(_Driver):
    """BMCs by Redfish, over HTTPS; needs the extra `rmsplugin[redfish]`."""

    kind: Literal["redfish"]
    credentials: Path = Field(
        ...,
        description="a TOML file with `user` and `password` of the BMCs, readable by the engine's user alone; else it "
        "is refused",
    )
    ca: Path | None = Field(
        None,
        description="certificates (PEM) of the authorities, or of the BMCs themselves, that are believed; none: those "
        "of the system. A BMC that shows none of them is asked nothing: what it says would prove nothing",
    )
    system: str = Field(
        "",
        pattern=r"^(/[A-Za-z0-9._~{}/-]+)?$",
        description="path of the node's system, e.g. /redfish/v1/Systems/{node}; empty: the only one of the BMC",
    )
    temperature_sensors: str = Field(
        r"(?i)inlet|ambient|intake",
        description="regular expression of the names of sensors whose temperature counts; the highest of them. If the "
        "BMC has none, the highest of all counts",
    )

    @field_validator("temperature_sensors")
    @classmethod
    def _sensors(cls, value: str) -> str:
        return _pattern(value).pattern


PowerDriverSettings = Annotated[CommandDriver | RedfishDriver, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Temperatures in degrees Celsius: from ``hot_c`` on a node is hot, down from ``cool_c`` it has cooled."""

    hot_c: float
    cool_c: float


def _heat(hot_c: float | None, cool_c: float | None) -> Thresholds | None:
    """Both thresholds; None: there are none. Raises ValueError."""
    if hot_c is None:
        if cool_c is not None:
            raise ValueError("cool_c needs hot_c beside it")
        return None
    if cool_c is not None and cool_c >= hot_c:
        raise ValueError("has to have cool_c below hot_c")
    return Thresholds(hot_c, hot_c - _COOLER_C if cool_c is None else cool_c)


class Power(Section):
    """The power of nodes: when idle ones are switched off; their BMCs and watts are in sections of their own."""

    switch: bool = Field(
        False,
        description="whether the engine switches nodes off that nobody uses, and on when they are needed; of nodes "
        'with a class and a BMC, in partitions with rooms = "elastic"',
    )
    at_once: int = Field(8, ge=1, le=1000, description="the most nodes that are being switched at a time")
    predict: float = Field(
        0.5, ge=0, le=1, description="weight of the latest idle period in the prediction of the next (c of equation 9)"
    )
    reserve: int = Field(0, ge=0, le=1_000_000, description="so many idle nodes always stay on")
    late_at_most: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description="the share of their times from submission to end by which switching may make vjobs later: near it, "
        "further idle nodes stay on, for a tenth of what switching off could save; none: nothing is done about it",
    )
    underload: float = Field(
        0.2,
        ge=0,
        le=1,
        description='with planning.objective = "energy" a node may be emptied if neither of its CPUs nor of its memory '
        "more than this share is used",
    )
    repaid_s: float = Field(
        1800.0,
        gt=0,
        le=86400,
        description="the longest time with nothing after which an emptied node has saved what emptying it costs",
    )
    sense_s: float = Field(
        0.0,
        ge=0,
        le=86400,
        description="seconds between two questions to a node's BMC for its temperature and watts; 0: it is not asked",
    )
    hot_c: _Celsius | None = Field(
        None,
        description="from this temperature on, in degrees Celsius and in two readings in a row, a node is hot: it "
        "takes no VM, and its VMs leave it; none: no node is ever hot. Needs sense_s",
    )
    cool_c: _Celsius | None = Field(
        None, description="down from this temperature a hot node has cooled; none: 5 degrees below hot_c"
    )
    hot_off: bool = Field(
        False,
        description="whether a hot node that has nothing any more is switched off, until it has cooled; needs switch",
    )
    cap_w: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None,
        description="the most watts that all VM hosts with a class may take together, where a node that has something "
        "counts with its busy_w: no VM comes to a further node, and none is switched on, that could exceed it; none: "
        "no bound",
    )
    classes: tuple[PowerWatts, ...] = Field((), description="what nodes take; a node without a class is never switched")
    tariff: tuple[PowerPrice, ...] = Field(
        (), description="what a kilowatt-hour costs by time of day, for reports; nothing is decided by it"
    )
    co2: tuple[PowerCarbon, ...] = Field(
        (), description="the CO2 of a kilowatt-hour by time of day, for reports; nothing is decided by it"
    )
    driver: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")], PowerDriverSettings] = Field(
        default_factory=dict, description="the BMCs, by a name; the first one that names a node counts"
    )

    @field_validator("tariff", "co2")
    @classmethod
    def _begin_once(cls, value: tuple[PowerPrice | PowerCarbon, ...]) -> tuple[PowerPrice | PowerCarbon, ...]:
        times = [each.begin for each in value]
        if twice := sorted({time for time in times if times.count(time) > 1}):
            raise ValueError(f"has two values from {twice[0]} on")
        return value

    def driver_of(self, node: str) -> str | None:
        """The name of the driver that has the node's BMC; None: none has it."""
        return next((name for name, driver in self.driver.items() if driver.has(node)), None)

    @model_validator(mode="after")
    def _hot(self) -> Power:
        _heat(self.hot_c, self.cool_c)
        thresholds = [self.hot_c, *(each.hot_c for each in self.classes)]
        if not self.sense_s and thresholds.count(None) < len(thresholds):
            raise ValueError("hot_c needs sense_s above 0: else no temperature is known")
        if self.cap_w is not None and not self.classes:
            raise ValueError("cap_w needs [[power.classes]]: else no watts are known")
        if self.hot_off and not self.switch:
            raise ValueError("hot_off needs switch = true")
        return self

    def heat_of(self, node: str) -> Thresholds | None:
        """The thresholds of the node; None: it is never hot."""
        watts = self.watts_of(node)
        own = None if watts is None else _heat(watts.hot_c, watts.cool_c)
        return own or _heat(self.hot_c, self.cool_c)

    def watts_of(self, node: str) -> PowerWatts | None:
        """The class of the node; None: it has none."""
        return next((each for each in self.classes if each.has(node)), None)
