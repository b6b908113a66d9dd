"""Settings of the engine itself."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from rmsplugin import defaults
from rmsplugin.settings.section import Seconds, Section


def _host(text: str) -> str:
    if "/" in text:
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise ValueError(f"{text} is no network; write one as in 10.1.0.0/24") from None
    elif not text or not all(each.isalnum() or each in ".-_:" for each in text):
        raise ValueError(f"{text!r} is no host: write a name, an address, or a network as in 10.1.0.0/24")
    return text


#: Names, addresses or networks.
Hosts = tuple[Annotated[str, AfterValidator(_host)], ...]


class Engine(Section):
    """The engine itself."""

    state_dir: Path = Field(Path("/var/lib/rmsplugin"), description="ledger and keys; owned by engine.user, mode 0700")
    socket: Path = Field(Path(defaults.SOCKET), description="service socket on the controller")
    listen: str = Field("", description="ADDRESS:PORT for wrappers on batch hosts, authenticated by munge; empty: none")
    url: str = Field(
        "",
        description="how batch hosts reach `listen`: http://ADDRESS:PORT; with engines on several hosts, those of all, "
        "with blanks between: the one that leads answers",
    )
    user: str = Field(defaults.USER, description="account the engine runs as; must be Slurm's SlurmUser")
    operators: tuple[str, ...] = Field(
        (), description="users who may act on any vjob and have reports of all, besides root and engine.user"
    )
    trusted_hosts: Hosts = Field(
        (),
        description="hosts, besides the controller, on which root, engine.user and operators count as such: backup "
        "controllers, an admin's host; names, addresses or networks (10.1.0.0/24)",
    )
    login_hosts: Hosts = Field(
        (),
        description="hosts on which users log in, besides the controller: users' requests that act on vjobs or "
        "return keys (`rmsplugin suspend`, `ssh`, ...) are taken from these hosts only; names, "
        "addresses or networks",
    )
    addresses: dict[str, Hosts] = Field(
        default_factory=dict,
        description="further addresses from which Slurm's nodes reach the engine, besides their NodeAddr: "
        '`{ front2 = ["10.2.0.5"] }`',
    )
    cycle_s: Seconds = Field(30.0, description="seconds between two cycles; events start one at once")
    watch_s: Seconds = Field(
        1.0,
        description="seconds between two looks at Slurm's queue, in whole seconds, at least 1; more where a look takes "
        "long. A job that arrives or ends starts a cycle at once, if such cycles have taken less than a fifth of "
        "the time (of which up to 3 s are saved up). A submitted vjob is seen within 0.03 s where "
        "the engine can see Slurm's StateSaveLocation",
    )
    workers: int = Field(
        16, ge=1, le=256, description="the most operations at the same time in a group (starts; ends; all others)"
    )
    keep_days: int = Field(90, ge=1, description="days for which the ledger keeps ended vjobs and events")
    stop_wait_s: float = Field(
        30.0,
        ge=0,
        le=3600,
        description="time for which an ending engine waits for operations under way; the rest is taken up "
        "again at its next start",
    )
    orphan_s: Seconds = Field(
        30.0,
        description="time without a sign of life from a running vjob's wrapper after which its Slurm job is requeued; "
        "it counts while its front can be reached",
    )
