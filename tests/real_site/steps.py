"""The steps of the campaign: what an administrator and a user do, one after the other, and what has to be seen then."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from real_site import files
from real_site.layout import CONTROLLER, FRONT, HOSTS, POOL, VM_HOSTS, Host
from real_site.machine import Machine, StepError

_DEBS = "/srv/site/debs"
_SERVICES = {
    CONTROLLER: ("munge", "mariadb", "slurmdbd", "slurmctld", "nfs-server", "rmsplugin-engine"),
    FRONT: ("munge", "slurmd"),
    **dict.fromkeys(VM_HOSTS, ("munge", "slurmd", "libvirtd", "libvirtd-tls.socket")),
}


@dataclass
class Site:
    """The machines, by what they are, and what later steps have to know of earlier ones."""

    machines: dict[Host, Machine]
    job: str = ""

    def __getitem__(self, host: Host) -> Machine:
        return self.machines[host]

    @property
    def controller(self) -> Machine:
        """Where the engine is."""
        return self.machines[CONTROLLER]

    def on_all(self, script: str, hosts: Sequence[Host] = HOSTS, timeout_s: float = 300) -> None:
        """Run a script on several."""
        at_once(lambda host: self.machines[host].run(script, timeout_s), hosts)


def at_once(act: Callable[[Host], object], hosts: Sequence[Host]) -> None:
    """Do something for several machines side by side.

    Raises:
        StepError: it fails for one.
    """
    with ThreadPoolExecutor(len(hosts)) as pool:
        for each in [pool.submit(act, host) for host in hosts]:
            each.result()


def wait_for(what: str, timeout_s: float, seen: Callable[[], str | None]) -> str:
    """Wait until something is seen.

    Args:
        what: is waited for.
        timeout_s: the bound.
        seen: returns what was seen, or None.

    Raises:
        StepError: it is not seen in time.
    """
    until = time.monotonic() + timeout_s
    while (found := seen()) is None:
        if time.monotonic() > until:
            raise StepError(f"{what}: not after {timeout_s:.0f} s")
        time.sleep(2)
    return found


def boot(site: Site) -> str:
    """All machines are up, no unit has failed, AppArmor is on."""
    began, said = time.monotonic(), []

    def start(host: Host) -> None:
        site[host].start()
        site[host].wait_until_up(1200)
        said.append(f"{host.name} {time.monotonic() - began:.0f} s")

    at_once(start, HOSTS)
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
    """apt-get installs the packages, and libvirt starts as Debian has it."""
    more = {CONTROLLER: ("controller",), FRONT: (), **dict.fromkeys(VM_HOSTS, ("node",))}

    def install_on(host: Host) -> None:
        names = " ".join(f"{_DEBS}/rmsplugin-{kind}_*.deb" for kind in ("common", *more[host]))
        site[host].run(f"DEBIAN_FRONTEND=noninteractive apt-get -q -y install {names}", 1700)
        site[host].put("/etc/rmsplugin/rmsplugin.toml", files.SETTINGS)

    at_once(install_on, HOSTS)
    site.on_all(f"systemctl enable --now libvirtd libvirt-guests\n{_IMAGES}", VM_HOSTS)
    return site.controller.run("rmsplugin --version").strip()


def set_up(site: Site) -> str:
    """`rmsplugin setup`, its files carried to the VM hosts, and what it leaves to the administrator."""
    said = site.controller.run("rmsplugin setup controller", 600)
    keys = "".join(f"{host.name} {_host_key(site[host])}\n" for host in VM_HOSTS)
    at_once(lambda host: site[host].put("/etc/rmsplugin/known_hosts", keys), HOSTS)
    for host in VM_HOSTS:
        site[host].put("/root/given.tar", site.controller.read(f"/etc/rmsplugin/nodes/{host.name}.tar"), "600")
        said += site[host].run("rmsplugin setup node --from given.tar; rm given.tar", 300)
    start = "systemctl stop libvirtd; systemctl enable --now libvirtd-tls.socket; systemctl start libvirtd"
    site.on_all(start, VM_HOSTS)
    said += site[FRONT].run("rmsplugin setup front", 300)
    at_once(lambda host: site[host].put("/etc/slurm/slurm.conf", files.slurm_conf(with_plugin=True)), HOSTS)
    site.controller.run("systemctl restart slurmctld; systemctl enable --now rmsplugin-engine", 300)
    site.on_all("systemctl restart slurmd", (FRONT, *VM_HOSTS))
    site.on_all(_CLOSE_PORTS, (CONTROLLER, *VM_HOSTS))
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


def check(site: Site) -> str:
    """The engine has a room on each VM host, and `rmsplugin check` finds no error."""
    wait_for("a room on each VM host", 600, lambda: _rooms(site.controller))
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


def _rooms(machine: Machine) -> str | None:
    said = machine.ask("rmsplugin nodes").stdout
    return said if said.count(" held") >= len(VM_HOSTS) else None


def vjob(site: Site) -> str:
    """A user's vjob runs in a VM, and writes into the user's home."""
    controller = site.controller
    controller.put("/home/alice/count.sh", _COUNT, "755", "alice:alice")
    site.job = controller.run("runuser -u alice -- sbatch --parsable -p vjob --mem=64 -D /home/alice count.sh").strip()
    began = time.monotonic()
    wait_for("the vjob's first line", 1200, lambda: _lines(site, 1))
    return f"job {site.job} on {_node(site)}, its first line {time.monotonic() - began:.0f} s after its submission"


#: Says a number a second, until it is told to end.
_COUNT = """\
#!/bin/bash
n=0
until [ -e end ]; do n=$((n + 1)); echo "$n"; sleep 1; done
echo over
"""


def _lines(site: Site, least: int) -> str | None:
    """The last line of the vjob's output, when it has so many."""
    done = site.controller.ask(f"cat /home/alice/slurm-{site.job}.out")
    lines = done.stdout.splitlines() if done.returncode == 0 else []  # else it is not there yet
    return lines[-1] if len(lines) >= least else None


def _count(site: Site) -> int:
    return len(site.controller.run(f"cat /home/alice/slurm-{site.job}.out").splitlines())


def _vjob(site: Site) -> dict[str, object]:
    (found,) = json.loads(site.controller.run("rmsplugin vjobs --json"))["vjobs"]
    return found


def _node(site: Site) -> str:
    return str(_vjob(site)["nodes"][0])


def _goes_on(site: Site) -> None:
    seen = _count(site)
    wait_for("the vjob goes on", 600, lambda: _lines(site, seen + 3))


def _other(site: Site) -> str:
    here = _node(site)
    return next(host.name for host in VM_HOSTS if host.name != here)


def switch(site: Site) -> str:
    """The vjob is suspended, and resumed on the other VM host."""
    controller, other = site.controller, _other(site)
    began = time.monotonic()
    controller.run(f"rmsplugin suspend {site.job}", 900)
    wait_for("the vjob sleeps", 900, lambda: "sleeping" if _vjob(site)["state"] == "sleeping" else None)
    slept = time.monotonic()
    controller.run(f"rmsplugin resume {site.job} --to {other}", 900)
    wait_for("the vjob runs there", 900, lambda: "runs" if _vjob(site)["state"] == "running" else None)
    _goes_on(site)
    return f"suspended in {slept - began:.0f} s; goes on on {_node(site)} {time.monotonic() - slept:.0f} s later"


def migrate(site: Site) -> str:
    """The vjob is migrated back."""
    other, began = _other(site), time.monotonic()
    site.controller.run(f"rmsplugin migrate {site.job} --to {other}", 900)
    wait_for("the vjob runs there", 900, lambda: other if _node(site) == other else None)
    _goes_on(site)
    return f"goes on on {other} after {time.monotonic() - began:.0f} s"


def reboot(site: Site) -> str:
    """The controller is booted anew while the vjob runs, which then ends with all that it has said."""
    controller = site.controller
    boot_id = controller.run("cat /proc/sys/kernel/random/boot_id")
    controller.ask("systemctl reboot")
    wait_for("the controller is another", 900, lambda: _is_anew(controller, boot_id))
    controller.wait_until_up(600)
    wait_for("a room on each VM host", 600, lambda: _rooms(controller))
    _goes_on(site)
    controller.run("runuser -u alice -- touch /home/alice/end")
    wait_for("the vjob's end", 900, lambda: _ended(site))
    said = controller.run(f"cat /home/alice/slurm-{site.job}.out").split()
    if said != [*map(str, range(1, len(said))), "over"]:
        raise StepError(f"lines are missing, or there twice: {' '.join(said)}")
    return f"the vjob has ended; {len(said) - 1} numbers, none twice, none missing"


def _is_anew(machine: Machine, boot_id: str) -> str | None:
    done = machine.ask("cat /proc/sys/kernel/random/boot_id", 60)
    return "yes" if done.returncode == 0 and done.stdout != boot_id else None


def _ended(site: Site) -> str | None:
    state = site.controller.ask(f"sacct -n -X -P -j {site.job} -o State").stdout.strip()
    if state not in ("", "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "COMPLETED"):
        raise StepError(f"the job has ended as {state}")
    return state if state == "COMPLETED" else None


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
    Step(check, 1800),
    Step(vjob, 1800),
    Step(switch, 3600),
    Step(migrate, 1800),
    Step(reboot, 3600),
    Step(healthy, 600),
)
