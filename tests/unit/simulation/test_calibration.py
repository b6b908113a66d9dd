"""What operations took becomes samples, and samples become durations."""

from __future__ import annotations

import pytest

from rmsplugin.calibration.fit import ENOUGH, Fitted, fit
from rmsplugin.calibration.samples import MeasuredAction, MeasuredOperation, Sample, samples_of
from rmsplugin.model.durations import DEFAULTS


def action(
    vm: str, kind: str, began: float, ended: float, *nodes: str, mib: int = 1000, done: bool = True
) -> MeasuredAction:
    return MeasuredAction(vm, kind, nodes, mib, began, ended, done)


def fitted(name: str, samples: list[Sample], present: dict[str, float] | None = None) -> Fitted:
    found = fit({name: samples}, {**DEFAULTS, **(present or {})})
    return next(each for each in found if each.action == name)


# -- samples ---------------------------------------------------------------------------------------------------------


def test_a_sample_is_the_whole_operation_with_what_comes_before_and_after_its_action() -> None:
    start = MeasuredOperation("start", 10, 19, (action("a", "run", 12, 18, "", "n1"),))
    assert samples_of([start]) == {"run": [Sample(9, 1000)]}


def test_of_a_suspend_the_vm_that_ends_last_counts_from_its_own_beginning() -> None:
    suspend = MeasuredOperation(
        "suspend", 0, 20, (action("a", "suspend", 1, 8, "n1", ""), action("b", "suspend", 4, 18, "n2", ""))
    )
    assert samples_of([suspend]) == {"suspend": [Sample(17, 1000)], "pipeline": [Sample(3, 0)]}


def test_a_resume_with_a_copy_is_a_remote_one_and_moves_the_memory_once() -> None:
    copied = (action("a", "copy", 1, 5, "n1", "n2"), action("a", "resume", 6, 9, "n1", "n2"))
    assert samples_of([MeasuredOperation("resume", 0, 10, copied)]) == {"remote_resume": [Sample(10, 1000)]}
    assert samples_of([MeasuredOperation("resume", 0, 10, copied[1:])]) == {"resume": [Sample(10, 1000)]}


def test_what_moves_through_the_same_node_at_the_same_time_is_part_of_the_size() -> None:
    own = action("a", "migrate", 0, 10, "n1", "n2")
    others = [
        action("b", "suspend", 5, 15, "n2", "", mib=400),  # half of it meanwhile
        action("c", "suspend", 0, 10, "n3", "", mib=9000),  # elsewhere
        action("d", "run", 0, 10, "", "n2", mib=9000),  # moves nothing
        action("e", "resume", 20, 30, "n2", "n2", mib=9000),  # later
        action("f", "suspend", 0, 10, "n1", "", mib=100),  # at the less busy end
        action("g", "checkpoint", 0, 10, "n2", "", mib=50),
    ]
    operation = MeasuredOperation("migrate", 0, 10, (own,))
    assert samples_of([operation], [own, *others]) == {"migrate": [Sample(10, 1250)]}


def test_the_store_that_all_mount_is_no_node() -> None:
    own = action("a", "resume", 0, 10, "shared", "n1")
    other = action("b", "resume", 0, 10, "shared", "n2")
    assert samples_of([MeasuredOperation("resume", 0, 10, (own,))], [own, other]) == {"resume": [Sample(10, 1000)]}


@pytest.mark.parametrize(
    "operation",
    [
        MeasuredOperation(
            "suspend", 0, 90, (action("a", "suspend", 0, 9, "n1", done=False), action("a", "suspend", 80, 89, "n1"))
        ),
        MeasuredOperation("suspend", 50, 10, (action("a", "suspend", 50, 10, "n1"),)),
        MeasuredOperation("suspend", 0, 9, ()),
        MeasuredOperation("reattach", 0, 9, (action("a", "run", 0, 9, "n1"),)),
    ],
    ids=["interrupted", "clock stepped back", "nothing done", "no action of the model"],
)
def test_what_tells_nothing_of_an_action_is_left_out(operation: MeasuredOperation) -> None:
    assert samples_of([operation]) == {}


# -- fit -------------------------------------------------------------------------------------------------------------


def test_a_constant_is_the_median_whatever_a_few_took() -> None:
    found = fitted("run", [Sample(seconds, 0) for seconds in [7.0] * 8 + [900.0] * 3])
    assert found.values() == {"run_s": 7.0}
    assert (found.median_s, found.p95_s) == (7.0, 900.0)


def test_a_line_is_found_among_outliers() -> None:
    samples = [Sample(3 + 0.02 * mib, mib) for mib in range(256, 4096, 128)]
    found = fitted("suspend", samples + [Sample(5000, mib) for mib in (512, 1024, 2048)])
    assert found.values() == {"suspend_s": 3.0, "suspend_s_per_mib": 0.02}
    assert found.fitted_error_s < 0.01 < found.error_s


def test_neither_number_is_below_zero() -> None:
    steep = [Sample(0.02 * mib - 5, mib) for mib in range(512, 4096, 256)]
    falling = [Sample(100 - 0.02 * mib, mib) for mib in range(512, 4096, 256)]
    assert fitted("resume", steep).values()["resume_s"] == 0.0
    assert fitted("resume", falling).values()["resume_s_per_mib"] == 0.0


def test_what_does_not_grow_with_the_memory_has_no_slope() -> None:
    seconds = [18.9, 9.4, 44.6, 12.0, 18.8, 19.1, 30.2, 17.0, 18.8, 25.1, 18.7, 16.5]
    samples = [Sample(each, 384 + 256 * (number % 3)) for number, each in enumerate(seconds)]
    assert fitted("suspend", samples).values()["suspend_s_per_mib"] == 0.0


def test_too_few_samples_keep_the_present_values() -> None:
    found = fitted("migrate", [Sample(1, 100 * i) for i in range(ENOUGH - 1)], {"migrate_s": 2.3456789})
    assert not found.is_fitted
    assert found.values() == {"migrate_s": 2.3456789, "migrate_s_per_mib": DEFAULTS["migrate_s_per_mib"]}
    assert found.note == "kept: 9 measured, 10 are needed"


def test_vms_of_one_size_scale_both_numbers() -> None:
    present = {"suspend_s": 10.0, "suspend_s_per_mib": 0.04}  # 50 s for 1,000 MiB
    found = fitted("suspend", [Sample(25, 1000)] * 20, present)
    assert found.values() == {"suspend_s": 5.0, "suspend_s_per_mib": 0.02}
    assert "of one size" in found.note


def test_vms_of_one_size_without_a_present_value_are_constant() -> None:
    found = fitted("suspend", [Sample(25, 1000)] * 20, {"suspend_s": 0.0, "suspend_s_per_mib": 0.0})
    assert found.values() == {"suspend_s": 25.0, "suspend_s_per_mib": 0.0}


def test_all_keys_of_the_section_are_there() -> None:
    found = fit({}, DEFAULTS)
    assert {key: value for each in found for key, value in each.values().items()} == dict(DEFAULTS)
