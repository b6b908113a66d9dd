"""The live page behind a site's proxy: real nginx and Apache, with the lines that the guide has for them."""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from patience import PATIENCE_S
from unit.served import ME, Served

from rmsplugin.settings.page import Page

GUIDE = Path(__file__).resolve().parents[2] / "docs/operator/portals.md"
ACCOUNT = "www-data"
USERS = ("daemon", "bin")
PASSWORD = "only of this test"

_NGINX = """\
user {account};
pid {directory}/pid;
error_log {directory}/log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{port};
        auth_basic "a test";
        auth_basic_user_file {directory}/users;
        {location}
    }}
}}
"""
_APACHE = """\
ServerRoot {directory}
ServerName localhost
PidFile {directory}/pid
ErrorLog {directory}/log
User {account}
Group {account}
Listen 127.0.0.1:{port}
{modules}
<Location "/">
    AuthType Basic
    AuthName "a test"
    AuthUserFile {directory}/users
    Require valid-user
</Location>
{location}
"""
_MODULES = (
    "mpm_event",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_user",
    "auth_basic",
    "headers",
    "proxy",
    "proxy_http",
)
_APACHE_MODULES = Path("/usr/lib/apache2/modules")

needs_apache = pytest.mark.skipif(not _APACHE_MODULES.exists(), reason="needs Debian's apache2-bin")
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to start servers of another account")


def location(engine: Served, begins: str) -> str:
    """The lines of the guide that begin so, for the socket of this engine."""
    blocks = re.findall(r"^```\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if block.startswith(begins)]
    assert "/run/rmsplugin/engine.sock" in block
    return block.replace("/run/rmsplugin/engine.sock", engine.socket)


@pytest.fixture
def engine() -> Iterator[Served]:
    """An engine of whose jobs Slurm tells each user only the user's own."""
    with tempfile.TemporaryDirectory() as name:  # the proxy has to reach the socket
        Path(name).chmod(0o755)
        served = Served(Path(name), page=Page(proxies=(ACCOUNT,), hosts=("portal.example.org",)))  # type: ignore[call-arg]
        served.world.rms.private = frozenset({"jobs"})
        for number, user in enumerate(USERS, start=12):
            served.add_vjob(number, number, user=user, job_name=f"of-{user}")
        served.world.cycle.run()
        yield served
        served.close()


def nginx(engine: Served, directory: Path, port: int) -> list[str]:
    lines = _NGINX.format(
        account=ACCOUNT, directory=directory, port=port, location=location(engine, "location /v1/page")
    )
    (directory / "conf").write_text(lines)
    return ["nginx", "-p", str(directory), "-c", str(directory / "conf"), "-g", "daemon off;"]


def apache(engine: Served, directory: Path, port: int) -> list[str]:
    return _apache(directory, port, location(engine, '<Location "/v1/page">'))


def open_ondemand(engine: Served, directory: Path, port: int) -> list[str]:
    """As Open OnDemand's generator writes the lines; the login is this Apache's, by passwords."""
    lines = yaml.safe_load(location(engine, "custom_vhost_directives:"))["custom_vhost_directives"]
    login = [line for line in lines if line.split()[0] in ("AuthType", "Require")]
    assert len(login) == 2, "the portal's own login does not reach a location of one's own"
    return _apache(directory, port, "\n".join(line.replace("openid-connect", "Basic") for line in lines))


def _apache(directory: Path, port: int, place: str) -> list[str]:
    loaded = "\n".join(f"LoadModule {name}_module {_APACHE_MODULES}/mod_{name}.so" for name in _MODULES)
    lines = _APACHE.format(account=ACCOUNT, directory=directory, port=port, modules=loaded, location=place)
    (directory / "conf").write_text(lines)
    return ["apache2", "-D", "FOREGROUND", "-f", str(directory / "conf")]


@contextmanager
def running(engine: Served, made: Callable[[Served, Path, int], list[str]]) -> Iterator[int]:
    """The port of a proxy that listens."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        digest = base64.b64encode(hashlib.sha1(PASSWORD.encode()).digest()).decode()
        (directory / "users").write_text("".join(f"{user}:{{SHA}}{digest}\n" for user in (*USERS, "stranger")))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        process = subprocess.Popen(made(engine, directory, port), stdin=subprocess.DEVNULL)
        try:
            for _ in range(600):
                assert process.poll() is None, (directory / "log").read_text()
                with socket.socket() as asked:
                    if asked.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()
            process.wait()


def ask(port: int, user: str = "", path: str = "/v1/page", **headers: str) -> tuple[int, str]:
    """Status and text of the answer to a browser whose user has logged in at the proxy."""
    if user:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", path, headers={"Host": "portal.example.org", "Accept": "text/html", **named})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(nginx, marks=pytest.mark.skipif(not shutil.which("nginx"), reason="needs Debian's nginx-light")),
        pytest.param(apache, marks=needs_apache),
        pytest.param(open_ondemand, marks=needs_apache),
    ],
)
def test_each_user_gets_the_own_page_through_the_guides_lines(
    engine: Served, made: Callable[[Served, Path, int], list[str]]
) -> None:
    with running(engine, made) as port:
        assert ask(port)[0] == 401
        for user, other in (USERS, USERS[::-1]):
            status, page = ask(port, user)
            assert status == 200 and f"of-{user}" in page and f"of-{other}" not in page
        # What the browser says of itself is replaced.
        status, page = ask(port, "bin", X_Remote_User="daemon")
        assert status == 200 and "of-bin" in page and "of-daemon" not in page
        assert ask(port, "stranger")[0] == 403, "an account that the controller does not have"
        status, news = ask(port, "bin", "/v1/page/news?after=0&wait=0", Accept="text/event-stream")
        assert status == 200 and "event: changed" in news
        assert ask(port, "bin", "/v1/vjobs")[0] == 404, "the proxy passes on the page only"
        assert ask(port, "bin", Origin="https://evil.example")[0] == 403
        assert ask(port, "bin", Origin="https://portal.example.org")[0] == 200


def test_nobody_else_of_the_host_is_taken_for_the_proxy(engine: Served) -> None:
    with engine.connect() as connection:
        connection.sendall(b"GET /v1/page HTTP/1.1\r\nHost: localhost\r\nX-Remote-User: daemon\r\n\r\n")
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 200 and ME == 0  # root is root, whatever it says
        assert "of-bin" in answer.read().decode()
