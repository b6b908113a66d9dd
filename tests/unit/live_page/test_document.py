"""The live page's document: what it shows, to scale, to whom, and that no text of others becomes markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from live_scenes import HOSTILE, machine, row, scene
from lxml import html

from rmsplugin.live_page import drawing
from rmsplugin.live_page.document import document, headers
from rmsplugin.live_page.drawing import Boxes, drawn
from rmsplugin.live_page.scene import Machine, Node, Scene, Viewer, seen_by
from rmsplugin.live_page.together import together
from rmsplugin.live_page.values import scene_of, values_of
from rmsplugin.live_page.words import amount, lasting, text

ALICE = Viewer("alice", sees_all=False)


def tree(shown: Scene, node: str = "") -> Any:
    return html.document_fromstring(document(shown, node))


def words(element: Any) -> str:
    return " ".join(element.text_content().split())


def body(shown: Scene) -> str:
    return words(tree(shown).find(".//main"))


def width_of(path: Any) -> list[float]:
    return [float(each) for each in re.findall(r"h([\d.e+]+)v", path.get("d"))]


def vms_of(shown: Scene, node: str) -> list[Any]:
    return list(tree(shown).xpath(f"//li[@id='n-{node}']//*[name()='path'][*[name()='title']]"))


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_vms_are_drawn_to_the_scale_of_their_node() -> None:
    big = replace(machine("1"), cpus=2.0, memory_mib=2048)
    shown = Scene(nodes=(Node("n1", "idle", True, "", 4.0, 8192, (big, machine("2"))),))
    assert [width_of(path) for path in vms_of(shown, "n1")] == [[100, 50], [50, 25]]


def test_a_node_with_more_than_it_has_is_drawn_up_to_what_its_vms_take() -> None:
    shown = Scene(nodes=(Node("n1", "idle", True, "", 1.0, 1024, (machine("1"), machine("2"))),))
    assert [width_of(path) for path in vms_of(shown, "n1")] == [[100, 100], [100, 100]]


def test_a_paused_vm_takes_memory_and_no_cpus() -> None:
    shown = Scene(nodes=(Node("n1", "idle", True, "", 4.0, 8192, (machine("1", state="paused"),)),))
    [path] = vms_of(shown, "n1")
    assert (path.get("class"), width_of(path)) == ("p", [25])
    assert "0/4 CPUs, 1 GiB/8 GiB, 1 VM" in words(tree(shown).get_element_by_id("n-n1"))


def test_a_vm_that_moves_is_drawn_on_both_nodes_and_its_way_is_told() -> None:
    shown = scene()
    looks = {node: [path.get("class") for path in vms_of(shown, node)] for node in ("n1", "n3")}
    assert looks == {"n1": ["r", "r", "l", "p"], "n3": ["r", "r", "a"]}
    assert "90 (alice): 1 CPU, 1 GiB, leaving, to n3" in [words(each) for each in vms_of(shown, "n1")]
    [act] = tree(shown).xpath("//table[@id='acts']/tbody/tr")
    assert (act.get("data-from"), act.get("data-to")) == ("n1", "n3")
    assert "42 %" in words(act)


def drawn_anew(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of nodes, as they are drawn from now on."""
    names: list[str] = []
    box = drawing.box
    monkeypatch.setattr(drawing, "box", lambda node: names.append(node.name) or box(node))
    return names


def test_a_node_that_looks_as_it_did_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    names, boxes, first = drawn_anew(monkeypatch), Boxes(), scene()
    next_one = replace(first, nodes=(replace(first.nodes[0], reason="drained"), *first.nodes[1:]))
    drawn(first, boxes=boxes)
    boxes.begin_scene()
    assert names == ["n1", "n2", "n3"]
    found = drawn(next_one, boxes=boxes)
    assert names[3:] == ["n1"]
    assert found == drawn(next_one)


def test_nodes_of_the_same_hash_have_each_its_own_box(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "hash", lambda node: 7, raising=False)
    first, boxes = scene(), Boxes()
    for _ in range(2):
        assert drawn(first, boxes=boxes) == drawn(first)
        boxes.begin_scene()


def test_boxes_that_no_scene_has_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    names, boxes = drawn_anew(monkeypatch), Boxes()
    drawn(scene(), boxes=boxes)
    boxes.begin_scene()
    boxes.begin_scene()
    drawn(scene(), boxes=boxes)
    assert names == ["n1", "n2", "n3"] * 2


def test_no_more_boxes_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    names, boxes = drawn_anew(monkeypatch), Boxes()
    monkeypatch.setattr(drawing, "_KEPT", 1)
    assert drawn(scene(), boxes=boxes) == drawn(scene(), boxes=boxes)
    assert names == ["n1", "n2", "n3", "n2", "n3"]


def test_a_vm_that_moves_is_counted_once() -> None:
    assert "6 VMs on 3 nodes" in body(scene())


def test_the_queue_is_told_with_position_and_reason() -> None:
    first, second = tree(scene()).xpath("//table[@id='waiting']/tbody/tr")
    told = ["1", "100", "it waits behind render no-room", "alice", "render", "vjob"]
    assert [words(cell) for cell in first][:6] == told
    assert words(second[1]) == "101_[2-5] (4 elements)"


def test_paused_and_sleeping_are_apart() -> None:
    shown = tree(scene())
    told = {
        name: words(shown.xpath(f"//table[@id='{name}']/tbody/tr/th")[0]) for name in ("paused-jobs", "sleeping-jobs")
    }
    assert told == {"paused-jobs": "91", "sleeping-jobs": "95"}
    assert "3 GiB" in words(shown.get_element_by_id("sleeping-jobs"))


def test_a_switch_is_told_with_cost_bound_and_duration() -> None:
    [cells] = tree(scene()).xpath("//table[@id='switches']/tbody/tr")
    told = ["4", "done", "render moves", "1 GiB", "1 GiB", "3.2 s", "4.5 s", "2/2"]
    assert [words(cell) for cell in cells][:8] == told


def test_a_switch_whose_expected_duration_is_not_known_says_so() -> None:
    made = scene()
    unknown = replace(made, switches=(replace(made.switches[0], expected_s=None),))
    [cells] = tree(unknown).xpath("//table[@id='switches']/tbody/tr")
    assert words(cells[5]) == "unknown"


def test_leader_energy_and_notices_are_told() -> None:
    told = body(scene())
    for sentence in ("The engine on controller is alone.", "3 nodes take 630 W.", "are paused by root"):
        assert sentence in told


def test_an_empty_site_is_told_in_sentences() -> None:
    told = body(Scene())
    for sentence in ("No cycle has run yet", "No VM host was seen", "No job waits", "Nothing is under way"):
        assert sentence in told


def test_the_vms_of_a_chosen_node_are_listed() -> None:
    listed = tree(scene(), "n1").get_element_by_id("machines")
    assert [words(each) for each in listed.xpath("tbody/tr/th")] == ["10", "11", "90", "91"]
    assert "There is no such VM host." in words(tree(scene(), "n9").get_element_by_id("vms"))


def test_what_vms_need_is_drawn_within_their_parts_and_told() -> None:
    vms = (machine("1", needs_cpus=0.5, needs_mib=256), machine("2"), machine("3", needs_cpus=1.0))
    shown = Scene(nodes=(Node("n1", "idle", True, "", 4.0, 8192, vms),))
    [path] = tree(shown).xpath("//li[@id='n-n1']//*[@class='needs']")
    places = [(float(left), float(width)) for left, width in re.findall(r"M([\d.]+) \d+h([\d.]+)", path.get("d"))]
    assert places == [(0, 25), (0, 6.25), (100, 50)]  # of 50 for each CPU; of 200 for 8 GiB
    assert "needed: 1.5 CPUs (2 of 3 VMs), 256 MiB (1 of 3 VMs)" in words(tree(shown).get_element_by_id("n-n1"))
    assert [each.find("*").text.partition("; ")[2] for each in vms_of(shown, "n1")] == [
        *("needs 0.5 CPUs, 256 MiB", "", "needs 1 CPUs"),
    ]
    rows = tree(shown, "n1").get_element_by_id("machines").xpath("tbody/tr")
    assert [[words(cell) for cell in row.xpath("td")[4:6]] for row in rows] == [
        ["0.5", "256 MiB"],
        ["–", "–"],
        ["1", "–"],
    ]


def test_a_node_of_whose_vms_nothing_is_known_says_nothing_of_needs() -> None:
    shown = Scene(nodes=(Node("n1", "idle", True, "", 4.0, 8192, (machine("1"),)),))
    box = tree(shown).get_element_by_id("n-n1")
    assert "needed" not in words(box) and not box.xpath(".//*[@class='needs']")


def test_a_scene_is_the_same_as_values_that_json_has_carried() -> None:
    shown = scene()
    assert scene_of(json.loads(json.dumps(values_of(shown)))) == shown


@pytest.mark.parametrize("node", ["", "n1", "n9"])
def test_a_scene_that_is_drawn_has_the_same_document_and_no_vms_but_those_that_are_listed(node: str) -> None:
    shown = drawn(scene(), node)
    assert [each.name for each in shown.nodes] == [node] * (node == "n1")
    assert document(scene_of(json.loads(json.dumps(values_of(shown)))), node) == document(scene(), node)


def test_a_page_of_all_groups_has_the_nodes_of_each_under_its_heading() -> None:
    told = {group: drawn(scene(nodes), "n3") for group, nodes in (("a", 3), ("b", 2))}
    whole = tree(together(9, told, {"c": "it is silent"}, "controller", "1.0", 0.0), "n3")
    headings = [words(each) for each in whole.xpath("//section[@aria-labelledby='nodes-h']/div/h3")]
    boxes = [len(each.xpath("li")) for each in whole.xpath("//section[@aria-labelledby='nodes-h']/div/ul")]
    assert (headings, boxes) == (["Group a (3)", "Group b (2)"], [3, 2])
    assert "10 VMs on 5 nodes" in words(whole)
    assert len(whole.get_element_by_id("machines").xpath("tbody/tr")) == 3


def test_long_lists_say_what_lists_the_rest() -> None:
    shown = Scene(queue=tuple(row(str(number)) for number in range(1, 252)))
    assert len(tree(shown).xpath("//table[@id='waiting']/tbody/tr")) == 200
    assert "51 more: rmsplugin vjobs lists them." in body(shown)


# -- hostile texts -----------------------------------------------------------------------------------------------------


def test_texts_of_users_never_become_markup() -> None:
    hostile, honest = tree(scene(hostile=True), HOSTILE), tree(scene(), "n9")
    grouped = {group: drawn(scene(hostile=True), HOSTILE) for group in ("a", HOSTILE)}
    assert b"<img" not in html.tostring(tree(together(9, grouped, {HOSTILE: HOSTILE}, HOSTILE, "1.0", 0.0)))
    count = {name: len(hostile.findall(f".//{name}")) for name in ("script", "img", "title", "a", "p")}
    assert count == {name: len(honest.findall(f".//{name}")) for name in ("script", "img", "title", "a", "p")}
    attributes = {name for each in hostile.iter() for name in each.attrib}
    assert attributes == {name for each in honest.iter() for name in each.attrib}
    assert "window.owned=1" in words(hostile.get_element_by_id("waiting"))


def test_hidden_characters_are_shown_and_long_texts_are_cut() -> None:
    assert text("a\u202eb\x07\u200b") == "a\ufffdb\ufffd\ufffd"
    assert (len(text("x" * 1000)), text("x" * 1000)[-1]) == (300, "…")


def test_the_policy_allows_the_pages_own_script_and_style_alone() -> None:
    policy = headers()["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    whole = tree(scene())
    assert not whole.xpath("//@style | //@*[starts-with(name(), 'on')]")
    assert len(whole.findall(".//script")) == len(whole.findall(".//style")) == 1


# -- who looks ---------------------------------------------------------------------------------------------------------


def _needing(each: Machine) -> Machine:
    return replace(each, needs_cpus=0.5, needs_mib=100)


def test_where_jobs_are_private_a_user_is_told_of_his_own_alone() -> None:
    known = [replace(node, machines=tuple(_needing(each) for each in node.machines)) for node in scene().nodes]
    shown = seen_by(replace(scene(private=True), nodes=tuple(known)), ALICE)
    assert all((each.needs_mib is None) == (not each.vjob) for node in shown.nodes for each in node.machines)
    page = document(shown, "n1")
    assert "bob" not in page
    assert "101_" not in page and "91" not in re.findall(r">(\d+)<", page)
    assert "2 jobs of others: not shown" in page
    assert "another user&#x27;s: 1 CPU, 1 GiB, running</title>" in page
    assert "100" in body(shown) and "render moves" not in page and "drained: render" not in page


@pytest.mark.parametrize(("viewer", "private"), [(Viewer("bob"), True), (ALICE, False)])
def test_operators_and_users_of_open_sites_are_told_all(viewer: Viewer, private: bool) -> None:
    assert "render moves" in document(seen_by(scene(private=private), viewer))


# -- for everybody -----------------------------------------------------------------------------------------------------


def test_headings_tables_and_drawings_have_names() -> None:
    whole = tree(scene(), "n1")
    levels = [int(each.tag[1]) for each in whole.iter("h1", "h2", "h3")]
    assert levels[0] == 1 and set(levels[1:]) == {2}
    ids = whole.xpath("//@id")
    assert len(ids) == len(set(ids))
    for each in whole.xpath("//@aria-labelledby"):
        assert words(whole.get_element_by_id(each))
    assert all(words(each) for each in whole.iter("caption")) and len(list(whole.iter("caption"))) == len(
        list(whole.iter("table"))
    )
    assert all(each.get("scope") for each in whole.iter("th"))
    assert all(each.get("aria-label") or each.get("aria-hidden") for each in whole.iter("svg"))
    assert whole.get("lang") == "en"


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.04, "0 s"), (4.25, "4.2 s"), (59.0, "59 s"), (185, "3 min 5 s"), (7800, "2 h 10 min")]
)
def test_durations_are_told_in_words(seconds: float, told: str) -> None:
    assert lasting(seconds) == told


@pytest.mark.parametrize(("mib", "told"), [(512, "512 MiB"), (1536, "1.5 GiB"), (3 << 20, "3 TiB")])
def test_memory_is_told_in_its_unit(mib: int, told: str) -> None:
    assert amount(mib) == told
