"""The login shell of the vjob's user: how one gets into a guest, over real ssh, and what is found there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import guestbox
import pytest

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
