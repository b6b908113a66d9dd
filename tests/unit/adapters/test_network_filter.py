"""The network filter of VMs: a node has it before a VM starts there, or the VM does not start and it is said why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt
import pytest
from lxml import etree

from rmsplugin.adapters.platform.base import NODE_FILTER, OUR_FILTER
from rmsplugin.adapters.platform.libvirt.network_filter import FILTER_XML, NetworkFilters, filter_of, offered_filters
from rmsplugin.adapters.platform.libvirt.nodes import LibvirtNodes
from rmsplugin.adapters.platform.libvirt.ways import ByUri
from rmsplugin.errors import NotFoundError, OperationFailedError, UnavailableError


class Failure(libvirt.libvirtError):  # type: ignore[misc]
    def __init__(self, code: int, words: str) -> None:
        Exception.__init__(self, words)
        self._code, self._words = code, words

    def get_error_code(self) -> int:
        return self._code

    def get_error_message(self) -> str:
        return self._words

    def get_error_domain(self) -> int:
        return libvirt.VIR_FROM_NWFILTER


class Filter:
    def __init__(self, xml: str) -> None:
        self._xml = xml

    def XMLDesc(self, flags: int) -> str:
        return self._xml


class Node:
    """A node's libvirt and the way to it; libvirt writes a filter in its own words."""

    def __init__(self) -> None:
        self.filters: dict[str, str] = {}
        self.definitions = 0
        self.fails: Exception | None = None

    def query(self, what: str, function: Callable[[Any], Any], timeout_s: float) -> Any:
        if self.fails:
            raise self.fails
        return function(self)

    def nwfilterLookupByName(self, name: str) -> Filter:
        if name not in self.filters:
            raise Failure(libvirt.VIR_ERR_NO_NWFILTER, "no such filter")
        return Filter(self.filters[name])

    def nwfilterDefineXML(self, xml: str) -> Filter:
        self.definitions += 1
        name = etree.fromstring(xml).get("name")
        self.filters[name] = "as libvirt says: " + xml
        return Filter(self.filters[name])

    def listNWFilters(self) -> list[str]:
        raise Failure(libvirt.VIR_ERR_NO_SUPPORT, "not supported by the\nconnection driver")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node()
    monkeypatch.setattr(LibvirtNodes, "link", lambda self, name: node)
    return node


@pytest.fixture
def filters() -> NetworkFilters:
    return NetworkFilters(LibvirtNodes(ByUri("test://{node}"), 1, 1))


def test_ours_is_defined_once_on_a_node_and_again_when_somebody_has_changed_it(
    node: Node, filters: NetworkFilters
) -> None:
    for _ in range(3):
        filters.require("n1", OUR_FILTER)
    assert node.definitions == 1
    for change in (node.filters.clear, lambda: node.filters.update({OUR_FILTER: "<filter/>"})):
        change()
        filters.require("n1", OUR_FILTER)
        assert "srcipaddr='$IP'" in node.filters[OUR_FILTER]
    assert node.definitions == 3


def test_one_of_an_older_release_is_replaced(node: Node, filters: NetworkFilters) -> None:
    node.filters[OUR_FILTER] = "<filter name='rmsplugin-guest'/>"
    filters.require("n1", OUR_FILTER)
    assert "srcipaddr='$IP'" in node.filters[OUR_FILTER]


def test_one_of_the_sites_has_to_be_there_and_is_not_touched(node: Node, filters: NetworkFilters) -> None:
    with pytest.raises(OperationFailedError, match="n1 has no network filter clean-traffic"):
        filters.require("n1", "clean-traffic")
    node.filters["clean-traffic"] = "<filter/>"
    filters.require("n1", "clean-traffic")
    assert node.filters == {"clean-traffic": "<filter/>"}


def test_nothing_is_asked_for_vms_without_one_of_libvirts(node: Node, filters: NetworkFilters) -> None:
    node.fails = UnavailableError("silent")
    filters.require("n1", "")
    filters.require("n1", NODE_FILTER)


@pytest.mark.parametrize("error", [NotFoundError("no such socket"), OperationFailedError("not supported")])
def test_whatever_the_driver_fails_by_no_state_is_taken_for_lost(
    error: Exception, node: Node, filters: NetworkFilters
) -> None:
    node.fails = error
    with pytest.raises(OperationFailedError, match="no network filters, and without rmsplugin-guest"):
        filters.require("n1", OUR_FILTER)


def test_a_silent_node_is_unavailable(node: Node, filters: NetworkFilters) -> None:
    node.fails = UnavailableError("silent")
    with pytest.raises(UnavailableError):
        filters.require("n1", OUR_FILTER)


def test_why_a_node_can_have_none_is_said_in_a_line(node: Node) -> None:
    assert offered_filters(node) == "not supported by the connection driver"


def test_the_filter_of_a_vm_is_read_from_its_xml() -> None:
    inside = "<domain><devices><interface>{}</interface></devices></domain>"
    assert filter_of(inside.format("<filterref filter='x'/>")) == "x"
    assert filter_of(inside.format("")) == filter_of("<domain/>") == ""


def test_ours_is_what_libvirts_schema_allows() -> None:
    schema = Path("/usr/share/libvirt/schemas/nwfilter.rng")
    if not schema.exists():
        pytest.skip("libvirt's schemas are not here")
    etree.RelaxNG(etree.parse(schema)).assertValid(etree.fromstring(FILTER_XML))
