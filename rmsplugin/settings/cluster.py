"""Settings of several engines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from rmsplugin.settings.section import Section


def _server(text: str) -> str:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", text)
    if not found or not 0 < int(found[2]) < 65536:
        raise ValueError(f"{text!r} is no server of ZooKeeper: write HOST:PORT, as in controller1:2181")
    return text


def _path(text: str) -> str:
    if not re.fullmatch(r"(/[A-Za-z0-9_-]+)+", text):
        raise ValueError(f"{text!r} is no path of a ZooKeeper node: write one as in /rmsplugin")
    return text


def _domain(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < 2:
        raise ValueError(f"{list(names)} is no migration domain: name two groups, or more")
    return names


class Cluster(Section):
    """Several engines, of which one leads."""

    coordination: Literal["local", "zookeeper"] = Field(
        "local",
        description="`local`: one engine, kept alone by a lock on its state_dir; `zookeeper`: several engines, of "
        "which one leads; the others stand by. Needs the Python package kazoo",
    )
    servers: tuple[Annotated[str, AfterValidator(_server)], ...] = Field(
        (), description='the servers of the ensemble: `["controller1:2181", "controller2:2181", "controller3:2181"]`'
    )
    session_s: float = Field(
        4.0,
        ge=2,
        le=60,
        description="a leader of which the ensemble has not heard for so long has lost; it acts no more after 0.8 of "
        "it. The servers' minSessionTimeout may make the next one wait longer",
    )
    shared_dir: Path | None = Field(
        None,
        description="directory that all controllers have, for ledgers and keys; owned by engine.user, mode 0700. With "
        "it, engines run on several hosts, one a state_dir; without it, on one host and state_dir",
    )
    path: Annotated[str, AfterValidator(_path)] = Field(
        "/rmsplugin", description="the node of the ensemble under which all is kept; one for each cluster"
    )
    migration_domains: tuple[Annotated[tuple[str, ...], AfterValidator(_domain)], ...] = Field(
        (),
        description="groups between which vjobs go also while they run, when another one has room nowhere: "
        '`[["left", "right"]]`. Such a vjob is suspended, handed over and resumed. The hosts of a domain have the same '
        "kind of machines: where there are domains, no vjob that has begun leaves its own. Only managers heed it",
    )

    @model_validator(mode="after")
    def _has_servers(self) -> Cluster:
        if self.coordination == "zookeeper" and not self.servers:
            raise ValueError('coordination = "zookeeper" needs servers = ["HOST:PORT", ...]')
        # By value: settings that are handed on to another process name all fields.
        given = [name for name, field in Cluster.model_fields.items() if getattr(self, name) != field.default]
        if self.coordination == "local" and given:
            raise ValueError(f'{", ".join(sorted(given))}: without effect unless coordination = "zookeeper"')
        return self
