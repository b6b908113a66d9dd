"""The login shell of the vjob's user: how one gets into a guest, over real ssh, and what is found there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from unit import guestbox

from rmsplugin.wrapper.prepare.environment import environment_file

pytestmark = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")

BIN = "/run/rmsplugin/bin"
HOME = f"/home/{guestbox.USER}"


@pytest.fixture(scope="module", params=guestbox.FLAVOURS)
def box(request: pytest.FixtureRequest) -> Iterator[guestbox.Guestbox]:
    with guestbox.ready(request.param, 2) as made:
        yield made


def ssh(box: guestbox.Guestbox, command: str, stdin: str = "") -> str:
    """What a command prints in the second guest; an empty one: what a login shell makes of its standard input."""
    words = f"{BIN}/ssh {'vjob12-1 ' + shlex.quote(command) if command else '-T vjob12-1'}"
    return box.guests[0].run(f"printf %s {shlex.quote(stdin)} | {words} 2>&1", user=True)


def test_a_command_finds_the_users_home_shell_and_the_tools(box: guestbox.Guestbox) -> None:
    said = ssh(box, 'echo "$HOME $SHELL $PWD $USER"; command -v srun')
    assert said == f"{HOME} /bin/sh {HOME} {guestbox.USER}\n{BIN}/srun\n"


def test_without_a_command_it_is_a_login_shell(box: guestbox.Guestbox) -> None:
    home = box.guests[1].run(f"mkdir -p {HOME} && echo 'echo from the profile' >{HOME}/.profile && echo {HOME}")
    try:
        assert ssh(box, "", 'echo "$HOME"\n').splitlines()[-2:] == ["from the profile", home.strip()]
        assert "profile" not in ssh(box, "true")
    finally:
        box.guests[1].run(f"rm {HOME}/.profile")


def test_a_tool_is_run_with_its_words(box: guestbox.Guestbox) -> None:
    assert ssh(box, f"{BIN}/rmsplugin-guest acks") == "kept stdout 0\nkept stderr 0\n"
    assert "no such stream: other" in ssh(box, f"{BIN}/rmsplugin-guest follow other 0 || :")


def test_a_command_of_a_tool_that_is_no_plain_words_goes_by_the_shell(box: guestbox.Guestbox) -> None:
    assert ssh(box, f"{BIN}/rmsplugin-guest acks | grep -c kept; echo '$HOME'") == "2\n$HOME\n"
    assert ssh(box, f"{BIN}/rmsplugin-guest  acks") == "kept stdout 0\nkept stderr 0\n", "two blanks are no word"


def test_a_tool_that_is_not_there_is_an_error_of_the_shell(box: guestbox.Guestbox) -> None:
    assert "not found" in ssh(box, f"{BIN}/nothing-of-that-name || :")
    assert ssh(box, f"{BIN}/nothing-of-that-name 2>/dev/null; echo $?") == "127\n"


def test_more_words_than_any_tool_takes_are_all_there(box: guestbox.Guestbox) -> None:
    many = " ".join(str(number) for number in range(40))
    box.guests[1].run(f"printf '#!/bin/sh\\necho $#\\n' >{BIN}/count && chmod 755 {BIN}/count")
    try:
        assert ssh(box, f"{BIN}/count {many}") == "40\n"
    finally:
        box.guests[1].run(f"rm {BIN}/count")


# --- what Slurm says of the job ---

JOB = "/run/rmsplugin/job"


def slurms(said: str) -> dict[str, str]:
    """The variables of Slurm's among `env`'s lines."""
    return dict(line.split("=", 1) for line in said.splitlines() if line.startswith("SLURM"))


def with_environment(box: guestbox.Guestbox, vm: int, variables: dict[str, str]) -> None:
    """As the wrapper has left it at the script's start."""
    text = environment_file(variables).decode()
    box.guests[vm].run(f"printf %s {shlex.quote(text)} >{JOB}/env && chmod 644 {JOB}/env")


def test_a_shell_from_outside_has_what_slurm_told_the_script(box: guestbox.Guestbox) -> None:
    told = {"SLURM_JOB_ID": "12", "SLURM_JOB_NAME": "it's a\nname", "SLURM_NTASKS": "3", "SLURMD_NODENAME": "vjob12-1"}
    with_environment(box, 1, {**told, "OTHER": "x", "LD_PRELOAD": "/x", "BASH_FUNC_f%%": "() { :; }"})
    try:
        assert (
            ssh(box, 'printf %s "$SLURM_JOB_NAME"; echo; env | grep -c -e ^OTHER -e ^LD_ -e ^BASH_ || :')
            == "it's a\nname\n0\n"
        )
        found = slurms(ssh(box, "env"))
        assert {**told, "SLURM_JOB_NAME": found["SLURM_JOB_NAME"]}.items() <= found.items()
        assert "12 3" in ssh(box, "", 'echo "$SLURM_JOB_ID $SLURM_NTASKS"\n')
    finally:
        box.guests[1].run(f"rm {JOB}/env")


def test_a_shell_in_a_vm_without_the_script_has_what_the_vm_knows(box: guestbox.Guestbox) -> None:
    found = slurms(ssh(box, "env"))
    assert {
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_NODELIST": "vjob12-[0-1]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_CPUS_PER_NODE": "2(x2)",
        "SLURM_JOB_USER": guestbox.USER,
        "SLURMD_NODENAME": "vjob12-1",
        "SLURM_NODEID": "1",
    }.items() <= found.items()


def test_ssh_between_vms_tells_nothing_of_the_job(box: guestbox.Guestbox) -> None:
    """As between nodes: MPI starts its daemons so."""
    inside = f"SSH_CONNECTION='127.0.0.11 1 127.0.0.12 22' {BIN}/login-shell -c env"
    assert slurms(box.guests[1].run(inside, user=True)) == {}
    mapped = inside.replace("127.0.0.11", "::ffff:127.0.0.11")
    assert slurms(box.guests[1].run(mapped, user=True)) == {}
    outside = inside.replace("127.0.0.11", "192.0.2.1")
    assert slurms(box.guests[1].run(outside, user=True))["SLURM_JOB_ID"] == "12"
