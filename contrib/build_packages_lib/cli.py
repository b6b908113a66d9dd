"""Command line of ``contrib/build-packages``."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from build_packages_lib import deb, elsewhere, private_python, trees
from build_packages_lib.tools import REPOSITORY, BuildError, RefusedError, output_of

_EXAMPLES = """\
examples:
  contrib/build-packages                                # for the Debian of this machine, into dist/
  sudo contrib/build-packages bookworm                  # for Debian 12, in a root of it
  sudo contrib/build-packages trixie --output /srv/debs # for Debian 13

Made are rmsplugin-common for each host, rmsplugin-controller for controllers, and rmsplugin-node for VM hosts.
Here it needs python3-venv, musl-tools or gcc, and the package index for the libraries. With RELEASE it needs root and
debootstrap, and installs the others in the root.
exit status: 0 built; 1 failed; 2 when this machine or the arguments are not fit
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="build-packages",
        description="Build the Debian packages of this checkout.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("release", nargs="?", metavar="RELEASE", help="code name, e.g. bookworm or trixie")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "dist", help="directory for them (default: dist/)")
    parser.add_argument("--revision", type=_revision, default="1", help="counts packages of one version (default: 1)")
    parser.add_argument("--dir", type=Path, help="where the root is, or is made (default: one in /var/tmp)")
    parser.add_argument("--fast", action="store_true", help="hardly compress them, to try something")
    parser.add_argument(
        "--without-libraries",
        action="store_true",
        help="leave the package index's libraries out, to test the rest",
    )
    return parser


def _revision(text: str) -> str:
    if not re.fullmatch(r"[0-9][0-9A-Za-z.+]{0,19}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the revision of a package: a number, e.g. 2")
    return text


def _system() -> str:
    """The suffix of versions for this Debian, which sorts as the releases do.

    Raises:
        RefusedError: this is no Debian that is fit.
    """
    text = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    said = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)', text, re.MULTILINE))
    number = said.get("VERSION_ID", "14")  # testing has none
    if said.get("ID") != "debian" or not number.isdecimal() or int(number) < 12:
        raise RefusedError("this is not Debian 12 or newer; name a RELEASE, e.g. bookworm")
    return f"deb{number}"


def _build(arguments: argparse.Namespace) -> list[Path]:
    system = _system()
    for program, package in (("dpkg-deb", "dpkg"), ("musl-gcc", "musl-tools")):
        if shutil.which(program) is None and not (program == "musl-gcc" and shutil.which("gcc")):
            raise RefusedError(f"{program} is not here; apt-get install {package}")
    if subprocess.run(["/usr/bin/python3", "-c", "import ensurepip"], capture_output=True).returncode != 0:
        raise RefusedError("python3 makes no virtual environments here; apt-get install python3-venv")
    arguments.output.mkdir(parents=True, exist_ok=True)
    upstream = re.search(r'__version__ = "(.*)"', (REPOSITORY / "rmsplugin/__init__.py").read_text())
    assert upstream is not None
    minor = int(private_python.PYTHON.partition(".")[2])
    values = {
        "version": f"{upstream[1]}-{arguments.revision}~{system}",
        "architecture": output_of(["dpkg", "--print-architecture"]).strip(),
        "python": f"3.{minor}",
        "next_python": f"3.{minor + 1}",
        "maintainer": deb.MAINTAINER,
    }
    compression = ["-Zgzip", "-z1"] if arguments.fast else ["-Zxz", "-z6"]
    with tempfile.TemporaryDirectory(prefix="rmsplugin-packages-") as directory:
        work = Path(directory)
        made = trees.make(work / "trees", work, libraries=not arguments.without_libraries)
        return [deb.build(name, tree, values, arguments.output, compression) for name, tree in made.items()]


def main() -> int:
    """Run the command line; return the exit status."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.release and not re.fullmatch(r"[a-z]{2,20}", arguments.release):
        parser.error(f"not the code name of a release: {arguments.release!r}")
    if arguments.dir and not arguments.release:
        parser.error("--dir is of a root, and needs RELEASE")
    arguments.output = arguments.output.absolute()
    try:
        files = elsewhere.build(arguments) if arguments.release else _build(arguments)
    except RefusedError as error:
        print(f"build-packages: {error}", file=sys.stderr)
        return 2
    except (BuildError, OSError) as error:
        print(f"build-packages: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    for file in files:
        print(file)
    return 0
