"""Nodes whose BMCs speak Redfish, over real HTTPS: a small server of ours for each.

It keeps to DSP0266 as far as it goes: sessions with tokens, one system, its reset action, and what its chassis shows.
A node goes off and comes on a moment after the order, as real ones do.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from contract.power.worlds import NODE, OTHER
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from patience import PATIENCE_S

from rmsplugin.adapters.power.factory import open_power
from rmsplugin.settings.power import Power

USER, PASSWORD = "admin", "geheim"
_DELAY_S = 0.3
_SYSTEM, _CHASSIS = "/redfish/v1/Systems/1", "/redfish/v1/Chassis/1"
_RESET = f"{_SYSTEM}/Actions/ComputerSystem.Reset"


class RedfishNode:
    """One BMC and its node. Tests change its attributes."""

    def __init__(self, certificate: tuple[Path, Path]) -> None:
        self.power = "On"
        self.changes: tuple[float, str] | None = None
        self.resets = ["On", "ForceOff", "GracefulShutdown"]
        self.orders: list[str] = []
        self.deaf = False
        self.refuses = False
        self.conflicts = False  # it calls it a conflict to be ordered what it is already
        self.gave_up = False  # a request stood still until it was waited for no more here
        self.silent = threading.Event()  # it takes connections and answers nothing
        self.drips = False  # it answers, a byte at a time, for ever
        self.unknown = False
        self.watts: float | None = 100.0
        self.temperatures: list[dict[str, Any]] = [{"Name": "Inlet", "ReadingCelsius": 25.0}]
        self.metrics: dict[str, Any] | None = None  # EnvironmentMetrics, which newer ones have
        self.systems = 1
        self.sessions: set[str] = set()
        self.logins = 0
        self.closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *words: _Handler(self, *words))
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*map(str, certificate))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Address and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def state(self) -> str:
        """As PowerState."""
        if self.changes is not None and time.monotonic() >= self.changes[0]:
            self.power, self.changes = self.changes[1], None
        if self.unknown:
            return "PoweringOff"
        return self.power if self.changes is None else f"Powering{self.changes[1]}"

    def reset(self, kind: str) -> int:
        """The order; returns the status of HTTP."""
        wanted = "On" if kind == "On" else "Off"
        if kind not in self.resets or self.refuses:
            return 400
        if self.conflicts and self.state() == wanted:
            return 409
        self.orders.append(kind)
        if self.state() != wanted and not (self.deaf and kind == "GracefulShutdown"):
            self.changes = (time.monotonic() + _DELAY_S, wanted)
        return 204

    def resource(self, path: str) -> dict[str, Any] | None:
        """What is at a path."""
        if path == _CHASSIS:
            return {"Id": "1", **{name: {"@odata.id": f"{_CHASSIS}/{name}"} for name in self._measured()}}
        members = [{"@odata.id": f"/redfish/v1/Systems/{1 + number}"} for number in range(self.systems)]
        return {
            "/redfish/v1/": _root(),
            "/redfish/v1": _root(),
            "/redfish/v1/SessionService": {
                "Id": "SessionService",
                "Name": "Session Service",
                "Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"},
            },
            "/redfish/v1/Systems": {"Name": "Systems", "Members": members},
            _SYSTEM: self._system(),
            **{f"{_CHASSIS}/{name}": found for name, found in self._measured().items()},
        }.get(path)

    def _measured(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        if self.watts is not None:
            found["Power"] = {"PowerControl": [{"PowerConsumedWatts": self.watts}]}
        if self.temperatures:
            found["Thermal"] = {"Temperatures": self.temperatures}
        if self.metrics is not None:
            found["EnvironmentMetrics"] = self.metrics
        return found

    def _system(self) -> dict[str, Any]:
        reset = {"target": _RESET, "ResetType@Redfish.AllowableValues": self.resets}
        return {
            "Id": "1",
            "PowerState": self.state(),
            "Actions": {"#ComputerSystem.Reset": reset},
            "Links": {"Chassis": [{"@odata.id": _CHASSIS}]},
        }

    def close(self) -> None:
        """End it."""
        if not self.closed.is_set():
            self.closed.set()
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def _root() -> dict[str, Any]:
    return {
        "Id": "RootService",
        "Name": "Root",
        "RedfishVersion": "1.11.0",
        "UUID": "9d6f1f2e-0000-4000-8000-000000000000",
        "Systems": {"@odata.id": "/redfish/v1/Systems"},
        "SessionService": {"@odata.id": "/redfish/v1/SessionService"},
        "Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}},
    }


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, node: RedfishNode, *words: Any) -> None:
        self._node = node
        super().__init__(*words)

    def log_message(self, format: str, *words: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self._waits():
            return
        if self.path not in ("/redfish/v1/", "/redfish/v1") and not self._is_known():
            return self._answer(401)
        found = self._node.resource(self.path)
        self._answer(404 if found is None else 200, found)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._waits():
            return
        if self.path == "/redfish/v1/SessionService/Sessions":
            if (body.get("UserName"), body.get("Password")) != (USER, PASSWORD):
                return self._answer(401)
            self._node.logins += 1
            token = f"token{self._node.logins}"
            self._node.sessions.add(token)
            return self._answer(201, {"Id": token}, {"X-Auth-Token": token, "Location": f"{self.path}/{token}"})
        if not self._is_known():
            return self._answer(401)
        self._answer(self._node.reset(body["ResetType"]) if self.path == _RESET else 404)

    def _waits(self) -> bool:
        """Stand still, if it is to."""
        if self._node.silent.is_set():
            self._node.gave_up = not self._node.closed.wait(PATIENCE_S)
            return True
        while self._node.drips and not self._node.closed.wait(0.05):
            self.wfile.write(b"H")
        return self._node.drips

    def _is_known(self) -> bool:
        return self.headers.get("X-Auth-Token") in self._node.sessions

    def _answer(self, status: int, body: Any = None, headers: dict[str, str] | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def write_certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, as BMCs come with, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    paths = directory / f"{name}.pem", directory / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(*pem))
    return paths


class RedfishWorld:
    """See PowerWorld."""

    def __init__(self, directory: Path, **driver: Any) -> None:
        self.directory = directory
        certificate = write_certificate(directory, "bmc")
        self.nodes = {node: RedfishNode(certificate) for node in (NODE, OTHER)}
        credentials = directory / "credentials"
        credentials.write_text(f'user = "{USER}"\npassword = "{PASSWORD}"\n')
        credentials.chmod(0o600)
        values = {
            "kind": "redfish",
            "nodes": ["n[1-2]"],
            "addresses": {node: found.address for node, found in self.nodes.items()},
            "credentials": str(credentials),
            "ca": str(certificate[0]),
            "timeout_s": 20.0,
            "shutdown_s": 0.0,
            **driver,
        }
        self.driver = open_power(Power.model_validate({"driver": {"bmc": values}}))

    def now(self) -> float:
        """See PowerWorld."""
        return time.time()

    def wait(self) -> None:
        """See PowerWorld."""
        time.sleep(0.1)

    def silence(self, node: str) -> None:
        """See PowerWorld."""
        self.nodes[node].close()

    def make_unknown(self, node: str) -> None:
        """See PowerWorld."""
        self.nodes[node].unknown = True

    def set_sensors(self, node: str, watts: float | None, temperature_c: float | None) -> None:
        """See PowerWorld."""
        self.nodes[node].watts = watts
        shown = {"Name": "Inlet Temp", "ReadingCelsius": temperature_c, "Status": {"State": "Enabled"}}
        self.nodes[node].temperatures = [] if temperature_c is None else [shown]

    def refuse(self, node: str) -> None:
        """See PowerWorld."""
        self.nodes[node].refuses = True

    def close(self) -> None:
        """See PowerWorld."""
        for node in self.nodes.values():
            node.close()
