"""Command line of ``contrib/try-release``."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from zlib import crc32

from try_release_lib import inside, root

_EXAMPLES = """\
examples:
  sudo contrib/try-release trixie                               # run-tests, then quickstart
  sudo contrib/try-release trixie run-tests --fast
  sudo contrib/try-release trixie run-tests tests/e2e -k suspend -x
  sudo contrib/try-release --containers trixie run-tests -m long tests/e2e/test_jobs_in_containers.py
  sudo contrib/try-release trixie quickstart
  sudo contrib/try-release trixie shell                         # a shell there, in the copy of the checkout
  sudo contrib/try-release --remove trixie

The root is made once, in --dir, and used again. What runs in it sees a copy of this checkout (with a .venv of its own),
and has its mounts and processes in namespaces that end with this program, however it ends.
exit status: that of what was run; 2 when this machine or the arguments are not fit
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="try-release",
        description="Run contrib/run-tests and contrib/quickstart on another Debian release. Needs root.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--dir", type=Path, help="where the root is, or is made (default: /var/tmp/rmsplugin-try-RELEASE[-containers])"
    )
    parser.add_argument(
        "--containers",
        action="store_true",
        help="a root of its own with podman, runc and CRIU (trixie: that of forky), and control groups in it",
    )
    parser.add_argument("--mirror", metavar="URL", help="Debian's archive (default: the one that apt uses here)")
    parser.add_argument("--remove", "--down", action="store_true", help="remove the root")
    parser.add_argument("release", metavar="RELEASE", help="code name, e.g. bookworm or trixie")
    parser.add_argument("program", nargs="?", choices=("run-tests", "quickstart", "shell"), help="only this")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    return parser


def _commands(program: str | None, arguments: list[str], place: root.Place) -> list[list[str]]:
    if program == "shell":
        return [["bash", *arguments]]
    # Processes of a minicluster are known by the name of its directory, in whichever root that is: one of this
    # machine's, or of another release's, must not have the same.
    own = f"/var/tmp/rmsplugin-minicluster-{place.release}-{crc32(bytes(place.directory.resolve())):08x}"
    # Nothing survives this program, so the cluster is taken down where it can be seen.
    quickstart = ["contrib/quickstart", "--down-after", "--dir", own, *arguments]
    tests = ["contrib/run-tests", *arguments]
    return {None: [tests, quickstart], "run-tests": [tests], "quickstart": [quickstart]}[program]


def _run(arguments: argparse.Namespace, place: root.Place) -> int:
    inside.check_namespaces()
    with place.lock():
        if arguments.remove:
            removed = place.remove()
            print(f"try-release: {place.directory} is {'removed' if removed else 'not there'}", file=sys.stderr)
            return 0
        place.make(arguments.mirror)
        place.take_settings(arguments.mirror)
        place.take_checkout()
        return _run_each(place, arguments.release, _commands(arguments.program, arguments.arguments, place))


def _run_each(place: root.Place, release: str, commands: list[list[str]]) -> int:
    """Run all commands, one after the other; return the exit status of the last that failed, or 0."""
    status = 0
    for command in commands:
        print(f"try-release: {release}: {' '.join(command)}", file=sys.stderr, flush=True)
        ended = inside.run(place, command)
        print(f"try-release: {release}: {command[0]}: exit status {ended}", file=sys.stderr, flush=True)
        status = ended or status
    return status


def main() -> int:
    """Run the command line; return the exit status."""
    parser = _parser()
    arguments = parser.parse_args()
    if not re.fullmatch(r"[a-z]{2,20}", arguments.release):
        parser.error(f"not the code name of a release: {arguments.release!r}")
    if arguments.arguments and not arguments.program:
        # Behind RELEASE they would be a program's, and --dir would be unheard: another root would be removed.
        parser.error(
            f"before RELEASE come options of try-release, and behind run-tests or quickstart those of it: "
            f"{' '.join(arguments.arguments)}"
        )
    if arguments.remove and arguments.program:
        parser.error("--remove runs nothing")
    kind = "-containers" if arguments.containers else ""
    directory = (arguments.dir or Path(f"/var/tmp/rmsplugin-try-{arguments.release}{kind}")).absolute()
    try:
        if os.geteuid() != 0:
            raise root.RefusedError("this needs root (debootstrap, namespaces); try: sudo contrib/try-release ...")
        return _run(arguments, root.Place(directory, arguments.release, arguments.containers))
    except root.RefusedError as error:
        print(f"try-release: {error}", file=sys.stderr)
        return 2
    except (root.TryError, OSError) as error:
        print(f"try-release: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
