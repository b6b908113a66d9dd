"""Building for another release: in a root of it, which debootstrap makes once."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from try_release_lib import inside
from try_release_lib import root as roots

from build_packages_lib.tools import BuildError, RefusedError

#: Debian packages that building needs in a root.
_NEEDS = ("python3-venv", "musl-tools", "gcc")
_OUTPUT = "dist"
#: Runs a command, and says what it said only when it fails.
_QUIETLY = 'export DEBIAN_FRONTEND=noninteractive; "$@" >/tmp/log 2>&1 || { tail -n 40 /tmp/log >&2; exit 1; }'


def build(arguments: argparse.Namespace) -> list[Path]:
    """Build in the root of ``arguments.release``; return the files, in ``arguments.output`` of this machine.

    Raises:
        RefusedError: this machine is not fit.
        BuildError: it fails.
    """
    if os.geteuid() != 0:
        raise RefusedError("this needs root (debootstrap, namespaces); try: sudo contrib/build-packages ...")
    directory = (arguments.dir or Path(f"/var/tmp/rmsplugin-packages-{arguments.release}")).absolute()
    place = roots.Place(directory, arguments.release)
    try:
        inside.check_namespaces()
        with place.lock():
            place.make(None)
            place.take_settings(None)
            place.take_checkout()
            return _build_in(place, arguments)
    except roots.RefusedError as error:
        raise RefusedError(str(error)) from None
    except roots.TryError as error:
        raise BuildError(str(error)) from None


def _build_in(place: roots.Place, arguments: argparse.Namespace) -> list[Path]:
    made = place.root / roots.CHECKOUT.relative_to("/") / _OUTPUT
    shutil.rmtree(made, ignore_errors=True)
    options = ["--revision", arguments.revision, "--output", str(roots.CHECKOUT / _OUTPUT)]
    options += ["--fast"] * arguments.fast + ["--without-libraries"] * arguments.without_libraries
    install = ["apt-get", "-q", "-y", "install", "--no-install-recommends", *_NEEDS]
    for command in (["apt-get", "-q", "update"], install, ["contrib/build-packages", *options]):
        if inside.run(place, ["sh", "-c", _QUIETLY, "sh", *command]) != 0:
            raise BuildError(f"{' '.join(command[:3])} failed in the root of {arguments.release} (see above)")
    arguments.output.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy(file, arguments.output)) for file in sorted(made.glob("*.deb"))]
