"""Slurm request: reads what a job asks for, on each of its nodes, as ``scontrol show job`` prints it. Pure.

Users' free texts (the names of job and script, comments) stand in the same answer, and may have lines that look like
Slurm's own. So where two lines of a kind differ, none is believed.
"""

from __future__ import annotations

import re

from rmsplugin.adapters.rms.slurm_text import memory_mib
from rmsplugin.errors import RefusedError
from rmsplugin.model.constraints import Constraints
from rmsplugin.model.vjob import Geometry

_NONE = ("", "(null)")
_HOSTS = re.compile(r"^   ReqNodeList=(\S+) ExcNodeList=(\S+)$", re.MULTILINE)
_SIZE = re.compile(r"^   NumNodes=(\S+) NumCPUs=(\d+) NumTasks=(\S+) CPUs/Task=(\S+) ReqB", re.MULTILINE)
_MEMORY = re.compile(r"^   MinCPUsNode=\d+ MinMemory(Node|CPU)=(\S+) MinTmpDiskNode=", re.MULTILINE)
_SHARING = re.compile(r"^   OverSubscribe=(\S+) Contiguous=", re.MULTILINE)
_FEATURES = re.compile(r"^   Features=(\S+) DelayBoot=", re.MULTILINE)


def geometry(text: str) -> Geometry:
    """Read ``scontrol show job``: one VM stands for the job's part on each of its nodes.

    Of an array that is not split off each element is printed; they ask for the same.

    Raises:
        RefusedError: it is not known what the job has on each of its nodes; the words are for its user.
    """
    if _only(_SHARING, text, "OverSubscribe") == ("NO",):
        raise RefusedError(
            "it takes whole nodes (--exclusive), whatever it asks for there: submit it again without that"
        )
    range_, cpus, tasks, per_task = _only(_SIZE, text, "NumNodes")
    nodes = _number_of_nodes(range_)
    in_all = int(cpus)
    if nodes < 1 or in_all % nodes:
        raise RefusedError(f"its {cpus} CPUs are not the same number on each of its {nodes} nodes")
    memory = _memory_of_node(text, in_all // nodes)
    named, excluded = (_word(each) for each in _only(_HOSTS, text, "ReqNodeList"))
    (features,) = _only(_FEATURES, text, "Features")
    try:
        return Geometry(
            vms=nodes,
            cpus=in_all // nodes,
            memory_mib=memory,
            ntasks=max(1, _number(tasks)),
            cpus_per_task=max(1, _number(per_task)),
            constraints=Constraints.parse(features=_word(features), nodes=named, exclude=excluded),
        )
    except ValueError as error:
        raise RefusedError(f"what it asks for cannot be read: {error}") from None


def _only(kind: re.Pattern[str], text: str, word: str) -> tuple[str, ...]:
    """The values of the lines of this kind, all of which have to be alike."""
    found = {tuple(match.groups()) for match in kind.finditer(text)}
    if len(found) != 1:
        said = "nothing" if not found else "two things"
        raise RefusedError(f"Slurm says {said} of its {word}: does its name or a comment have lines of its own?")
    return found.pop()


def _number_of_nodes(text: str) -> int:
    least, _, most = text.partition("-")
    if most and least != most:
        raise RefusedError(f"it asks for {text} nodes, and not for one number: submit it again to this partition")
    return _number(least)


def _memory_of_node(text: str, cpus: int) -> int:
    each, said = _only(_MEMORY, text, "MinMemory")
    mib = memory_mib(said) * (cpus if each == "CPU" else 1)
    if mib < 1:
        raise RefusedError("it asks for no memory, which is all memory of its nodes: submit it again with --mem")
    return mib


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _word(text: str) -> str:
    return "" if text in _NONE else text
