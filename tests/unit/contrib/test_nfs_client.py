"""The client of NFS in user space, mounted twice from one real server: what one mount does, the other sees."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lifetime import ENDS_WITH_US
from minicluster_lib import nfs
from minicluster_lib.layout import Host
from minicluster_lib.nfs_client.fuse import DEVICE
from patience import PATIENCE_S

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not os.access(DEVICE, os.R_OK | os.W_OK), reason="needs FUSE"),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs a server of NFS"),
]

ADDRESS = "10.99.0.1"
CONTRIB = Path(nfs.__file__).resolve().parents[1]
_SERVER = "/usr/bin/ganesha.nfsd -F -L {0}/nfs.log -f {0}/hosts/server/etc/ganesha/ganesha.conf -p /run/ganesha.pid"
#: In namespaces of its own: the port mapper, the server, and two clients, each of which is started again when it ends.
_SCRIPT = """\
set -e
ip link set lo up
ip address add {address}/24 dev lo
mount -t tmpfs none /run
mount -t tmpfs none /var/lib/nfs
mount -t tmpfs none /mnt
mkdir /run/rpcbind /var/lib/nfs/ganesha {one} {two}
/usr/sbin/rpcbind -w
{server} &
cd /
for place in {one} {two}; do
    PYTHONPATH={contrib} {python} -m minicluster_lib.nfs_client {address}:{exported} $place &
done
sleep infinity
"""


class Place:
    """One server, and two mounts of the directory that it exports."""

    def __init__(self, directory: Path) -> None:
        self.one, self.two = Path("/mnt/one"), Path("/mnt/two")
        self.exported = directory / "exported"
        self.exported.mkdir()
        (directory / "hosts/server/etc").mkdir(parents=True)
        nfs.configure(Host("server", ADDRESS, directory), [str(self.exported)], root_too=True)
        self._server = _SERVER.format(directory)
        script = _SCRIPT.format(
            address=ADDRESS,
            server=self._server,
            one=self.one,
            two=self.two,
            exported=self.exported,
            contrib=CONTRIB,
            python=sys.executable,
        )
        words = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script]
        self._said = (directory / "said").open("w+")
        self._process = subprocess.Popen([*ENDS_WITH_US, *words], stdout=self._said, stderr=self._said)

    @functools.cached_property
    def _init(self) -> int:
        return int(Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()[0])

    def start(self, code: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a Python program beside the mounts, with their paths as ``one`` and ``two``."""
        head = f"import fcntl, mmap, os, signal, sqlite3, sys, time\none, two = {str(self.one)!r}, {str(self.two)!r}\n"
        words = ["nsenter", f"--target={self._init}", "--net", "--mount", "--pid", "--", "python3", "-u", "-c"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen([*words, head + textwrap.dedent(code), *arguments], text=True, **pipes)  # type: ignore[call-overload,no-any-return]

    def run(self, code: str, *arguments: str) -> str:
        """What a Python program beside the mounts prints."""
        said, _ = self.start(code, *arguments).communicate(timeout=120)
        return str(said).strip()

    def wait_mounted(self) -> None:
        def both() -> bool:
            mounts = Path(f"/proc/{self._init}/mounts").read_text()
            return all(f" {place} fuse.nfs " in mounts for place in (self.one, self.two))

        wait(both, lambda: (self._said.seek(0), self._said.read()))

    def signal_server(self, number: signal.Signals) -> None:
        self.run(f"os.kill(int(open('/run/ganesha.pid').read()), {number})")

    def signal_client(self, mount: Path, number: signal.Signals) -> None:
        """Send a signal to the client of a mount."""
        code = f"""
        for entry in filter(str.isdigit, os.listdir("/proc")):
            words = open(f"/proc/{{entry}}/cmdline", "rb").read().split(b"\\0")
            if b"minicluster_lib.nfs_client" in words and b"{mount}" in words:
                os.kill(int(entry), {number})
        """
        assert self.run(code) == ""

    def restart_server(self) -> None:
        self.signal_server(signal.SIGKILL)
        self.run(f"os.unlink('/run/ganesha.pid'); os.system('{self._server} >/dev/null 2>&1 &')")
        wait(lambda: self.run("print(os.path.exists('/run/ganesha.pid'))") == "True")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._said.close()


def wait(
    condition: Callable[[], bool], explain: Callable[[], object] = lambda: "", within_s: float = PATIENCE_S
) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("nfs"))
    try:
        wait(lambda: bool(Path(f"/proc/{made._process.pid}/task/{made._process.pid}/children").read_text()))
        made.wait_mounted()
        yield made
    finally:
        made.end()


def test_names_and_contents_are_those_of_now(place: Place) -> None:
    code = """
    os.makedirs(one + "/a/b", 0o750)
    for word in ("old", "new"):
        open(one + "/a/b/made", "w").write(word)
        os.rename(one + "/a/b/made", one + "/a/named")
        print(open(two + "/a/named").read(), os.listdir(two + "/a/b"), oct(os.stat(two + "/a/b").st_mode))
    print(os.path.getsize(one + "/a/named"))
    os.truncate(two + "/a/named", 1)
    print(os.path.getsize(one + "/a/named"), open(one + "/a/named").read())
    os.link(one + "/a/named", one + "/a/link")
    os.symlink("link", one + "/a/leads")
    print(os.stat(two + "/a/named").st_nlink, open(two + "/a/leads").read())
    for name in ("named", "link", "leads"):
        os.unlink(two + "/a/" + name)
    print(os.path.exists(one + "/a/named"))
    os.rmdir(two + "/a/b"), os.rmdir(two + "/a")
    print(os.listdir(one))
    """
    lines = ["old [] 0o40750", "new [] 0o40750", "3", "1 n", "2 n", "False", "[]"]
    assert place.run(code).splitlines() == lines


def test_a_directory_of_any_size_is_listed_whole(place: Place) -> None:
    code = """
    os.mkdir(one + "/many")
    for number in range(500):
        open(f"{one}/many/{number:0200}", "w").close()
    print(len(set(os.listdir(two + "/many"))))
    for name in os.listdir(two + "/many"):
        os.unlink(two + "/many/" + name)
    os.rmdir(one + "/many")
    """
    assert place.run(code) == "500"


def test_a_file_is_made_by_one_alone(place: Place) -> None:
    code = """
    sys.stdin.readline()
    for number in range(300):
        try:
            os.close(os.open(f"{sys.argv[1]}/mine-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            print(number)
        except FileExistsError:
            pass
    """
    both = [place.start(code, str(mount)) for mount in (place.one, place.two)]
    for each in both:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    made = [number for each in both for number in each.communicate(timeout=120)[0].split()]
    assert sorted(made, key=int) == [str(number) for number in range(300)]
    place.run("[os.unlink(f'{one}/mine-{number}') for number in range(300)]")


def test_a_file_that_loses_its_name_while_it_is_open_can_be_read_on(place: Place) -> None:
    code = """
    def two_files():
        for name in ("gone", "other"):
            open(one + "/" + name, "w").write(name)
    for lose in (lambda: os.unlink(one + "/gone"), lambda: os.rename(one + "/other", one + "/gone")):
        two_files()
        with open(one + "/gone") as file:
            lose()
            print(file.read(), "other" in os.listdir(two), [name[:4] for name in os.listdir(two) if name[0] == "."])
    time.sleep(0.5)
    print(os.listdir(two))
    """
    assert place.run(code).splitlines() == ["gone True ['.nfs']", "gone False ['.nfs']", "['gone']"]


_TRY = """
with open(sys.argv[1] + "/locked", "a+") as file:
    try:
        getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("got")
    except BlockingIOError:
        print("refused")
"""
_HOLD = """
file = open(sys.argv[1] + "/locked", "a+")
getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX)
print("has it")
sys.stdin.readline()
getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_UN)
print("gave it")
sys.stdin.readline()
"""


@pytest.mark.parametrize("kind", ["lockf", "flock"])
def test_a_lock_is_everybodys(place: Place, kind: str) -> None:
    def tries() -> list[str]:
        return [place.run(_TRY, str(mount), kind) for mount in (place.one, place.two)]

    holder = place.start(_HOLD, str(place.one), kind)
    assert holder.stdout is not None and holder.stdin is not None
    assert holder.stdout.readline() == "has it\n"
    assert tries() == ["refused", "refused"]
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "gave it\n"
    assert tries() == ["got", "got"]
    holder.communicate("\n")

    killed = place.start(_HOLD, str(place.two), kind)
    assert killed.stdout is not None and killed.stdout.readline() == "has it\n"
    assert tries() == ["refused", "refused"]
    kill_inside(killed)
    assert tries() == ["got", "got"]


def kill_inside(started: subprocess.Popen[str]) -> None:
    """Kill the program that nsenter has started."""
    [child] = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    started.communicate(timeout=60)


def test_a_lock_is_waited_for_until_a_signal(place: Place) -> None:
    holder = place.start(_HOLD, str(place.one), "lockf")
    assert holder.stdout is not None and holder.stdout.readline() == "has it\n"
    code = """
    def late(*_):
        raise InterruptedError
    signal.signal(signal.SIGALRM, late)
    signal.alarm(1)
    with open(two + "/locked", "a+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX)
        except InterruptedError:
            print("a signal")
    """
    assert place.run(code) == "a signal"
    waits = place.start(_HOLD, str(place.two), "lockf")
    holder.communicate("\n\n")
    said, _ = waits.communicate("\n\n", timeout=60)
    assert said == "has it\ngave it\n"


_LEDGER = """
db = sqlite3.connect(sys.argv[1] + "/ledger", isolation_level=None, timeout=1)
db.execute("pragma locking_mode = exclusive"), db.execute("pragma journal_mode = wal")
db.execute("pragma synchronous = full")
"""


def test_a_ledger_is_one_engines_and_whole_after_its_end(place: Place) -> None:
    code = """
    db.execute("create table t (a)")
    number = 0
    while True:
        db.execute("insert into t values (?)", [number])
        print(number)
        number += 1
    """
    writer = place.start(_LEDGER + textwrap.dedent(code), str(place.one))
    assert writer.stdout is not None
    safe = [int(writer.stdout.readline()) for _ in range(50)][-1]
    read = "print(db.execute('select max(a), count(*) from t').fetchone())"
    assert "database is locked" in place.run(_LEDGER + read, str(place.two))
    kill_inside(writer)
    found = place.run(f"{_LEDGER}{read}; print(db.execute('pragma integrity_check').fetchone())", str(place.two))
    highest, number = (int(word.strip("(),")) for word in found.split()[:2])
    assert found.endswith("('ok',)") and number == highest + 1 > safe


def test_a_file_that_is_mapped_is_that_of_its_opening(place: Place) -> None:
    code = """
    for word in (b"old", b"new"):
        with open(one + "/mapped", "wb") as file:
            file.write(word)
        for kind in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            with open(two + "/mapped", "rb") as file:
                print(mmap.mmap(file.fileno(), 3, kind, mmap.PROT_READ)[:].decode())
    """
    assert place.run(code).split() == ["old", "old", "new", "new"]


def test_who_calls_is_who_the_server_asks_about(place: Place) -> None:
    code = """
    os.mkdir(one + "/own", 0o700), os.chown(one + "/own", 4711, 4712)
    if not os.fork():
        os.setgroups([]), os.setgid(4712), os.setuid(4711)
        open(one + "/own/file", "w").close()
        os._exit(0)
    os.wait()
    found = os.stat(two + "/own/file")
    print(found.st_uid, found.st_gid)
    os.setgroups([]), os.setgid(4713), os.setuid(4713)
    try:
        os.listdir(two + "/own")
    except PermissionError:
        print("refused")
    """
    assert place.run(code).splitlines() == ["4711 4712", "refused"]


_READS_ON = """
with open(sys.argv[1] + "/waits", "w+") as file:
    file.write("before\\n"), file.flush(), os.fsync(file.fileno())
    if sys.argv[2:]:
        fcntl.lockf(file, fcntl.LOCK_EX)
    print("is open")
    sys.stdin.readline()
    print("goes on")
    file.write("after\\n"), file.flush(), os.fsync(file.fileno())
    print(open(sys.argv[1] + "/waits").read().split())
"""


def test_a_server_that_stands_still_is_waited_for_but_by_the_killed(place: Place) -> None:
    waits, killed = (place.start(_READS_ON, str(mount)) for mount in (place.one, place.two))
    for each in (waits, killed):
        assert each.stdout is not None and each.stdout.readline() == "is open\n"
    place.signal_server(signal.SIGSTOP)
    for each in (waits, killed):
        assert each.stdin is not None and each.stdout is not None
        each.stdin.write("\n")
        each.stdin.flush()
        assert each.stdout.readline() == "goes on\n"
    time.sleep(8)  # a connection that is silent is made anew after five
    kill_inside(killed)
    assert waits.poll() is None
    place.signal_server(signal.SIGCONT)
    said, _ = waits.communicate(timeout=60)
    assert said == "['before', 'after']\n"


def test_what_is_open_and_locked_outlives_a_restart_of_the_server(place: Place) -> None:
    plain, locked = place.start(_READS_ON, str(place.one)), place.start(_READS_ON, str(place.two), "locks")
    for each in (plain, locked):
        assert each.stdout is not None and each.stdout.readline() == "is open\n"
    place.restart_server()
    other = place.run("file = open(one + '/waits', 'r+'); fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)")
    assert "BlockingIOError" in other
    for each in (plain, locked):
        assert each.communicate("\n", timeout=240)[0] == "goes on\n['before', 'after']\n"
    assert place.run("file = open(one + '/waits', 'r+'); fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)") == ""


def test_a_file_whose_lease_is_over_is_written_on_but_not_without_its_lock(place: Place) -> None:
    plain, locked = place.start(_READS_ON, str(place.two)), place.start(_READS_ON, str(place.two), "locks")
    for each in (plain, locked):
        assert each.stdout is not None and each.stdout.readline() == "is open\n"
    place.signal_client(place.two, signal.SIGSTOP)
    wait(lambda: place.run(_TRY.replace("locked", "waits"), str(place.one), "lockf") == "got", within_s=240)
    place.signal_client(place.two, signal.SIGCONT)
    assert plain.communicate("\n", timeout=240)[0] == "goes on\n['before', 'after']\n"
    assert "Input/output error" in locked.communicate("\n", timeout=240)[0]
