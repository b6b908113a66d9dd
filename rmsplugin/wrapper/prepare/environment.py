"""Environment of the script: the environment that the job would have had on its nodes, in terms of its VMs. Pure."""

from __future__ import annotations

import resource
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

from rmsplugin.model.vjob import Geometry
from rmsplugin.wrapper import TOOLS

HOSTFILE = "/run/rmsplugin/etc/hostfile"
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

# Variables that describe the batch host, where the script does not run.
_OF_THE_BATCH_HOST = (
    "SLURM_CPU_BIND",
    "SLURM_CPU_BIND_LIST",
    "SLURM_CPU_BIND_TYPE",
    "SLURM_CPU_BIND_VERBOSE",
    "SLURM_TASK_PID",  # set in the guest by run-script
    # Set anew, if at all.
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
)

# Variables that name the host on which the script runs.
_NAMES_OF_THE_HOST = ("HOSTNAME", "SLURM_TOPOLOGY_ADDR")

# Flag of a shell's ulimit, resource, bytes a unit. Address space and resident size are left out: Slurm derives those
# from the job's memory on its own side, which is the wrapper's and tiny.
_LIMITS = (
    ("t", resource.RLIMIT_CPU, 1),
    ("f", resource.RLIMIT_FSIZE, 512),
    ("d", resource.RLIMIT_DATA, 1024),
    ("s", resource.RLIMIT_STACK, 1024),
    ("c", resource.RLIMIT_CORE, 512),
    ("l", resource.RLIMIT_MEMLOCK, 1024),
    ("n", resource.RLIMIT_NOFILE, 1),
    ("p", resource.RLIMIT_NPROC, 1),
)


def script_environment(
    environ: Mapping[str, str],
    geometry: Geometry,
    vm_names: Sequence[str],
    *,
    user: str,
    home: str,
    hints: Collection[str] = (),
) -> dict[str, str]:
    """Return the environment of the script.

    Args:
        environ: slurmstepd's environment of the wrapper: the submission's environment and the job's variables.
        geometry: the geometry of the vjob.
        vm_names: the names of its VMs, the script's VM first.
        user: the owner of the job.
        home: the owner's home directory, if the environment does not name it.
        hints: parts of the wrapper's line; those that begin with ``x_`` tell how the geometry was asked for.
    """
    result = {name: value for name, value in environ.items() if name and name not in _OF_THE_BATCH_HOST}
    count = len(vm_names)
    node_list = _node_list(vm_names)
    result.update(
        {
            "PATH": f"{TOOLS}:{environ.get('PATH') or _DEFAULT_PATH}",
            "HOME": environ.get("HOME") or home,
            "USER": user,
            "LOGNAME": user,
            "RMSPLUGIN_HOSTFILE": HOSTFILE,
            "SLURM_JOB_NODELIST": node_list,
            "SLURM_NODELIST": node_list,
            "SLURM_JOB_NUM_NODES": str(count),
            "SLURM_NNODES": str(count),
            "SLURM_TASKS_PER_NODE": _tasks_per_node(environ, geometry, count),
            "SLURM_JOB_CPUS_PER_NODE": cpus_per_node(geometry),
            "SLURM_CPUS_ON_NODE": str(geometry.cpus),
            "SLURMD_NODENAME": vm_names[0],
        }
    )
    result.update({name: vm_names[0] for name in _NAMES_OF_THE_HOST if name in environ})
    # As Slurm does: memory in the unit of the request, and no number of tasks that nobody asked for.
    if "x_memory=per_cpu" in hints:
        result["SLURM_MEM_PER_CPU"] = str(geometry.memory_mib // geometry.cpus)
    else:
        result["SLURM_MEM_PER_NODE"] = str(geometry.memory_mib)
    if "x_ntasks=default" not in hints:
        result["SLURM_NTASKS"] = result["SLURM_NPROCS"] = str(geometry.ntasks)
    return result


def _tasks_per_node(environ: Mapping[str, str], geometry: Geometry, nodes: int) -> str:
    """The tasks of each node as Slurm tells them: with ``--ntasks-per-node`` so many of each, even if fewer."""
    word = environ.get("SLURM_NTASKS_PER_NODE", "")
    per_node = int(word) if word.isascii() and word.isdigit() else 0
    # The variable may belong to the job in which this one was submitted: then VMs have other CPUs.
    is_of_job = geometry.large == nodes and per_node == geometry.cpus // geometry.cpus_per_task
    if is_of_job and geometry.ntasks < per_node * nodes:
        return repeated(per_node, nodes)
    return tasks_per_node(geometry.ntasks, nodes)


def tasks_per_node(ntasks: int, nodes: int) -> str:
    """Spread tasks over nodes as Slurm does, and write the numbers in its form: ``2(x3),1``."""
    each, more = divmod(ntasks, nodes)
    parts = [repeated(each + 1, more), repeated(each, nodes - more)]
    return ",".join(part for part in parts if part)


def cpus_per_node(geometry: Geometry) -> str:
    """The CPUs of each VM, in Slurm's form: ``3(x2),2``."""
    parts = [repeated(geometry.cpus, geometry.large), repeated(geometry.small_cpus, geometry.vms - geometry.large)]
    return ",".join(part for part in parts if part)


def repeated(value: int, times: int) -> str:
    """Slurm's form of the same number for several nodes: ``4(x2)``; empty for none."""
    if value == 0 or times == 0:
        return ""
    return str(value) if times == 1 else f"{value}(x{times})"


def _node_list(names: Sequence[str]) -> str:
    stem, _, first = names[0].rpartition("-")
    last = len(names) - 1
    if last > 0 and list(names) == [f"{stem}-{index}" for index in range(len(names))]:
        return f"{stem}-[{first}-{last}]"
    return ",".join(names)


def environment_file(environment: Mapping[str, str]) -> bytes:
    """Shell script that puts NAME=VALUE words before the positional parameters; for ``env -i "$@"``.

    Words, not shell variables: a name that no shell would take for a variable (bash's exported functions) stays.
    """
    return _set_command([f"{name}={value}" for name, value in environment.items()], before='"$@"')


def arguments_file(arguments: Iterable[str]) -> bytes:
    """Shell script that sets the positional parameters."""
    return _set_command(arguments, before="")


def _set_command(words: Iterable[str], before: str) -> bytes:
    parts = ["set", "--", *(shlex.quote(word) for word in words), *([before] if before else [])]
    return " ".join(parts).encode("utf-8", "surrogateescape") + b"\n"


def limits_file() -> bytes:
    """This process's soft limits, a line ``FLAG VALUE`` each, as a shell's ulimit takes them."""
    lines = []
    for flag, number, unit in _LIMITS:
        soft, _ = resource.getrlimit(number)
        lines.append(f"{flag} {'unlimited' if soft == resource.RLIM_INFINITY else soft // unit}\n")
    return "".join(lines).encode()
