"""Slurm's commands as scripts that write down who starts them, and print a small cluster; for real managers."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rmsplugin.adapters.rms.slurm_text import JOB_FIELDS

_BEGIN = """#!/bin/sh
echo "$PPID $$ ${0##*/} $*" >>%(log)s
[ -e %(down)s ] && echo "Unable to contact slurm controller (connect failure)" >&2 && exit 1
"""
#: squeue that stays tells no job; another one tells those of the file, whose rows end with the token that it is told.
_SQUEUE = """case "$*" in
*--iterate*) while [ -e %(up)s ]; do echo; sleep 0.2; done ;;
*) for format; do :; done; token="${format##*,}"; sed "s/TOKEN/$token/" %(rows)s ;;
esac
"""
_SCONTROL = """tell() {
    case "$*" in
    *node*) cat %(nodes)s ;;
    *config*) cat %(config)s ;;
    *partition*) cat %(partitions)s ;;
    *reservation*) cat %(reservations)s ;;
    esac
}
if [ "$*" = "-a -o" ]; then while read -r line; do tell "$line"; done; else tell "$*"; fi
"""
_CONFIG = """PreemptMode = REQUEUE
SLURM_VERSION = 22.05.8
SlurmUser = root(0)
Licenses = vjobgate:1
"""
_PARTITION = "PartitionName={} State=UP Nodes={} PreemptMode=OFF PriorityTier=1 GraceTime=0\n"


class CountedSlurm:
    """What Slurm's commands print, and a list of all that were started."""

    def __init__(self, directory: Path, nodes: tuple[str, ...]) -> None:
        directory.mkdir()
        names = ("log", "down", "up", "rows", "nodes", "config", "partitions", "reservations")
        self._files = {name: directory / name for name in names}
        (self._files["up"]).touch()
        self._files["log"].touch()
        lines = (f"NodeName={each} CPUTot=2 RealMemory=2048 State=IDLE NodeAddr=127.0.0.1\n" for each in nodes)
        self._files["nodes"].write_text("".join(lines))
        self._files["config"].write_text(_CONFIG)
        all_nodes = ",".join(nodes)
        self._files["partitions"].write_text(
            _PARTITION.format("vjob", all_nodes) + _PARTITION.format("vmhosts", all_nodes)
        )
        self._files["reservations"].write_text(
            "ReservationName=rmsplugin_gate StartTime=1 EndTime=4000000000 Licenses=vjobgate:1 Users=root Flags=X\n"
        )
        self.has_jobs(7)

    def install(self, directory: Path) -> None:
        """Put the commands there."""
        for name, script in (("squeue", _SQUEUE), ("scontrol", _SCONTROL)):
            program = directory / name
            program.write_text((_BEGIN + script) % {name: str(path) for name, path in self._files.items()})
            program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def has_jobs(self, *jobs: int) -> None:
        """Have these pending jobs, in a partition without vjobs."""
        known = {"JobArrayID", "JobID", "ArrayJobID"}
        words = {"State": "PENDING", "Partition": "plain", "Name": "a job", "MinMemory": "96M", "ArrayTaskID": "N/A"}
        rows = []
        for job in jobs:
            values = (str(job) if word in known else words.get(word, "0") for word in JOB_FIELDS.values())
            rows.append("".join(f"{value}\x1f" for value in values).removesuffix("\x1f") + "\x1fTOKEN\n")
        new = self._files["rows"].with_suffix(".new")
        new.write_text("".join(rows))
        new.rename(self._files["rows"])

    def readings(self) -> Counter[int]:
        """By the process that has started them, how many times all jobs were asked for."""
        of_all = (words for words in self._started("squeue") if "-j" not in words and "--iterate" not in words[-1])
        return Counter(int(words[0]) for words in of_all)

    def processes(self) -> int:
        """How many were started."""
        return len(self._files["log"].read_text().splitlines())

    def staying(self) -> list[int]:
        """By whom each squeue that stays was started."""
        stay = (words for words in self._started("squeue") if "--iterate" in words[-1])
        return [int(words[0]) for words in stay if _is_squeue(words[1])]

    def _started(self, program: str) -> Iterator[list[str]]:
        """Who has started this program, its process, its name and its words."""
        lines = map(str.split, self._files["log"].read_text().splitlines())
        return (words for words in lines if len(words) > 3 and words[2] == program)

    def end(self) -> None:
        """Have all that stay end."""
        self._files["up"].unlink(missing_ok=True)


def _is_squeue(pid: str) -> bool:
    try:
        return b"squeue" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
