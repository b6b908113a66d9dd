"""The controller: keys and certificates of the engine, what VM hosts are to be given, and what Slurm needs."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rmsplugin.adapters.platform.factory import platform_files
from rmsplugin.cli.check.facts import SITE_FILE, SlurmFacts
from rmsplugin.cli.check.submission import job_submit_path, largest_requests
from rmsplugin.cli.setup.authority import Authority, ssh_key, ssh_public
from rmsplugin.cli.setup.parcel import Parcel
from rmsplugin.cli.setup.site_lua import site_lua, slurm_conf
from rmsplugin.cli.setup.writing import Owner, Writer
from rmsplugin.errors import RefusedError
from rmsplugin.settings import Settings

AGENT = "/usr/bin/rmsplugin-node"
AUTHORITY = Path("/etc/rmsplugin/ca")
PKI = Path("/etc/rmsplugin/pki")
NODES = Path("/etc/rmsplugin/nodes")
ENGINE = "rmsplugin-engine"
_DAYS = 3650
_JOB_SUBMIT = Path("/usr/share/rmsplugin/job_submit.lua")


@dataclass(slots=True)
class Controller:
    """What is made there."""

    settings: Settings
    slurm: SlurmFacts
    writer: Writer

    def prepare(self, nodes: Sequence[str]) -> None:
        """Make all that the controller needs, and a file for each of the nodes.

        Raises:
            RefusedError: a key or certificate that is there cannot be read, or there is no account of the engine.
        """
        engine = self._engine_owner()
        self.writer.directory(self.settings.engine.state_dir, 0o700, engine)
        if not self.settings.native:
            self._keys(nodes, engine)
        self._slurm_files()

    def _keys(self, nodes: Sequence[str], engine: Owner) -> None:
        """Have the ways to VM hosts, and a file for each of them."""
        agent = self.settings.nodes.agent_key
        private = self.writer.file(agent, ssh_key, "the engine's key for node agents", mode=0o600, owner=engine)
        line = _public(agent, private, ENGINE)
        if not platform_files(self.settings).certificates:
            self._give(nodes, line, None)
        elif authority := self._authority(engine):
            self._give(nodes, line, authority)
        self._known_hosts(nodes)

    def _engine_owner(self) -> Owner:
        user = self.settings.engine.user
        try:
            return Owner(user, grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name)
        except KeyError:
            raise RefusedError(f"there is no account {user}, which engine.user names") from None

    def _authority(self, engine: Owner) -> Authority | None:
        """The site's authority, ours; None where the engine has a certificate of another."""
        place = AUTHORITY / "cakey.pem"
        if not self.writer.at(place).exists() and self.writer.at(PKI / "clientcert.pem").exists():
            self.writer.told.append(f"{'left':<9}{PKI}: its certificates are of the site's own authority")
            what = "give each VM host a certificate of your authority (docs/operator/certificates-and-keys.md)"
            self.writer.later(what)
            return None
        self.writer.directory(AUTHORITY, 0o700)
        made: list[Authority] = []

        def key() -> bytes:
            made.append(Authority("rmsplugin", _DAYS))
            return made[0].pem()[1]

        private = self.writer.file(place, key, "the key of the certificate authority", mode=0o600)
        certificate = AUTHORITY / "cacert.pem"
        new = made[0].pem()[0] if made else self._read(certificate)
        authority = _kept(self.writer.file(certificate, new, "the certificate authority"), private, place)
        self._engine_pair(authority, engine)
        return authority

    def _engine_pair(self, authority: Authority, engine: Owner) -> None:
        self.writer.directory(PKI, 0o700, engine)
        self.writer.file(PKI / "cacert.pem", authority.pem()[0], "the certificate authority", owner=engine)
        self._pair(authority, PKI / "clientcert.pem", PKI / "clientkey.pem", ENGINE, engine)

    def _pair(
        self, authority: Authority, certificate: Path, key: Path, name: str, owner: Owner, server: bool = False
    ) -> tuple[bytes, bytes]:
        """Have a certificate and its key; both are made, or neither is."""
        if self.writer.at(certificate).exists() != self.writer.at(key).exists():
            raise RefusedError(f"of {certificate} and {key} one is missing: remove the other, and it is made anew")
        others = [self.settings.hypervisor.migrate_host.replace("{node}", name)] if server else []
        made = authority.issue(name, (), server=server, others=[other for other in others if other])
        return (
            self.writer.file(certificate, lambda: made[0], f"the certificate of {name}", owner=owner),
            self.writer.file(key, lambda: made[1], f"the key of {name}", mode=0o600, owner=owner),
        )

    def _read(self, path: Path) -> bytes:
        try:
            return self.writer.at(path).read_bytes()
        except OSError as error:
            raise RefusedError(f"{path}: {error.strerror}") from None

    def _give(self, nodes: Sequence[str], engine_line: str, authority: Authority | None) -> None:
        """Make a file for each node: with a key for the other nodes' agents, and whom to let in.

        It has a certificate of the authority, too, unless the platform needs none (None). Nodes of earlier times are
        among the others: two that are named one after the other know each other.
        """
        nodes = list(dict.fromkeys((*nodes, *self._earlier())))
        if not nodes:
            return
        self.writer.directory(NODES, 0o700)
        keys, tls = {}, {}
        for name in nodes:
            at = NODES / name
            self.writer.directory(at, 0o700)
            keys[name] = self.writer.file(at / "node_key", ssh_key, f"the key of {name} for other nodes", mode=0o600)
            tls[name] = self._tls(authority, name) if authority else {}
        peers = {name: _public(NODES / name / "node_key", key, f"root@{name}") for name, key in keys.items()}
        for name in nodes:
            lines = [f'restrict,command="{AGENT}" {engine_line}']
            lines += [f'restrict,command="{AGENT} --peer" {line}' for peer, line in peers.items() if peer != name]
            parcel = Parcel(
                node=name.encode(),
                node_key=keys[name],
                authorized_keys="".join(f"{line}\n" for line in lines).encode(),
                **tls[name],
            )
            self.writer.renewed(NODES / f"{name}.tar", parcel.packed(), f"what {name} is to be given", mode=0o600)
        some = f"{nodes[0]}.tar" if len(nodes) == 1 else f"{nodes[0]}.tar, ..."
        self.writer.later(
            f"bring {NODES}/{some} to each VM host by a way that keeps secrets (scp), and there say "
            "`rmsplugin setup node --from FILE`; remove the copy then"
        )

    def _tls(self, authority: Authority, name: str) -> dict[str, bytes]:
        """The parts of a node's file for its TLS."""
        at = NODES / name
        certificate, key = self._pair(authority, at / "cert.pem", at / "key.pem", name, Owner(), server=True)
        return {"cacert": authority.pem()[0], "servercert": certificate, "serverkey": key}

    def _earlier(self) -> list[str]:
        return sorted(path.parent.name for path in self.writer.at(NODES).glob("*/node_key"))

    def _known_hosts(self, nodes: Sequence[str]) -> None:
        path = self.settings.nodes.known_hosts
        place = self.writer.at(path)
        text = place.read_text() if place.is_file() else ""
        named = {name for line in text.splitlines() for name in line.split(" ")[0].split(",")}
        if missing := [name for name in nodes if name not in named]:
            self.writer.later(
                f"put the host keys of {', '.join(missing)} into {path}, a line `NODE ssh-ed25519 KEY` each: what "
                "/etc/ssh/ssh_host_ed25519_key.pub says there; on all hosts"
            )

    def _slurm_files(self) -> None:
        """Have site.lua and job_submit.lua, and say what slurm.conf lacks."""
        if self.slurm.unreachable:
            self.writer.later(
                f"start slurmctld, and run this again: {SITE_FILE} and the lines for slurm.conf are made of what it "
                f"says of its nodes ({self.slurm.unreachable})"
            )
            return
        bounds = {key: bound for key, (bound, _) in largest_requests(self.settings, self.slurm).items()}
        self.writer.file(Path(SITE_FILE), site_lua(self.settings, bounds).encode(), "the values of the site for Slurm")
        job_submit = Path(job_submit_path(self.slurm.config))
        if self.writer.at(_JOB_SUBMIT).is_file():
            self.writer.file(job_submit, self.writer.at(_JOB_SUBMIT).read_bytes(), "the module that Slurm loads")
        if lines := slurm_conf(self.settings, self.slurm):
            self.writer.later("\n    ".join(("put into slurm.conf, and restart slurmctld:", *lines)))


def _public(path: Path, private: bytes, comment: str) -> str:
    try:
        return ssh_public(private, comment)
    except ValueError:
        raise RefusedError(f"{path} is no SSH key without a passphrase") from None


def _kept(certificate: bytes, key: bytes, place: Path) -> Authority:
    try:
        return Authority.kept(certificate, key, _DAYS)
    except ValueError as error:
        raise RefusedError(f"{place} and the certificate beside it are not an authority: {error}") from None
