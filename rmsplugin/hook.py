"""Hook: the program that Slurm runs when a job starts and ends. It mostly tells the engine, and always exits 0.

A hook that fails has Slurm requeue the job or drain the node, which the plugin's own faults must never do. Every job of
the cluster passes here. So the hook uses the standard library only, and for a job that is no vjob and no room it
imports nothing but tomllib and a few constants. The hooks of rooms are in ``rmsplugin.room_hook``.
"""

from __future__ import annotations

import os
import re
import sys
import syslog
import time
import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmsplugin import defaults

if TYPE_CHECKING:
    from rmsplugin.client import EngineClient

#: The longest wait of one request of the prolog, so that a lost connection is noticed.
_WAIT_SLICE_S = 20.0
#: Pause before the engine is asked again when it was not reachable or does not know the job yet.
_RETRY_S = 0.5
#: The longest wait for the engine's answer about a native job, which needs nothing more to run: an engine that is down
#: must not keep it for long.
_NATIVE_WAIT_S = 30.0
#: The longest time that a hook without anything to wait for may cost a job.
_NOTICE_TIMEOUT_S = 5.0
#: The time for which the front's prolog tries to tell the user's account. Then the job runs with the controller's one.
_ACCOUNT_S = 15.0

_JOB_ID = re.compile(r"[0-9]{1,10}")


def main() -> int:
    """Run the hook named by the first argument; return 0 whatever happens."""
    try:
        name, *nodes = sys.argv[1:] or [""]
        if name in POWER_HOOKS and len(nodes) == 1:
            POWER_HOOKS[name](os.environ, nodes[0])
        elif name in HOOKS and not nodes:
            run(name, os.environ)
        else:
            raise ValueError(f"usage: rmsplugin-hook {'|'.join(sorted(HOOKS))}, or {'|'.join(POWER_HOOKS)} NODES")
    except Exception as error:  # Whatever the error: the job and the node must not suffer from it.
        _log(f"{sys.argv[1:]}: {error or type(error).__name__}")
    return 0


def run(name: str, environment: Mapping[str, str]) -> None:
    """Do what the hook ``name`` does for the job that Slurm describes in its environment."""
    path = environment.get("RMSPLUGIN_CONFIG") or defaults.CONFIG
    with open(path, "rb") as file:
        settings = tomllib.load(file)
    partition = environment.get("SLURM_JOB_PARTITION")
    vjob = partition in _table(settings, "slurm").get("partitions", [])
    if not vjob and not _is_room(settings, partition, environment.get("SLURM_JOB_USER")):
        return
    job_id = environment.get("SLURM_JOB_ID", "")
    if not _JOB_ID.fullmatch(job_id):
        raise ValueError(f"SLURM_JOB_ID is {job_id!r}")
    if vjob and name in _FOR_VMS and _is_native(settings):
        return
    if vjob:
        HOOKS[name](settings, job_id, environment)
    elif name in ("prolog", "epilog"):
        from rmsplugin import room_hook

        node = environment.get("SLURMD_NODENAME", "")
        room_hook.run(name, settings, job_id, node, _node_client(settings))


def _is_native(settings: Mapping[str, Any]) -> bool:
    """Whether vjobs are plain jobs, which run in no VM."""
    return _table(settings, "hypervisor").get("platform") == "native"


def _is_room(settings: Mapping[str, Any], partition: str | None, user: str | None) -> bool:
    """Whether the job is the engine's own in a hosts partition."""
    tables = _table(settings, "partition").values()
    hosts = {table.get("hosts") for table in tables if isinstance(table, dict)}
    return partition in hosts and user == _table(settings, "engine").get("user", defaults.USER)


def _prolog_slurmctld(settings: Mapping[str, Any], job_id: str, _: Mapping[str, str]) -> None:
    """Keep the job in CONFIGURING until its VMs are (nearly) up, so that this time is not taken from its time limit.

    If they are not up in time, the job starts all the same: its wrapper waits on, and runs nothing outside a VM. A job
    that the engine sends back is not waited for: Slurm would not clean it up before this hook has ended.

    A native job has nothing that comes up: the first answer lets it go on, and so does half a minute without one.
    """
    from rmsplugin.client import COMING
    from rmsplugin.errors import ForbiddenError, RmspluginError

    wait_s = float(_table(settings, "slurm").get("prolog_wait_s", defaults.PROLOG_WAIT_S))
    deadline = time.monotonic() + (min(wait_s, _NATIVE_WAIT_S) if _is_native(settings) else wait_s)
    starts = None
    while (left_s := deadline - time.monotonic()) > 0:
        wait_s = min(left_s, _WAIT_SLICE_S)
        state = ""
        try:
            # A new client each time: the engine may have gone to another host, or come to this one.
            client = _controller_client(settings)
            answer = client.request("POST", f"/v1/jobs/{job_id}/prolog?wait={wait_s:.0f}", timeout_s=wait_s + 5)
            state = answer.get("state", "")
        except ForbiddenError:
            raise  # asking again will not help
        except RmspluginError as error:
            problem = str(error)
        else:
            starts = answer.get("starts") if starts is None else starts
            if state not in COMING or answer.get("nearly_up") or answer.get("starts") != starts:
                return
            problem = f"its VMs are not up yet (vjob {state})"
        time.sleep(max(0.0, min(_RETRY_S, deadline - time.monotonic())))
    _log(f"job {job_id} starts and waits for its VMs: {problem}")


def _epilog_slurmctld(settings: Mapping[str, Any], job_id: str, _: Mapping[str, str]) -> None:
    _controller_client(settings).request("POST", f"/v1/jobs/{job_id}/epilog", timeout_s=_NOTICE_TIMEOUT_S)


def _prolog(settings: Mapping[str, Any], job_id: str, environment: Mapping[str, str]) -> None:
    """Tell the engine the account of the job's user on this front: name, groups, home. Only root is believed in that.

    The VMs are up. Where this host's name service agrees with the controller's, which is the rule, nothing changes in
    them. Where it does not, this waits until the VMs have the account, and the script starts after that.
    """
    from rmsplugin.accounts import look_up
    from rmsplugin.errors import ForbiddenError, RefusedError, RmspluginError

    client, uid = _node_client(settings), environment.get("SLURM_JOB_UID", "")
    if client is None or not _JOB_ID.fullmatch(uid):
        return
    facts = look_up(int(uid)).facts()
    deadline = time.monotonic() + _ACCOUNT_S
    while True:
        try:
            client.request("POST", f"/v1/jobs/{job_id}/account", facts, timeout_s=_ACCOUNT_S)
            return
        except (ForbiddenError, RefusedError):
            raise  # asking again will not help
        except RmspluginError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_S)


def _epilog(settings: Mapping[str, Any], job_id: str, _: Mapping[str, str]) -> None:
    """Tell the engine from the front too: the front may reach it when the controller is being restarted."""
    client = _node_client(settings)
    if client is not None:
        client.request("POST", f"/v1/jobs/{job_id}/epilog", timeout_s=_NOTICE_TIMEOUT_S)


def _resume_program(environment: Mapping[str, str], nodes: str) -> None:
    """Switch nodes on that Slurm needs."""
    from rmsplugin import power_hook

    for problem in power_hook.resume(environment.get("RMSPLUGIN_CONFIG") or defaults.CONFIG, nodes):
        _log(problem)


def _suspend_program(environment: Mapping[str, str], nodes: str) -> None:
    """Do nothing: the engine reads in Slurm that nodes are to go off, and switches them off when nothing is there."""


#: Programs of Slurm's power saving, which get a host list, and run for no job.
POWER_HOOKS = {"resume_program": _resume_program, "suspend_program": _suspend_program}

HOOKS = {
    "prolog_slurmctld": _prolog_slurmctld,
    "epilog_slurmctld": _epilog_slurmctld,
    "prolog": _prolog,
    "epilog": _epilog,
}

#: Hooks of the nodes that tell and do something of VMs only.
_FOR_VMS = ("prolog",)


def _controller_client(settings: Mapping[str, Any]) -> EngineClient:
    """A client on the host of slurmctld: over TCP if no engine listens on this host, as on a backup controller."""
    from rmsplugin.client import EngineClient

    path = _table(settings, "engine").get("socket", defaults.SOCKET)
    return (None if _listens(path) else _node_client(settings)) or EngineClient.unix(path)


def _listens(path: str) -> bool:
    """Whether a process takes connections at this socket."""
    import socket

    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_NOTICE_TIMEOUT_S)
        try:
            probe.connect(path)
        except TimeoutError:
            return True  # A full queue belongs to a process.
        except OSError:
            return False
    return True


def _node_client(settings: Mapping[str, Any]) -> EngineClient | None:
    """A client on a host of the cluster; None where the site has the engine listen on the controller only."""
    import pwd

    from rmsplugin.client import EngineClient

    engine = _table(settings, "engine")
    if not engine.get("url"):
        return None
    return EngineClient.tcp(engine["url"], pwd.getpwnam(engine.get("user", defaults.USER)).pw_uid)


def _table(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = settings.get(name, {})
    return table if isinstance(table, dict) else {}


def _log(message: str) -> None:
    # slurmctld and slurmd throw the output of their hooks away, unless the hook is run by hand.
    syslog.openlog("rmsplugin-hook", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_WARNING, message)
    print(f"rmsplugin-hook: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
