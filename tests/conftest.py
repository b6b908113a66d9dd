"""Settings of all tests."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import examples
import pytest
from e2e import common_templates
from hypothesis import settings
from order import is_one_of_many

# No test may fail because the machine is busy. All else is as Hypothesis has it, here and in CI.
settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")

RUN = Path("/run")

# What a shell starts in the background ignores interrupts, and so would all programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tests that sample what they could try have an option to try all of it."""
    parser.addoption(
        "--whole",
        action="store_true",
        help="try everything where tests take samples, e.g. silence of each neighbour from each call on (minutes)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tests of properties are told how many examples to try before they are read."""
    examples.whole = bool(config.getoption("--whole"))
    common_templates.begin_run()


def pytest_unconfigure() -> None:
    """What miniclusters of this run had in common goes with the run."""
    common_templates.end_run()


@pytest.fixture(autouse=True)
def pytests_directories_stay_closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test opens them to other users: another would pass after it, and fail alone (tests/others.py)."""
    yield
    base = tmp_path_factory.getbasetemp()
    assert stat.S_IMODE(base.stat().st_mode) == 0o700, f"{base} was opened: see open_directory of tests/others.py"


@pytest.fixture(autouse=True)
def nothing_stays_in_the_machines_run() -> Iterator[None]:
    """No test leaves files where the installed programs have theirs: it gives them a directory of its own."""
    before = set(RUN.glob("rmsplugin*"))
    yield
    assert set(RUN.glob("rmsplugin*")) <= before


@pytest.fixture(scope="session")
def whole(request: pytest.FixtureRequest) -> bool:
    """Whether to try everything instead of samples."""
    return bool(request.config.getoption("--whole"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """In the order of directories, which is that of all tests, two workers begin at the end (tests/order.py)."""
    if config.getvalue("dist") != "loadfile" or config.option.loadscopereorder:
        return None
    from order import FromBothEnds

    return FromBothEnds(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files begin first, from either end."""
    if is_one_of_many(config):
        from order import longest_outside

        by_file: dict[str, list[pytest.Item]] = {}
        for item in items:
            by_file.setdefault(os.path.relpath(item.path, Path(__file__).parent), []).append(item)
        items[:] = [item for file in longest_outside(list(by_file)) for item in by_file[file]]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where all tests run beside each other, those that have no cluster step back; only root can come forth again."""
    if is_one_of_many(item.config) and os.geteuid() == 0:
        from order import step_back

        step_back(item.get_closest_marker("e2e") is not None)
