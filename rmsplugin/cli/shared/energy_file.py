"""Energy file: the watts of nodes, and how they are switched, as TOML or JSON with the same keys."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from rmsplugin.energy.daily import Daily
from rmsplugin.energy.emptying import REPAID_S, Emptying
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.energy.power import PowerClass
from rmsplugin.errors import WorkloadError
from rmsplugin.input_file import blocks, named
from rmsplugin.model.hostlist import HostList

_Watts = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)]
_Amount = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
_TimeOfDay = Annotated[str, StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Class(_Part):
    nodes: Literal["*"] | list[str]
    idle_w: _Watts
    busy_w: _Watts
    off_w: _Watts
    transition_w: _Watts
    off_s: _Seconds
    on_s: _Seconds
    least_on_s: _Seconds = 0.0
    least_off_s: _Seconds = 0.0
    cycles_a_day: Annotated[int, Field(ge=0, le=10000)] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> _Class:
        if not self.off_w <= self.idle_w <= self.busy_w:
            raise ValueError("has to have off_w at most idle_w, and idle_w at most busy_w")
        return self


class _Step(_Part):
    begin: _TimeOfDay
    price: _Amount


class _File(_Part):
    classes: Annotated[list[_Class], Field(min_length=1)]
    predict: Annotated[float, Field(ge=0, le=1)] = 0.5
    reserve: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    late_at_most: Annotated[float, Field(gt=0, le=1)] | None = None
    underload: Annotated[float, Field(gt=0, le=1)] | None = None
    repaid_s: Annotated[float, Field(gt=0, le=86400)] = REPAID_S
    tariff: list[_Step] = []
    co2_file: Annotated[str, Field(min_length=1)] | None = None


def read_energy(path: str, nodes: Collection[str]) -> EnergyParameters:
    """The parameters for these nodes.

    Raises:
        WorkloadError: the file cannot be read, or has something wrong in it.
    """
    with named(path, WorkloadError):
        found = _parsed(_text(path, "energy file"))
        classes = _classes(found.classes, nodes)
        price = _daily(found.tariff, "tariff: ")
    co2 = None if found.co2_file is None else _read_co2(_beside(path, found.co2_file))
    emptying = None if found.underload is None else Emptying(found.underload, found.repaid_s)
    return EnergyParameters(classes, found.predict, found.reserve, price, co2, emptying, found.late_at_most)


def _text(path: str, what: str) -> str:
    """The text of a file; editors and spreadsheets begin some with a mark of its encoding."""
    return b"".join(blocks(path, WorkloadError, what)).decode("utf-8-sig")


def _beside(path: str, name: str) -> str:
    """A file beside another one; a file that is called "-" is not standard input."""
    return os.path.join(os.path.dirname(path) or ("." if name == "-" else ""), name)


def _daily(steps: Collection[_Step], place: str = "") -> Daily | None:
    times = [step.begin for step in steps]
    if twice := sorted({time for time in times if times.count(time) > 1}):
        raise WorkloadError(f"{place}has two values from {twice[0]} on")
    return Daily.of((step.begin, step.price) for step in steps)


def _parsed(text: str) -> _File:
    """Read JSON if it begins as JSON does, and else TOML, in which nothing begins like that."""
    try:
        data: Any = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "JSON" if text.lstrip().startswith("{") else "TOML"
        raise WorkloadError(f"no {kind}: {error}") from None
    try:
        return _File(**data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise WorkloadError(f"{place}: {first['msg']}") from None


def _classes(classes: Collection[_Class], nodes: Collection[str]) -> Mapping[str, PowerClass]:
    """The class of each node: the first one that names it."""
    found: dict[str, PowerClass] = {}
    for number, each in enumerate(classes):
        power = PowerClass(**each.model_dump(exclude={"nodes"}))
        named_nodes = set(nodes) if each.nodes == "*" else _among(each.nodes, set(nodes), f"classes.{number}.nodes")
        for name in nodes:
            if name in named_nodes:
                found.setdefault(name, power)
    left = [name for name in nodes if name not in found]
    if left:
        raise WorkloadError(
            f'classes: no class has node {left[0]}; `nodes = "*"` is for all that no class before names'
        )
    return found


def _among(lists: Collection[str], nodes: set[str], place: str) -> set[str]:
    found: set[str] = set()
    for text in lists:
        try:
            here = HostList(text).among(nodes)
        except ValueError as error:
            raise WorkloadError(f"{place}: {error}") from None
        if not here:
            raise WorkloadError(f"{place}: there is no node {text!r}; they are {min(nodes)} to {max(nodes)}")
        found |= here
    return found


def _read_co2(path: str) -> Daily:
    """Lines of a time of day and grams of CO2 a kilowatt-hour: ``06:00,310``."""
    with named(path, WorkloadError):
        steps = []
        for number, line in enumerate(_text(path, "CO2 file").splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                begin, grams = line.split(",")
                steps.append(_Step(begin=begin.strip(), price=float(grams)))
            except ValueError:
                raise WorkloadError(f'line {number}: has to be a time of day and grams, as "06:00,310"') from None
        found = _daily(steps)
        if found is None:
            raise WorkloadError("has no line")
        return found
