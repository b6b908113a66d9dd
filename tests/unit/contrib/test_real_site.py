"""contrib/run-campaign site: what it makes of our own files. The machines themselves are the campaign's."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from packaged.playbook import ROLE
from real_site import disk, files, role
from real_site.__main__ import _parser
from real_site.layout import HOSTS
from real_site.machine import Machine, StepError
from real_site.patience import VARIABLE, patient
from real_site.site import Site, wait_for
from real_site.steps import STEPS

EXAMPLE = Path(__file__).resolve().parents[3] / "contrib/slurm.conf.example"


def test_slurm_conf_is_the_example_with_the_names_of_the_site() -> None:
    text = files.slurm_conf(with_plugin=True)
    keys = {line.partition("=")[0] for line in text.splitlines()}
    wanted = {line.partition("=")[0] for line in EXAMPLE.read_text().splitlines() if line and line[0] != "#"}
    assert wanted <= keys
    assert "front[" not in text and "n[0" not in text
    assert "PartitionName=vmhosts Nodes=n1,n2 " in text


def test_before_the_plugin_slurm_knows_nothing_of_it() -> None:
    text = files.slurm_conf(with_plugin=False)
    assert "rmsplugin" not in text and "JobSubmitPlugins" not in text and "vjobgate" not in text


def test_the_disk_has_what_our_packages_need_and_none_of_ours() -> None:
    clauses = disk.dependencies().split(", ")
    assert {"libssh2-1t64 | libssh2-1", "libvirt-daemon-system | podman", "libc6 (>= 2.36)", "munge"} <= set(clauses)
    assert not [clause for clause in clauses if "$" in clause or "rmsplugin" in clause]


def test_the_role_is_told_of_each_machine_as_what_it_is(tmp_path: Path) -> None:
    told = role.inventory(Site({}, tmp_path, tmp_path / "debs"), engine=False)["all"]
    assert isinstance(told, dict)
    groups = {group: list(each["hosts"]) for group, each in told["children"].items()}
    assert groups == {
        "rmsplugin_controller": ["controller"],
        "rmsplugin_front": ["front"],
        "rmsplugin_node": ["n1", "n2"],
    }
    addresses = {each["ansible_host"] for group in told["children"].values() for each in group["hosts"].values()}
    assert addresses == {host.address for host in HOSTS}
    assert told["vars"]["rmsplugin_debs"] == str(tmp_path / "debs")
    specs = yaml.safe_load((ROLE / "roles/rmsplugin/meta/argument_specs.yml").read_text())
    known = specs["argument_specs"]["main"]["options"]
    assert {key for key in told["vars"] if key.startswith("rmsplugin_")} <= known.keys()


def test_what_is_not_seen_in_time_is_a_failed_step() -> None:
    assert wait_for("a room", 1, lambda: "seen") == "seen"
    with pytest.raises(StepError, match="a room: not after 0 s"):
        wait_for("a room", 0, lambda: None)


def test_a_machine_whose_systemd_has_given_up_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "missing"
    machine = Machine(HOSTS[0], disk.Base(missing, missing, missing), missing, tmp_path)
    monkeypatch.setattr(machine, "_answers", lambda: False)
    monkeypatch.setattr(machine, "_check_up", lambda: None)
    machine.console.write_text("Timed out waiting for device /dev/vdb.\nYou are in emergency mode. After logging in")
    with pytest.raises(StepError, match=r"controller stands in emergency mode: Timed out .* /dev/vdb"):
        machine.wait_until_up(0)


def test_on_a_busy_machine_bounds_are_so_many_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert patient(60) == 60
    monkeypatch.setenv(VARIABLE, "2.5")
    assert patient(60) == 150


@pytest.mark.parametrize("word", ["0", "-1", "0.5", "nan", "inf", "long"])
def test_a_patience_that_is_none_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args([f"--patience={word}"])
    assert ended.value.code == 2
    assert f"no factor from 1 to 100: '{word}'" in capsys.readouterr().err


def test_each_step_says_what_it_is_about_and_has_a_bound() -> None:
    assert all(step.what and step.bound_s > 0 for step in STEPS)
    assert len({step.name for step in STEPS}) == len(STEPS)
