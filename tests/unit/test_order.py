"""The order in which workers take test files (tests/order.py): seen on the scheduler of xdist that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from order import FROM_BACK, LONGEST, LONGEST_ALONE, NICE, FromBothEnds, longest_outside

TESTS = Path(__file__).resolve().parents[1]
FILES = ("a.py", "b.py", "c.py", "d.py", "e.py", "f.py", "g.py")


class Worker:
    """What a scheduler knows of a worker."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.sent: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def config(workers: int) -> Any:
    values = {"tx": ["popen"] * workers}
    return SimpleNamespace(getvalue=values.__getitem__, option=SimpleNamespace(loadscopereorder=False))


def test_the_last_workers_begin_at_the_end_and_all_files_run_once() -> None:
    workers = [Worker(f"gw{number}") for number in range(2 + FROM_BACK)]
    scheduler = FromBothEnds(config(len(workers)))
    tests = [f"{file}::test_{number}" for file in FILES for number in range(3)]
    for worker in workers:
        scheduler.add_node(worker)
    for worker in workers:
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    files = [[tests[index].partition("::")[0] for index in worker.sent[::3]] for worker in workers]
    assert files == [["a.py"], ["b.py"], ["g.py"], ["f.py"]]
    while any(worker.sent for worker in workers):
        for worker, has in zip(workers, files, strict=True):
            sent, worker.sent = worker.sent, []
            for index in sent:
                scheduler.mark_test_complete(worker, index)
            has += [tests[index].partition("::")[0] for index in worker.sent[::3]]
    assert scheduler.tests_finished
    assert sorted(chain(*files)) == list(FILES)
    assert [each for each in files[2:] if each != sorted(each, reverse=True)] == []
    assert [each for each in files[:2] if each != sorted(each)] == []


def test_the_longest_files_are_outside_and_the_others_stay_in_their_order() -> None:
    mixed = ["a.py", LONGEST[1], LONGEST_ALONE[-1], "z.py", LONGEST[0], LONGEST_ALONE[-2], "b.py"]
    assert longest_outside(mixed) == [*LONGEST[:2], "a.py", "z.py", "b.py", *LONGEST_ALONE[-2:]]
    assert [name for name in (*LONGEST, *LONGEST_ALONE) if not (TESTS / name).is_file()] == []


def test_a_worker_steps_back_for_clusters_and_comes_forth_for_its_own() -> None:
    program = (
        "import os, order; first = os.getpriority(0, 0); order.step_back(False); back = os.getpriority(0, 0);"
        "print(first, back); os.geteuid() or (order.step_back(True), print(os.getpriority(0, 0) == first))"
    )
    surroundings = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=surroundings, check=True)
    levels, *rest = done.stdout.splitlines()
    first, back = map(int, levels.split())
    assert back == min(first + NICE, 19)
    assert rest == ([] if os.geteuid() else ["True"])
