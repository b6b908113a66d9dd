"""Where the script lies in its first VM: at the path that it has on the front, if that can be made, else in ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from patience import PATIENCE_S
from unit import guestbox

from rmsplugin.adapters.guests.config import SlurmFacts

needs_guests = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")

SPOOL = "/var/spool/slurm/d"
JOB_DIRECTORY = f"{SPOOL}/job00012"
PLACE = f"{JOB_DIRECTORY}/slurm_script"
OURS = "/run/rmsplugin/job/slurm_script"

RUN = """
rm -rf /run/rmsplugin/job/* /run/rmsplugin/state/* /tmp/up; mkdir /tmp/up; cd /tmp/up
printf 'set --\n' >args; printf 'set -- "$@"\n' >env; echo 022 >umask; printf /tmp >cwd
printf '#!/bin/sh\necho $0 >/tmp/up/said; dirname $(readlink -f $0) >>/tmp/up/said\n' >slurm_script
chmod 700 slurm_script
PATH_FILE
set -- $(ls); : >complete
cd /tmp/up; for i in 1 2; do tar -cf - "$@" complete | /run/rmsplugin/bin/rmsplugin-guest put; done
/run/rmsplugin/bin/rmsplugin-guest start >/dev/null; sleep 2 | /run/rmsplugin/bin/rmsplugin-guest wait >/dev/null
cat /tmp/up/said
"""


@pytest.fixture(scope="module")
def box() -> Iterator[guestbox.Guestbox]:
    """A guest with a root of its own, which these tests make directories in."""
    with guestbox.ready("busybox", 2) as made:
        yield made


def configured(box: guestbox.Guestbox, spool_dir: str = SPOOL, front: str = "front1", index: int = 0) -> None:
    guest = box.guests[index]
    config = box.config(index, slurm=SlurmFacts(spool_dir=spool_dir), front=front)
    with box.entered():
        box.ssh().configure(guest.vm.address, guest.vm.host_key, config, timeout_s=PATIENCE_S)


def anew(box: guestbox.Guestbox, before: str = ":") -> guestbox.Guest:
    guest = box.guests[0]
    guest.run(f"rm -rf /run/rmsplugin/script /var/spool; {before}")
    return guest


def ran(guest: guestbox.Guest, told: str | None = PLACE) -> list[str]:
    """What the script says of its place; ``told``: the path that the wrapper tells, None: one of before."""
    path_file = f"echo '{told}' >path" if told else ":"
    return guest.run(RUN.replace("PATH_FILE", path_file), user=True).splitlines()


@pytest.mark.parametrize(
    ("spool_dir", "path"),
    [
        (SPOOL, PLACE),
        ("/var/spool/slurmd.%n", "/var/spool/slurmd.front1/job00012/slurm_script"),
        ("/var/spool/%h", "/var/spool/front1/job00012/slurm_script"),
        ("", ""),
        ("(null)", ""),
        ("spool", ""),
        ("/var/../etc", ""),
        ("/var/spool/", ""),
        ("/var/spool/a b", ""),
        ("/var/spool/x\nuid=0", ""),
        ("/var/spool/%u", ""),
    ],
)
def test_the_path_is_that_of_the_front_and_of_plain_letters(spool_dir: str, path: str) -> None:
    assert SlurmFacts(spool_dir=spool_dir).script_path(12, "front1") == path


def test_before_there_is_a_front_a_path_with_its_name_is_not_known() -> None:
    assert SlurmFacts(spool_dir=SPOOL).script_path(12, "") == PLACE
    assert SlurmFacts(spool_dir="/var/spool/slurmd.%n").script_path(12, "") == ""


def test_more_digits_than_five_stay() -> None:
    assert SlurmFacts(spool_dir="/s").script_path(1234567, "front1") == "/s/job1234567/slurm_script"


@needs_guests
def test_the_script_lies_where_it_lies_on_the_front(box: guestbox.Guestbox) -> None:
    guest = anew(box)
    configured(box)
    assert ran(guest) == [PLACE, JOB_DIRECTORY]
    look = f"stat -c '%a %u %g' {JOB_DIRECTORY} {PLACE}; stat -c '%a %u %g' /var/spool; ls -A {JOB_DIRECTORY}"
    assert guest.run(look).splitlines() == [
        *(f"750 0 {guestbox.UID}", f"700 {guestbox.UID} 0", "755 0 0", "slurm_script")
    ]
    # Whatever the engine says later, and of which front.
    configured(box, "/var/spool/other")
    assert ran(guest) == [PLACE, JOB_DIRECTORY]
    assert guest.run("ls /var/spool") == "slurm\n"


@needs_guests
@pytest.mark.parametrize("told", [None, "/var/spool/slurm/d/job00013/slurm_script", "/tmp/up/slurm_script", ""])
def test_a_path_that_the_engine_did_not_tell_is_not_used(box: guestbox.Guestbox, told: str | None) -> None:
    guest = anew(box)
    configured(box)
    assert ran(guest, told)[0] == OURS


@needs_guests
@pytest.mark.parametrize(
    ("before", "spool_dir"),
    [
        (f"mkdir -p {JOB_DIRECTORY}; echo theirs >{PLACE}; chmod 777 {PLACE}", SPOOL),
        ("mkdir -p /etc/kept /var/spool; ln -s /etc/kept /var/spool/slurm", SPOOL),
        ("mkdir -p /var; : >/var/spool", SPOOL),
        (":", "/run/spool"),
        (":", ""),
    ],
    ids=["is there", "a link", "a file", "another file system", "not known"],
)
def test_a_path_that_cannot_be_made_is_left_alone(box: guestbox.Guestbox, before: str, spool_dir: str) -> None:
    guest = anew(box, before)
    look = "find /var/spool /run/spool /etc/kept 2>/dev/null | sort | xargs -r stat -c '%n %a %u %g'"
    look += f"; cat {PLACE} 2>/dev/null || :"
    there = guest.run(look)
    configured(box, spool_dir)
    assert ran(guest, f"{spool_dir}/job00012/slurm_script")[0] == OURS
    assert guest.run(look) == there
    guest.run("rm -rf /etc/kept")


@needs_guests
def test_a_disk_that_is_full_keeps_no_script_from_running(box: guestbox.Guestbox) -> None:
    guest = anew(box)
    configured(box)
    guest.run(
        f"mount -t tmpfs -o size=4k,nr_inodes=3 full {JOB_DIRECTORY}; head -c 9999 /dev/zero >{JOB_DIRECTORY}/x || :"
    )
    guest.run(f": >{PLACE}; chown {guestbox.UID} {PLACE}; chmod 600 {PLACE}")
    try:
        assert ran(guest)[0] == OURS
    finally:
        guest.run(f"umount {JOB_DIRECTORY}")


@needs_guests
def test_other_vms_have_no_such_directory(box: guestbox.Guestbox) -> None:
    configured(box, index=1)
    assert box.guests[1].run("ls /var/spool 2>/dev/null || echo none") == "none\n"
