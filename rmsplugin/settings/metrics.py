"""Settings of the metrics that the engine tells to Prometheus."""

from __future__ import annotations

import ipaddress

from pydantic import Field, model_validator

from rmsplugin.settings.section import Section


class Metrics(Section):
    """Metrics for Prometheus."""

    listen: str = Field(
        "",
        description="ADDRESS:PORT at which the engine that leads answers `GET /metrics`, such as `127.0.0.1:9341`; "
        "empty: nowhere. Needs the Python package prometheus_client. "
        "There is no TLS and no password: see `beyond_loopback`",
    )
    groups: dict[str, str] = Field(
        default_factory=dict,
        description="the same for the engines of groups, by the group's name, each with a port of its own: "
        '`{ g1 = "127.0.0.1:9342" }`; a group that is not named has no metrics',
    )
    beyond_loopback: bool = Field(
        False,
        description="allow addresses that other hosts reach; they then read the metrics without a password, unless a "
        "firewall or a proxy of the site refuses them",
    )

    @model_validator(mode="after")
    def _has_usable_addresses(self) -> Metrics:
        listens = [each for each in (self.listen, *self.groups.values()) if each]
        for listen in listens:
            host, _ = split_address(listen)
            if not host.is_loopback and not self.beyond_loopback:
                raise ValueError(
                    f"other hosts reach {listen}: metrics are told without a password; name a loopback address, "
                    "or set beyond_loopback = true"
                )
        for listen in listens:
            if listens.count(listen) > 1:
                raise ValueError(f"two engines cannot both listen on {listen}: each needs a port of its own")
        return self


def split_address(listen: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Address and port of ``ADDRESS:PORT``; an IPv6 address is in brackets.

    Raises:
        ValueError: it is none.
    """
    host, _, port = listen.rpartition(":")
    try:
        address = ipaddress.ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    except ValueError:
        raise ValueError(f"{listen!r} is no ADDRESS:PORT: write one as in 127.0.0.1:9341 or [::1]:9341") from None
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{listen!r} has no port between 1 and 65535")
    return address, int(port)
