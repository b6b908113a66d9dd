"""Which options of sbatch a vjob can keep, and with what sentence each of the others is refused."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from unit.lua_harness import INTERPRETERS, MEM_PER_CPU, NO_VAL, SITE, UNSET, Runner

from rmsplugin.model.constraints import Constraints
from rmsplugin.model.hostlist import expand


@pytest.fixture(params=INTERPRETERS or [pytest.param("", marks=pytest.mark.skip(reason="no lua is installed"))])
def lua(request: pytest.FixtureRequest, tmp_path: Path) -> Runner:
    return Runner(request.param, tmp_path)


# --- refusals ---

# The fields are what Slurm 22.05 hands over for the option that the message is about: measured.
REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"user_id": 0}, "jobs of root do not run in VMs: submit it as the user whose job it is, or with --uid=NAME"),
    ({"script": None}, "salloc and srun cannot start VMs: submit a script with sbatch"),
    ({"script": ""}, "salloc and srun cannot start VMs"),
    ({"het_job_offset": 0}, "heterogeneous jobs cannot run in VMs: submit one job for each part"),
    ({"het_job_offset": 1, "script": None}, "heterogeneous jobs cannot run in VMs"),
    ({"cron_job": True}, "scrontab cannot start VMs: have it start a job of another partition"),
    *(
        ({field: "gres:gpu:1"}, "VMs have no GPUs or other generic resources: leave out --gres")
        for field in ("gres", "tres_per_job", "tres_per_node", "tres_per_socket", "cpus_per_tres", "mem_per_tres")
    ),
    ({"tres_per_task": "gres:gpu:1"}, "--tres-per-task can ask for CPUs alone, as cpu=2"),
    ({"tres_per_task": "cpu:2,gres:gpu:1"}, "--tres-per-task can ask for CPUs alone, as cpu=2"),
    ({"tres_bind": "gpu:none"}, "VMs have no GPUs"),
    ({"tres_freq": "gpu:low"}, "VMs have no GPUs"),
    ({"ntasks_per_gpu": 1}, "VMs have no GPUs"),
    ({"ntasks_per_tres": 1}, "VMs have no GPUs"),
    ({"shared": 0}, "does not give a VM all CPUs of its node: say how many it needs, with --cpus-per-task or --ntasks"),
    ({"shared": 0, "min_nodes": 2}, "does not give a VM all CPUs of its node"),
    ({"shared": 4}, "--exclusive=topo is about the network of nodes, and VMs move: take --exclusive"),
    ({"pn_min_tmp_disk": 100}, "--tmp asks for room on a node's disk"),
    ({"pn_min_tmp_disk": 65534}, "--tmp asks for room on a node's disk"),
    (
        {"sockets_per_node": 2, "cores_per_socket": 2, "threads_per_core": 1, "num_tasks": 4, "min_cpus": 4},
        "--extra-node",
    ),
    ({"sockets_per_node": 2}, "--sockets-per-node"),
    ({"cores_per_socket": 2}, "--cores-per-socket"),
    ({"threads_per_core": 1}, "--threads-per-core and --hint"),
    ({"sockets_per_board": 1}, "VMs have CPUs alone"),
    ({"boards_per_node": 1}, "VMs have CPUs alone"),
    ({"ntasks_per_core": 1}, "leave out --ntasks-per-core and --ntasks-per-socket, and ask for --ntasks-per-node"),
    ({"ntasks_per_socket": 1}, "leave out --ntasks-per-core and --ntasks-per-socket"),
    ({"ntasks_per_board": 1}, "leave out --ntasks-per-core"),
    ({"contiguous": 1}, "--contiguous is about neighbouring nodes"),
    ({"req_switch": 1, "wait4switch": 600}, "--switches=N@TIME gives up the switches after some time"),
    ({"req_switch": 1, "wait4switch": 0}, "write --switches=N, or leave it out"),
    ({"segment_size": 2}, "--segment is about the network of nodes"),
    ({"core_spec": 1}, "--core-spec and --thread-spec are about a node's own CPUs"),
    ({"reservation": "foo"}, "leave out --reservation, or take another partition"),
    ({"batch_features": "foo"}, "--batch chooses among a job's nodes"),
    ({"prefer": "foo"}, "--prefer is a wish that VMs cannot keep"),
    ({"network": "sn_all"}, "--network is about a node's network adapters"),
    ({"burst_buffer": "x"}, "leave out --bb and --bbf"),
    ({"container": "/x"}, "--container runs a job in a container of its node"),
    ({"container_id": "x"}, "--container-id runs a job in a container of its node"),
    ({"reboot": 1}, "--reboot is about nodes"),
    ({"power_flags": 1}, "leave out --cpu-freq and --power"),
    *(({f"cpu_freq_{what}": 2147483649}, "leave out --cpu-freq and --power") for what in ("min", "max", "gov")),
    ({"num_tasks": 4, "min_cpus": 1}, "--overcommit is not for VMs"),
    ({"num_tasks": 5, "min_nodes": 2, "max_nodes": 2, "min_cpus": 2}, "--overcommit is not for VMs"),
    ({"partition": "vjob,plain"}, "one partition only, not to vjob,plain"),
    ({"partition": "plain,vjob"}, "one partition only, not to plain,vjob"),
    ({"partition": "vjob,vjob2"}, "one partition only, not to vjob,vjob2"),
    ({"licenses": "a|b"}, "--licenses=a|b: alternatives cannot be combined with the licence by which jobs wait"),
    ({"min_mem_per_node": 0}, "--mem=0 asks for all memory of a node"),
    ({"min_mem_per_cpu": 0, "pn_min_memory": MEM_PER_CPU}, "--mem=0 asks for all memory of a node"),
    ({"min_nodes": 3, "num_tasks": 2}, "2 tasks cannot use 3 VMs"),
    ({"num_tasks": 9, "min_cpus": 9}, "9 VMs are more than the 8 that a job can have here"),
    ({"cpus_per_task": 5}, "no node can host a VM of 5 CPUs (the most is 4)"),
    ({"min_mem_per_node": 95}, "a VM of 95 MiB is too small for the image default (the least is 96)"),
    ({"min_mem_per_node": 4097}, "no node can host a VM of 4097 MiB (the most is 4096)"),
    ({"num_tasks": 7, "cpus_per_task": 2, "min_cpus": 14}, "7 VMs of 2 CPUs are more than the 12 CPUs that there are"),
    ({"min_nodes": 3, "min_mem_per_node": 3000}, "3 VMs of 3000 MiB are more than the 8192 MiB that there are"),
    # -C
    (
        {"features": "[a|b]"},
        "--constraint=[a|b]: brackets are not for VMs, each of which has a node of its own",
    ),
    ({"features": "a*2"}, "--constraint=a*2: VMs do not count nodes with a feature"),
    ({"features": "[a*2&b*1]"}, "brackets are not for VMs"),
    ({"features": "a,b"}, "--constraint=a,b: write a&b for nodes that have both features"),
    *(({"features": text}, "names of features are made of letters") for text in ("a b", "a;b", "a=b", "!a", "ä")),
    *(
        ({"features": text}, "this cannot be read; write it as a&(b|c)")
        for text in ("a&", "&a", "a&&b", "a|", "()", "(a", "a)", "(a)b", "a(b)", "a&(b|)", ")a(", "&", "(a&b)(c)")
    ),
    # -w and -x
    ({"req_nodes": "n[1-2"}, "--nodelist=n[1-2: this is no list of nodes; write it as n1,n2 or n[1-2]"),
    *(
        ({"exc_nodes": text}, "this is no list of nodes")
        for text in (
            "n1,,n2",
            ",",
            "n[]",
            "n[a-b]",
            "n[3-1]",
            "n[1-]",
            "n]1[",
            "n1 n2",
            "n1;n2",
            "n=1",
            "n<2>",
            "n[1,]",
        )
    ),
    ({"exc_nodes": "n[1-65537]"}, "these are more than 65536 nodes; name them by a feature, with --constraint"),
    ({"exc_nodes": "n[1-999999999][1-999999999]"}, "these are more than 65536 nodes"),
    ({"exc_nodes": "n[1-65536],m"}, "these are more than 65536 nodes"),
    (
        {"exc_nodes": ",".join(f"node{2 * each}" for each in range(30)), "req_nodes": "n1"},
        "--exclude is too long by ",
    ),
    ({"features": "|".join(["feature"] * 30)}, "--constraint is too long by "),
]


@pytest.mark.parametrize(("job", "message"), REFUSALS)
def test_refusals(lua: Runner, job: dict[str, Any], message: str) -> None:
    assert message in lua.submit(**job).refusal


@pytest.mark.parametrize(
    "job",
    [
        {"num_tasks": 8, "min_cpus": 8},
        {"cpus_per_task": 4},
        {"min_mem_per_node": 4096},
        {"min_mem_per_node": 96},
        {"num_tasks": 6, "cpus_per_task": 2, "min_cpus": 12},
        {"min_nodes": 2, "min_mem_per_node": 4096},
        {"min_nodes": 2, "max_nodes": 4},  # -N 2-4: min_cpus stays 1
        {"min_nodes": 0, "min_cpus": 0},  # -N 0
        {"array_inx": "1-3%1"},
        {"user_id": 0, "partition": "plain"},
        {"user_id": 2001, "uid": 0},
        {"shared": 1},  # --oversubscribe
        {"pn_min_tmp_disk": 0},  # --tmp=0
        {"ntasks_per_core": 65535},  # --hint=multithread
        {"bitflags": UNSET["bitflags"] + 512},  # --use-min-nodes
        {"bitflags": UNSET["bitflags"] + 16},  # --gres-flags=enforce-binding
        {"reboot": 0},
        {"network": ""},
        {"features": ""},
        {"req_nodes": "", "min_nodes": 0, "min_cpus": 0},
        {"exc_nodes": "n[1-65536]"},
    ],
)
def test_allowed(lua: Runner, job: dict[str, Any]) -> None:
    assert lua.submit(**{key: value for key, value in job.items() if key != "uid"}).code == 0


def test_every_field_that_is_looked_at_may_be_absent(lua: Runner) -> None:
    """Releases differ in what they hand over."""
    assert lua.run(what="submit", job={"script": "#!/bin/sh\n", "partition": "vjob"}).code == 0


def test_an_image_needs_its_own_memory(lua: Runner) -> None:
    site = {"images": ["default", "big", "new"], "image_memory_mib": {"big": 512}}
    for image, least in (("default", 96), ("big", 512), ("new", 96)):
        job = {"site": site, "environment": {"RMSPLUGIN_IMAGE": image}}
        assert lua.submit(min_mem_per_node=least, **job).geometry.image == image
        refusal = lua.submit(min_mem_per_node=least - 1, **job).refusal
        assert refusal.startswith(f"a VM of {least - 1} MiB is too small for the image {image} (the least is {least})")


def test_cpus_of_a_task_as_newer_releases_say_them(lua: Runner) -> None:
    assert lua.submit(cpus_per_task=2, tres_per_task="cpu:2").geometry.cpus == 2
    assert lua.submit(tres_per_task="cpu=3").geometry.cpus == 3


# --- what is kept of -C, -w and -x ---


def test_constraints_leave_the_slurm_job(lua: Runner) -> None:
    outcome = lua.submit(features="a|(b&c)", req_nodes="n[1-3,7],gpu1", exc_nodes="n2", max_nodes=1, min_nodes=1)
    assert {key: outcome.written[key] for key in ("features", "req_nodes", "exc_nodes")} == {
        "features": "", "req_nodes": "", "exc_nodes": "",
    }  # fmt: skip
    assert outcome.geometry.constraints == Constraints("a|(b&c)", ("n[1-3,7]", "gpu1"), ("n2",))
    assert (
        outcome.written["script"]
        .split("\\n")[0]
        .endswith(",image=default,features=a|(b&c),nodes=n[1-3;7];gpu1,exclude=n2,x_ntasks=default")
    )


def test_without_constraints_nothing_is_said_of_them(lua: Runner) -> None:
    outcome = lua.submit(features="", req_nodes="", exc_nodes=None)
    assert outcome.geometry.constraints == Constraints()
    assert outcome.written["script"].split("\\n")[0].endswith(",image=default,x_ntasks=default")


@pytest.mark.parametrize(
    ("job", "vms"),
    [
        # sbatch counts the nodes of -w into min_nodes, and into min_cpus
        ({"req_nodes": "n[1-2]", "min_nodes": 2, "min_cpus": 2}, 1),
        ({"req_nodes": "n[1-2]", "min_nodes": 2, "min_cpus": 4, "num_tasks": 4}, 4),
        # -N is the user's: it has a maximum
        ({"req_nodes": "n[1-2]", "min_nodes": 2, "max_nodes": 2, "min_cpus": 2}, 2),
        ({"req_nodes": "n1", "min_nodes": 1, "max_nodes": 1, "min_cpus": 4, "num_tasks": 4}, 1),
        # another client's
        ({"req_nodes": "n[1-2]", "min_nodes": 3}, 3),
    ],
)
def test_nodelist_does_not_say_how_many_vms(lua: Runner, job: dict[str, Any], vms: int) -> None:
    assert lua.submit(**job).geometry.vms == vms


def test_the_longest_line(lua: Runner) -> None:
    """The kernel cuts longer ones off; what the script can do without gives way."""
    first = lua.submit(features="a").written["script"].split("\\n")[0]
    used = len(first.removesuffix(",x_ntasks=default")) - 1
    kept = "a" * (250 - used)
    assert lua.submit(features=kept).geometry.constraints.features == kept
    assert "--constraint is too long by 1 characters" in lua.submit(features=kept + "a").refusal
    assert "--nodelist is too long by 8 characters" in lua.submit(features="a", req_nodes=kept).refusal


def test_nested_parentheses(lua: Runner) -> None:
    assert lua.submit(features="((a|b)&(c|(d)))|e").geometry.constraints.features == "((a|b)&(c|(d)))|e"


# --- whatever is asked for, Python reads on the line that Lua writes ---

NAMES = st.text(string.ascii_letters + string.digits + "_.:+@/-", min_size=1, max_size=6)
FEATURES = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        inner.map(lambda text: f"({text})"),
        st.tuples(inner, st.sampled_from("&|"), inner).map("".join),
    ),
    max_leaves=4,
)
NUMBERS = st.integers(0, 20).flatmap(
    lambda low: st.one_of(
        st.just(f"{low:02d}"), st.just(str(low)), st.integers(low, low + 9).map(lambda high: f"{low:02d}-{high}")
    )
)
HOSTS = st.lists(
    st.one_of(
        st.text(string.ascii_letters + string.digits + "_.-", min_size=1, max_size=5),
        st.lists(NUMBERS, min_size=1, max_size=3).map(lambda ranges: f"n[{','.join(ranges)}]"),
        st.tuples(NUMBERS, NUMBERS).map(lambda pair: f"r[{pair[0]}]n[{pair[1]}]x"),
    ),
    min_size=1,
    max_size=3,
).map(",".join)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    vms=st.integers(1, 999999),
    cpus=st.integers(1, 64000),
    memory=st.integers(96, 999999999),
    features=st.none() | FEATURES,
    nodes=st.none() | HOSTS,
    exclude=st.none() | HOSTS,
)
@example(vms=999999, cpus=64000, memory=999999999, features=None, nodes=None, exclude=None)
def test_what_lua_writes_python_reads(
    lua: Runner, vms: int, cpus: int, memory: int, features: str | None, nodes: str | None, exclude: str | None
) -> None:
    job = {**UNSET, "partition": "vjob", "min_nodes": vms, "max_nodes": vms, "cpus_per_task": cpus}
    constraints = {"features": features, "req_nodes": nodes, "exc_nodes": exclude}
    job |= {key: value for key, value in constraints.items() if value is not None}
    outcome = lua.run(
        what="submit",
        job={**job, "min_cpus": NO_VAL, "min_mem_per_node": memory},
        site={"partitions": ["vjob"], "wrapper": SITE["wrapper"]},
    )
    if outcome.code != 0:
        assert "is too long by" in outcome.refusal
        return
    geometry = outcome.geometry
    assert (geometry.vms, geometry.cpus, geometry.memory_mib, geometry.ntasks) == (vms, cpus, memory, vms)
    assert geometry.constraints.features == (features or "")
    for kept, asked in ((geometry.constraints.nodes, nodes), (geometry.constraints.exclude, exclude)):
        assert expand(",".join(kept)) == expand(asked or "")
    assert type(geometry).parse(str(geometry)) == geometry
    assert int(outcome.written["min_cpus"]) == vms * cpus
    assert int(outcome.written["min_mem_per_node"]) == vms * memory


# --- wishes about VMs beside each other ---


@pytest.mark.parametrize(
    ("given", "wishes"),
    [
        ({}, set()),
        ({"bitflags": UNSET["bitflags"] + 256}, {"spread"}),
        ({"shared": 2}, {"exclusive"}),
        ({"shared": 3}, {"labelled"}),
        ({"shared": 0, "num_tasks": 1}, {"alone"}),
        ({"shared": 0, "cpus_per_task": 2}, {"alone"}),
        ({"shared": 0, "ntasks_per_node": 2}, {"alone"}),
        ({"shared": 0, "pn_min_cpus": 2}, {"alone"}),
        ({"shared": 0, "tres_per_task": "cpu:2"}, {"alone"}),
        ({"shared": 2, "bitflags": UNSET["bitflags"] + 256}, {"spread", "exclusive"}),
        ({"shared": 1}, set()),
    ],
)
def test_wishes_are_told_to_the_engine(lua: Runner, given: dict[str, Any], wishes: set[str]) -> None:
    assert lua.submit(**given).geometry.wishes == wishes


@pytest.mark.parametrize(
    ("given", "switches"),
    [({}, 0), ({"req_switch": 0}, 0), ({"req_switch": 2}, 2), ({"req_switch": 4000000000}, 999999)],
)
def test_the_most_switches_are_told_to_the_engine(lua: Runner, given: dict[str, Any], switches: int) -> None:
    outcome = lua.submit(**given)
    assert outcome.geometry.switches == switches
    assert outcome.written.get("req_switch") == (str(UNSET["req_switch"]) if switches else None)


def test_other_users_wrappers_may_be_on_the_front_of_one_that_wishes_to_be_alone(lua: Runner) -> None:
    assert lua.submit(shared=2).written["shared"] == str(UNSET["shared"])
    assert lua.submit(shared=3).written["shared"] == str(UNSET["shared"])
    assert lua.submit(shared=0, num_tasks=1).written["shared"] == str(UNSET["shared"])
    assert "shared" not in lua.submit(shared=1).written
