"""`srun` where tasks do not divide evenly: VMs with three, two and two CPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from unit import guestbox

pytestmark = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")


@pytest.fixture(scope="module")
def box() -> Iterator[guestbox.Guestbox]:
    with guestbox.ready("busybox", 3, 3, 2, 2) as made:
        yield made


def run(box: guestbox.Guestbox, script: str, vm: int = 0) -> list[str]:
    """Lines (both streams) of a script of the user's that finds srun."""
    prelude = "exec 2>&1; PATH=/run/rmsplugin/bin:$PATH; unset SLURM_HOSTFILE; export SLURM_CPUS_ON_NODE=3;"
    return box.guests[vm].run(f"{prelude} {script}\n:", user=True).splitlines()


PLACED = "sh -c 'echo $SLURM_PROCID $SLURM_NODEID $SLURM_STEP_TASKS_PER_NODE $SLURM_CPUS_ON_NODE'"


@pytest.mark.parametrize(
    ("options", "nodes", "counts"),
    [
        ("", "0001122", "3,2(x2)"),
        ("-n 7", "0001122", "3,2(x2)"),
        ("-n 7 -m cyclic", "0120120", "3,2(x2)"),
        ("-N 2 -n 5", "00011", "3,2"),
        ("-N 1 -n 3", "000", "3"),
        ("-n 3 -c 2", "012", "1(x3)"),
        ("-N 1-2 -n 5", "00011", "3,2"),
        ("-n 1 -c 3", "0", "1"),
        ("-w vjob12-1 -N 1 -n 2", "00", "2"),
    ],
)
def test_each_vm_has_as_many_tasks_as_cpus(box: guestbox.Guestbox, options: str, nodes: str, counts: str) -> None:
    lines = sorted(run(box, f"srun {options} {PLACED}"))
    assert "".join(line.split()[1] for line in lines) == nodes
    assert {line.split()[2] for line in lines} == {counts}


@pytest.mark.parametrize("options", ["-n 8", "-w vjob12-1 -N 1 -n 3", "-n 2 -c 3", "-N 2 -n 6"])
def test_more_tasks_than_a_vm_has_cpus_are_refused(box: guestbox.Guestbox, options: str) -> None:
    said = run(box, f"srun {options} true; echo code $?")
    assert "More processors requested than permitted" in said[0] and said[-1] == "code 1"


def test_a_step_waits_for_the_cpus_of_a_smaller_vm(box: guestbox.Guestbox) -> None:
    on = "-w vjob12-1 -N 1 -n"
    script = (
        f"srun {on} 2 sh -c ': > /tmp/began; until [ -e /tmp/go ]; do sleep 0.1; done' & "
        f"until srun -Q --overlap {on} 1 test -e /tmp/began 2> /dev/null; do sleep 0.1; done; "
        f"srun -I {on} 1 true; echo code $?; srun --overlap {on} 1 touch /tmp/go; wait"
    )
    lines = run(box, script)
    assert "Requested nodes are busy" in "\n".join(lines) and lines[-1] == "code 1"


def test_tasks_are_told_the_cpus_of_their_node(box: guestbox.Guestbox) -> None:
    lines = sorted(run(box, f"srun -n 7 {PLACED}"))
    assert [line.split()[3] for line in lines] == ["3", "3", "3", "2", "2", "2", "2"]


def test_verbose_says_the_cpus_of_each_node(box: guestbox.Guestbox) -> None:
    for vm in range(3):
        assert run(box, "srun -v -n 1 true", vm)[0] == "srun: jobid 12: nodes(3):`vjob12-[0-2]', cpu counts: 3,2(x2)"
