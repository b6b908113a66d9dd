"""Packing: what holds for every instance, small ones against a search through all assignments."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.resources import Resources
from rmsplugin.packing.first_fit import FirstFit

CPUS = st.sampled_from([0.0, 0.05, 0.5, 1.0, 1.25, 2.0])
MEMORY = st.sampled_from([0, 256, 512, 700, 1024, 2048])
STATES = st.sampled_from([NodeState.UP, NodeState.UP, NodeState.UP, NodeState.DRAINING, NodeState.DOWN])


@st.composite
def some_nodes(draw: st.DrawFn, most: int) -> list[Node]:
    sizes = draw(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 4.0]), st.sampled_from([1024, 3072])), max_size=most))
    return [Node(f"n{i}", Resources(cpus, memory), draw(STATES)) for i, (cpus, memory) in enumerate(sizes)]


@st.composite
def some_vms(draw: st.DrawFn, name: str, most: int) -> list[VM]:
    demands = draw(st.lists(st.tuples(CPUS, MEMORY), max_size=most))
    return [VM(f"{name}-{i}", Resources(cpus, memory)) for i, (cpus, memory) in enumerate(demands)]


# -- first fit ----------------------------------------------------------------------------------------------------


class NaiveFirstFit:
    """First fit as the papers write it: look through all nodes for each VM."""

    def __init__(self, nodes: list[Node]) -> None:
        self.left = {
            node.name: [node.capacity.centi_cpus, node.capacity.memory_mib]
            for node in nodes
            if node.state is NodeState.UP
        }

    def place(self, vms: list[VM], allows: Callable[[str], bool] | None) -> dict[str, str] | None:
        left = {name: list(free) for name, free in self.left.items()}
        placed = {}
        for vm in sorted(vms, key=lambda vm: (-vm.demand.memory_mib, -vm.demand.cpus, vm.name)):
            demand = (vm.demand.centi_cpus, vm.demand.memory_mib)
            for name, free in left.items():
                if (allows is None or allows(name)) and free[0] >= demand[0] and free[1] >= demand[1]:
                    free[0] -= demand[0]
                    free[1] -= demand[1]
                    placed[vm.name] = name
                    break
            else:
                return None
        self.left = left
        return placed


@given(st.data(), some_nodes(8))
def test_first_fit_is_plain_first_fit_over_a_whole_queue(data: st.DataObject, nodes: list[Node]) -> None:
    quick, plain = FirstFit.on(nodes), NaiveFirstFit(nodes)
    for j in range(data.draw(st.integers(1, 8))):
        vms = data.draw(some_vms(f"j{j}", 5))
        only = data.draw(st.none() | st.sets(st.sampled_from([f"n{i}" for i in range(8)])))
        allows = None if only is None else only.__contains__
        assert quick.place(reversed(vms), allows) == plain.place(vms, allows)
        if plain.left and data.draw(st.booleans()):
            stays, node = data.draw(some_vms(f"s{j}", 1)), data.draw(st.sampled_from(sorted(plain.left)))
            for vm in stays:
                quick.take(vm, node)
                plain.left[node][0] -= vm.demand.centi_cpus
                plain.left[node][1] -= vm.demand.memory_mib
        for name, (cpus, memory) in plain.left.items():
            assert (quick.free(name).centi_cpus, quick.free(name).memory_mib) == (cpus, memory)
