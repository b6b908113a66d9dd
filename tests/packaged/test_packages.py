"""contrib/build-packages: what its packages bring, keep and leave, in throw-away roots over this machine.

The libraries of the package index are left out of these, and are lent by the checkout's virtual environment: they are a
hundred times as large as the rest. `contrib/run-campaign packages` has all of it, on bare Debian 12 and 13.
"""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from packaged import throwaway

REPOSITORY = Path(__file__).resolve().parents[2]
LIBRARIES = sysconfig.get_path("purelib")
SITE = f"/usr/lib/rmsplugin/lib/python{sysconfig.get_python_version()}/site-packages"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not throwaway.can_be_made(), reason="needs root and overlays"),
]

FUNCTIONS = f"""
written() {{ {throwaway.LIST}; }}
section() {{ echo "=== $1"; }}
sed -i /^slurm:/d /etc/passwd /etc/group /etc/shadow
rm -rf /root/.ssh
"""
DPKG = "dpkg --force-unsafe-io --force-depends"  # python3-libvirt may not be on this machine
INSTALL = f"{DPKG} --install /srv/debs/*_0.1.0-1~*.deb </dev/null >/tmp/log 2>&1 || {{ cat /tmp/log; exit 1; }}\n"
PURGE = f"{DPKG} --purge rmsplugin-node rmsplugin-controller rmsplugin-common 2>&1 </dev/null\n"


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages, and next to them a later revision of the one with the hooks, in which one of them is another."""
    output = tmp_path_factory.mktemp("debs")
    build = [REPOSITORY / "contrib/build-packages", "--fast", "--without-libraries", "--output", output]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = output.glob("rmsplugin-common_*.deb")
    tree = tmp_path_factory.mktemp("later") / file.stem
    subprocess.run(["dpkg-deb", "-R", file, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace("0.1.0-1~", "0.1.0-2~"))
    hook = tree / "etc/rmsplugin/hooks/epilog"
    hook.write_text(hook.read_text() + "# later\n")
    later = output / file.name.replace("0.1.0-1~", "0.1.0-2~")
    build_again = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, later]
    subprocess.run(build_again, check=True, capture_output=True)
    return output


def sections(debs: Path, script: str) -> dict[str, list[str]]:
    """What the script says, by its sections, run where the packages are in /srv/debs."""
    shown = {debs: "/srv/debs", Path(LIBRARIES): "/srv/libraries"}
    done = throwaway.run_in(Path("/"), FUNCTIONS + script, shown)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    parts = re.split(r"^=== (.*)\n", done.stdout, flags=re.MULTILINE)
    return {name: text.splitlines() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.fixture(scope="module")
def life(debs: Path) -> dict[str, list[str]]:
    """Installed on a host without Slurm, looked at, changed by an administrator, upgraded, and purged."""
    lend = f"echo /srv/libraries >{SITE}/lent.pth\n"
    return sections(
        debs,
        INSTALL + "section brought; written\n"
        "section account; getent passwd slurm\n"
        "section enabled; find /etc/systemd -name 'rmsplugin*'\n"
        + lend
        + "section version; PYTHONPATH=/nowhere PYTHONHOME=/nowhere rmsplugin --version\n"
        "section site; mkdir -p /usr/local/lib/rmsplugin\n"
        "echo 'print(1 + 1)' >/usr/local/lib/rmsplugin/of_this_site.py\n"
        "/usr/lib/rmsplugin/bin/python3 -I -m of_this_site; rm -r /usr/local/lib/rmsplugin\n"
        "section imported; /usr/lib/rmsplugin/bin/python3 -I -c 'import rmsplugin; print(rmsplugin.__file__)'\n"
        'section check; rmsplugin check 2>&1 || echo "status $?"\n'
        'section hook; /etc/rmsplugin/hooks/epilog 2>&1; echo "status $?"\n'
        'section agent; echo | rmsplugin-node 2>&1 || echo "status $?"\n'
        'section wrapper; rmsplugin-job 2>&1 || echo "status $?"\n'
        f"cat >/etc/rmsplugin/rmsplugin.toml <<'END'\n{throwaway.SETTINGS}END\n"
        "before=$(cat /etc/libvirt/libvirtd.conf /etc/libvirt/qemu.conf | cksum)\n"
        "section setup; rmsplugin setup controller --node n1 --node n2; rmsplugin setup front\n"
        "rmsplugin setup node --from /etc/rmsplugin/nodes/n1.tar\n"
        "section again; rmsplugin setup controller --node n1 --node n2; "
        "rmsplugin setup node --from /etc/rmsplugin/nodes/n1.tar\n"
        "section open\n"
        "find /etc/rmsplugin /etc/pki /root/.ssh -type f -perm /027 -exec grep -l 'PRIVATE KEY' {} + || :\n"
        "section trust; openssl verify -CAfile /etc/pki/CA/cacert.pem /etc/rmsplugin/pki/clientcert.pem\n"
        "openssl verify -CAfile /etc/rmsplugin/pki/cacert.pem /etc/pki/libvirt/servercert.pem 2>&1\n"
        "section refuses; echo '<domain/>' | /etc/libvirt/hooks/qemu.d/rmsplugin vjob0-0 prepare begin - 2>&1 || :\n"
        "section checked; rmsplugin check --quick 2>&1 || :\n"
        f"rm {SITE}/lent.pth; mkdir -p {SITE}/__pycache__; touch {SITE}/__pycache__/libvirt.cpython-311.pyc\n"
        "echo '# of this site' >>/etc/rmsplugin/hooks/prolog\n"
        f"{DPKG} --force-confold --install /srv/debs/*_0.1.0-2~*.deb </dev/null >/tmp/log 2>&1\n"
        "section upgraded; dpkg-query -W -f '${Version}\\n' 'rmsplugin-*'\n"
        "tail -n 1 /etc/rmsplugin/hooks/prolog /etc/rmsplugin/hooks/epilog\n"
        "section purged; " + PURGE + "section left; written\n"
        "after=$(cat /etc/libvirt/libvirtd.conf /etc/libvirt/qemu.conf | cksum)\n"
        'section libvirt; [ "$before" != "$after" ] || echo same\n'
        "section 'account left'; getent passwd slurm || :\n",
    )


def modes(life: dict[str, list[str]]) -> dict[str, str]:
    """Kind, mode and owner of each file that was brought, by its path."""
    return throwaway.news(Path("/"), life["brought"])


def test_nobody_but_root_can_change_what_they_bring_and_secrets_are_not_for_all(life: dict[str, list[str]]) -> None:
    brought = modes(life)
    assert brought["/usr/bin/rmsplugin"] == "f 755 root:root"
    assert brought["/etc/rmsplugin"] == "d 755 root:root"
    assert brought["/var/lib/rmsplugin/store"] == "d 700 root:root"
    assert brought["/var/lib/rmsplugin/vm"] == "d 711 root:root"
    others = {path: how for path, how in brought.items() if not path.startswith("/var/lib/rmsplugin/")}
    odd = {path: how for path, how in others.items() if not re.fullmatch(r"(f (644|755)|d 755|l 777) root:root", how)}
    assert odd == {}


def test_libvirts_profile_lets_its_hook_start_the_node_agent_without_a_line_of_ours(life: dict[str, list[str]]) -> None:
    # It lets programs in /usr/bin be started; of a link it would see where that leads.
    assert modes(life)["/usr/bin/rmsplugin-node"] == "f 755 root:root"


def test_each_program_runs_whatever_the_callers_python_is_told(life: dict[str, list[str]]) -> None:
    assert life["version"] == ["rmsplugin 0.1.0"]
    assert life["imported"] == [f"{SITE}/rmsplugin/__init__.py"]
    assert life["site"] == ["2"]  # what a site has put beside it is found
    assert life["hook"][-1] == "status 0"
    assert any("usage: rmsplugin-job" in line for line in life["wrapper"])
    assert not any("Traceback" in line for lines in life.values() for line in lines)


def test_nothing_is_enabled_before_it_is_configured_and_check_says_what_is_missing(life: dict[str, list[str]]) -> None:
    assert life["enabled"] == []
    assert life["check"][-1] == "status 1"
    assert any("/etc/rmsplugin/rmsplugin.toml" in line for line in life["check"])


def test_the_controller_has_the_account_of_slurm(life: dict[str, list[str]]) -> None:
    (line,) = life["account"]
    assert re.fullmatch(r"slurm:x:64030:\d+:Slurm,*:/nonexistent:/usr/sbin/nologin", line)


def test_setup_makes_what_a_controller_and_a_node_need_and_a_second_time_nothing(life: dict[str, list[str]]) -> None:
    made = [line.split()[1].rstrip(":") for line in life["setup"] if line.startswith("made")]
    for path in ("/etc/rmsplugin/agent_key", "/etc/rmsplugin/ca/cakey.pem", "/etc/pki/libvirt/private/serverkey.pem"):
        assert path in made
    assert life["open"] == []
    assert [line.rpartition(": ")[2] for line in life["trust"]] == ["OK", "OK"]
    assert any("rmsplugin refuses" in line for line in life["refuses"])
    assert [line for line in life["again"] if line.startswith(("made", "left  "))] == []


def test_check_finds_in_order_what_setup_has_made(life: dict[str, list[str]]) -> None:
    for path in ("/etc/rmsplugin/rmsplugin.toml", "/etc/rmsplugin/agent_key"):
        assert any(re.fullmatch(rf"ok +{path}: .*", line) for line in life["checked"]), life["checked"]


def test_an_upgrade_keeps_what_an_administrator_changed(life: dict[str, list[str]]) -> None:
    assert len([line for line in life["upgraded"] if line.startswith("0.1.0-2~deb")]) == 1
    assert "# of this site" in life["upgraded"]
    assert "# later" in life["upgraded"]


def test_a_purge_leaves_nothing(life: dict[str, list[str]]) -> None:
    left = throwaway.news(Path("/"), life["left"])
    if left.get("/var/lib/rmsplugin", "").startswith("c "):
        del left["/var/lib/rmsplugin"]  # this machine had an empty one
    changed = {"/etc/libvirt/libvirtd.conf", "/etc/libvirt/qemu.conf"}  # and changed back
    assert left.keys() <= changed
    assert life["libvirt"] == ["same"]
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status}\\n", "slurm*"]
    slurm = subprocess.run(query, capture_output=True, text=True).stdout.split()
    assert len(life["account left"]) == ("installed" in slurm)  # Slurm's own packages need it as well


@pytest.fixture(scope="module")
def of_containers(debs: Path) -> dict[str, list[str]]:
    """Controller and VM host of a site whose jobs run in containers, set up and purged."""
    settings = throwaway.SETTINGS.partition("[image.default]")[0]
    settings += '[image.default]\nkind = "container"\nreference = "localhost/guest:1"\n'
    settings += '[hypervisor]\nplatform = "podman"\n'
    lend = f"echo /srv/libraries >{SITE}/lent.pth\n"
    return sections(
        debs,
        INSTALL + lend + f"cat >/etc/rmsplugin/rmsplugin.toml <<'END'\n{settings}END\n"
        "section setup; rmsplugin setup controller --node n1 --node n2\n"
        "rmsplugin setup node --from /etc/rmsplugin/nodes/n1.tar\n"
        "section made; find /etc/criu /etc/pki /etc/rmsplugin -type f 2>/dev/null || :\n"
        "section same; cmp /etc/criu/rmsplugin /usr/share/rmsplugin/hooks/criu && echo yes\n"
        f"rm {SITE}/lent.pth; mkdir -p /run/rmsplugin-podman\n"
        "section purged; " + PURGE + "section left; find /etc/criu /run/rmsplugin-podman /var/lib/rmsplugin-node "
        "/etc/rmsplugin /root/.ssh 2>/dev/null || :\n",
    )


@pytest.mark.long
def test_a_site_of_containers_has_crius_hook_and_no_certificates(of_containers: dict[str, list[str]]) -> None:
    assert "/etc/criu/rmsplugin" in of_containers["made"]
    assert of_containers["same"] == ["yes"]
    assert not [path for path in of_containers["made"] if path.startswith("/etc/pki") or path.endswith(".pem")]
    assert "/etc/rmsplugin/agent_key" in of_containers["made"]


@pytest.mark.long
def test_a_purge_leaves_nothing_of_containers(of_containers: dict[str, list[str]]) -> None:
    assert of_containers["left"] == []


def test_a_vm_host_has_libvirt_or_podman(debs: Path) -> None:
    (file,) = debs.glob("rmsplugin-node_0.1.0-1~*.deb")
    said = subprocess.run(["dpkg-deb", "-f", file, "Depends"], capture_output=True, text=True, check=True).stdout
    clauses = [each.strip() for each in said.split(",")]
    of_libvirt = [each for each in clauses if "libvirt" in each or "qemu" in each]
    assert len(of_libvirt) == 3
    assert all(each.endswith(" | podman") for each in of_libvirt), of_libvirt


def test_a_purge_leaves_what_vjobs_that_sleep_need_and_says_so(debs: Path) -> None:
    seen = sections(
        debs,
        INSTALL + "touch /var/lib/rmsplugin/ledger.sqlite /var/lib/rmsplugin/store/vjob12-0.state\n"
        "mkdir /var/lib/rmsplugin/templates; touch /var/lib/rmsplugin/templates/kind.state /etc/rmsplugin/agent_key\n"
        "mkdir -p /root/.ssh; printf '%s\\n' 'ssh-ed25519 AAAA admin' "
        "'restrict,command=\"/usr/bin/rmsplugin-node --peer\" ssh-ed25519 AAAA root@n2' >/root/.ssh/authorized_keys\n"
        "section purge; " + PURGE + "section left; find /etc/rmsplugin /var/lib/rmsplugin* -type f 2>/dev/null || :\n"
        "section account; getent passwd slurm\n"
        "section keys; cat /root/.ssh/authorized_keys\n",
    )
    assert set(seen["left"]) == {"/var/lib/rmsplugin/ledger.sqlite", "/var/lib/rmsplugin/store/vjob12-0.state"}
    assert any("rm -r /var/lib/rmsplugin" in line for line in seen["purge"])
    assert len(seen["account"]) == 1  # it owns the ledger
    assert seen["keys"] == ["ssh-ed25519 AAAA admin"]


def test_a_purge_asks_what_is_to_be_removed_and_does_as_it_is_told(debs: Path) -> None:
    files = "/var/lib/rmsplugin/ledger.sqlite /var/lib/rmsplugin/guest_root_key /var/lib/rmsplugin/store/vjob12-0.state"
    seen = sections(
        debs,
        INSTALL + f"mkdir /var/lib/rmsplugin/templates; touch {files} /var/lib/rmsplugin/templates/kind.state\n"
        "touch /etc/rmsplugin/agent_key\n"
        "section asked; for name in common controller node; do debconf-show rmsplugin-$name; done\n"
        "debconf-set-selections <<'END'\n"
        "rmsplugin-common rmsplugin-common/remove-keys boolean false\n"
        "rmsplugin-controller rmsplugin-controller/remove-ledger boolean true\n"
        "rmsplugin-node rmsplugin-node/remove-states boolean true\n"
        "rmsplugin-node rmsplugin-node/remove-templates boolean false\n"
        "END\n"
        "section purge; " + PURGE + "section left; find /etc/rmsplugin /var/lib/rmsplugin* -type f 2>/dev/null || :\n"
        "section forgotten; for name in common controller node; do debconf-show rmsplugin-$name; done\n",
    )
    assert {line.strip() for line in seen["asked"]} == {
        "rmsplugin-common/remove-keys: true",
        "rmsplugin-controller/remove-ledger: false",
        "rmsplugin-node/remove-states: false",
        "rmsplugin-node/remove-templates: true",
    }
    assert set(seen["left"]) == {"/etc/rmsplugin/agent_key", "/var/lib/rmsplugin/templates/kind.state"}
    assert any("rm -r /etc/rmsplugin" in line for line in seen["purge"])
    assert seen["forgotten"] == []


ALL_GOES = """
debconf-set-selections <<'END'
rmsplugin-controller rmsplugin-controller/remove-ledger boolean true
rmsplugin-node rmsplugin-node/remove-states boolean true
END
"""
STORE, BACKUPS = "/var/lib/rmsplugin/store", "/var/lib/rmsplugin/backups"


def test_a_purge_empties_nothing_that_is_mounted(debs: Path) -> None:
    seen = sections(
        debs,
        INSTALL + ALL_GOES + f"mkdir -p /srv/nas /srv/disk {BACKUPS} {STORE}\n"
        f"mount --bind /srv/nas {STORE}; mount --bind /srv/disk {BACKUPS}\n"
        f"touch /var/lib/rmsplugin/ledger.sqlite {STORE}/vjob12-0.state {BACKUPS}/ledger.sqlite\n"
        "section purge; " + PURGE + "section left; find /srv/nas /srv/disk /var/lib/rmsplugin -type f\n",
    )
    assert set(seen["left"]) == {
        "/srv/nas/vjob12-0.state",
        f"{STORE}/vjob12-0.state",
        "/srv/disk/ledger.sqlite",
        f"{BACKUPS}/ledger.sqlite",
    }
    assert any(f"left {STORE}" in line for line in seen["purge"])


def test_a_purge_where_the_state_is_elsewhere_by_a_link_ends_and_leaves_it(debs: Path) -> None:
    seen = sections(
        debs,
        INSTALL + ALL_GOES + "mv /var/lib/rmsplugin /srv/state; ln -s /srv/state /var/lib/rmsplugin\n"
        "touch /srv/state/ledger.sqlite\n"
        "section purge; " + PURGE + "section left; find /srv/state -type f\n"
        "section known; dpkg-query -W -f '${Package}\\n' 'rmsplugin*' || :\n",
    )
    assert seen["left"] == ["/srv/state/ledger.sqlite"]
    assert seen["known"] == []


#: A dialog that is left by Escape whenever it asks.
LEAVES = r"""
cat >/usr/local/bin/whiptail <<'END'
#!/bin/sh
[ "$1" = --version ] && exit 0
echo "$*" >>/srv/asked
exit 255
END
chmod 755 /usr/local/bin/whiptail
export DEBIAN_FRONTEND=dialog TERM=xterm
"""


def test_a_question_of_a_purge_that_is_left_removes_nothing(debs: Path) -> None:
    """Whoever is asked sits at a terminal, so ``script`` gives one."""
    purge = PURGE.partition(" 2>&1")[0]
    seen = sections(
        debs,
        INSTALL + LEAVES + "touch /etc/rmsplugin/agent_key; mkdir /var/lib/rmsplugin/templates\n"
        "touch /var/lib/rmsplugin/ledger.sqlite /var/lib/rmsplugin/templates/kind.state\n"
        f"section purge; timeout 120 script -qec 'stty rows 40 cols 120; {purge}' /dev/null </dev/null\n"
        "section asked; grep -o 'Remove .*?' /srv/asked\n"
        "section left; find /etc/rmsplugin /var/lib/rmsplugin -type f\n",
    )
    assert len(seen["asked"]) == 3
    assert seen["left"] == [
        "/etc/rmsplugin/agent_key",
        "/var/lib/rmsplugin/ledger.sqlite",
        "/var/lib/rmsplugin/templates/kind.state",
    ]


def test_the_shell_completes_commands_and_asks_slurm_for_jobs(debs: Path, tmp_path: Path) -> None:
    (common,) = debs.glob("rmsplugin-common_0.1.0-1~*.deb")
    subprocess.run(["dpkg-deb", "-x", common, tmp_path / "x"], check=True)
    file = tmp_path / "x/usr/share/bash-completion/completions/rmsplugin"
    (tmp_path / "squeue").write_text("#!/bin/sh\nprintf '12\\n13_0\\n'\n")
    (tmp_path / "squeue").chmod(0o755)

    def completed(*words: str) -> list[str]:
        names = " ".join(f"'{word}'" for word in words)
        script = (
            f"PATH={tmp_path}:$PATH; source {file}; COMP_WORDS=({names}); COMP_CWORD={len(words) - 1}; "
            'name=$(complete -p rmsplugin | grep -o -- "-F [^ ]*" | cut -c4-); $name; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert completed("rmsplugin", "susp") == ["suspend"]
    assert completed("rmsplugin", "suspend", "1") == ["12", "13_0"]


def test_what_is_not_fit_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    program = REPOSITORY / "contrib/build-packages"
    for words in (["Trixie!"], ["--revision", "one"], ["--dir", str(tmp_path)]):
        done = subprocess.run([program, *words, "--output", tmp_path / "new"], capture_output=True, text=True)
        assert done.returncode == 2 and "Traceback" not in done.stderr, words
        assert not (tmp_path / "new").exists()
