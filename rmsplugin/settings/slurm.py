"""Settings of Slurm: its partitions, and how nodes are borrowed from it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from rmsplugin import defaults
from rmsplugin.model.overbooking import MOST_OVERBOOKING
from rmsplugin.settings.section import Seconds, Section
from rmsplugin.settings.slurm_time import slurm_time_s

_SHORTEST_ROOM_S = 600


class Slurm(Section):
    """The resource management system."""

    partitions: tuple[str, ...] = Field(..., min_length=1, description="the vjob partitions, as in job_submit.lua")
    adapter: Literal["auto", "cli", "pyslurm"] = Field(
        "auto",
        description="`cli`: Slurm's commands; `auto`: pyslurm when it imports and its release matches, else cli",
    )
    bin_dir: str = Field("", description="directory of squeue, scontrol, ...; empty: PATH")
    command_timeout_s: Seconds = Field(30.0, description="bound of one Slurm command")
    prolog_wait_s: Seconds = Field(
        defaults.PROLOG_WAIT_S, description="how long PrologSlurmctld waits for the VMs (the job's limit does not run)"
    )
    start_timeout_s: Seconds = Field(
        60.0,
        description="time that Slurm has to start a job after its gate was opened; then the job goes back to waiting",
    )
    gate: str = Field(
        "vjobgate",
        pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$",
        description="the licence (slurm.conf: Licenses=vjobgate:1) that keeps vjobs pending until they may start",
    )
    admin_comment: bool = Field(
        False,
        description="tell users in AdminComment of their jobs (`scontrol show job`) that a vjob was suspended, "
        "resumed, moved, lost, or went back to a checkpoint, and when; it takes the place of what a site writes there",
    )
    mail: bool = Field(
        False,
        description="mail users whose jobs have `--mail-type=ALL` (elements of arrays: `ALL,ARRAY_TASKS`) that a vjob "
        "was suspended, resumed, moved, lost, or went back to a checkpoint, by Slurm's MailProg",
    )
    mail_every_s: float = Field(
        1800.0,
        ge=60,
        le=86400 * 7,
        description="seconds between two mails about one vjob, at least; the second has what happened in between",
    )
    mail_program: str = Field(
        "",
        pattern=r"^(/.*)?$",
        description="path of a program that is called as MailProg is, in its place; empty: MailProg",
    )
    gate_reservation: str = Field(
        "rmsplugin_gate",
        pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$",
        description="the reservation, made and renewed by the engine, that takes that licence away from everybody",
    )


class Partition(Section):
    """A vjob partition: a section for each of slurm.partitions."""

    hosts: str = Field(..., min_length=1, description="the Slurm partition whose nodes are its VM hosts")
    checkpoint_interval_s: float = Field(
        0.0,
        ge=0,
        le=86400 * 7,
        description="the most of its run that a vjob repeats when its VMs are lost; 0: it begins again from its start",
    )
    memory: Literal["requested", "observed"] = Field(
        "requested",
        description="memory of its node that a VM takes: `requested`: all that was asked for; `observed`: what "
        "it is seen to need, so that more VMs run; what was asked for is the most that it can "
        "have. `observed` needs context switches",
    )
    cpu_overbooking: float = Field(
        1.0,
        ge=1,
        le=MOST_OVERBOOKING,
        allow_inf_nan=False,
        description="CPUs of its VMs that one CPU of a node may have to serve, from 1 to 16: a VM is booked with its "
        "CPUs divided by this, or with those that it was seen to use if they are fewer. No VM comes to a node that "
        "has fewer CPUs than the VM itself",
    )


class Hosts(Section):
    """How the nodes of a hosts partition are borrowed from Slurm; without a section, the defaults count."""

    rooms: Literal["hold", "elastic"] = Field(
        "hold",
        description="`hold`: a room on every node, always; `elastic`: as many as the waiting and running vjobs need",
    )
    room_idle_s: float = Field(
        300.0,
        ge=0,
        le=86400 * 7,
        description="time after which an elastic room that is held and has no VMs is given back",
    )
    room_time_limit: str = Field(
        "1-00:00:00",
        description="time limit of a room as Slurm takes it: minutes, HH:MM:SS or DAYS-HH:MM:SS; extended in time",
    )
    rooms_min: int = Field(0, ge=0, description="elastic: the fewest rooms to keep")
    rooms_max: int | None = Field(None, ge=0, description="elastic: the most rooms to have; none: no bound")
    room_wait_s: float = Field(
        30.0,
        ge=0,
        le=86400,
        description="elastic: time for which a vjob waits for a room on an idle node that would do, before "
        "others make way for it",
    )
    store_survives: bool = Field(
        True,
        description="whether saved states stay on a node that was given back; false: they are copied away first",
    )

    @field_validator("room_time_limit")
    @classmethod
    def _time_limit(cls, value: str) -> str:
        if slurm_time_s(value) < _SHORTEST_ROOM_S:
            raise ValueError(f"a room needs at least {_SHORTEST_ROOM_S // 60} minutes")
        return value

    @property
    def room_time_limit_s(self) -> int:
        """The time limit of a room in seconds."""
        return slurm_time_s(self.room_time_limit)
