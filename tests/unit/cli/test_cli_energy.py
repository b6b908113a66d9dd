"""`rmsplugin simulate --energy` and `rmsplugin compare --energy` as users run them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of
from unit.simulation.test_workload import line

from rmsplugin.cli.main import main
from rmsplugin.cli.shared.energy_file import read_energy
from rmsplugin.energy.daily import Daily
from rmsplugin.energy.power import PowerClass
from rmsplugin.errors import WorkloadError

#: From 23:00 on, by its header; node n2 idles for 5,000 s.
TRACE = "; UnixStartTime: 82800\n" + "".join(
    f"{line(job_id=number, submit_s=submit_s, run_s=600, allocated_processors=size, requested_s=600)}\n"
    for number, submit_s, size in ((1, 0, 4), (2, 600, 2), (3, 5600, 4))
)
CLUSTER = ("--workload", "t.swf", "--nodes", "2", "--cpus-per-node", "2", "--memory-per-node", "4096")

ENERGY: dict[str, Any] = {
    "classes": [
        {
            "nodes": "*",
            "idle_w": 120,
            "busy_w": 300,
            "off_w": 8,
            "transition_w": 150,
            "off_s": 30,
            "on_s": 120,
        }
    ],
    "predict": 0.5,
}

TOML = """
reserve = 0
co2_file = "co2.csv"

[[classes]]
nodes = ["n1"]
idle_w = 100
busy_w = 200
off_w = 5
transition_w = 120
off_s = 10
on_s = 60
least_on_s = 300
least_off_s = 60
cycles_a_day = 4

[[classes]]
nodes = "*"
idle_w = 120
busy_w = 300
off_w = 8
transition_w = 150
off_s = 30
on_s = 120

[[tariff]]
begin = "06:00"
price = 0.3

[[tariff]]
begin = "22:00"
price = 0.2
"""


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own for each test, with a trace and what its nodes take."""
    monkeypatch.chdir(tmp_path)
    Path("t.swf").write_text(TRACE)
    Path("e.json").write_text(json.dumps(ENERGY))
    Path("e.toml").write_text(TOML)
    Path("co2.csv").write_text("# g/kWh\n00:00,400\n12:00,200\n")


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command in this process: status, standard output, standard error."""
    try:
        status = main(list(words))
    except SystemExit as error:
        status = int(str(error.code))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return status, out, err


def energy(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    status, out, err = call(capsys, "simulate", *CLUSTER, "--json", *words)
    assert (status, err) == (0, "")
    found: dict[str, Any] = answer_of(out)["energy"]
    return found


def test_a_simulation_tells_energy_with_nodes_switched_all_on_and_by_an_oracle(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = energy(capsys, "--policy", "fcfs", "--energy", "e.json")
    assert found["kwh_oracle"] < found["kwh"] < found["kwh_all_on"]
    # Job 3 waits for both nodes. Busy: 600 s with 4 CPUs, with 2, with 4.
    assert (found["switched_off"], found["delayed"], found["delayed_s_mean"]) == (2, 1, 40.0)
    assert found["completion_s_mean"] == pytest.approx(640)
    assert found["completion_s_mean_all_on"] == 600
    makespan_s = 5600 + 120 + 600
    assert found["kwh_all_on"] == pytest.approx((2 * 120 * makespan_s + 90 * 600 * (4 + 2 + 4)) / 3.6e6)
    assert 0.9 < found["saved_of_oracle"] < 1
    assert "cost" not in found and "co2_kg" not in found


def test_cost_and_co2_go_by_the_time_of_day_of_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    found = energy(capsys, "--policy", "rjsp", "--energy", "e.toml")
    assert found["cost_all_on"] == pytest.approx(0.2 * found["kwh_all_on"], rel=1e-5)
    # An hour with 200 g, in which more is computed, and three quarters of one with 400 g.
    assert 0.25 < found["co2_kg_all_on"] / found["kwh_all_on"] < 0.3


@pytest.mark.parametrize("began", ["9" * 5000, "0" * 5000, "-1", "noon"])
def test_a_trace_whose_begin_is_no_time_begins_at_midnight(began: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--policy", "fcfs", "--energy", "e.toml")
    Path("t.swf").write_text(TRACE.replace("82800", "0"))
    at_midnight = energy(capsys, *words)
    Path("t.swf").write_text(TRACE.replace("82800", began))
    assert energy(capsys, *words) == at_midnight


def test_a_person_reads_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", "--energy", "e.toml")
    assert status == 0
    lines = out.splitlines()
    at = next(number for number, text in enumerate(lines) if text.startswith("NODES"))
    assert lines[at].split() == ["NODES", "KWH", "COST", "CO2_KG", "COMPLETION"]
    assert [text.split()[0] for text in lines[at + 1 : at + 4]] == ["switched", "all", "by"]
    assert "of what an oracle saves; 1 start waited for nodes, for 2:00 on average" in lines[at + 4]
    assert "KWH" not in call(capsys, "simulate", *CLUSTER, "--policy", "fcfs")[1]


#: Job 1 ends, and jobs 2 and 3 run on for long, each on a node of its own that both would fit on.
SPREAD = "; UnixStartTime: 82800\n" + "".join(
    f"{line(job_id=number, submit_s=0, run_s=run_s, allocated_processors=size, requested_s=run_s)}\n"
    for number, run_s, size in ((1, 3000, 1), (2, 9000, 1), (3, 9000, 1))
)


def test_an_emptied_node_saves_energy_beside_none_that_is_emptied(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.swf").write_text(SPREAD)
    Path("u.json").write_text(json.dumps({**ENERGY, "underload": 0.5}))
    found = energy(capsys, "--policy", "rjsp", "--energy", "u.json")
    without = energy(capsys, "--policy", "rjsp", "--energy", "e.json")
    assert (found["emptied"], without["emptied"]) == (1, 0)
    assert found["kwh"] < found["kwh_not_emptied"] == without["kwh"]
    assert found["completion_s_mean_not_emptied"] == pytest.approx(without["completion_s_mean"])
    assert "kwh_not_emptied" not in without
    _, out, _ = call(capsys, "simulate", *CLUSTER, "--policy", "rjsp", "--energy", "u.json")
    assert "none emptied" in out
    assert "nodes were emptied 1 time, so that they could be switched off" in out


def test_a_policy_that_moves_nothing_empties_no_node(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.swf").write_text(SPREAD)
    Path("u.json").write_text(json.dumps({**ENERGY, "underload": 0.5}))
    found = energy(capsys, "--policy", "easy", "--energy", "u.json")
    assert found == energy(capsys, "--policy", "easy", "--energy", "e.json")


def test_policies_are_compared_by_their_energy(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", *CLUSTER, "--policies", "fcfs,rjsp", "--processes", "1", "--energy", "e.json")
    status, out, err = call(capsys, *words)
    assert (status, err) == (0, "")
    assert out.splitlines()[0].split()[-6:] == ["COMPL-ON", "KWH", "KWH-ON", "KWH-ORACLE", "OFF", "EMPTIED"]
    rows = list(csv.DictReader(io.StringIO(call(capsys, *words, "--csv")[1])))
    told = answer_of(call(capsys, *words, "--json")[1])["policies"]
    assert [float(row["kwh"]) for row in rows] == [each["energy"]["kwh"] for each in told]
    assert told[0]["energy"] == energy(capsys, "--policy", "fcfs", "--energy", "e.json")


def test_toml_and_json_say_the_same() -> None:
    nodes = ["n1", "n2"]
    Path("same.json").write_text(json.dumps({**ENERGY, "reserve": 1}))
    fields = "\n".join(f"{key} = {json.dumps(value)}" for key, value in ENERGY["classes"][0].items())
    Path("same.toml").write_text(f"predict = 0.5\nreserve = 1\n[[classes]]\n{fields}\n")
    assert read_energy("same.json", nodes) == read_energy("same.toml", nodes)


def test_the_first_class_that_names_a_node_is_its_class() -> None:
    found = read_energy("e.toml", ["n1", "n2"])
    assert found.classes["n1"] == PowerClass(100, 200, 5, 120, 10, 60, 300, 60, 4)
    assert found.classes["n2"] == PowerClass(120, 300, 8, 150, 30, 120)
    assert found.price == Daily([(0.0, 0.2), (21_600.0, 0.3), (79_200.0, 0.2)])
    assert found.co2 == Daily([(0.0, 400.0), (43_200.0, 200.0)])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "no JSON"),
        ("a = ", "no TOML"),
        ("", "classes: Field required"),
        (TOML.replace("idle_w = 100", "idle_w = -1"), "classes.0.idle_w"),
        (TOML.replace("idle_w = 100", "idle_w = nan"), "classes.0.idle_w"),
        (TOML.replace("busy_w = 200", "busy_w = 50"), "idle_w at most busy_w"),
        (TOML.replace("off_s = 10", "of_s = 10"), "classes.0.off_s: Field required"),
        (TOML.replace("reserve = 0", "reserves = 0"), "reserves: Extra inputs are not permitted"),
        (TOML.replace('"*"', '["n1"]'), "no class has node n2"),
        (TOML.replace('["n1"]', '["n7"]'), "classes.0.nodes: there is no node 'n7'; they are n1 to n2"),
        (TOML.replace('["n1"]', '["n[1-"]'), "classes.0.nodes"),
        (TOML.replace("06:00", "24:00"), "tariff.0.begin"),
        (TOML.replace("22:00", "06:00"), "tariff: has two values from 06:00 on"),
        (TOML.replace("co2.csv", "none.csv"), "none.csv: No such file"),
        (TOML.replace("co2.csv", ""), "co2_file: String should have at least 1 character"),
        (TOML.replace("reserve = 0", "reserve = true"), "reserve: Input should be a valid integer"),
        (TOML.replace("idle_w = 100", "idle_w = true"), "classes.0.idle_w: Input should be a valid number"),
        (TOML.replace("idle_w = 100", 'idle_w = "100"'), "classes.0.idle_w: Input should be a valid number"),
        (TOML.replace("reserve = 0", "predict = 1.5"), "predict"),
        (TOML.replace("reserve = 0", "late_at_most = 0"), "late_at_most: Input should be greater than 0"),
        (TOML.replace("reserve = 0", "underload = 0"), "underload: Input should be greater than 0"),
        (TOML.replace("reserve = 0", "underload = 20"), "underload: Input should be less than or equal to 1"),
        (TOML.replace("reserve = 0", "repaid_s = 0"), "repaid_s"),
    ],
)
def test_each_fault_of_the_file_is_status_2(capsys: pytest.CaptureFixture[str], text: str, complaint: str) -> None:
    Path("bad").write_text(text)
    status, out, err = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", "--energy", "bad")
    assert (status, out) == (2, "")
    assert complaint in err


@pytest.mark.parametrize("text", ["", "25:00,1", "01:00", "01:00,-4", "01:00,x"])
def test_each_fault_of_the_co2_file_is_told(text: str) -> None:
    Path("co2.csv").write_text(text)
    with pytest.raises(WorkloadError, match=r"co2\.csv: (line 1|has no line)"):
        read_energy("e.toml", ["n1", "n2"])


def test_no_time_of_day_has_two_amounts_of_co2() -> None:
    Path("co2.csv").write_text("06:00,310\n07:00,1\n06:00,300\n")
    with pytest.raises(WorkloadError, match=r"co2\.csv: has two values from 06:00 on"):
        read_energy("e.toml", ["n1", "n2"])


def test_a_mark_of_the_encoding_at_the_beginning_of_a_file_is_no_part_of_it() -> None:
    before = read_energy("e.toml", ["n1", "n2"])
    for name in ("e.toml", "co2.csv"):
        Path(name).write_bytes(b"\xef\xbb\xbf" + Path(name).read_bytes())
    assert read_energy("e.toml", ["n1", "n2"]) == before


def test_a_co2_file_that_is_called_as_standard_input_is_a_file() -> None:
    Path("named").write_text(TOML.replace("co2.csv", "-"))
    Path("-").write_text("00:00,7\n")
    assert read_energy("named", ["n1", "n2"]).co2 == Daily([(0.0, 7.0)])


def test_energy_needs_nodes_with_memory(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("simulate", *CLUSTER[:-2], "--policy", "easy", "--energy", "e.json")
    status, _, err = call(capsys, *words)
    assert status == 2
    assert "--energy needs --memory-per-node" in err


def test_a_page_of_a_comparison_has_the_energy_of_each_policy(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", *CLUSTER, "--policies", "fcfs,easy", "--energy", "e.toml", "--processes", "1")
    status, out, err = call(capsys, *words, "--json", "--html", "page.html")
    assert (status, err) == (0, "")
    told = {row["policy"]: row["energy"] for row in json.loads(out)["policies"]}
    page = Path("page.html").read_text()
    data = json.loads(page.partition('<script id="document" type="application/json">')[2].partition("</script>")[0])
    assert [row["policy"] for row in data["energy"]] == ["easy", "fcfs"], "the own schedule comes first"
    for row in data["energy"]:
        for key in ("kwh", "kwh_all_on", "kwh_oracle", "switched_off"):
            assert row[key] == told[row["policy"]][key]
        assert row["cost"] == pytest.approx(told[row["policy"]]["cost"], abs=1e-5)
    status, _, err = call(capsys, "compare", *CLUSTER, "--policies", "fcfs,easy", "--html", "page.html")
    assert (status, err) == (0, "")
    assert '"energy": []' in Path("page.html").read_text().replace('"energy":[]', '"energy": []')
