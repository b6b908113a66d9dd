"""Requests to a served engine as a host of the cluster makes them, with a credential of whatever user it likes."""

from __future__ import annotations

import functools
import hashlib
import http.client
import json
from typing import Any

import pytest
from unit.munged import Munged
from unit.served import PATIENCE_S, Served

from rmsplugin.engine.serve import front, sealing

#: Addresses of this host from which a connection to 127.0.0.1 comes like one of another host.
ADDRESSES = {"n1": "127.0.0.11", "n2": "127.0.0.12", "front1": "127.0.0.21", "front2": "127.0.0.22"}
LOGIN, STRANGER, ADMIN = "127.0.0.31", "127.0.0.41", "127.0.0.51"


def serve_over_munge(munged: Munged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have services check and seal by this munged."""
    for name in ("verify_request", "seal_response"):
        monkeypatch.setattr(front, name, functools.partial(getattr(sealing, name), munge_socket=munged.socket))


class Host:
    """A host with the cluster's munge key: its root makes a credential of any user."""

    def __init__(self, served: Served, munged: Munged, address: str) -> None:
        self._served, self._munged, self._address = served, munged, address

    def ask(self, uid: int, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Status and body of the answer to a request in the name of ``uid``; the status is the sealed one."""
        data = b"" if body is None else json.dumps(body).encode()
        claim = {"method": method, "path": path, "sha256": hashlib.sha256(data).hexdigest(), "nonce": "0" * 32}
        headers = {"Authorization": f"Munge {self._munged.encode_as(uid, json.dumps(claim).encode())}"}
        connection = http.client.HTTPConnection(
            "127.0.0.1", self._served.port, timeout=PATIENCE_S, source_address=(self._address, 0)
        )
        try:
            connection.request(method, path, body=data, headers=headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.headers.get_content_type() != "application/x-munge":
            return response.status, json.loads(text)
        payload = self._munged.decode_as(uid, text.decode())
        sealed = json.loads(payload)
        return sealed["status"], sealed["body"]
