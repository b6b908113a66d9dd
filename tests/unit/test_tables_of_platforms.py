"""The tables of the guides say that a platform can do what it declares, and no more."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from rmsplugin.adapters.platform.base import VMStatistics
from rmsplugin.adapters.power.base import PowerDriver
from rmsplugin.model.capabilities import EVERYTHING, NATIVE, PODMAN, Capabilities

DOCS = Path(__file__).resolve().parents[2] / "docs"
ADMINISTRATORS, DEVELOPERS = DOCS / "operator" / "containers.md", DOCS / "developer-guide.md"
CAN = {"libvirt": EVERYTHING, "podman": PODMAN, "native": NATIVE}

#: The rows of both tables that a capability decides.
DECIDED = {
    ADMINISTRATORS: {
        "pause, memory stays": ("pause",),
        "suspend to a file, resume on another node": ("suspend", "elsewhere"),
        "checkpoints": ("checkpoint",),
        "live migration": ("migrate",),
        "resize while it runs": ("resize",),
    },
    DEVELOPERS: {"migrate": ("migrate",), "resize": ("resize",), "suspend": ("pause",), "hibernate": ("suspend",)},
}
#: The rows about a node itself, and what a driver of BMCs has for them.
OF_NODES = {
    ADMINISTRATORS: {
        "nodes: power, temperature, on and off": ("on", "off", "reading"),
        "nodes: frequency": (),
        "nodes: suspended, hibernated": (),
    },
    DEVELOPERS: {"power, temperature": ("reading",), "node on and off": ("on", "off"), "frequency": ()},
}
#: The rows about a VM's network, and what a platform's statistics have for them.
OF_NETWORKS = {"network throughput": ("received_bytes", "sent_bytes"), "network latency": ()}


def rows(page: Path) -> Mapping[str, Mapping[str, str]]:
    """By what a platform can do, what the table says of each platform."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.read_text().splitlines()]
    begins = next(number for number, cells in enumerate(lines) if {"libvirt", "podman"} <= {plain(c) for c in cells})
    heads = [plain(cell).removesuffix(" jobs") for cell in lines[begins]]
    what = heads.index("function") if "function" in heads else 0
    found = {}
    for cells in lines[begins + 2 :]:
        if len(cells) != len(heads):
            break
        found[cells[what]] = {name: cells[heads.index(name)] for name in CAN}
    return found


def plain(cell: str) -> str:
    return cell.strip("` ")


def says_no(cell: str) -> bool:
    return re.match(r"no\b", cell) is not None


@pytest.mark.parametrize("page", DECIDED, ids=lambda page: page.stem)
def test_what_a_platform_declares_is_in_the_table(page: Path) -> None:
    table = rows(page)
    wrong = [
        (what, name, table[what][name])
        for what, capabilities in DECIDED[page].items()
        for name, can in CAN.items()
        if says_no(table[what][name]) is all(getattr(can, each) for each in capabilities)
    ]
    assert wrong == []


@pytest.mark.parametrize("page", OF_NODES, ids=lambda page: page.stem)
def test_no_table_promises_of_a_node_what_no_driver_has(page: Path) -> None:
    has = {name for name in vars(PowerDriver) if not name.startswith("_")}
    table = rows(page)
    for what, methods in OF_NODES[page].items():
        assert has >= {*methods}
        said = [cell for name, cell in table[what].items() if name != "native"]
        assert [says_no(cell) for cell in said] == [not methods] * 2, what
    used = {method for methods in OF_NODES[page].values() for method in methods}
    assert has - used == {"drives"}, "what else a driver has is in no row"


@pytest.mark.parametrize("page", OF_NODES, ids=lambda page: page.stem)
def test_what_is_seen_of_networks_is_in_the_table(page: Path) -> None:
    has, table = {each.name for each in dataclasses.fields(VMStatistics)}, rows(page)
    for what, counters in OF_NETWORKS.items():
        (row,) = [row for name, row in table.items() if name.startswith(what)]
        assert has >= {*counters}
        assert [says_no(row[name]) for name in ("libvirt", "podman")] == [not counters] * 2, what
        assert says_no(row["native"])


def test_whose_kernel_it_is_and_how_it_starts_is_in_the_table() -> None:
    table = rows(ADMINISTRATORS)
    for name, can in CAN.items():
        assert (table["kernel"][name] == "its own") is can.own_kernel
        assert ("template" in table["start"][name]) is can.template


def test_what_follows_without_each_capability_is_told() -> None:
    told = re.findall(r"^ *\| `(\w+)` \| ", DEVELOPERS.read_text(), re.MULTILINE)
    assert {each.name for each in dataclasses.fields(Capabilities)} <= {*told}
