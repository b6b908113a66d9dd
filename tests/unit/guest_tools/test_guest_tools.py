"""The tools inside the guest, run for real on both kinds of guest, and the engine's adapter that puts them there."""

from __future__ import annotations

import base64
import io
import platform
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from unit import guestbox

from rmsplugin.adapters.guests.config import NATIVE_PROGRAMS, GuestMount, Tools, image_tools
from rmsplugin.adapters.guests.keys import generate_keypair
from rmsplugin.adapters.guests.site_files import SiteFiles
from rmsplugin.adapters.guests.ssh import _NOT_IN_IMAGE, _UNPACK, _UNPACK_BY_IMAGE, SshGuests
from rmsplugin.adapters.guests.used import Used
from rmsplugin.adapters.simulated.guests import SimulatedGuests
from rmsplugin.errors import ForbiddenError, OperationFailedError, RefusedError, TimedOutError, UnavailableError

TOOLS = Path(__file__).parents[3] / "rmsplugin/guest_tools"

needs_guests = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")


@pytest.fixture(scope="module", params=guestbox.FLAVOURS)
def box(request: pytest.FixtureRequest) -> Iterator[guestbox.Guestbox]:
    with guestbox.ready(request.param, 2) as made:
        yield made


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    scripts = sorted(path for path in TOOLS.iterdir() if path.is_file() and path.read_bytes()[:1] == b"#")
    result = subprocess.run(["shellcheck", "-s", "sh", *scripts], capture_output=True, text=True)
    assert result.stdout == ""


def _segments(program: bytes) -> dict[int, int]:
    """Flags of the segments of a 64-bit ELF file, by their type."""
    table, size, count = (*struct.unpack_from("<Q", program, 32), *struct.unpack_from("<HH", program, 54))[:3]
    return dict(struct.unpack_from("<II", program, table + i * size) for i in range(count))


def test_the_guests_program_is_static_position_independent_and_guarded() -> None:
    program = (TOOLS / "vjob-tools").read_bytes()
    loader, stack, read_only, shared_object, executable = 3, 0x6474E551, 0x6474E552, 3, 1
    assert program[:5] == b"\x7fELF\x02"
    assert struct.unpack_from("<H", program, 16) == (shared_object,)
    segments = _segments(program)
    assert loader not in segments
    assert read_only in segments
    assert not segments[stack] & executable
    if platform.machine() == "x86_64":
        assert b"\x64\x48\x8b\x04\x25\x28\x00\x00\x00" in program  # the guard of a stack frame is read


@needs_guests
@pytest.mark.parametrize("name", NATIVE_PROGRAMS)
def test_each_link_to_the_native_tools_is_a_program_of_theirs(box: guestbox.Guestbox, name: str) -> None:
    place = f"/run/rmsplugin/bin/{name}"
    assert box.guests[0].run(f"readlink {place}") == "vjob-tools\n"
    said = box.guests[0].run(f"{place} nothing-of-that-name 2>&1 </dev/null || :")
    assert said and "no program of the name" not in said


@needs_guests
def test_a_guest_that_has_tools_unpacks_new_ones_by_them_and_another_by_its_shell(box: guestbox.Guestbox) -> None:
    guest = box.guests[0]
    unpack = "/run/rmsplugin/bin/unpack"
    guest.run(
        f"rm {unpack} && printf '#!/bin/sh\\ncat >/dev/null; echo this one >&2; exit 9' >{unpack} && chmod 755 {unpack}"
    )
    with pytest.raises(OperationFailedError, match="this one"):
        box.configure()
    guest.run(f"rm {unpack}")
    box.configure()
    assert guest.run(f"readlink {unpack}") == "vjob-tools\n"
    said = guest.run(f"printf 'half an archive' | {unpack} 2>&1 || echo $?")
    assert "incomplete" in said and said.endswith("\n1\n"), said
    whole = "{ head -c 1000000 /dev/zero | tr '\\0' x && echo written >&2; }"
    assert "written" in guest.run(f"({whole} | {unpack}) 2>&1 || :"), "it is read to its end before it is refused"
    # As root's shell, while a guest waits to be told who it is.
    shell = f"/run/rmsplugin/bin/login-shell -c {shlex.quote(_UNPACK)}"
    assert guest.run(f"printf 'half an archive' | {shell} 2>&1 || :") == said.replace("\n1\n", "\n")
    box.configure()


@needs_guests
def test_a_guest_that_has_the_native_tools_is_not_sent_them(box: guestbox.Guestbox) -> None:
    config = box.config(0)
    archives = [config.archive(), replace(config, tools=Tools.KEPT).archive()]
    with tarfile.open(fileobj=io.BytesIO(archives[0])) as whole, tarfile.open(fileobj=io.BytesIO(archives[1])) as rest:
        assert set(whole.getnames()) - set(rest.getnames()) == {"bin/vjob-tools"}
    assert len(archives[1]) < len(archives[0]) / 2


def _take_tools_of_image(box: guestbox.Guestbox) -> str:
    """Configure the first guest as one of contrib/guest-image; where it has its tools from then."""
    vm = box.guests[0].vm
    with box.entered():
        config = replace(box.config(0), tools=Tools.IMAGE)
        box.ssh().configure(vm.address, vm.host_key, config, timeout_s=PATIENCE_S)
    return box.guests[0].run("readlink -f /run/rmsplugin/bin/configure").strip()


@needs_guests
def test_a_guest_whose_image_has_the_tools_of_this_release_is_sent_only_its_own_files() -> None:
    """In a guest with a root of its own: the other's is this machine's."""
    place, sent = image_tools(), "/run/rmsplugin/bin/vjob-tools"
    command = shlex.quote(_UNPACK_BY_IMAGE.format(place, _NOT_IN_IMAGE))
    with guestbox.opened() as box:
        (guest,) = box.boot("busybox", 1)
        with box.entered():
            box.ssh().wait_ready(guest.vm.address, guest.vm.host_key, timeout_s=PATIENCE_S)
        assert _take_tools_of_image(box) == sent, "the image has none"
        guest.run(
            f"mkdir -p {place} && cp {sent} {place} && mv {place} {place}x && cd {place}x && ln -s vjob-tools unpack"
        )
        assert _take_tools_of_image(box) == sent, "the image has others"
        said = guest.run(f"yes | head -c 999999 | {{ /run/rmsplugin/bin/login-shell -c {command}; echo $?; }}")
        assert said == f"{_NOT_IN_IMAGE}\n"
        guest.run(f"ln -s {place}x {place}")
        assert _take_tools_of_image(box) == f"{place}x/vjob-tools"
        # As root's shell, without a shell in between: there is none any more.
        by_shell = f"echo half | /run/rmsplugin/bin/login-shell -c {command}"
        said = guest.run(f"{{ mv /bin/sh /bin/kept; {by_shell}; mv /bin/kept /bin/sh; }} 2>&1")
        assert "incomplete" in said, said


@needs_guests
def test_configuring_again_changes_nothing(box: guestbox.Guestbox) -> None:
    look = (
        "cat /etc/passwd /etc/group /etc/hosts /etc/shells; hostname; cd /run/rmsplugin; "
        "find . -path ./job -prune -o -type f -print | sort | xargs ls -ln | awk '{ print $1, $3, $4, $5, $NF }'"
    )
    first = box.guests[0].run(look)
    box.configure()
    assert box.guests[0].run(look) == first
    secrets = [line for line in first.splitlines() if "id_" in line and ".pub" not in line]
    assert secrets
    assert all(line.startswith(f"-rw------- {guestbox.UID} {guestbox.UID} ") for line in secrets)
    assert first.count("# rmsplugin") == 2


@needs_guests
def test_the_user_has_all_groups_over_ssh_and_others_have_names(box: guestbox.Guestbox) -> None:
    over_ssh = box.guests[0].run(f"/run/rmsplugin/bin/ssh {box.guests[1].vm.name} id -Gn", user=True)
    assert over_ssh.split("\n")[0] == "physics domain users"
    guest = box.guests[0]
    guest.run("touch /tmp/others && chown 4100:4001 /tmp/others")
    assert guest.run("stat -c '%U %G' /tmp/others") == "bob domain users\n"
    assert guest.run("awk -F: '$1 == \"bob\" { print $6, $7 }' /etc/passwd") == "/nonexistent /usr/sbin/nologin\n"
    assert guest.run("ls /dev/fd/ >/dev/null && echo there") == "there\n"


@needs_guests
def test_a_group_that_was_taken_back_is_gone(box: guestbox.Guestbox) -> None:
    guest = box.guests[0]
    fewer = guestbox.ACCOUNT._replace(groups=guestbox.ACCOUNT.groups[:1], people=())
    with box.entered():
        box.ssh().configure(guest.vm.address, guest.vm.host_key, box.config(account=fewer), timeout_s=PATIENCE_S)
    assert "domain" not in guest.run("cat /etc/group")
    assert "bob" not in guest.run("cat /etc/passwd")
    box.configure()
    assert "domain users:x:4001:bob" in guest.run("cat /etc/group").replace(f"{guestbox.USER},", "")


@needs_guests
def test_a_guest_has_what_its_site_has() -> None:
    """In a guest with a root of its own: all these files are the host's in the other."""
    zone = Path("/usr/share/zoneinfo/Asia/Tokyo").read_bytes()
    site = SiteFiles("Asia/Tokyo", zone, "C.UTF-8", "nameserver 192.0.2.1\n", "192.0.2.2 licences\n")
    with guestbox.opened() as box:
        (guest,) = box.boot("busybox", 1)
        with box.entered():
            box.ssh().wait_ready(guest.vm.address, guest.vm.host_key, timeout_s=PATIENCE_S)
            for _ in range(2):
                box.ssh().configure(guest.vm.address, guest.vm.host_key, box.config(site=site), timeout_s=PATIENCE_S)
        assert guest.run("date +%Z; cat /etc/timezone /etc/resolv.conf") == ("JST\nAsia/Tokyo\nnameserver 192.0.2.1\n")
        assert guest.run("grep -c licences /etc/hosts") == "1\n"


@needs_guests
def test_the_connection_by_which_a_guest_was_seen_ready_serves_the_next_call_and_no_other(
    box: guestbox.Guestbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm, made = box.guests[0].vm, list[Any]()
    connect = socket.create_connection
    monkeypatch.setattr(
        socket, "create_connection", lambda *words, **more: made.append(words) or connect(*words, **more)
    )
    guests = box.ssh()
    with box.entered():
        guests.wait_ready(vm.address, vm.host_key, timeout_s=PATIENCE_S)
        guests.configure(vm.address, vm.host_key, box.config(), timeout_s=PATIENCE_S)
        assert len(made) == 1
        guests.configure(vm.address, vm.host_key, box.config(), timeout_s=PATIENCE_S)
        assert len(made) == 2
        guests.wait_ready(vm.address, vm.host_key, timeout_s=PATIENCE_S)
        with pytest.raises(ForbiddenError, match="another host key"):
            guests.configure(vm.address, generate_keypair().public, box.config(), timeout_s=PATIENCE_S)


@needs_guests
def test_a_guest_with_another_key_gets_nothing(box: guestbox.Guestbox) -> None:
    vm = box.guests[0].vm
    with box.entered(), pytest.raises(ForbiddenError, match="another host key"):
        box.ssh().configure(vm.address, generate_keypair().public, box.config(), timeout_s=PATIENCE_S)


@needs_guests
def test_errors_are_told_apart_and_bounded(box: guestbox.Guestbox) -> None:
    vm = box.guests[0].vm
    mount = GuestMount("nowhere", "/mnt/x", "nosuchfs", "ro")
    with box.entered():
        with pytest.raises(OperationFailedError, match="cannot mount nowhere on /mnt/x"):
            box.ssh().configure(vm.address, vm.host_key, box.config(mounts=(mount,)), timeout_s=PATIENCE_S)
        with pytest.raises(UnavailableError):
            box.ssh().wait_ready("127.0.0.99", vm.host_key, timeout_s=1)
        attempts = iter(("first", "second"))
        with pytest.raises(StopIteration):  # what `check` raises ends the wait
            box.ssh().wait_ready("127.0.0.99", vm.host_key, timeout_s=60, check=lambda: next(attempts) and None)
        with pytest.raises(ForbiddenError, match="does not take the key"):
            SshGuests(generate_keypair().private_openssh).wait_ready(vm.address, vm.host_key, timeout_s=PATIENCE_S)
        with pytest.raises((TimedOutError, UnavailableError)):
            box.ssh()._run_in_guest(vm.address, vm.host_key, f"sleep {PATIENCE_S:.0f}", b"", timeout_s=1)
    box.configure()


@needs_guests
def test_the_engines_connection_ends_some_time_after_it_has_configured_a_vm(
    box: guestbox.Guestbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's wrapper connects at that instant, and an emulated guest is not to be busy with this."""
    guest = box.guests[0]
    guestbox.wait_until(lambda: not guest.server_children(), what="no connection is left of other tests")

    def configure(linger_s: float) -> None:
        monkeypatch.setattr("rmsplugin.adapters.guests.ssh._LINGER_S", linger_s)
        with box.entered():
            box.ssh().configure(guest.vm.address, guest.vm.host_key, box.config(), timeout_s=PATIENCE_S)

    configure(1000.0)
    time.sleep(0.5)
    assert len(guest.server_children()) == 1
    guest.signal_servers(signal.SIGKILL)
    configure(0.5)
    guestbox.wait_until(lambda: not guest.server_children(), what="it ends by itself")


@needs_guests
def test_ssh_between_the_vms(box: guestbox.Guestbox) -> None:
    here, there = box.guests
    ssh = "/run/rmsplugin/bin/ssh"
    for target in (there.vm.name, there.vm.address):
        assert here.run(f"{ssh} {target} hostname", user=True) == "vjob12-1\n"
    assert there.run(f"{ssh} vjob12-0 'exit 7' || echo $?", user=True) == "7\n"
    # Never trust on first use: with another key in known_hosts there is no connection.
    other = generate_keypair().public
    for place in ("/run/rmsplugin/etc/known_hosts", f"/run/rmsplugin/login/{guestbox.USER}/.ssh/known_hosts"):
        here.run(f"printf '%s\\n' 'vjob12-1 {other}' >{place}")
    assert here.run(f"{ssh} vjob12-1 hostname </dev/null 2>/dev/null || echo refused", user=True) == "refused\n"
    box.configure()


@needs_guests
def test_an_upload_that_breaks_off_leaves_nothing(box: guestbox.Guestbox) -> None:
    guest = "/run/rmsplugin/bin/rmsplugin-guest"
    files = "echo '#!/bin/sh' >slurm_script && : >complete"
    box.guests[0].run(f"cd /tmp && mkdir -p up && cd up && {files} && tar -cf ../up.tar slurm_script", user=True)
    result = box.guests[0].run(f"{guest} put </tmp/up.tar 2>&1 || echo failed; ls -A /run/rmsplugin/job/", user=True)
    assert "the files came incomplete" in result
    assert "failed" in result
    assert not {"slurm_script", "complete"} & set(result.split())


def _archive(*members: tuple[str, bytes], link: str = "") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(content), tarfile.LNKTYPE if link else tarfile.REGTYPE, link
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


_WHOLE = _archive(("slurm_script", b"#!/bin/sh\n" * 300), ("complete", b""))


@needs_guests
@pytest.mark.parametrize(
    "archive",
    [
        _WHOLE[:700],
        b"no archive" * 100,
        _archive(("../out", b"x"), ("complete", b"")),
        _archive(("/tmp/out", b"x"), ("complete", b"")),
        _archive(("slurm_script", b""), ("complete", b""), link="/etc/passwd"),
        _archive(("n" * 120, b"x"), ("complete", b"")),
    ],
    ids=["cut off", "no archive", "above", "absolute", "a hard link", "a long name"],
)
def test_an_archive_that_is_not_the_wrappers_leaves_nothing(box: guestbox.Guestbox, archive: bytes) -> None:
    put = "/run/rmsplugin/bin/rmsplugin-guest put 2>&1"
    upload = f"echo {base64.b64encode(archive).decode()} | base64 -d | {put}"
    said = box.guests[0].run(f"{upload}; ls -A /run/rmsplugin/job/ /tmp", user=True)
    assert "the files came incomplete" in said
    assert not {"slurm_script", "complete", "out"} & set(said.split())


@needs_guests
def test_a_file_may_be_of_any_size(box: guestbox.Guestbox) -> None:
    """Eight GiB and more are told in another form, and here a little is."""
    content = b"input\n" * 200
    whole = _archive(("stdin", content), ("slurm_script", b""), ("complete", b""))
    archive = whole[:124] + b"\x80" + len(content).to_bytes(11, "big") + whole[136:]
    upload = f"echo {base64.b64encode(archive).decode()} | base64 -d | /run/rmsplugin/bin/rmsplugin-guest put"
    try:
        assert box.guests[0].run(f"{upload} && cat /run/rmsplugin/job/stdin", user=True) == content.decode()
    finally:
        box.guests[0].run("rm -f /run/rmsplugin/job/stdin /run/rmsplugin/job/slurm_script")


@needs_guests
def test_a_bound_of_a_directory_in_memory_changes_nothing_else_of_it() -> None:
    with guestbox.opened() as box:
        (guest,) = box.boot("busybox", 1)
        with box.entered():
            box.ssh().wait_ready(guest.vm.address, guest.vm.host_key, timeout_s=PATIENCE_S)
            guest.run("mount -t tmpfs -o nosuid,noexec,noatime,size=4m,mode=1777 tmp /tmp")
            config = box.config(site=SiteFiles(tmp_size="2m"))
            box.ssh().configure(guest.vm.address, guest.vm.host_key, config, timeout_s=PATIENCE_S)
        options = guest.run("grep ' /tmp ' /proc/mounts").split()[3].split(",")
        assert {"rw", "nosuid", "noexec", "noatime", "size=2048k"} <= set(options)
        assert "nodev" not in options
        assert guest.run("stat -c %a /tmp") == "1777\n"


_LOADING = """
mkdir -p /sys/module 2>/dev/null; mount -t tmpfs modules /sys/module && mkdir -p /sys/module/nfs
echo live >/sys/module/nfs/initstate
printf 'nodev\tnfs\n' >/tmp/filesystems; mount --bind /tmp/filesystems /proc/filesystems
printf '#!/bin/sh\nexit 0\n' >/tmp/modprobe
printf '#!/bin/sh\ncat /sys/module/nfsv4/initstate >>/tmp/seen; exit 1\n' >/tmp/mount.nfs
chmod 755 /tmp/modprobe /tmp/mount.nfs
for place in /sbin/modprobe /usr/sbin/modprobe /sbin/mount.nfs /usr/sbin/mount.nfs; do
    [ ! -d ${place%/*} ] || { rm -f $place; cp /tmp/${place##*/} $place; }
done
"""


#: As the kernel does it: the module is there for modprobe, then it is in /sys/module, then it is live.
_APPEARS = """
(sleep 1; mkdir /sys/module/nfsv4; echo coming >/sys/module/nfsv4/initstate; sleep 1
echo live >/sys/module/nfsv4/initstate) >/dev/null 2>&1 </dev/null &
"""
_MOUNT = GuestMount("127.0.0.9:/x", "/mnt/x", "nfs", "ro")


@needs_guests
def test_a_mount_waits_until_the_module_of_its_version_is_loaded() -> None:
    with guestbox.opened() as box:
        (guest,) = box.boot("busybox", 1)
        with box.entered():
            box.ssh().wait_ready(guest.vm.address, guest.vm.host_key, timeout_s=PATIENCE_S)
            guest.run(_LOADING + _APPEARS)
            with pytest.raises(OperationFailedError, match="cannot mount"):
                box.ssh().configure(
                    guest.vm.address, guest.vm.host_key, box.config(mounts=(_MOUNT,)), timeout_s=PATIENCE_S
                )
        assert guest.run("cat /tmp/seen") == "live\n"


#: Stands for a mount that was given up, and is done when the next try finds it busy.
_BUSY = """
program=$(which mount)
rm $program
printf '#!/bin/sh\\nbusybox mount "$@"\\necho busy >&2\\nexit 32\\n' >$program
chmod +x $program
"""


@needs_guests
def test_what_is_mounted_at_last_is_no_failure() -> None:
    with guestbox.opened() as box:
        (guest,) = box.boot("busybox", 1)
        mount = GuestMount("nowhere", "/mnt/late", "tmpfs", "rw")
        with box.entered():
            box.ssh().wait_ready(guest.vm.address, guest.vm.host_key, timeout_s=PATIENCE_S)
            guest.run(_BUSY)
            box.ssh().configure(guest.vm.address, guest.vm.host_key, box.config(mounts=(mount,)), timeout_s=PATIENCE_S)
            assert len(guest.run("grep ' /mnt/late tmpfs ' /proc/mounts").splitlines()) == 1


GROUP = """
group=/run/rmsplugin/group
rm -rf $group; mkdir $group
echo $((100 << 20)) > $group/memory.current
printf 'anon 1\\nactive_file %d\\ninactive_file %d\\nshmem 7\\n' $((10 << 20)) $((20 << 20)) > $group/memory.stat
echo $((101 << 20)) > $group/memory.peak
printf 'usage_usec 5000000\\nuser_usec 4000000\\nsystem_usec 1000000\\nnr_periods 0\\n' > $group/cpu.stat
echo $$ > $group/cgroup.procs
"""


@needs_guests
def test_what_a_group_used_is_told_without_caches_and_its_most_is_kept(box: guestbox.Guestbox) -> None:
    guest = box.guests[0]
    guest.run(GROUP + "rm -f /run/rmsplugin/usage/most; timeout 1.3 /run/rmsplugin/bin/account watch || :")
    guest.run("echo 0 >/run/rmsplugin/group/memory.current")
    try:
        with box.entered():
            used = box.ssh().used(guest.vm.address, guest.vm.host_key, timeout_s=PATIENCE_S)
    finally:
        guest.run("rm -rf /run/rmsplugin/group /run/rmsplugin/usage/most")
    assert used is not None
    assert (used.cpu_us, used.user_us, used.system_us) == (5_000_000, 4_000_000, 1_000_000)
    assert (used.memory_bytes, used.peak_bytes) == (70 << 20, 101 << 20)
    assert 0 < used.available_kib < 1 << 32
    assert used.read_bytes > 0, "the shell that was in the group has read its programs"


@needs_guests
def test_the_script_counts_whose_zombie_is_in_no_group_and_what_it_told_last(box: guestbox.Guestbox) -> None:
    guest, io_of_zombie = box.guests[0], "rchar: 5000000000\\nwchar: 7\\nsyscr: 1\\n"
    guest.run(GROUP + ": >$group/cgroup.procs; rm -f /run/rmsplugin/usage/most; echo 1 >/run/rmsplugin/state/pid")
    try:
        with box.entered():
            of_process = box.ssh().used(guest.vm.address, guest.vm.host_key, timeout_s=PATIENCE_S)
            guest.run(f"printf '{io_of_zombie}' >/run/rmsplugin/state/io")
            told = box.ssh().used(guest.vm.address, guest.vm.host_key, timeout_s=PATIENCE_S)
    finally:
        guest.run("rm -rf /run/rmsplugin/group /run/rmsplugin/state/pid /run/rmsplugin/state/io")
    assert of_process is not None and of_process.read_bytes > 0, "what process 1 has read"
    assert told is not None and (told.read_bytes, told.written_bytes) == (5_000_000_000, 7)


@needs_guests
def test_a_guest_that_does_not_count_says_nothing(box: guestbox.Guestbox) -> None:
    box.guests[0].run("rm -rf /run/rmsplugin/group")
    with box.entered():
        assert box.ssh().used(box.guests[0].vm.address, box.guests[0].vm.host_key, timeout_s=PATIENCE_S) is None


@pytest.mark.parametrize(
    "said", ["memory_bytes=-1", "memory_bytes=1e9", "rm=1", "memory_bytes=" + "9" * 16, "hello", "memory_bytes=\u0661"]
)
def test_what_no_guest_tool_says_is_not_believed(said: str) -> None:
    with pytest.raises(OperationFailedError, match="does not say what was used"):
        Used.parse(f"usage_usec=1\n{said}\n")


@needs_guests
def test_no_process_of_a_guest_is_stopped_while_its_script_runs(box: guestbox.Guestbox) -> None:
    """CRIU, which saves a guest that is a container, may wait for ever for one that is."""
    guest = "/run/rmsplugin/bin/rmsplugin-guest"
    files = "printf 'set --\n' >args; printf 'set -- \"$@\"\n' >env; echo 022 >umask; printf /tmp >cwd; : >complete"
    script = "printf '#!/bin/sh\nexec sleep 60\n' >slurm_script; chmod 700 slurm_script"
    box.guests[0].run("rm -rf /run/rmsplugin/job/* /run/rmsplugin/state/* /tmp/one; mkdir -m 777 /tmp/one")
    states = (
        box.guests[0]
        .run(
            f"cd /tmp/one; {files}; {script}; tar -cf - * | {guest} put; {guest} start; "
            "until [ -e /run/rmsplugin/state/pid ]; do sleep 0.1; done; read -r pid </run/rmsplugin/state/pid; "
            "for each in /proc/[0-9]*/status; do sed -n 's/^State:[^A-Z]*//p' $each 2>/dev/null; done; kill -9 $pid",
            user=True,
        )
        .splitlines()
    )
    assert states[0] == "started" and len(states) > 3
    assert not [state for state in states if state.startswith(("T", "t"))]


@needs_guests
def test_of_many_starts_at_once_one_starts(box: guestbox.Guestbox) -> None:
    guest = "/run/rmsplugin/bin/rmsplugin-guest"
    files = "printf 'set --\n' >args; printf 'set -- \"$@\"\n' >env; echo 022 >umask; printf /tmp >cwd; : >complete"
    script = "printf '#!/bin/sh\necho run >>/tmp/runs; sleep 0.5\n' >slurm_script; chmod 700 slurm_script"
    for _ in range(3):
        box.guests[0].run(
            "rm -rf /run/rmsplugin/job/* /run/rmsplugin/state/* /tmp/runs /tmp/many; mkdir -m 777 /tmp/many"
        )
        output = box.guests[0].run(
            f"cd /tmp/many; {files}; {script}; tar -cf - * | {guest} put; "
            f"for i in 1 2 3 4 5 6; do {guest} start & done; wait; sleep 1 | {guest} wait; cat /tmp/runs",
            user=True,
        )
        assert sorted(output.splitlines()) == ["already"] * 5 + ["exit 0", "run", "started"]


def test_a_configuration_that_no_guest_could_have_is_refused() -> None:
    box = object.__new__(guestbox.Guestbox)
    box.key = generate_keypair()
    vm = guestbox.GuestVM("vjob12-0", "10.0.0.1", generate_keypair().public)
    for changes in (
        {"account": guestbox.ACCOUNT._replace(uid=0)},
        {"account": guestbox.ACCOUNT._replace(name="a b")},
        {"account": guestbox.ACCOUNT._replace(name="x:0:0")},
        {"account": guestbox.ACCOUNT._replace(home="/home/a\nb")},
        {"account": guestbox.ACCOUNT._replace(home="relative")},
        {"index": 1},
        {"mounts": (GuestMount("a b", "/x", "nfs", "ro"),)},
        {"mounts": (GuestMount("a", "/x", "nfs", ""),)},
    ):
        with pytest.raises(RefusedError):
            box.guests = []
            box.config(**{"vms": (vm,), "ntasks": 1, **changes})


def test_a_secret_is_not_in_the_words_of_an_error() -> None:
    pair = generate_keypair()
    assert "PRIVATE" in pair.private_openssh
    assert "PRIVATE" not in repr(pair)


def test_simulated_guests_keep_state_and_fail_on_command() -> None:
    slept: list[float] = []
    guests = SimulatedGuests(slept.append)
    box = object.__new__(guestbox.Guestbox)
    box.key, box.guests = generate_keypair(), []
    vm = guestbox.GuestVM("vjob12-0", "10.0.0.1", generate_keypair().public)
    config = box.config(vms=(vm,), ntasks=1)
    with pytest.raises(UnavailableError):
        guests.wait_ready(vm.address, vm.host_key, timeout_s=1)
    guests.add(vm.address, vm.host_key)
    guests.ready_s = 5
    with pytest.raises(UnavailableError):
        guests.wait_ready(vm.address, vm.host_key, timeout_s=1)
    guests.ready_s = 0.5
    guests.wait_ready(vm.address, vm.host_key, timeout_s=1)
    assert slept == [0, 1, 0.5]
    guests.fail("configure", vm.address, OperationFailedError("no"))
    with pytest.raises(OperationFailedError):
        guests.configure(vm.address, vm.host_key, config, timeout_s=1)
    guests.configure(vm.address, vm.host_key, config, timeout_s=1)
    guests.set_clock(vm.address, vm.host_key, timeout_s=1)
    assert guests.guests[vm.address].config == config
    assert guests.guests[vm.address].clock_set == 1
    guests.guests[vm.address].has_cpus = 2
    assert [guests.set_cpus(vm.address, vm.host_key, cpus, timeout_s=1) for cpus in (1, 9, 1)] == [2, 1, 2]
    with pytest.raises(ValueError, match="0 CPUs"):
        guests.set_cpus(vm.address, vm.host_key, 0, timeout_s=1)
    with pytest.raises(ForbiddenError):
        guests.set_clock(vm.address, "ssh-ed25519 AAAA", timeout_s=1)
