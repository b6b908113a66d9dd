"""Durations: the duration of each action on a VM by itself. Only here are the defaults of section [durations].

They follow RR-6929, section 2.3 and figure 3: a run takes about 6 s and a stop 25 s whatever the VM; the others depend
on the memory (of 2 GiB: a migration 26 s, a suspend or local resume a minute and a half), and a remote resume takes
twice as long as a local one. A pause, and its end, move no memory at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: By key of the settings; ``NAME_s`` is a constant, ``NAME_s_per_mib`` grows with the memory of the VM.
DEFAULTS: Mapping[str, float] = MappingProxyType(
    {
        "run_s": 6.0,
        "stop_s": 25.0,
        "migrate_s": 2.0,
        "migrate_s_per_mib": 0.0117,
        "suspend_s": 10.0,
        "suspend_s_per_mib": 0.039,
        "resume_s": 10.0,
        "resume_s_per_mib": 0.039,
        "remote_resume_s": 20.0,
        "remote_resume_s_per_mib": 0.078,
        "pipeline_s": 1.0,
        "pause_s": 0.1,
        "unpause_s": 0.1,
    }
)

#: Those of plain jobs that differ. On Slurm 22.05 a job was seen to run half a second after its gate was opened, and
#: its processes to stand still 2 s after ``scontrol suspend`` (SIGTSTP, and SIGSTOP 2 s later). The times of its end,
#: and until it goes on, are assumptions.
NATIVE_DURATIONS: Mapping[str, float] = MappingProxyType(
    {"run_s": 0.5, "stop_s": 0.5, "pause_s": 2.0, "unpause_s": 0.1}
)


def names() -> tuple[str, ...]:
    """The names of the actions in the keys: run, stop, migrate, ... in the order of the section."""
    return tuple(key.removesuffix("_s") for key in DEFAULTS if not key.endswith("_per_mib"))


def growing() -> frozenset[str]:
    """Those of ``names`` whose durations depend on the memory of the VM."""
    return frozenset(key.removesuffix("_s_per_mib") for key in DEFAULTS if key.endswith("_per_mib"))
