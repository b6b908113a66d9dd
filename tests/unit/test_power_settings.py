"""The settings of power: which driver and which watts a node has, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rmsplugin.settings.power import Power

COMMANDS = {name: ["/usr/bin/ipmitool", "-H", "{address}", name] for name in ("off", "on", "status")}
COMMAND: dict[str, Any] = {"kind": "command", **COMMANDS}
WATTS = {"idle_w": 100, "busy_w": 300, "off_w": 5, "transition_w": 150, "off_s": 30, "on_s": 120}


def power(**values: Any) -> Power:
    return Power.model_validate(values)


def test_without_any_driver_no_node_has_one() -> None:
    assert power().driver_of("n1") is None
    assert power().watts_of("n1") is None


def test_the_first_section_that_names_a_node_counts() -> None:
    found = power(
        driver={
            "old": {**COMMAND, "nodes": ["n[1-4]", "gpu1"]},
            "new": {**COMMAND, "nodes": ["n[3-9]"]},
            "rest": COMMAND,
        },
        classes=[{**WATTS, "nodes": ["n[1-2]"]}, {**WATTS, "nodes": "*", "idle_w": 200}],
    )
    nodes = ("n1", "gpu1", "n4", "n5", "m1")
    assert [found.driver_of(node) for node in nodes] == ["old", "old", "old", "new", "rest"]
    watts = [found.watts_of(node) for node in ("n2", "n3")]
    assert [each and each.idle_w for each in watts] == [100, 200]


def test_a_node_that_no_section_names_has_none() -> None:
    assert power(driver={"bmc": {**COMMAND, "nodes": ["n[1-2]"]}}).driver_of("n3") is None


def test_addresses() -> None:
    driver = power(driver={"bmc": {**COMMAND, "address": "{node}-bmc:8443", "addresses": {"n2": "10.0.0.2"}}}).driver
    assert [driver["bmc"].address_of(node) for node in ("n1", "n2")] == ["n1-bmc:8443", "10.0.0.2"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"off": ["ipmitool", "{node}"]}, "absolute path"),
        ({"off": ["/usr/bin/ipmitool"]}, "must name the node"),
        ({"status": []}, "must name a program"),
        ({"says_off": "("}, "no regular expression"),
        ({"watts_value": "[0-9]+"}, "one group"),
        ({"nodes": ["n[2-1]"]}, "ends before it begins"),
        ({"address": "bmc"}, "should match pattern"),
        ({"addresses": {"n1": "-oProxyCommand=x"}}, "should match pattern"),
        ({"kind": "magic"}, "kind"),
        ({"credentials": "/etc/x"}, "Extra inputs"),
    ],
)
def test_what_is_refused_of_a_driver(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        power(driver={"bmc": {**COMMAND, **change}})


def test_watts_are_ordered() -> None:
    with pytest.raises(ValidationError, match="off_w at most idle_w"):
        power(classes=[{**WATTS, "off_w": 150}])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"hot_c": 45}, "hot_c needs sense_s"),
        ({"classes": [{**WATTS, "hot_c": 45}]}, "hot_c needs sense_s"),
        ({"sense_s": 60, "hot_c": 45, "cool_c": 45}, "cool_c below hot_c"),
        ({"sense_s": 60, "cool_c": 45}, "cool_c needs hot_c"),
        ({"sense_s": 60, "classes": [{**WATTS, "cool_c": 45}]}, "cool_c needs hot_c"),
        ({"sense_s": 60, "hot_c": 45, "hot_off": True}, "hot_off needs switch"),
        ({"sense_s": 60, "hot_c": 900}, "hot_c"),
        ({"cap_w": 1000}, "cap_w needs"),
        ({"tariff": [{"begin": "06:00", "price": 0.3}, {"begin": "06:00", "price": 0.2}]}, "two values from 06:00 on"),
        ({"tariff": [{"begin": "6 am", "price": 0.3}]}, "begin"),
        ({"co2": [{"begin": "06:00", "grams": -1}]}, "grams"),
        ({"cap_w": 0, "classes": [WATTS]}, "cap_w"),
    ],
)
def test_what_is_refused_of_temperatures(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        power(**values)


def test_the_thresholds_of_a_node_are_those_of_its_class_or_of_all() -> None:
    classes = [{**WATTS, "nodes": ["n1"], "hot_c": 60, "cool_c": 50}, {**WATTS, "nodes": ["n2"]}]
    heat = power(sense_s=60, hot_c=45, classes=classes).heat_of
    found = {node: (each.hot_c, each.cool_c) for node in ("n1", "n2", "n3") if (each := heat(node)) is not None}
    assert found == {"n1": (60, 50), "n2": (45, 40), "n3": (45, 40)}
    assert power(sense_s=60).heat_of("n1") is None
