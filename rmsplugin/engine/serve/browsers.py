"""Browsers: what a browser is given in place of JSON, and what it must not be made to ask by pages of others.

A user may forward the engine's socket to a port of his own machine. Then each page that his browser shows could send
requests there, and by a name that leads to that port even read the answers. So a request has to name this host, a host
of the settings or none, and one that another origin's page makes is refused.
"""

from __future__ import annotations

import ipaddress
import pwd
import re
from collections.abc import Collection, Mapping

from rmsplugin.api.routes import Media, Route
from rmsplugin.engine.serve.asked import Reply
from rmsplugin.engine.serve.http_library import web
from rmsplugin.errors import ForbiddenError, SettingsError
from rmsplugin.live_page.document import headers
from rmsplugin.settings.page import Page

_LOCAL = "localhost"
#: A name that a public name server may answer for, or an address.
_PUBLIC = re.compile(r"\[.*|[^/%]*\..*")
_PORT = re.compile(r":[0-9]{1,5}$")
_RETRY_MS = 1000


class Browsers:
    """The rules for requests of browsers, and of the site's own proxies."""

    def __init__(self, page: Page | None = None, engine_uids: Collection[int] = ()) -> None:
        """Read the settings; ``engine_uids``: root's and the engine's own, which can be no proxy's.

        Raises:
            SettingsError: a proxy's account does not exist, or is one of these.
        """
        self._hosts = frozenset(page.hosts if page else ())
        self._header = page.user_header if page else ""
        self._proxies = {_proxy_uid(name, engine_uids): name for name in (page.proxies if page else ())}

    def caller(self, uid: int, route: Route, given: Mapping[str, str]) -> int:
        """The uid for whom is asked: the peer's own, or of a proxy, the one that it names.

        Raises:
            ForbiddenError: a proxy asks for something else than the page, or names nobody.
        """
        if uid not in self._proxies:
            return uid
        proxy, user = self._proxies[uid], given.get(self._header, "")
        if route.media is Media.JSON:
            raise ForbiddenError(f"{proxy} is a proxy of the live page (page.proxies): it may ask for nothing else")
        try:
            return pwd.getpwnam(user).pw_uid
        except (KeyError, ValueError):
            raise ForbiddenError(
                f"the proxy does not say who looks: {self._header} has to name an account of this host"
            ) from None

    def refuse_foreign(self, method: str, given: Mapping[str, str]) -> None:
        """Raise ForbiddenError for a request that another site's page makes, or that names another host."""
        host = given.get("Host", "")
        if not self._is_ours(host):
            raise ForbiddenError(
                "this address leads to the engine, but not by its own name: open it as http://localhost:PORT/v1/page; "
                "page.hosts in the settings names others"
            )
        origin = given.get("Origin")
        if origin is not None and origin.partition("://")[2] not in {host, *self._hosts}:
            raise ForbiddenError("a page of another site may ask nothing of the engine")
        visits = method == "GET" and given.get("Sec-Fetch-Mode") == "navigate"
        if given.get("Sec-Fetch-Site") in ("cross-site", "same-site") and not visits:
            raise ForbiddenError("a page of another site may ask nothing of the engine")

    def _is_ours(self, host: str) -> bool:
        name = _PORT.sub("", host).lower()
        if host in self._hosts or name in self._hosts or not _PUBLIC.fullmatch(name):
            return True
        try:
            return ipaddress.ip_address(name.strip("[]")).is_loopback
        except ValueError:
            return name.endswith(f".{_LOCAL}")


def _proxy_uid(name: str, engine_uids: Collection[int]) -> int:
    try:
        uid = pwd.getpwnam(name).pw_uid
    except KeyError:
        raise SettingsError(f"page.proxies: no account {name!r} on this host") from None
    if uid in engine_uids:
        raise SettingsError(f"page.proxies: {name} has powers of the engine; give the proxy an account of its own")
    return uid


def shown(route: Route, body: Reply, given: Mapping[str, str]) -> web.Response | None:
    """The answer in the form that a browser asks for; None: it is JSON."""
    if route.media is Media.JSON or route.media.value not in given.get("Accept", ""):
        return None
    if route.media is Media.HTML:
        return web.Response(text=body["html"], content_type=route.media.value, charset="utf-8", headers=headers())
    news = f"event: changed\ndata: {body['number']}" if body["changed"] else ": nothing new"
    return web.Response(
        text=f"retry: {_RETRY_MS}\n{news}\n\n",
        content_type=route.media.value,
        charset="utf-8",
        headers={"Cache-Control": "no-store"},
    )
