"""The steps of the campaign: what an administrator and a user do, one after the other, and what has to be seen then."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from real_site import files, role, vjobs
from real_site.layout import CONTROLLER, FRONT, HOSTS, POOL, VM_HOSTS
from real_site.machine import Machine, StepError
from real_site.site import Site, at_once, wait_for, wait_for_rooms
from real_site.trouble import reboot, watchdog

_SERVICES = {
    CONTROLLER: ("munge", "mariadb", "slurmdbd", "slurmctld", "nfs-server", "rmsplugin-engine"),
    FRONT: ("munge", "slurmd"),
    **dict.fromkeys(VM_HOSTS, ("munge", "slurmd", "libvirtd", "libvirtd-tls.socket")),
}


def boot(site: Site) -> str:
    """All machines are up, no unit has failed, AppArmor is on."""
    said = []
    # Side by side, on busy CPUs, each was so slow that the own bounds of its daemons were over.
    for host in HOSTS:
        began = time.monotonic()
        site[host].start()
        site[host].wait_until_up(900)
        said.append(f"{host.name} {time.monotonic() - began:.0f} s")
    profiles = {host.name: _profiles(site[host]) for host in VM_HOSTS}
    return f"{', '.join(said)}; profiles of AppArmor that are enforced: {profiles}"


def _profiles(machine: Machine) -> int:
    found = re.search(r"(\d+) profiles are in enforce mode", machine.run("aa-enabled; aa-status"))
    if found is None or int(found[1]) == 0:
        raise StepError(f"{machine.host.name}: AppArmor enforces nothing")
    return int(found[1])


def slurm(site: Site) -> str:
    """A site as it is before: Slurm with accounting, homes, and a native job in its own cgroup."""
    site.on_all("useradd -u 2001 -M -d /home/alice -s /bin/bash alice")
    controller = site.controller
    controller.put("/etc/exports", files.EXPORTS)
    controller.run("install -d -o alice -g alice /home/alice; systemctl enable --now nfs-server", 300)
    others = (FRONT, *VM_HOSTS)
    line = f"{CONTROLLER.address}:/home /home nfs4 rw,_netdev 0 0"
    site.on_all(f"echo '{line}' >>/etc/fstab; systemctl daemon-reload; mount /home", others)
    at_once(lambda host: site[host].put("/etc/slurm/slurm.conf", files.slurm_conf(with_plugin=False)), HOSTS)
    at_once(lambda host: site[host].put("/etc/slurm/cgroup.conf", files.CGROUP_CONF), HOSTS)
    controller.put("/etc/slurm/slurmdbd.conf", files.SLURMDBD_CONF, "600", "slurm:slurm")
    controller.run(f"systemctl enable --now mariadb; mysql <<'END'\n{files.DATABASE}END\n", 600)
    controller.run("systemctl enable --now slurmdbd", 300)
    wait_for("slurmdbd", 300, lambda: _answers(controller, "sacctmgr -i add cluster site"))
    controller.run("sacctmgr -i add account users; sacctmgr -i add user alice account=users", 300)
    controller.run("sacctmgr -i add user slurm account=root; systemctl enable --now slurmctld", 300)
    site.on_all("systemctl enable --now slurmd", others)
    wait_for("all nodes idle", 300, lambda: _all_idle(controller))
    controller.run("runuser -u alice -- srun -p vjob -D /home/alice cat /proc/self/cgroup", 300)
    return controller.run("sinfo -a -N -h -o '%N %T %P'").replace("\n", "; ")


def _answers(machine: Machine, command: str) -> str | None:
    done = machine.ask(command)
    return done.stdout or "yes" if done.returncode == 0 else None


def _all_idle(machine: Machine) -> str | None:
    states = machine.ask("sinfo -a -N -h -o %T").stdout.split()
    return " ".join(states) if len(states) == 1 + len(VM_HOSTS) and set(states) == {"idle"} else None


_IMAGES = """\
install -d /var/lib/rmsplugin-images
cp /srv/site/images/* /var/lib/rmsplugin-images
echo '/var/lib/rmsplugin-images /var/lib/rmsplugin-images none bind,ro 0 0' >>/etc/fstab
systemctl daemon-reload
mount /var/lib/rmsplugin-images
"""


def install(site: Site) -> str:
    """The Ansible role installs the packages, brings the settings, and has each host set up."""
    changed = role.run(site, engine=False)
    start = "systemctl enable --now libvirtd-tls.socket; systemctl enable --now libvirtd libvirt-guests"
    site.on_all(f"{start}\n{_IMAGES}", VM_HOSTS)
    return f"{site.controller.run('rmsplugin --version').strip()}; tasks that have changed something: {changed}"


def set_up(site: Site) -> str:
    """What `rmsplugin setup` leaves to the administrator: host keys, slurm.conf, a firewall."""
    keys = "".join(f"{host.name} {_host_key(site[host])}\n" for host in VM_HOSTS)
    at_once(lambda host: site[host].put("/etc/rmsplugin/known_hosts", keys), HOSTS)
    at_once(lambda host: site[host].put("/etc/slurm/slurm.conf", files.slurm_conf(with_plugin=True)), HOSTS)
    site.controller.run("systemctl restart slurmctld", 300)
    site.on_all("systemctl restart slurmd", (FRONT, *VM_HOSTS))
    site.on_all(_CLOSE_PORTS, (CONTROLLER, *VM_HOSTS))
    said = site.controller.run("rmsplugin setup controller", 600)
    return "\n".join(["as said by setup:", *(f"    {line}" for line in said.splitlines())])


#: As docs/operator/networks.md has it: hosts' ports are closed to VMs.
_CLOSE_PORTS = f"""\
mkdir -p /etc/nftables.d
sed 's/^define rmsplugin_guests = .*/define rmsplugin_guests = {POOL}/' \\
    /usr/share/doc/rmsplugin-*/examples/rmsplugin-guests.nft >/etc/nftables.d/rmsplugin-guests.nft
echo 'include "/etc/nftables.d/rmsplugin-guests.nft"' >>/etc/nftables.conf
systemctl enable --now nftables
"""


def _host_key(machine: Machine) -> str:
    return " ".join(machine.run("cat /etc/ssh/ssh_host_ed25519_key.pub").split()[:2])


def again(site: Site) -> str:
    """The role a second time: it starts the engine, and changes nothing else."""
    changed = role.run(site)
    if changed != {host.name: int(host == CONTROLLER) for host in HOSTS}:
        raise StepError(f"tasks that have changed something: {changed}")
    return "the engine was started"


def check(site: Site) -> str:
    """The engine has a room on each VM host, and `rmsplugin check` finds no error."""
    wait_for_rooms(site)
    said = ""

    def in_order() -> str | None:
        nonlocal said
        done = site.controller.ask("rmsplugin check", 600)
        said = "\n".join(f"    {line}" for line in done.stdout.splitlines() if not line.startswith("ok"))
        return said if done.returncode == 0 else None

    try:
        return wait_for("a check without an error", 900, in_order)  # what emulation holds up too long is tried again
    except StepError as error:
        raise StepError(f"{error}\n{said}") from None


def vjob(site: Site) -> str:
    """A user's vjob runs in a VM, and writes into the user's home."""
    began = time.monotonic()
    site.job = vjobs.submit(site)
    took_s = time.monotonic() - began
    return f"job {site.job} on {vjobs.node(site, site.job)}, its first line {took_s:.0f} s after its submission"


def switch(site: Site) -> str:
    """The vjob is suspended, and resumed on the other VM host."""
    return vjobs.switch(site, site.job)


def migrate(site: Site) -> str:
    """The vjob is migrated back."""
    other, began = vjobs.other_node(site, site.job), time.monotonic()
    vjobs.migrate(site, site.job, other)
    return f"goes on on {other} after {time.monotonic() - began:.0f} s"


def healthy(site: Site) -> str:
    """Services run, no unit has failed, AppArmor and seccomp have refused nothing to what is ours."""
    for host, units in _SERVICES.items():
        site[host].run(f"systemctl is-active {' '.join(units)} || {{ systemctl --failed --no-pager; exit 1; }}")
        refused = site[host].ask("journalctl -k --no-pager -o cat | grep -E 'apparmor=\"DENIED\"|type=1326'").stdout
        if refused:
            raise StepError(f"{host.name}: was refused:\n{refused}")
    return "nothing was refused"


@dataclass(frozen=True)
class Step:
    """A step, and how long it may take."""

    run: Callable[[Site], str]
    bound_s: int

    @property
    def name(self) -> str:
        """As the command line has it."""
        return self.run.__name__.replace("_", "-")

    @property
    def what(self) -> str:
        """What it is about."""
        return " ".join((self.run.__doc__ or "").split())


STEPS = (
    Step(boot, 1800),
    Step(slurm, 1800),
    Step(install, 1800),
    Step(set_up, 1800),
    Step(again, 1800),
    Step(check, 1800),
    Step(vjob, 1800),
    Step(switch, 3600),
    Step(migrate, 1800),
    Step(watchdog, 3600),
    Step(reboot, 3600),
    Step(healthy, 600),
)
