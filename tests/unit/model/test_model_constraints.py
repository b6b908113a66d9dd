"""Which nodes may host a vjob's VMs: expressions of features as Slurm reads them, and lists of nodes."""

from __future__ import annotations

import itertools
import string
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.model.constraints import Constraints
from rmsplugin.model.hostlist import MAX_NAMES, expand, split
from rmsplugin.model.vjob import Geometry

# tests/e2e/test_submission.py asks Slurm itself which of such nodes it takes.
NODES = {"n1": {"a", "b"}, "n2": {"b", "c"}, "n3": {"c"}}


def allowed(constraints: Constraints) -> list[str]:
    return sorted(constraints.allowed(NODES))


@pytest.mark.parametrize(
    ("features", "nodes"),
    [
        ("", ["n1", "n2", "n3"]),
        ("a", ["n1"]),
        ("d", []),
        ("b&c", ["n2"]),
        ("a|c", ["n1", "n2", "n3"]),
        ("a|b&c", ["n2"]),  # from left to right: the nodes with a or b, of these those with c
        ("c|a&b", ["n1", "n2"]),
        ("a&b|c", ["n1", "n2", "n3"]),
        ("a|(b&c)", ["n1", "n2"]),
        ("(a|b)&c", ["n2"]),
        ("a&(b|c)", ["n1"]),
        ("b&c|a&b", ["n1", "n2"]),
        ("((a|c)&(b))", ["n1", "n2"]),
        ("(c|(a&b))&b", ["n1", "n2"]),
    ],
)
def test_features(features: str, nodes: list[str]) -> None:
    assert allowed(Constraints.parse(features=features)) == nodes


def test_lists_of_nodes() -> None:
    assert allowed(Constraints.parse(nodes="n[2-3,9]")) == ["n2", "n3"]
    assert allowed(Constraints.parse(nodes="n1,n3")) == ["n1", "n3"]
    assert allowed(Constraints.parse(exclude="n[1-2]")) == ["n3"]
    assert allowed(Constraints.parse(features="b", nodes="n[1-3]", exclude="n2")) == ["n1"]
    assert allowed(Constraints.parse(nodes="n01")) == []


@pytest.mark.parametrize(
    "features",
    [
        "a&",
        "&a",
        "a&&b",
        "a|",
        "()",
        "(a",
        "a)",
        "(a)b",
        "a(b)",
        ")a(",
        "&",
        "a b",
        "a,b",
        "a;b",
        "a*2",
        "[a|b]",
        "!a",
        "a\n",
    ],
)
def test_features_that_cannot_be_read(features: str) -> None:
    with pytest.raises(ValueError, match="not an expression of features"):
        Constraints.parse(features=features)


@pytest.mark.parametrize(
    "text", ["n[1-2", "n1,,n2", ",", "n[]", "n[a-b]", "n[1-]", "n]1[", "n1 n2", "n1;n2", "n=1", "n1\n"]
)
def test_lists_that_cannot_be_read(text: str) -> None:
    for given_as in ("nodes", "exclude"):
        with pytest.raises(ValueError, match="not a list of nodes"):
            Constraints.parse(**{given_as: text})
    with pytest.raises(ValueError, match="not a list of nodes"):
        Constraints(nodes=(text,))


@pytest.mark.parametrize("text", [f"n[1-{MAX_NAMES + 1}]", f"n[1-{MAX_NAMES}],m", "n[1-999999999][1-999999999]"])
def test_a_list_of_too_many_nodes_is_not_made(text: str) -> None:
    with pytest.raises(ValueError, match="a list of more than 65536 nodes"):
        Constraints.parse(nodes=text)


def test_a_list_of_as_many_nodes_as_there_may_be() -> None:
    names = expand(f"n[1-{MAX_NAMES}]")
    assert (len(names), names[0], names[-1]) == (MAX_NAMES, "n1", f"n{MAX_NAMES}")


def test_lists_of_users_take_no_memory_for_the_names_that_they_stand_for() -> None:
    tracemalloc.start()
    try:
        for i in range(5):
            constraints = Constraints.parse(nodes=f"a{i}x[00001-{MAX_NAMES}]", exclude=f"b{i}x[00001-{MAX_NAMES}]")
            assert allowed(constraints) == []
            assert "a" in constraints.objection(NODES)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 2 * 2**20  # as names, 50 MiB


def test_parts_of_a_list() -> None:
    assert split("n[1-3,7],gpu1,r[1,2]n[3]x") == ("n[1-3,7]", "gpu1", "r[1,2]n[3]x")


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (Constraints(), ""),
        (Constraints(features="a|z"), ""),
        (Constraints(nodes=("n1", "n9")), ""),
        (Constraints(nodes=("n[8-9]",)), "no node that hosts VMs is called n8, n9 (--nodelist, --exclude)"),
        (Constraints(features="a&z"), "no node that hosts VMs has the feature z (--constraint)"),
        (Constraints(features="a&c"), "no node that hosts VMs is left by --constraint, --nodelist and --exclude"),
        (Constraints(exclude=("n[1-3]",)), "no node that hosts VMs is left by --constraint, --nodelist and --exclude"),
    ],
)
def test_why_no_node_is_left(constraints: Constraints, words: str) -> None:
    assert constraints.objection(NODES) == words


# --- beside Python's own reading of the same expression ---

EXPRESSIONS = st.recursive(
    st.sampled_from("abcd"),
    lambda inner: st.one_of(
        inner.map(lambda text: f"({text})"),
        st.lists(inner, min_size=2, max_size=3).flatmap(
            lambda terms: st.lists(st.sampled_from("&|"), min_size=len(terms) - 1, max_size=len(terms) - 1).map(
                lambda operators: "".join(map("".join, itertools.zip_longest(terms, operators, fillvalue="")))
            )
        ),
    ),
    max_leaves=6,
)


class Chain:
    """A truth whose operators, + and -, go from left to right in Python as well: neither goes before the other."""

    def __init__(self, true: bool) -> None:
        self.true = true

    def __add__(self, other: Chain) -> Chain:
        return Chain(self.true or other.true)

    def __sub__(self, other: Chain) -> Chain:
        return Chain(self.true and other.true)


@given(EXPRESSIONS, st.sets(st.sampled_from("abcd")))
def test_expressions_are_read_from_left_to_right(text: str, features: set[str]) -> None:
    names = {name: Chain(name in features) for name in "abcd"}
    expected: Chain = eval(text.replace("|", "+").replace("&", "-"), {}, names)
    assert bool(Constraints.parse(features=text).allowed({"n1": features})) == expected.true


@given(st.text(string.printable))
def test_any_text_is_read_or_refused(text: str) -> None:
    for key in ("features", "nodes", "exclude"):
        try:
            constraints = Constraints.parse(**{key: text})
        except ValueError:
            continue
        geometry = Geometry(1, 1, 64, constraints=constraints)
        assert Geometry.parse(str(geometry)) == geometry
