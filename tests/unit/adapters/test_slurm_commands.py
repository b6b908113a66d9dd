"""How Slurm's commands are run: in an environment that decides nothing, and with errors that say what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmsplugin.adapters.rms.slurm_commands import SlurmCommands
from rmsplugin.errors import RefusedError, UnavailableError

PREFIXES = [(), ("env", "TZ=Asia/Tokyo", "SQUEUE_FORMAT=%i")]


@pytest.mark.parametrize("prefix", PREFIXES, ids=["here", "elsewhere"])
def test_no_variable_changes_what_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: tuple[str, ...]
) -> None:
    for name, value in {"TZ": "America/Lima", "SQUEUE_USERS": "x", "SLURM_CLUSTERS": "y", "KEPT": "z"}.items():
        monkeypatch.setenv(name, value)
    program = tmp_path / "squeue"
    program.write_text(
        '#!/bin/sh\necho "$TZ $SLURM_TIME_FORMAT $LC_ALL $SLURM_BITSTR_LEN" "$SQUEUE_USERS$SLURM_CLUSTERS$KEPT" "$*"\n'
    )
    program.chmod(0o755)
    assert SlurmCommands(str(tmp_path), 10, prefix).run("squeue", "-a") == "UTC %s C 0 z -a\n"


@pytest.mark.parametrize("prefix", PREFIXES, ids=["here", "elsewhere"])
def test_a_command_that_is_not_there_is_told_with_what_to_set(tmp_path: Path, prefix: tuple[str, ...]) -> None:
    with pytest.raises(UnavailableError, match=f"^{tmp_path}/squeue is not there: .* slurm.bin_dir .*No such file"):
        SlurmCommands(str(tmp_path), 10, prefix).run("squeue")


def test_a_prefix_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"^/nowhere/prefix cannot be run"):
        SlurmCommands(str(tmp_path), 10, ["/nowhere/prefix"]).run("squeue")


def test_without_a_directory_commands_are_found_as_the_shell_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "squeue").write_text("#!/bin/sh\necho found\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert SlurmCommands("", 10, ()).run("squeue") == "found\n"


def test_a_command_with_several_questions_is_ended_when_one_of_them_is_not_answered(tmp_path: Path) -> None:
    """Seen: a slurmctld that stood still kept a cycle for the time of all four questions."""
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho first\nsleep 2.5\necho others\n")
    (tmp_path / "scontrol").chmod(0o755)
    with pytest.raises(UnavailableError, match="did not answer `scontrol` within 1 s"):
        SlurmCommands(str(tmp_path), 1, ()).run("scontrol", questions=4)


def test_each_question_of_a_command_has_its_own_time(tmp_path: Path) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\nwhile read -r q; do sleep 1; echo $q; done\nexit 0\n")
    (tmp_path / "scontrol").chmod(0o755)
    asked = "one\ntwo\nthree\nfour\n"
    assert SlurmCommands(str(tmp_path), 3, ()).run("scontrol", text=asked, questions=4) == asked
    with pytest.raises(UnavailableError, match="did not answer"):
        SlurmCommands(str(tmp_path), 3, ()).run("scontrol", text=asked, questions=1)


def test_a_command_that_has_printed_enough_is_not_waited_for(tmp_path: Path) -> None:
    """Seen: `scontrol show config` asks each slurmctld behind it, and one without munge answers nothing for 20 s."""
    (tmp_path / "scontrol").write_text("#!/bin/sh\nread -r q\necho $q\necho the end\nexec sleep 1000\n")
    (tmp_path / "scontrol").chmod(0o755)
    commands = SlurmCommands(str(tmp_path), 1, ())
    assert commands.run("scontrol", text="asked\n", questions=9, enough="\nthe e") == "asked\nthe end\n"
    with pytest.raises(UnavailableError, match="did not answer `scontrol` within 1 s"):
        commands.run("scontrol", text="asked\n", questions=9, enough="\nnever said")


def test_a_command_that_tells_of_an_error_is_waited_for_though_it_has_printed_enough(tmp_path: Path) -> None:
    """Else the nodes of a cluster that could not be read would be none, while a slurmctld that stands by is ill."""
    lines = "echo 'slurm_load_node error: Unable to contact slurm controller' >&2", "echo config", "echo the end"
    (tmp_path / "scontrol").write_text("\n".join(["#!/bin/sh", *lines, "sleep $1", "exit $2", ""]))
    (tmp_path / "scontrol").chmod(0o755)
    with pytest.raises(UnavailableError, match="did not answer `scontrol` within 1 s"):
        SlurmCommands(str(tmp_path), 1, ()).run("scontrol", "1000", "0", enough="\nthe e")
    commands = SlurmCommands(str(tmp_path), 10, ())
    with pytest.raises(UnavailableError, match="slurm_load_node error"):
        commands.run("scontrol", "1", "1", enough="\nthe e")
    assert commands.run("scontrol", "1", "0", enough="\nthe e") == "config\nthe end\n", "it was the ping's"


def test_a_command_that_ends_by_itself_need_not_print_what_would_be_enough(tmp_path: Path) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho all of it\nsleep 1\necho and more\nexit ${1:-0}\n")
    (tmp_path / "scontrol").chmod(0o755)
    commands = SlurmCommands(str(tmp_path), 10, ())
    assert commands.run("scontrol", enough="never said") == "all of it\nand more\n"
    with pytest.raises(RefusedError, match="ended with status 7"):
        commands.run("scontrol", "7", enough="never said")
    with pytest.raises(UnavailableError, match="is not there: install Slurm's commands"):
        SlurmCommands(str(tmp_path / "nowhere"), 10, ()).run("scontrol", enough="never said")


@pytest.mark.parametrize("prefix", [(), ("sh", "-c", 'sh -c "$*"; exit', "-")], ids=["here", "by a shell"])
@pytest.mark.parametrize("number", [9, 13])
def test_a_command_that_a_signal_ended_is_no_refusal(tmp_path: Path, prefix: tuple[str, ...], number: int) -> None:
    """Seen: squeue of a loaded cluster, by SIGPIPE. A pause took it for Slurm's refusal of the suspend."""
    (tmp_path / "squeue").write_text(f"#!/bin/sh\nkill -{number} $$\n")
    (tmp_path / "squeue").chmod(0o755)
    with pytest.raises(UnavailableError, match=f"`squeue` was ended by signal {number}"):
        SlurmCommands(str(tmp_path), 10, prefix).run("squeue")
