"""Http library: aiohttp, of which only the server is used."""

from __future__ import annotations

from rmsplugin.left_out import no_authorities

with no_authorities():  # its client reads all certificates of the system when it is imported
    from aiohttp import web as web
