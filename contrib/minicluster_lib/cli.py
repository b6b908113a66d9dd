"""Command line of ``contrib/minicluster``."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from minicluster_lib import guardian, hosts, podman, requirements, shared_nfs, teardown
from minicluster_lib.bringup import Progress, bring_up, refresh
from minicluster_lib.layout import MEMBER_VARIABLE, Cluster, MiniclusterError, RefusedError, default_directory
from minicluster_lib.state import daemon_states, describe

_EXAMPLES = """\
examples:
  contrib/minicluster up
  contrib/minicluster exec head --user alice -- sbatch -p vjob --wrap 'hostname; sleep 60'
  contrib/minicluster exec head -- squeue
  contrib/minicluster exec n1 -- virsh list
  contrib/minicluster exec n1                        # a shell on n1
  contrib/minicluster logs head -f
  contrib/minicluster kill head slurmctld            # SIGKILL; then: restart head slurmctld
  contrib/minicluster status --json
  contrib/minicluster down

HOST is head (front1 to Slurm), n1, n2, ..., and front2, ... where --fronts asks for more than the one on the head.
With --power-saving a node has a daemon bmc, too; its address is that of the node with 10.78 in place of 10.77:
  contrib/minicluster exec head -- ipmitool -I lanplus -C 3 -H 10.78.0.11 -U admin -f /etc/rmsplugin/bmc_password \
    chassis power status                             # of n1; or: on, off, soft

DAEMON is slurmctld, slurmdbd, mariadb, nfs, engine, slurmd (of front1) or munged on the head, slurmd, libvirtd, sshd or
munged on a node, slurmd or munged on another front. With --controllers 2 there are slurmctld and engine on front2, too,
and zookeeper on the head, front2 and n1. With --managers it is manager in the place of engine. With --shared nfs there
is an nfs on the last node, too, and on each controller nfs-controllers and nfs-ctld, its clients, unless its kernel is.
"""


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--dir",
        type=Path,
        default=default_directory(),
        help="directory of the minicluster (default: $RMSPLUGIN_MINICLUSTER_DIR or %(default)s)",
    )
    parser = argparse.ArgumentParser(
        prog="minicluster",
        description="A real Slurm, libvirt and QEMU cluster on one machine. Needs root and Debian.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    _add_up(commands.add_parser("up", parents=[common], help="make and start the cluster"))

    down = commands.add_parser("down", parents=[common], help="end the cluster, and remove its directory")
    down.add_argument("--keep-logs", action="store_true", help="leave DIR/log")

    status = commands.add_parser("status", parents=[common], help="hosts and daemons; exit status 0 when all run")
    status.add_argument("--json", action="store_true", help="as JSON")

    execute = commands.add_parser("exec", parents=[common], help="run a command on a host (default: a shell)")
    execute.add_argument("host", metavar="HOST")
    execute.add_argument("--user", default="root", help="root, alice, bob, slurm (default: root)")
    execute.add_argument("argv", nargs="*", metavar="-- COMMAND", help="with its arguments, after two dashes")

    logs = commands.add_parser("logs", parents=[common], help="show the logs of a host's daemons")
    logs.add_argument("host", metavar="HOST")
    logs.add_argument("daemon", metavar="DAEMON", nargs="?", help="only this daemon's")
    logs.add_argument("-f", "--follow", action="store_true", help="follow the logs as they grow")
    logs.add_argument("-n", "--lines", type=int, default=40, help="lines of each (default: %(default)s)")

    for name, text in (
        ("start", "start a daemon that has ended"),
        ("stop", "end a daemon with SIGTERM and wait for it"),
        ("restart", "stop and start a daemon"),
        ("kill", "signal a daemon; wait for its end if the signal is KILL"),
    ):
        one = commands.add_parser(name, parents=[common], help=text)
        one.add_argument("host", metavar="HOST")
        one.add_argument("daemon", metavar="DAEMON")
        if name == "kill":
            one.add_argument("--signal", default="KILL", help="name or number (default: %(default)s)")

    commands.add_parser(
        "refresh", parents=[common], help="copy lua/ and hooks/ of the repository anew, restart what uses them"
    )
    return parser


def _add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument("--nodes", type=int, default=3, help="number of nodes (default: %(default)s)")
    up.add_argument(
        "--fronts", type=int, default=1, help="number of fronts, which run the wrappers (default: %(default)s)"
    )
    up.add_argument(
        "--controllers",
        type=int,
        choices=[1, 2],
        default=1,
        help="hosts with slurmctld and an engine: the head, and front2, whose stand by (default: %(default)s)",
    )
    up.add_argument(
        "--shared",
        choices=["files", "nfs"],
        default="files",
        help="with --controllers 2: what the two share is in files of this machine, or comes by NFS from the last node "
        "(default: %(default)s)",
    )
    up.add_argument(
        "--managers",
        action="store_true",
        help="with --controllers 2: managers in the place of engines, and two groups of VM hosts, `left` (n1) and "
        "`right` (the others)",
    )
    up.add_argument(
        "--rooms", choices=["hold", "elastic"], default="hold", help="how nodes are borrowed (default: %(default)s)"
    )
    up.add_argument(
        "--room-idle-s",
        type=float,
        default=5.0,
        help="time after which an elastic room without VMs is given back (default: %(default)s)",
    )
    up.add_argument(
        "--demand-window-s",
        type=float,
        default=60.0,
        help="time for which a VM has to use less before its CPU demand falls (default: %(default)s)",
    )
    up.add_argument(
        "--grace-s",
        type=int,
        default=60,
        help="time that a room has once Slurm wants it back (default: %(default)s)",
    )
    up.add_argument("--cpus", type=int, default=2, help="CPUs of each node (default: %(default)s)")
    up.add_argument(
        "--memory", type=int, default=2048, metavar="MIB", help="memory of each node (default: %(default)s)"
    )
    up.add_argument("--cycle-s", type=float, default=2.0, help="period of the engine (default: %(default)s)")
    up.add_argument(
        "--watch-s", type=float, default=1.0, help="pause between its looks at Slurm's queue (default: %(default)s)"
    )
    up.add_argument(
        "--observed-memory",
        action="store_true",
        help="add a partition `shared`, whose VMs take the memory that they are seen to need",
    )
    up.add_argument(
        "--network-filter", default="", metavar="NAME", help="network.filter of the settings (default: rmsplugin's)"
    )
    up.add_argument(
        "--power-saving",
        action="store_true",
        help="give each node a BMC (ipmi_sim), and have it powered down and up by Slurm; with --rooms elastic "
        "the engine switches idle nodes off after some seconds",
    )
    up.add_argument(
        "--owner",
        type=int,
        metavar="PID",
        help="take the cluster down as soon as this process has ended, in whatever way",
    )
    up.add_argument(
        "--native",
        action="store_true",
        help="vjobs are plain jobs of Slurm (platform native): no VMs, and partitions `batch` and `urgent` on all "
        "nodes but the last, which is of `plain`",
    )
    up.add_argument(
        "--podman",
        action="store_true",
        help="vjobs are containers (platform podman): no libvirt and no NFS. Needs podman, runc and CRIU 4.2",
    )
    up.add_argument("--no-engine", action="store_true", help="do not start rmsplugin's engine")


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Keep two `up` or `down` of one directory apart. The lock goes with its holder, however that ends."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    path = directory.with_name(f".{directory.name}.lock")
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = os.path.samestat(os.fstat(file.fileno()), path.stat())  # the one before removes it in the end
        except (BlockingIOError, FileNotFoundError):
            is_held = False
        if not is_held:
            raise RefusedError(f"another up or down of {directory} is going on")
        yield
        path.unlink(missing_ok=True)


def _loaded(directory: Path) -> Cluster:
    cluster = Cluster.load(directory)
    if cluster is None or not cluster.init_pids:
        raise RefusedError(f"no minicluster is up in {directory}; start one with: minicluster up --dir {directory}")
    return cluster


def _up(arguments: argparse.Namespace, directory: Path) -> int:
    requirements.check(libvirt=not arguments.podman)
    if not 1 <= arguments.nodes <= 180 or arguments.cpus < 1 or arguments.memory < 256:
        raise RefusedError("a minicluster needs 1 to 180 nodes, a CPU and 256 MiB of memory in each")
    if not 1 <= arguments.fronts <= 50 or arguments.grace_s < 0 or arguments.room_idle_s < 0:
        raise RefusedError("a minicluster needs 1 to 50 fronts, and times of 0 s or more")
    if not 0 < arguments.demand_window_s <= 86400 * 7:
        raise RefusedError("--demand-window-s is more than 0 s, and 7 days at most")
    if arguments.managers:
        _check_managers(arguments)
    if arguments.shared == "nfs":
        _check_shared_nfs(arguments)
    if arguments.native:
        _check_native(arguments)
    if arguments.podman:
        _check_podman(arguments)
    progress = Progress()
    with _lock(directory):
        teardown.check_removable(directory)
        running = Cluster.load(directory)
        if (
            running is not None
            and running.ready
            and all(running.init_pids[h.name] in teardown.members(directory) for h in running.hosts)
        ):
            progress(f"a minicluster of {running.nodes} nodes is already up in {directory}")
            return 0
        teardown.check_ours(directory)
        if teardown.members(directory) or (directory / teardown.MARKER).exists():
            progress("removing what an earlier up left behind")
            teardown.end_processes(directory)
            teardown.remove_files(directory)
        cluster = Cluster(
            directory,
            nodes=arguments.nodes,
            fronts=0 if arguments.native else max(arguments.fronts, arguments.controllers),
            controllers=arguments.controllers,
            shared_nfs=arguments.shared == "nfs",
            managers=arguments.managers,
            rooms=arguments.rooms,
            room_idle_s=arguments.room_idle_s,
            demand_window_s=arguments.demand_window_s,
            grace_s=arguments.grace_s,
            cpus=arguments.cpus,
            memory_mib=arguments.memory,
            cycle_s=arguments.cycle_s,
            watch_s=arguments.watch_s,
            observed_memory=arguments.observed_memory,
            power_saving=arguments.power_saving,
            network_filter=arguments.network_filter,
            native=arguments.native,
            podman=arguments.podman,
            engine=not arguments.no_engine,
        )
        if arguments.owner is not None:
            guardian.start(directory, arguments.owner)
        # Inherited by every process that is started from here on, so that `down` finds it.
        os.environ[MEMBER_VARIABLE] = str(directory)
        bring_up(cluster, progress)
    progress(f"up: {describe(cluster)}")
    return 0


def _check_managers(arguments: argparse.Namespace) -> None:
    """Refuse one controller, and too few nodes."""
    if arguments.controllers != 2 or arguments.nodes < 2:
        raise RefusedError("--managers needs --controllers 2, and two nodes: one for each group")


def _check_shared_nfs(arguments: argparse.Namespace) -> None:
    """Refuse one controller, a file server of a host of the ensemble's, and one that is switched off."""
    if arguments.controllers != 2 or arguments.nodes < 2 or arguments.power_saving:
        raise RefusedError(
            "--shared nfs needs --controllers 2, and two nodes: the last one is the file server, so it is without "
            "--power-saving"
        )
    shared_nfs.check()


def _check_native(arguments: argparse.Namespace) -> None:
    """Refuse what is about VMs, and too few nodes."""
    if arguments.nodes < 2:
        raise RefusedError("a minicluster with --native needs 2 nodes: the last one is not of its native partitions")
    if arguments.controllers != 1 or arguments.power_saving or arguments.observed_memory or arguments.network_filter:
        raise RefusedError(
            "--native has no VMs: leave out --controllers, --power-saving, --observed-memory and --network-filter"
        )


def _check_podman(arguments: argparse.Namespace) -> None:
    """Refuse what containers have not, and a machine that cannot save them."""
    if arguments.native or arguments.observed_memory or arguments.network_filter not in ("", "nftables"):
        raise RefusedError("--podman is without --native, --observed-memory and another --network-filter than nftables")
    podman.check()


def _down(arguments: argparse.Namespace, directory: Path) -> int:
    requirements.check_root()
    with _lock(directory):
        teardown.check_removable(directory)
        count = teardown.end_processes(directory)
        existed = directory.exists()
        teardown.remove_files(directory, keep_logs=arguments.keep_logs)
    if count or existed:
        print(f"minicluster in {directory} is down: {count} processes ended, files removed", file=sys.stderr)
    else:
        print(f"no minicluster in {directory}", file=sys.stderr)
    return 0


def _status(arguments: argparse.Namespace, directory: Path) -> int:
    cluster = Cluster.load(directory)
    if cluster is None:
        if arguments.json:
            print(json.dumps({"directory": str(directory), "up": False, "hosts": {}}, indent=1))
        else:
            print(f"no minicluster in {directory}")
        return 3
    report = daemon_states(cluster)
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        print(f"minicluster in {directory}: {'up' if report['up'] else 'NOT completely up'}")
        for name, host in report["hosts"].items():
            how = "DOWN" if not host["up"] else "" if host["power"] == "on" else "without power"
            print(f"{name:5} {host['address']:12} {how}".rstrip())
            for daemon, state in host["daemons"].items():
                how = f"pid {state['pid']}" if state["pid"] else f"ENDED with status {state['status']}"
                print(f"      {daemon:12} {how}")
    return 0 if report["up"] else 1


def _exec(arguments: argparse.Namespace, directory: Path) -> int:
    requirements.check_root()
    cluster = _loaded(directory)
    words = arguments.argv or ["bash", "-i"]
    command = hosts.enter_command(cluster, cluster.host(arguments.host), words, user=arguments.user)
    sys.stdout.flush()
    os.execvp(command[0], command)


def _logs(arguments: argparse.Namespace, directory: Path) -> int:
    log_directory = directory / "log" / arguments.host
    names = sorted(path for path in log_directory.glob("*.log") if arguments.daemon in (None, path.stem))
    if not names:
        raise RefusedError(f"no logs of {arguments.daemon or arguments.host} in {log_directory}")
    command = ["tail", "-v", f"-n{arguments.lines}", *(["-F"] if arguments.follow else []), *map(str, names)]
    os.execvp(command[0], command)


def _daemon(arguments: argparse.Namespace, directory: Path) -> int:
    requirements.check_root()
    cluster = _loaded(directory)
    host = cluster.host(arguments.host)
    if arguments.command == "kill":
        number = _signal_number(arguments.signal)
        operation = "stop" if number == signal.SIGKILL else "signal"
        hosts.request(host, op=operation, name=arguments.daemon, signal=number)
    elif arguments.command == "stop":
        hosts.request(host, op="stop", name=arguments.daemon)
    else:
        hosts.request(host, op="restart" if arguments.command == "restart" else "start_again", name=arguments.daemon)
    return 0


def _signal_number(text: str) -> int:
    try:
        return int(text) if text.isdigit() else int(signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"])
    except KeyError:
        raise RefusedError(f"no signal {text!r}") from None


def _refresh(arguments: argparse.Namespace, directory: Path) -> int:
    requirements.check_root()
    refresh(_loaded(directory), Progress())
    return 0


_COMMANDS = {
    "up": _up,
    "down": _down,
    "status": _status,
    "exec": _exec,
    "logs": _logs,
    "start": _daemon,
    "stop": _daemon,
    "restart": _daemon,
    "kill": _daemon,
    "refresh": _refresh,
}


def main() -> int:
    """Run the command line; return the exit status."""
    words = sys.argv[1:]
    # All that follows the first "--" is exec's command, whatever it looks like.
    split = words.index("--") if "--" in words else len(words)
    arguments = _parser().parse_args(words[:split])
    if words[split + 1 :]:
        if arguments.command != "exec":
            _parser().error(f"{arguments.command} takes no command")
        arguments.argv += words[split + 1 :]
    directory = arguments.dir.absolute()
    try:
        return _COMMANDS[arguments.command](arguments, directory)
    except RefusedError as error:
        print(f"minicluster: {error}", file=sys.stderr)
        return 2
    except (MiniclusterError, subprocess.TimeoutExpired) as error:
        print(f"minicluster: {error}", file=sys.stderr)
        if arguments.command == "up":
            print(
                f"minicluster: the parts that are up are left for a look; the logs are in {directory}/log",
                file=sys.stderr,
            )
        return 1
    except BrokenPipeError:  # minicluster status | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
