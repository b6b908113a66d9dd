"""`rmsplugin setup`: makes what is missing, changes nothing that is there, and lets nobody read secrets."""

from __future__ import annotations

import datetime
import os
import pwd
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
from cryptography import x509
from unit.check_facts import SLURM, with_config

from rmsplugin.cli.check.facts import SlurmFacts
from rmsplugin.cli.check.submission import read_site_file
from rmsplugin.cli.main import main
from rmsplugin.cli.setup import front, node
from rmsplugin.cli.setup.controller import Controller
from rmsplugin.cli.setup.parcel import read_parcel
from rmsplugin.cli.setup.site_lua import site_lua
from rmsplugin.cli.setup.writing import Writer
from rmsplugin.errors import RefusedError, SettingsError
from rmsplugin.settings import Settings, load
from rmsplugin.settings.guests import ContainerImage

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as setup does")

PURGE = Path(__file__).parents[3] / "contrib/debian/rmsplugin-node.postrm"
SILENT = SlurmFacts(unreachable="it does not answer")
SETTINGS = """
[engine]
user = "{user}"
[slurm]
partitions = ["vjob"]
[partition.vjob]
hosts = "vmhosts"
[network]
pool = "10.0.16.10-10.0.31.250"
prefix_length = 16
[image.default]
kind = "kernel"
kernel = "/var/lib/rmsplugin-images/vmlinuz"
initrd = "/var/lib/rmsplugin-images/initrd.img"
overhead_mib = 96
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "rmsplugin.toml"
    path.write_text(SETTINGS.format(user=pwd.getpwuid(os.geteuid()).pw_name))
    return load(path)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The root of a host that has the packages."""
    root = tmp_path / "host"
    for name, text in {
        "usr/share/rmsplugin/hooks/qemu": "#!/bin/sh\n",
        "usr/share/rmsplugin/hooks/criu": "#!/bin/sh\n# criu\n",
        "usr/share/rmsplugin/job_submit.lua": "-- ours\n",
        "etc/libvirt/libvirtd.conf": '#listen_tls = 0\nunix_sock_group = "libvirt"\n',
        "etc/libvirt/qemu.conf": "# nothing\n",
        "etc/slurm/slurm.conf": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def on_controller(settings: Settings, host: Path, *nodes: str, slurm: SlurmFacts = SILENT, dry: bool = False) -> Writer:
    writer = Writer(dry, host)
    Controller(settings, slurm, writer).prepare(nodes)
    return writer


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content of all files."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes()) for path in files}


def parcel_of(host: Path, name: str) -> Path:
    return host / f"etc/rmsplugin/nodes/{name}.tar"


def test_a_second_setup_changes_nothing_and_says_so(settings: Settings, host: Path) -> None:
    made = on_controller(settings, host, "n1", "n2").told
    assert all(line.startswith("made") for line in made)
    before = tree(host)
    again = on_controller(settings, host, "n1", "n2").told
    assert tree(host) == before
    assert all(line.startswith("in order") for line in again)
    assert len(again) == len(made)


def test_a_dry_run_says_the_same_and_makes_nothing(settings: Settings, host: Path) -> None:
    before = tree(host)
    dry = on_controller(settings, host, "n1", dry=True).told
    assert tree(host) == before
    made = on_controller(settings, host, "n1").told
    assert [line.replace("to make  ", "made     ") for line in dry] == made


def test_keys_are_for_nobody_else_and_nothing_is_left_beside_them(settings: Settings, host: Path) -> None:
    on_controller(settings, host, "n1")
    node.prepare(settings, Writer(False, host), read_parcel(parcel_of(host, "n1")))
    files = tree(host)
    secret = {path: mode for path, (mode, content) in files.items() if b"PRIVATE KEY" in content}
    assert len(secret) >= 8
    assert {path: mode for path, mode in secret.items() if mode & 0o037} == {}
    assert not [path for path in files if Path(path).name.startswith(".")]


def test_directories_above_are_for_all_to_enter_under_any_umask(settings: Settings, host: Path) -> None:
    before = {path for path in host.rglob("*") if path.is_dir()}
    mask = os.umask(0o077)
    try:
        on_controller(settings, host, "n1")
        node.prepare(settings, Writer(False, host), read_parcel(parcel_of(host, "n1")))
    finally:
        os.umask(mask)
    made = {str(path.relative_to(host)): path.stat().st_mode for path in host.rglob("*") if path not in before}
    modes = {name: stat.S_IMODE(mode) for name, mode in made.items() if stat.S_ISDIR(mode)}
    assert {modes[name] for name in ("var", "var/lib", "etc/pki", "etc/pki/qemu")} == {0o755}
    assert modes[str(settings.nodes.vm_dir.relative_to("/"))] == 0o711
    assert modes[str(settings.nodes.store.relative_to("/"))] == 0o700


def test_certificates_are_of_one_authority_and_good_for_years(settings: Settings, host: Path) -> None:
    on_controller(settings, host, "n1")
    pki = host / "etc/rmsplugin"
    authority = x509.load_pem_x509_certificate((pki / "ca/cacert.pem").read_bytes())
    for file, name in (("pki/clientcert.pem", "rmsplugin-engine"), ("nodes/n1/cert.pem", "n1")):
        certificate = x509.load_pem_x509_certificate((pki / file).read_bytes())
        certificate.verify_directly_issued_by(authority)
        assert certificate.subject.rfc4514_string() == f"CN={name}"
        left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
        assert left > datetime.timedelta(days=365 * 9)


def test_a_node_that_comes_later_is_of_the_same_authority_and_let_in_by_the_others(
    settings: Settings, host: Path
) -> None:
    on_controller(settings, host, "n1")
    first = read_parcel(parcel_of(host, "n1"))
    on_controller(settings, host, "n2")  # n1 is remembered
    n1, n2 = (read_parcel(parcel_of(host, name)) for name in ("n1", "n2"))
    assert n1.cacert == n2.cacert == first.cacert
    assert (n1.serverkey, n1.node_key) == (first.serverkey, first.node_key)
    assert n1.authorized_keys.startswith(first.authorized_keys)
    peers = [line for line in n1.authorized_keys.decode().splitlines() if "--peer" in line]
    assert [line.split()[-1] for line in peers] == ["root@n2"]


def test_a_node_lets_in_the_engine_with_all_verbs_and_the_others_as_peers_only(settings: Settings, host: Path) -> None:
    (host / "root/.ssh").mkdir(parents=True)
    keys = host / "root/.ssh/authorized_keys"
    keys.write_text("ssh-ed25519 AAAA admin")  # no newline
    keys.chmod(0o600)
    on_controller(settings, host, "n1", "n2")
    for _ in range(2):
        node.prepare(settings, Writer(False, host), read_parcel(parcel_of(host, "n1")))
    admin, engine, peer = keys.read_text().splitlines()
    assert admin == "ssh-ed25519 AAAA admin"
    assert engine.startswith('restrict,command="/usr/bin/rmsplugin-node" ssh-ed25519 ')
    assert peer.startswith('restrict,command="/usr/bin/rmsplugin-node --peer" ssh-ed25519 ')
    assert peer.endswith(" root@n2")
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    public = subprocess.run(
        ["ssh-keygen", "-y", "-f", host / "etc/rmsplugin/agent_key"], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert public in engine


def test_what_an_administrator_has_set_in_libvirt_stays(settings: Settings, host: Path) -> None:
    conf = host / "etc/libvirt/libvirtd.conf"
    conf.write_text('listen_tls = 1\ntls_allowed_dn_list = ["CN=admin"]  # ours\n')
    writer = Writer(False, host)
    node.prepare(settings, writer, None)
    text = conf.read_text()
    assert text.startswith('listen_tls = 1\ntls_allowed_dn_list = ["CN=admin"]  # ours\n')
    assert text.count("tls_allowed_dn_list") == 1 and text.count("listen_tls") == 1
    assert "listen_tcp = 0" in text
    assert any('tls_allowed_dn_list is ["CN=admin"]' in line for line in writer.to_do)
    again = Writer(False, host)
    node.prepare(settings, again, None)
    assert conf.read_text() == text
    assert all(line.startswith("in order") for line in again.told)


def test_values_that_a_later_setup_adds_go_with_a_purge_like_the_first_ones(settings: Settings, host: Path) -> None:
    conf, ours = host / "etc/libvirt/libvirtd.conf", "max_clients = 5000\n"
    before = conf.read_text()
    node.prepare(settings, Writer(False, host), None)
    first = conf.read_text()
    conf.write_text(first.replace("listen_tcp = 0\n", "") + ours)  # as a release that knew less had left it
    node.prepare(settings, Writer(False, host), None)
    assert sorted(conf.read_text().splitlines()) == sorted((first + ours).splitlines())
    [script] = [line for line in PURGE.read_text().splitlines() if "setup: begin" in line]
    subprocess.run(["sh", "-c", script], env={**os.environ, "file": str(conf)}, check=True)
    assert conf.read_text() == before + ours


@pytest.mark.parametrize(
    "unit", ["usr/lib/systemd/system/rmsplugin-engine.service", "etc/systemd/system/rmsplugin-manager.service"]
)
def test_where_an_engine_is_too_the_directories_of_vms_belong_elsewhere(
    unit: str, settings: Settings, host: Path
) -> None:
    alone = Writer(dry_run=True, root=host)
    node.prepare(settings, alone, None)
    assert not [line for line in alone.to_do if "nodes.vm_dir" in line]
    (host / unit).parent.mkdir(parents=True, exist_ok=True)
    (host / unit).write_text("")
    both = Writer(dry_run=True, root=host)
    node.prepare(settings, both, None)
    (told,) = [line for line in both.to_do if "keeps /var/lib/rmsplugin and all below it" in line]
    assert "put nodes.vm_dir, nodes.store, start.template_dir elsewhere" in told


def test_a_site_with_an_authority_of_its_own_keeps_it(settings: Settings, host: Path) -> None:
    own = host / "etc/rmsplugin/pki"
    own.mkdir(parents=True)
    (own / "clientcert.pem").write_text("of the site")
    writer = on_controller(settings, host, "n1")
    assert not (host / "etc/rmsplugin/ca").exists()
    assert (own / "clientcert.pem").read_text() == "of the site"
    assert any("certificates-and-keys.md" in line for line in writer.to_do)


def test_a_file_that_differs_is_left_and_told_of(settings: Settings, host: Path) -> None:
    hook = host / "etc/libvirt/hooks/qemu.d/rmsplugin"
    hook.parent.mkdir(parents=True)
    hook.write_text("mine\n")
    writer = Writer(False, host)
    node.prepare(settings, writer, None)
    assert hook.read_text() == "mine\n"
    (line,) = [line for line in writer.told if "qemu.d" in line]
    assert line.startswith("left")


def test_a_key_that_others_can_read_is_told_of(settings: Settings, host: Path) -> None:
    on_controller(settings, host)
    (host / "etc/rmsplugin/agent_key").chmod(0o644)
    told = on_controller(settings, host).told
    assert any(line.startswith("left") and "chmod 600 /etc/rmsplugin/agent_key" in line for line in told)


def test_site_lua_says_what_the_settings_and_slurms_nodes_say(settings: Settings, host: Path) -> None:
    writer = on_controller(settings, host, "n1", slurm=SLURM)
    text = (host / "etc/rmsplugin/site.lua").read_text()
    site = read_site_file(text)
    assert (site.partitions, site.gate, site.images) == (("vjob",), "vjobgate", ("default",))
    assert site.images_with_memory == ("default",)
    assert site.numbers is not None and site.numbers["max_vm_cpus"] == 4
    assert set(site.numbers) == {"max_vm_cpus", "max_vm_memory_mib", "max_total_cpus", "max_total_memory_mib"}
    assert (host / "etc/slurm/job_submit.lua").read_text() == "-- ours\n"
    assert not any("slurm.conf" in line for line in writer.to_do), writer.to_do


def test_lines_that_slurm_conf_lacks_are_said(settings: Settings, host: Path) -> None:
    facts = with_config(Licenses="matlab:20", JobSubmitPlugins="(null)", Prolog="/site/prolog", Epilog="(null)")
    writer = on_controller(settings, host, "n1", slurm=facts)
    (said,) = [line for line in writer.to_do if "slurm.conf" in line]
    assert [line.strip().split("  ")[0] for line in said.splitlines()[1:]] == [
        "Prolog=/etc/rmsplugin/hooks/prolog",
        "Epilog=/etc/rmsplugin/hooks/epilog",
        "JobSubmitPlugins=lua",
        "Licenses=vjobgate:1",
    ]
    assert "call it from /site/prolog" in said


@pytest.mark.parametrize(
    ("has", "told"),
    [
        ({"PrologEpilogTimeout": "900 sec", "SelectTypeParameters": "CR_CPU_MEMORY"}, []),
        ({"PrologFlags": "Alloc,Contain", "SelectType": "select/cons_res"}, []),
        ({"PrologEpilogTimeout": "120 sec"}, ["PrologEpilogTimeout=300"]),
        (
            {"PrologFlags": "(null)", "SelectType": "select/linear"},
            ["PrologFlags=Alloc", "SelectType=select/cons_tres"],
        ),
        ({"SelectTypeParameters": "CR_CPU"}, ["SelectTypeParameters=CR_Core_Memory"]),
    ],
    ids=str,
)
def test_a_value_of_slurm_conf_that_does_as_well_is_left_to_the_site(
    has: dict[str, str], told: list[str], settings: Settings, host: Path
) -> None:
    writer = on_controller(settings, host, "n1", slurm=with_config(**has))
    said = [line for line in writer.to_do if "slurm.conf" in line]
    assert [line.strip() for line in "\n".join(said).splitlines()[1:]] == told


def test_a_longer_wait_of_the_prolog_has_a_longer_bound_of_slurms(tmp_path: Path, host: Path) -> None:
    path = tmp_path / "long.toml"
    user = pwd.getpwuid(os.geteuid()).pw_name
    path.write_text(SETTINGS.format(user=user).replace("[slurm]", "[slurm]\nprolog_wait_s = 600"))
    writer = on_controller(load(path), host, "n1", slurm=SLURM)
    assert "PrologEpilogTimeout=1200" in "\n".join(writer.to_do)


@pytest.mark.parametrize("what", ["nothing", "text", "other", "huge"])
def test_a_file_that_is_no_parcel_is_refused_before_anything_is_made(what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    if what == "text":
        path.write_text("hello")
    elif what in ("other", "huge"):
        (tmp_path / "node").write_bytes(b"x" * (2 << 20 if what == "huge" else 1))
        with tarfile.open(path, "w") as archive:
            archive.add(tmp_path / "node", "node")
    with pytest.raises(RefusedError, match=r"x\.tar"):
        read_parcel(path)


def on_front(settings: Settings, host: Path, slurmctld: dict[str, str] | None = None) -> Writer:
    writer = Writer(False, host)
    front.prepare(settings, writer, lambda: slurmctld or {})
    return writer


def test_a_front_is_told_what_it_lacks(settings: Settings, host: Path) -> None:
    writer = on_front(settings, host)
    assert any("install rmsplugin-common" in line for line in writer.to_do)
    assert any("engine.url" in line for line in writer.to_do)
    assert any("SlurmdParameters=config_overrides" in line for line in writer.to_do)


@pytest.mark.parametrize(
    "text",
    [
        "SlurmdParameters=config_overrides\n",
        "ClusterName=x slurmdparameters = l3cache_as_socket,config_overrides # ours\n",
        "SlurmdParameters=\\\nconfig_overrides\n",
        "SlurmdParameters=l3cache_as_socket\nInclude more.conf\n",
    ],
)
def test_a_front_whose_slurm_conf_has_config_overrides_is_told_nothing_of_it(
    text: str, settings: Settings, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    (host / "etc/slurm/more.conf").write_text("SlurmdParameters=config_overrides\n")
    (host / "etc/slurm/slurm.conf").write_text(text)
    writer = on_front(settings, host)
    assert "in order /etc/slurm/slurm.conf: SlurmdParameters has config_overrides" in writer.told
    assert not any("SlurmdParameters" in line for line in writer.to_do)


@pytest.mark.parametrize(
    "text",
    [
        "# SlurmdParameters=config_overrides\n",
        "SlurmctldParameters=config_overrides\n",
        "SlurmdParameters=config_overrides\nSlurmdParameters=l3cache_as_socket\n",
        "SlurmdParameters=config_overrides_not\n",
        "Include not_there.conf\n",
    ],
)
def test_a_front_whose_own_slurm_conf_lacks_config_overrides_is_told_so_whatever_slurmctld_has(
    text: str, settings: Settings, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    (host / "etc/slurm/slurm.conf").write_text(text)
    writer = on_front(settings, host, {"SlurmdParameters": "config_overrides"})
    assert any("SlurmdParameters=config_overrides" in line for line in writer.to_do)


@pytest.mark.parametrize("more", ["Include slurm.conf\nInclude slurm.conf\n", "Include deeper.conf\n"])
def test_a_slurm_conf_that_includes_itself_is_refused_as_slurm_does(
    more: str, settings: Settings, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    (host / "etc/slurm/slurm.conf").write_text("Include more.conf\n")
    (host / "etc/slurm/more.conf").write_text(more)
    (host / "etc/slurm/deeper.conf").write_text("include more.conf\n")
    with pytest.raises(
        SettingsError, match=r"(more|deeper)\.conf: Include \w+\.conf leads in a circle, slurm\.conf -> more"
    ):
        on_front(settings, host)


def test_a_file_that_is_included_often_is_read_once(
    settings: Settings, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    for number in range(60):  # read as often as it is named, the last one would be read 2^60 times
        (host / f"etc/slurm/{number}.conf").write_text(f"Include {number + 1}.conf\nInclude {number + 1}.conf\n")
    (host / "etc/slurm/60.conf").write_text("SlurmdParameters=config_overrides\n")
    (host / "etc/slurm/slurm.conf").write_text("Include 0.conf\n")
    assert not any("SlurmdParameters" in line for line in on_front(settings, host).to_do)


@pytest.mark.parametrize(("said", "lacks"), [("config_overrides", False), ("(null)", True)])
def test_a_front_without_a_slurm_conf_has_what_slurmctld_has(
    said: str, lacks: bool, settings: Settings, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    (host / "etc/slurm/slurm.conf").unlink()
    writer = on_front(settings, host, {"SlurmdParameters": said})
    assert any("SlurmdParameters" in line for line in writer.to_do) == lacks
    assert any("slurmctld's slurm.conf" in line for line in writer.told) != lacks


@pytest.mark.parametrize(
    "words", [["front", "--node", "n1"], ["controller", "--from", "x"], ["controller", "--node", "../n1"], ["nobody"]]
)
def test_arguments_that_mean_nothing_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["setup", *words])
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


NATIVE = """
[engine]
user = "{user}"
[hypervisor]
platform = "native"
[slurm]
partitions = ["vjob"]
"""


def native_settings(directory: Path) -> Settings:
    path = directory / "native.toml"
    path.write_text(NATIVE.format(user=pwd.getpwuid(os.geteuid()).pw_name))
    return load(path)


def test_a_controller_of_native_jobs_gets_no_keys_and_nothing_for_nodes(tmp_path: Path, host: Path) -> None:
    writer = Writer(dry_run=False, root=host)
    Controller(native_settings(tmp_path), with_config(SelectTypeParameters="CR_CORE"), writer).prepare(["n1"])
    made = {str(path.relative_to(host)) for path in host.rglob("*") if path.is_file() and "etc/" in str(path)}
    assert {"etc/rmsplugin/site.lua", "etc/slurm/job_submit.lua"} <= made
    assert not any("ca/" in path or "nodes/" in path or "agent_key" in path for path in made), made
    site = read_site_file((host / "etc/rmsplugin/site.lua").read_text())
    assert (site.platform, site.partitions) == ("native", ("vjob",))
    assert "SelectTypeParameters=CR_CPU_Memory" in "\n".join(writer.to_do)


def of_podman(settings: Settings) -> Settings:
    containers = {"default": ContainerImage(kind="container", reference="localhost/guest:1")}
    hypervisor = settings.hypervisor.model_copy(update={"platform": "podman"})
    return settings.model_copy(update={"hypervisor": hypervisor, "image": containers})


def test_a_host_of_containers_gets_crius_script_and_nothing_of_libvirts(settings: Settings, host: Path) -> None:
    before = {path for path in host.rglob("*") if path.is_file()}
    writer = Writer(dry_run=False, root=host)
    node.prepare(of_podman(settings), writer, None)
    script = host / "etc/criu/rmsplugin"
    assert script.read_text() == "#!/bin/sh\n# criu\n" and script.stat().st_mode & 0o777 == 0o755
    made = {str(path.relative_to(host)) for path in host.rglob("*") if path.is_file()} - {
        str(path.relative_to(host)) for path in before
    }
    assert made == {"etc/criu/rmsplugin", "var/lib/rmsplugin-node/made"}
    assert any("podman load" in line for line in writer.to_do), writer.to_do


def test_a_site_of_containers_gets_keys_and_no_certificates(settings: Settings, host: Path) -> None:
    on_controller(of_podman(settings), host, "n1", "n2")
    made = {str(path.relative_to(host)) for path in host.rglob("*.pem")}
    assert made == set()
    parcel = read_parcel(parcel_of(host, "n1"))
    assert (parcel.cacert, parcel.servercert, parcel.serverkey) == (b"", b"", b"")
    writer = Writer(dry_run=False, root=host)
    node.prepare(of_podman(settings), writer, parcel)
    assert not (host / "etc/pki").exists()
    keys = (host / "root/.ssh/authorized_keys").read_text().splitlines()
    assert len(keys) == 2 and keys[1].endswith(" root@n2")


def test_a_host_of_vms_refuses_what_was_made_for_containers(settings: Settings, host: Path) -> None:
    on_controller(of_podman(settings), host, "n1")
    parcel = read_parcel(parcel_of(host, "n1"))
    with pytest.raises(RefusedError, match=r"has no certificate, .* the same settings on all hosts"):
        node.prepare(settings, Writer(dry_run=False, root=host), parcel)


def test_site_lua_names_a_platform_that_is_not_the_usual_one(settings: Settings) -> None:
    site = read_site_file(site_lua(of_podman(settings), {}))
    assert (site.platform, site.images, site.images_with_memory) == ("podman", ("default",), ("default",))
    assert "platform" not in site_lua(settings, {})


def test_memory_that_slurm_counts_by_cores_stays(tmp_path: Path, host: Path) -> None:
    writer = Writer(dry_run=False, root=host)
    Controller(native_settings(tmp_path), SLURM, writer).prepare([])
    assert "SelectTypeParameters" not in "\n".join(writer.to_do)


@pytest.mark.parametrize("words", [["node"], ["front"], ["controller", "--node", "n1"]])
def test_nodes_of_native_jobs_need_nothing(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    native_settings(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["setup", "--config", str(tmp_path / "native.toml"), "--dry-run", *words])
    assert ended.value.code == 2
    assert "needs nothing there" in capsys.readouterr().err
