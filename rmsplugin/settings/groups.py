"""Settings of groups: parts of the VM hosts, for each of which a proposal is made."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, field_validator

from rmsplugin.model.hostlist import expand
from rmsplugin.settings.section import Section


class Group(Section):
    """A group of VM hosts; by default each hosts partition is one, split along the switches at 1,000 hosts."""

    hosts: str = Field(
        ..., min_length=1, description="its hosts as a host list of Slurm's, `n[1-500]`; a host is in one group only"
    )

    @field_validator("hosts")
    @classmethod
    def _is_a_host_list(cls, value: str) -> str:
        expand(value)
        return value

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its hosts."""
        return expand(self.hosts)


def refuse_two_groups(groups: Mapping[str, Group]) -> None:
    """Refuse a host in two groups.

    Raises:
        ValueError: there is one.
    """
    group_of: dict[str, str] = {}
    for name, group in groups.items():
        for host in group.names:
            if group_of.setdefault(host, name) != name:
                raise ValueError(f"[group.{name}] names {host}, which is in [group.{group_of[host]}]")
