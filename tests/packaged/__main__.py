"""contrib/run-campaign packages: the packages with all their libraries, on bare roots of Debian releases."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from try_release_lib import root as roots

from packaged import throwaway

REPOSITORY = Path(__file__).resolve().parents[2]

_PROGRAM = r"""
section() { echo "== $1"; }
fail() { echo "FAILED: $1"; exit 1; }
section "apt-get install ./...deb on a bare $RELEASE"
echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/throw-away
(apt-get -q update && apt-get -q -y install --no-install-recommends /srv/debs/*.deb) >/tmp/log 2>&1 ||
    { tail -n 40 /tmp/log; fail install; }
dpkg-query -W -f '${Package} ${Version} ${Installed-Size} KiB\n' 'rmsplugin-*' | grep ' 0'
[ "$(find /etc/systemd -name 'rmsplugin*')" = "" ] || fail "something is enabled"
[ "$(stat -c %a /var/lib/rmsplugin/store)" = 700 ] || fail "all can read the store"
getent passwd slurm

section "each library is there, and each that it needs of the system"
missing=$(find /usr/lib/rmsplugin -name '*.so*' -exec ldd {} + 2>/dev/null | grep 'not found' | sort -u || :)
[ -z "$missing" ] || { echo "$missing"; fail libraries; }
/usr/lib/rmsplugin/bin/python3 -I -c '
import importlib, pkgutil, rmsplugin
names = [m.name for m in pkgutil.walk_packages(rmsplugin.__path__, "rmsplugin.") if not m.name.endswith("__main__")]
names = [n for n in names if "pyslurm" not in n and ".guest_tools" not in n]
for name in [*names, "libvirt", "kazoo.client", "sushy", "prometheus_client", "bokeh.embed"]:
    importlib.import_module(name)
print(len(names), "modules of ours are imported; libvirt", importlib.import_module("libvirt").getVersion())
'
section "programs run"
rmsplugin --version
rmsplugin-job 2>&1 | grep usage
rmsplugin simulate --help >/dev/null && rmsplugin plan --help >/dev/null && rmsplugin pack --help >/dev/null
rmsplugin check || echo "status $?"

section "setup"
printf %s "$SETTINGS" >/etc/rmsplugin/rmsplugin.toml
rmsplugin setup controller --node n1 --node n2 >/tmp/setup && rmsplugin setup node --from /etc/rmsplugin/nodes/n1.tar
rmsplugin setup controller --node n1 --node n2 >/tmp/again && ! grep '^made' /tmp/again || fail "made twice"
echo '<domain/>' | /etc/libvirt/hooks/qemu.d/rmsplugin vjob0-0 prepare begin - 2>&1 | grep 'rmsplugin refuses'
rmsplugin check --quick | tee /tmp/check || :
! grep '^error *\(/etc/rmsplugin\|settings\)' /tmp/check | grep -v known_hosts ||
    fail "check is not content with what setup has made"
[ -s /usr/share/bash-completion/completions/rmsplugin ] || fail completion

section "purge"
apt-get -q -y purge 'rmsplugin-*' >/tmp/log 2>&1 || { tail -n 40 /tmp/log; fail purge; }
left=$(find / -xdev \( -path /srv -o -path /proc -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \) \
    -prune -o -name '*rmsplugin*' -print)
[ -z "$left" ] || { echo "$left"; fail "something is left"; }
! getent passwd slurm || fail "the account is left"
echo "nothing is left"
"""

_LINTIAN = r"""
(apt-get -q update && apt-get -q -y install --no-install-recommends lintian) >/tmp/log 2>&1 ||
    { tail /tmp/log; exit 1; }
lintian --allow-root --no-cfg --tag-display-limit 0 /srv/debs/*.deb 2>&1 |
    sed 's/\[.*\]//; s/^\(.: [^ ]* [^ ]*\).*/\1/' | sort | uniq -c | sort -rn | head -n 60
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run-campaign packages",
        description="Build the packages, and install, try and purge them on a bare root of each release. Needs root.",
    )
    parser.add_argument("--release", action="append", help="code name; may be repeated (default: bookworm and trixie)")
    parser.add_argument("--debs", type=Path, help="packages that are built already, of one release")
    parser.add_argument("--lintian", action="store_true", help="say what lintian finds, too")
    return parser


def _try_release(release: str, debs: Path, script: str) -> bool:
    place = roots.Place(Path(f"/var/tmp/rmsplugin-bare-{release}"), release)
    with place.lock(), tempfile.TemporaryDirectory(prefix="rmsplugin-layer-", dir="/var/tmp") as upper:
        place.make(None)
        place.take_settings(None)
        variables = {**roots.environment(), "RELEASE": release, "SETTINGS": throwaway.SETTINGS}
        done = throwaway.run_in(
            place.root, script, {debs: "/srv/debs"}, upper=Path(upper), variables=variables, timeout_s=1800
        )
    print(done.stdout, done.stderr if done.returncode else "", sep="", flush=True)
    return done.returncode == 0


def main() -> int:
    """Run the command line; return 1 if a release fails."""
    arguments = _parser().parse_args()
    failed = []
    for release in arguments.release or ["bookworm", "trixie"]:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="rmsplugin-debs-") as directory:
            debs = arguments.debs or Path(directory)
            if arguments.debs is None:
                build = [REPOSITORY / "contrib/build-packages", release, "--fast", "--output", debs]
                subprocess.run(build, check=True)
            good = _try_release(release, debs.absolute(), _PROGRAM)
            if arguments.lintian:
                _try_release(release, debs.absolute(), _LINTIAN)
        print(f"{release}: {'in order' if good else 'FAILED'}, {time.monotonic() - began:.0f} s", flush=True)
        failed += [] if good else [release]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
