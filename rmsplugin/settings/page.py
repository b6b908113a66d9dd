"""Settings of the live page."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from rmsplugin.settings.section import Section

_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_AUTHORITY = re.compile(r"[a-z0-9.-]{1,253}(:[0-9]{1,5})?")


def _header(text: str) -> str:
    if not _HEADER.fullmatch(text):
        raise ValueError(f"{text!r} is no name of a header: write one as in X-Remote-User")
    return text


def _authority(text: str) -> str:
    if not _AUTHORITY.fullmatch(text):
        raise ValueError(f"{text!r} is no host: write a name in small letters, with a port if it has one")
    return text


class Page(Section):
    """The live page."""

    hosts: tuple[Annotated[str, AfterValidator(_authority)], ...] = Field(
        (),
        description="names by which browsers reach the page, besides localhost: those of the site's proxies, such as "
        "`portal.example.org`; a request with another name is refused",
    )
    proxies: tuple[str, ...] = Field(
        (),
        description="accounts of the site's proxies on this host, such as `www-data`. On the engine's socket they may "
        "ask for the page only, for the user whom they have authenticated and name in `user_header`",
    )
    user_header: Annotated[str, AfterValidator(_header)] = Field(
        "X-Remote-User",
        description="the header in which these proxies name the user; they have to remove one that a browser sends",
    )
