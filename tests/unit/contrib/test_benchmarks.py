"""The benchmarks run, on sizes so small that nothing is measured, and what they report agrees with itself."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path

import pytest
from bench import __main__ as command
from bench import measure, verify
from bench.families import vee09
from bench.measure import Report, aligned, gap, ratio
from bench.parts import PARTS, instead

from rmsplugin.model.elements import VM, Node
from rmsplugin.model.resources import Resources

#: Those that need a minicluster: e2e/benchmarks.py (run-campaign benchmarks).
LIVE = ("i", "l", "u", "v")


@pytest.mark.parametrize("letter", sorted({*command.BENCHMARKS} - {*LIVE}))
def test_each_benchmark_prints_a_table_and_a_ratio(
    letter: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if letter == "e":
        pytest.importorskip("pychoco", reason="the papers' solver: contrib/run-benchmarks installs it")
    prints_a_table_and_a_ratio(letter, capsys, tmp_path)


def prints_a_table_and_a_ratio(letter: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Run a benchmark on sizes so small that nothing is measured, and look at all that it says."""
    module = importlib.import_module(f"bench.{command.BENCHMARKS[letter]}")
    report = Report(out=tmp_path / "results.jsonl")
    module.run(module.SIZES["tiny"], report)
    printed = capsys.readouterr().out
    assert "-----" in printed and "RATIO  " in printed
    assert report.ratios and all(not math.isnan(value) for _, value in report.ratios)
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == json.loads(json.dumps(report.records))
    for record in report.records:
        _agrees_with_itself(record)


def _agrees_with_itself(record: dict) -> None:
    """No bound is above what was found, and no proof without both being equal."""
    for found, bound in (("cost", "lower_bound"), ("nodes_used", "nodes_lower_bound"), ("value", "bound")):
        if record.get(found) is not None and bound in record:
            assert record[bound] <= record[found], record
    if record.get("ffd_cost") is not None and record.get("objective") != "nodes":
        assert record["cost"] <= record["ffd_cost"], record
    if record.get("ffd_nodes_used") is not None and record.get("objective") != "cost":
        assert record["nodes_used"] <= record["ffd_nodes_used"], record
    if record.get("proven") and record.get("value") is not None:
        assert record["value"] == record["bound"], record
    seconds = [value for name, value in record.items() if name == "seconds" or name.endswith("_s")]
    assert seconds and all(value is None or value >= 0 for value in seconds)


def test_the_command_writes_what_it_measured_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    assert command.main(["f", "--tiny", "--out", str(out)]) == 0
    first, *others = out.read_text().splitlines()
    assert json.loads(first)["machine"]["cores"] == measure.machine()["cores"]
    assert others
    assert "machine: cpu" in capsys.readouterr().out


def test_the_command_refuses_what_is_no_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(["none"])
    assert stopped.value.code == 2
    assert "no benchmark 'none'" in capsys.readouterr().err


def test_a_table_is_aligned() -> None:
    assert aligned(["name", "n"], [["a", 10], ["long", 2.5]]) == "name    n\n----  ---\na      10\nlong  2.5"


@pytest.mark.parametrize(("value", "bound", "percent"), [(5, 5, 0), (110, 100, 10), (0, 0, 0), (3, 0, 100)])
def test_a_gap_is_in_percent_of_the_bound(value: float, bound: float, percent: float) -> None:
    assert gap(value, bound) == pytest.approx(percent)


def test_a_ratio_of_nothing_to_something_is_infinite() -> None:
    assert ratio(0, 1) == math.inf
    assert ratio(0, 0) == 1
    assert ratio(2, 1) == 0.5


def test_what_is_no_packing_is_refused() -> None:
    vms = [VM("a", Resources(1, 600)), VM("b", Resources(1, 600))]
    nodes = [Node("n1", Resources(2, 1000)), Node("n2", Resources(2, 1000))]
    verify.packing(vms, nodes, {"a": "n1", "b": "n2"}, 2)
    for assignment, nodes_used, wrong in (
        ({"a": "n1", "b": "n1"}, 1, "more is demanded"),
        ({"a": "n1"}, 1, "b has no node"),
        ({"a": "n1", "b": "n2"}, 1, "2 nodes are used"),
    ):
        with pytest.raises(verify.WrongAnswerError, match=wrong):
            verify.packing(vms, nodes, assignment, nodes_used)


def test_choco_finds_the_optimum_in_each_formulation() -> None:
    pytest.importorskip("pychoco", reason="the papers' solver: contrib/run-benchmarks installs it")
    from bench.choco_vmpp import FORMULATIONS, pack_on_choco

    configuration = vee09(12, 4, 1, nodes=12)
    vms = list(configuration.vm_by_name.values())
    found = [pack_on_choco(vms, configuration.nodes, 5.0, formulation) for formulation in FORMULATIONS]
    for packing in found:
        assert packing.assignment is not None
        verify.packing(vms, configuration.nodes, packing.assignment, packing.nodes_used)
    assert len({packing.nodes_used for packing in found}) == 1


@pytest.mark.parametrize("part", PARTS)
def test_what_is_put_in_the_place_of_a_part_is_there_for_all_who_call_it(part: str) -> None:
    """A function that another module has imported would go on working there."""
    planning = [module for name, module in list(sys.modules.items()) if name.startswith("rmsplugin.planning")]
    owners = {id(off.owner) for off in PARTS[part]}
    for off in PARTS[part]:
        now = getattr(off.owner, off.name)
        elsewhere = [
            each.__name__
            for each in planning
            if id(each) not in owners and getattr(each, off.name, None) is now and each.__name__ != now.__module__
        ]
        assert elsewhere == []
        with instead(PARTS[part]):
            assert getattr(off.owner, off.name) is off.instead
        assert getattr(off.owner, off.name) is now
