"""The figures of RR-7398 by our planner, beside better-fit: no more nodes, and no more migrations on as many."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import figures
from bench.measure import Report


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, str], tuple[int, int]]:
    report = Report(out=Path(tmp_path_factory.mktemp("figures")) / "results.jsonl")
    figures.run(report)
    return {(each["figure"], each["who"]): (each["after"], each["moved"]) for each in report.records}


@pytest.mark.parametrize("figure", figures.FIGURES)
def test_ours_needs_no_more_than_better_fit(figure: int, found: dict[tuple[int, str], tuple[int, int]]) -> None:
    assert found[figure, "ours"] <= found[figure, "better-fit"]


def test_better_fit_does_what_the_figures_show(found: dict[tuple[int, str], tuple[int, int]]) -> None:
    """Nodes afterwards, and workloads that moved: WL1; WL5; WL3 and WL4."""
    assert [found[figure, "better-fit"] for figure in (1, 2, 3)] == [(2, 1), (1, 1), (1, 2)]
