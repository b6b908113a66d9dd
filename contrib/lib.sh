# shellcheck shell=sh
# lib.sh: the half that quickstart and run-tests share: is this machine fit, and are all packages there?
#
# The caller sets `program` (its name, for messages) and `root` (the checkout), and may set `venv` (the virtual environment
# to make, .venv unless it says else), `constraints` (pip's, for the packages in it) and `extras` (of pyproject.toml).
# shellcheck disable=SC2154

export LC_ALL=C.UTF-8

say() {
    printf '%s: %s\n' "$program" "$*" >&2
}

# This machine, or what was asked, is not fit.
refuse() {
    say "$*"
    exit 2
}

# It should have worked, and did not.
give_up() {
    say "$*"
    exit 1
}

# quietly WHAT COMMAND...: run the command with its output in a log that is shown only when it fails. On a terminal the
# seconds are counted, elsewhere WHAT is said once.
quietly() {
    what=$1
    shift
    log=$(mktemp)
    ticker=
    if [ -t 2 ]; then
        count_seconds "$what" &
        ticker=$!
    else
        say "$what"
    fi
    status=0
    "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ -n "$ticker" ]; then
        kill "$ticker" 2>/dev/null || :
        wait "$ticker" 2>/dev/null || :
        printf '\r\033[K' >&2
        say "$what: done"
    fi
    if [ "$status" -ne 0 ]; then
        tail -n 25 "$log" >&2
    fi
    rm -f "$log"
    return "$status"
}

count_seconds() {
    seconds=0
    while kill -0 $$ 2>/dev/null; do # not longer than the program itself
        printf '\r\033[K%s: %s ... %s s' "$program" "$1" "$seconds" >&2
        sleep 1
        seconds=$((seconds + 1))
    done
}

check_distribution() {
    ID=unknown
    VERSION_ID=
    PRETTY_NAME='an unknown system'
    if [ -r /etc/os-release ]; then
        # shellcheck disable=SC1091
        . /etc/os-release
    fi
    # Testing and unstable have no VERSION_ID.
    if [ "$ID" != debian ] || [ "${VERSION_ID:-12}" -lt 12 ] 2>/dev/null; then
        refuse "this needs Debian 12 or 13; here is $PRETTY_NAME. Try a virtual machine with Debian"
    fi
}

check_root() {
    if [ "$(id -u)" -ne 0 ]; then
        refuse "this needs root (packages, network namespaces); try: sudo contrib/$program"
    fi
}

check_namespaces() {
    if ! reason=$(unshare --net --mount --uts --ipc --pid --fork true 2>&1); then
        refuse "network, mount and PID namespaces cannot be made here (a container without privileges?): $reason"
    fi
}

# The Debian packages of packages.txt, and of others that serve here, that are not installed.
missing_packages() {
    set -- "$root/contrib/packages.txt"
    ! has_new_criu || set -- "$@" "$root/contrib/packages-podman.txt"
    sed 's/#.*//' "$@" | tr -s ' \t\n' '\n' | while read -r package; do
        if [ -n "$package" ] && [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
            printf '%s ' "$package"
        fi
    done
}

# Debian 14 and later have it; what apt says of it takes half a second.
has_new_criu() {
    # shellcheck disable=SC1091
    [ "$(. /etc/os-release && echo "${VERSION_ID:-14}")" -ge 13 ] &&
        dpkg --compare-versions "$(apt-cache policy criu | sed -n 's/^ *Candidate: //p')" ge 4.2
}

# Installed here are slurmctld, MariaDB, libvirtd, sshd and more, and a Debian package starts its service. None of them
# is wanted outside the minicluster, so policy-rc.d(8) forbids starts for as long as the installation runs. Ours forbids
# nothing once this program has ended, and is removed then: it is harmless even if a kill -9 leaves it behind. A policy
# that the machine has already is left alone, and decides.
policy=/usr/sbin/policy-rc.d
policy_mark='made by rmsplugin for the time of an installation'

forbid_service_starts() {
    if [ -e "$policy" ] && ! grep -q "$policy_mark" "$policy"; then
        return
    fi
    cat >"$policy.$$" <<END
#!/bin/sh
# $policy_mark
[ ! -d /proc/$$ ] || exit 101
END
    chmod 755 "$policy.$$"
    mv "$policy.$$" "$policy"
}

allow_service_starts() {
    rm -f "$policy.$$"
    if grep -qs "$policy_mark" "$policy"; then
        rm -f "$policy"
    fi
}

install_packages() {
    missing=$(missing_packages)
    if [ -z "$missing" ]; then
        return
    fi
    check_root
    trap allow_service_starts EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    forbid_service_starts
    quietly "reading the lists of Debian packages" apt-get -q -o DPkg::Lock::Timeout=300 update ||
        give_up "apt-get update failed (see above): is the network up, are /etc/apt/sources.list* right?"
    if [ -n "$(ls /var/lib/dpkg/updates)" ]; then
        quietly "ending an installation that was interrupted" \
            env DEBIAN_FRONTEND=noninteractive dpkg --force-confold --configure -a ||
            give_up "dpkg could not end an installation that was interrupted (see above)"
    fi
    # Only now apt says which CRIU there is.
    # shellcheck disable=SC2046 # words, not one word
    set -- $(missing_packages)
    quietly "installing $# Debian packages" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" ||
        give_up "the Debian packages could not be installed (see above)"
    allow_service_starts
    trap - EXIT INT TERM HUP
}

# .venv is made with Debian's own Python, whatever `python3` is here: libvirt's module is built against it, and inside
# the minicluster there is no other.
make_venv() {
    venv=${venv:-.venv}
    constraints=${constraints:-}
    extras=${extras:-test,lint}
    python=$root/$venv/bin/python
    if [ "$("$python" -c 'import sys; print(sys.base_prefix)' 2>/dev/null)" != /usr ]; then
        quietly "making $venv" /usr/bin/python3 -m venv --clear "$root/$venv" ||
            give_up "no virtual environment could be made (see above)"
    fi
    # The Python module must not be newer than libvirt itself.
    libvirt=$(pkg-config --modversion libvirt) || give_up "pkg-config does not know libvirt: is libvirt-dev installed?"
    wanted=$({
        cat "$root/pyproject.toml" "$root"/contrib/build_backend/*.py "$root"/rmsplugin/wrapper/native/*.c
        echo "$constraints" "$extras" "$libvirt"
        "$python" -V
    } | sha256sum)
    if [ "$(cat "$root/$venv/.installed" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    echo "$constraints" >"$root/$venv/.constraints"
    quietly "installing Python packages into $venv" "$python" -m pip install --quiet --disable-pip-version-check \
        --no-compile --constraint "$root/$venv/.constraints" --editable "${root}[$extras]" "libvirt-python==$libvirt" ||
        give_up "pip could not install them (see above): is the network up? Its settings: $venv/bin/pip config list"
    # pip would compile on one CPU. A package may have files that no Python compiles (templates); pip passes them by, too.
    "$python" -m compileall -q -j 0 "$root/$venv/lib" >/dev/null 2>&1 || :
    echo "$wanted" >"$root/$venv/.installed"
}

# Every wrapper and hook of a minicluster would compile what it imports anew: users cannot write beside the sources. So
# would every program of contrib/ where PYTHONDONTWRITEBYTECODE is set.
compile_sources() {
    "$root/contrib/compile-guest-tools" || give_up "rmsplugin/guest_tools/native cannot be compiled (see above)"
    "$root/.venv/bin/python" -m compileall -q "$root/rmsplugin" "$root/contrib" ||
        give_up "rmsplugin/ and contrib/ cannot be compiled (see above)"
}

install_everything() {
    install_packages
    make_venv
    compile_sources
}
