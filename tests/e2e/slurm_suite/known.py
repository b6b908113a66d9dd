"""Why tests of the suite differ, in words of our own: a test that differs and is not here makes the campaign fail."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: Mapping[str, str] = {
    "2.7": "scontrol pidinfo is refused in a VM, as the user guide says; the test has that in a file, not in its log",
    "7.19": (
        "the test waits 20 s for sbatch --wait, and a VM starts meanwhile; the cases exit/wait and "
        "commands/sbatch-wait are the same in both"
    ),
    "17.44": (
        "the test reads an output as soon as its file exists, and a script in a VM begins a second after Slurm has "
        "made it; the case queue/aftercorr has what it is about, the same in both"
    ),
    "28.10": (
        "the engine starts each further element within 2 s of a raised limit, but without KVM VMs take longer to start "
        "than the test waits (60 s for three, one after the other)"
    ),
}

#: Of these, those that a machine on which VMs start faster may pass.
BY_TIME = frozenset({"7.19", "17.44", "28.10"})
