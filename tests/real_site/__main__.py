"""contrib/run-campaign site: the packages on emulated Debian machines with systemd and AppArmor."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from build_packages_lib.tools import REPOSITORY, output_of
from packaged.playbook import PLAYBOOK
from try_release_lib import root as roots

from real_site import disk
from real_site.layout import CONTROLLER
from real_site.patience import VARIABLE
from real_site.steps import STEPS

#: All that is started ends with the process that starts this, however that ends.
_NAMESPACES = ("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_EXTRA_MIB = 256
_EPILOG = """\
Four machines: a controller (slurmctld, slurmdbd, MariaDB, the engine, the homes by NFS), a front, two VM hosts. All is
emulated, the machines as well as the VMs in them, so this takes an hour or more on two CPUs, and on busy ones hours:
--patience 3 has it wait three times as long for all. Only the making of the disk and of the packages reaches the
network. The disk is kept in --dir, and made anew when what is on it changes; all else is removed. Needs root,
debootstrap, 6 GiB of memory, and what contrib/run-tests installs.
exit status: 0 all steps; 1 one failed; 2 this machine is not fit
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run-campaign site", description=__doc__, epilog=_EPILOG, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [step.name for step in STEPS]
    parser.add_argument("--release", default="bookworm", help="code name (default: bookworm)")
    parser.add_argument("--debs", type=Path, help="directory of packages of that release that are built already")
    parser.add_argument("--dir", type=Path, help="where the disk is kept (default: /var/tmp/rmsplugin-site-RELEASE)")
    parser.add_argument("--until", metavar="STEP", choices=names, help=f"end after this one of: {', '.join(names)}")
    parser.add_argument(
        "--patience",
        type=_factor,
        default=1.0,
        metavar="FACTOR",
        help="wait so many times as long: the machine is busy",
    )
    parser.add_argument("--stay", action="store_true", help="leave the machines running then, until Control-C")
    parser.add_argument("--remove", action="store_true", help="only remove the disk that is kept")
    return parser


def _factor(word: str) -> float:
    try:
        factor = float(word)
    except ValueError:
        factor = 0.0
    if not 1 <= factor <= 100:
        raise argparse.ArgumentTypeError(f"no factor from 1 to 100: {word!r}")
    return factor


def _prepare(arguments: argparse.Namespace, work: Path) -> None:
    """Make what the campaign has beside Debian: packages, a key that lets in, and the image of VMs."""
    if arguments.debs is None:
        arguments.debs = work / "debs"
        build = [REPOSITORY / "contrib/build-packages", arguments.release, "--fast", "--output", arguments.debs]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    tree = work / "site"
    tree.mkdir()
    output_of(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", work / "administrator"])
    shutil.copy(work / "administrator.pub", tree)
    output_of([REPOSITORY / "contrib/guest-image", "build", "--output", tree / "images"])
    disk.file_system(tree, work / "site.disk", _EXTRA_MIB)


def _do_steps(arguments: argparse.Namespace, work: Path, base: disk.Base) -> int:
    command = [*_NAMESPACES, sys.executable, "-u", "-m", "real_site.inside", work, base.disk, base.kernel, base.initrd]
    command += [f"--debs={arguments.debs.absolute()}"]
    command += [f"--until={arguments.until}"] * bool(arguments.until) + ["--stay"] * arguments.stay
    process = subprocess.Popen(command, env={**os.environ, VARIABLE: str(arguments.patience)})
    key = work / "administrator"
    print(f"a way in: nsenter -n -t {process.pid} ssh -i {key} root@{CONTROLLER.address}; consoles: {work}", flush=True)
    try:
        return process.wait()
    finally:
        process.kill()
        process.wait()


def _campaign(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise roots.RefusedError("this needs root (debootstrap, network namespaces)")
    if not PLAYBOOK.exists():
        raise roots.RefusedError(f"{PLAYBOOK} is not here: pip install ansible-core there")
    directory = (arguments.dir or Path(f"/var/tmp/rmsplugin-site-{arguments.release}")).absolute()
    if arguments.remove:
        roots.Place(directory, arguments.release).remove()
        return 0
    base = disk.base(arguments.release, directory)
    with tempfile.TemporaryDirectory(prefix="rmsplugin-site-", dir="/var/tmp") as work:
        _prepare(arguments, Path(work))
        return _do_steps(arguments, Path(work), base)


def main() -> int:
    """Run the command line; return 1 if a step fails, or the site cannot be made."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return _campaign(arguments)
    except roots.RefusedError as error:
        print(f"site: {error}", file=sys.stderr)
        return 2
    except roots.TryError as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
