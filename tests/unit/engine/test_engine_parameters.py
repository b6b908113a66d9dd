"""How the engine proposes: from the settings and from slurm.conf; durations have one source."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from scenarios.world import make_settings

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.decision.parameters import ActionDuration, Parameters, SwitchDurations
from rmsplugin.decision.policies import POLICIES
from rmsplugin.engine.decide.parameters import proposal_parameters, proposer_limits, refuse_unknown_policy
from rmsplugin.errors import SettingsError
from rmsplugin.model import policy_names
from rmsplugin.model.durations import DEFAULTS
from rmsplugin.planning.order.transfers import Duration, Durations
from rmsplugin.planning.target.placement import Objective
from rmsplugin.proposer.process import ProposerLimits
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.settings import Settings
from rmsplugin.settings.deciding import Durations as Section
from rmsplugin.settings.deciding import Planning

SLURM = RmsSnapshot(jobs=())


def settings(**sections: dict[str, object]) -> Settings:
    """Settings with these keys of these sections."""
    return Settings.model_validate({**make_settings().model_dump(mode="json"), **sections})


def parameters(rms: RmsSnapshot = SLURM, **sections: dict[str, object]) -> ProposalParameters:
    return proposal_parameters(settings(**sections), rms)


def test_the_settings_know_all_policies_and_objectives() -> None:
    assert set(policy_names.POLICIES) == set(POLICIES)
    assert get_args(Planning.model_fields["objective"].annotation) == (*get_args(Objective), "energy")
    assert parameters(planning={"objective": "energy"}, power={"switch": True}).objective == "cost"


@pytest.mark.parametrize("name", ["slowdown", "somewhere:function"])
def test_a_policy_of_the_product_or_a_function_starts_the_engine(name: str) -> None:
    refuse_unknown_policy(settings(decision={"policy": name}))  # nothing of the site is loaded here


def test_a_policy_that_nobody_offers_does_not_start_the_engine() -> None:
    with pytest.raises(SettingsError, match=r"decision.policy: there is no policy 'slodown'; there are fcfs, easy, "):
        refuse_unknown_policy(settings(decision={"policy": "slodown"}))


def test_what_the_settings_say_is_done() -> None:
    found = parameters(
        decision={"policy": "easy", "patience_s": 7, "horizon_s": 8},
        planning={"objective": "nodes", "cpu_in_plan": True},
        nodes={"shared_store": "/shared"},
    )
    assert (found.policy, found.objective, found.shared_store) == ("easy", "nodes", True)
    assert found.cpu_in_plan
    assert not parameters().cpu_in_plan
    assert (found.decision.patience_s, found.decision.horizon_s) == (7, 8)


def test_what_the_settings_say_of_slowdown_is_done() -> None:
    said = {"policy": "slowdown", "max_delay": 0.7, "max_delay_s": 60, "slurm_priority": "order"}
    found = parameters(decision=said).decision.slowdown
    assert (found.max_delay, found.max_delay_s, found.slurm_priority) == (0.7, 60, "order")
    shares = parameters(decision={"user_share": 0.25, "user_share_s": 7}).decision.slowdown
    assert (shares.user_share, shares.user_share_s) == (0.25, 7)


def test_settings_that_say_nothing_are_the_defaults_of_a_decision() -> None:
    found, default = parameters(), Parameters()
    assert (found.policy, found.objective, found.shared_store) == ("slowdown", "cost", False)
    assert replace(found.decision, search=default.search, net_s=default.net_s) == default
    assert found.durations == Durations()


@pytest.mark.parametrize(("said", "exempt_s"), [(None, Parameters().exempt_s), (0.0, 0.0), (45.0, 45.0)])
def test_vjobs_are_exempt_for_as_long_as_slurm_says_if_it_does(said: float | None, exempt_s: float) -> None:
    assert parameters(replace(SLURM, preempt_exempt_s=said)).decision.exempt_s == exempt_s


@pytest.mark.parametrize("limit_s", [1, 10, 600])
def test_all_searches_together_leave_time_before_the_deadline(limit_s: float) -> None:
    found = parameters(planning={"limit_s": limit_s})
    limits = proposer_limits(settings(planning={"limit_s": limit_s}))
    assert limits.deadline_s == limit_s
    units = found.decision.search.deterministic_limit
    assert units is not None
    assert 0.5 * limit_s <= units + found.search.time_limit_s <= 0.7 * limit_s
    assert 1.5 * units <= found.decision.net_s <= 0.85 * limit_s - found.search.time_limit_s


def test_memory_of_the_proposing_process() -> None:
    assert proposer_limits(settings(planning={"memory_limit_mib": 4096})).memory_mib == 4096
    assert proposer_limits(settings()).memory_mib == ProposerLimits().memory_mib


def test_durations_of_the_settings_reach_decision_and_estimate_alike() -> None:
    values: dict[str, object] = {name: float(number) for number, name in enumerate(Section.model_fields, start=1)}
    found = parameters(durations=values)

    def pair(name: str) -> tuple[object, object]:
        return values[f"{name}_s"], values[f"{name}_s_per_mib"]

    switch, plan = found.decision.durations, found.durations
    assert switch.run == ActionDuration(values["run_s"])  # type: ignore[arg-type]
    assert plan.run == Duration(values["run_s"])  # type: ignore[arg-type]
    for decided, planned, name in (
        (switch.suspend, plan.suspend, "suspend"),
        (switch.resume, plan.resume_local, "resume"),
    ):
        assert (decided.constant_s, decided.s_per_mib) == (planned.constant_s, planned.s_per_mib) == pair(name)


def test_the_defaults_of_durations_are_the_same_everywhere() -> None:
    assert Section().model_dump() == DEFAULTS  # type: ignore[call-arg]
    assert Durations.from_values(DEFAULTS) == Durations()
    assert SwitchDurations.from_values(DEFAULTS) == SwitchDurations()


def test_a_duration_that_is_missing_is_a_fault_of_the_program() -> None:
    with pytest.raises(KeyError, match="suspend_s_per_mib"):
        SwitchDurations.from_values({key: 1.0 for key in DEFAULTS if key != "suspend_s_per_mib"})
