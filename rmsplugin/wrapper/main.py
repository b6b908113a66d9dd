"""Wrapper: `rmsplugin-job GEOMETRY SCRIPT ARGS...`, the interpreter of a vjob's batch script on a front.

Slurm starts it as the user in place of the script. A small program (native/rmsplugin-job.c) lays the user's environment
aside and becomes this part, isolated: it reads the command line and the settings, and becomes ``attach`` (the same
process), which runs the job in as little memory as it takes.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping

from rmsplugin import defaults
from rmsplugin.client import EngineClient
from rmsplugin.errors import RefusedError, SettingsError
from rmsplugin.model.vjob import Geometry
from rmsplugin.wrapper import process, signals


def check_command_line(argv: list[str], environ: Mapping[str, str]) -> None:
    """Refuse a command line that is no batch job of ours.

    Raises:
        ValueError: the fault.
    """
    if len(argv) < 3:
        raise ValueError(
            "usage: rmsplugin-job GEOMETRY SCRIPT ARGS... (Slurm runs it, as a batch script's interpreter)"
        )
    if not environ.get("SLURM_JOB_ID", "").isdecimal():
        raise ValueError("SLURM_JOB_ID is not set: this is not a batch job")
    Geometry.parse(argv[1])


def settings_words(environ: Mapping[str, str]) -> list[str]:
    """The settings that ``attach`` needs, as words.

    They are the directories of Slurm's clients that are carried out for the guest (empty: none are), and the engine's
    address, as ``EngineClient.from_words`` takes it. They are not read by ``rmsplugin.settings``, which would take half
    a second at each start of a job.

    Raises:
        SettingsError: the file cannot be read, or names an account that does not exist.
    """
    path = environ.get("RMSPLUGIN_CONFIG") or defaults.CONFIG
    try:
        with open(path, "rb") as file:
            sections = tomllib.load(file)
        clients = ""
        if sections.get("guest", {}).get("commands", True):
            clients = sections.get("slurm", {}).get("bin_dir", "") or process.SYSTEM_PATH
        settings = sections.get("engine", {})
        url = settings.get("url", "")
        if not url:
            return [clients, *EngineClient.unix(str(settings.get("socket", defaults.SOCKET))).words()]
        import pwd

        return [clients, *EngineClient.tcp(url, pwd.getpwnam(settings.get("user", defaults.USER)).pw_uid).words()]
    except (OSError, tomllib.TOMLDecodeError, AttributeError, KeyError, RefusedError) as error:
        raise SettingsError(f"{path}: {error}") from None


def main() -> None:
    """Become the process that runs the job."""
    try:
        signals.block()
        process.die_with_parent()
        check_command_line(sys.argv, os.environ)
        words = process.command("attach", *settings_words(os.environ), *sys.argv[1:])
        os.execve(words[0], words, process.own_environment())
    except Exception as error:  # Whatever the error: one line for the user, and nothing that runs on.
        process.complain(error)
        os._exit(process.CANNOT_RUN)


if __name__ == "__main__":
    main()
