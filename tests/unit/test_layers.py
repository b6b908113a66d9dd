"""Dependencies point one way: model <- decision, planning <- engine -> adapters; the pure layers touch no world."""

from __future__ import annotations

import ast
import fnmatch
import functools
import graphlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import rmsplugin

PACKAGE = Path(rmsplugin.__file__).parent

#: Layer -> the layers and modules of ours that it may import, besides itself and `errors`.
ALLOWED = {
    "api": {"client", "defaults", "model", "settings"},
    "model": set(),
    "packing": {"model"},
    "decision": {"known_objects", "model", "packing"},
    "planning": {"model", "packing"},
    "assessment": {"model"},
    "calibration": {"model"},
    "workload": {"model"},
    "energy": set(),
    "simulation": {"model", "workload", "energy", "assessment", "decision", "planning", "proposing"},
    "proposing": {"model", "packing", "decision", "planning", "energy"},
    "groups": {"model", "decision", "planning", "proposing"},
    "proposer": {
        *("model", "packing", "decision", "proposing"),
        *("known_objects", "latency", "child_process", "left_out"),
    },
    "accounts": set(),
    "adapters": {"accounts", "defaults", "finding", "left_out", "model", "settings"},
    "engine": {
        *("model", "packing", "assessment", "decision", "planning", "proposing", "proposer"),
        *("api", "groups", "accounts", "adapters", "settings", "client", "calibration", "cron", "latency"),
        *("child_process", "presence", "left_out", "energy", "live_page"),
    },
    "live_page": {"model"},
    "manager": {
        *(
            "adapters",
            "api",
            "child_process",
            "client",
            "decision",
            "engine",
            "groups",
            "live_page",
            "model",
            "settings",
        ),
    },
    "report": {"model", "workload", "energy", "simulation", "engine", "adapters", "settings"},
    "reporter": {"report", "engine", "settings", "latency", "child_process"},
    "node_agent": {"defaults", "model", "adapters", "open_directories"},
    "wrapper": {"defaults", "model", "adapters", "client", "settings"},
    "cli": {
        "adapters",
        "api",
        "calibration",
        "client",
        "decision",
        "defaults",
        "energy",
        "engine",
        "finding",
        "input_file",
        "instance",
        "latency",
        "manager",
        "model",
        "open_directories",
        "packing",
        "planning",
        "presence",
        "proposer",
        "proposing",
        "report",
        "settings",
        "simulation",
        "workload",
    },
    "client": {"adapters"},
    "hook": {"accounts", "client", "defaults", "room_hook", "power_hook"},
    "policy": {"decision", "model"},
    "power_hook": {"adapters", "model", "settings"},
    "room_hook": {"adapters", "client", "defaults"},
    "instance": {"model", "input_file"},
    "input_file": set(),
    "open_directories": set(),
    "presence": set(),
    "settings": {"cron", "defaults", "model"},
    "cron": set(),
    "child_process": set(),
    "left_out": set(),
    "known_objects": set(),
    "latency": set(),
    "defaults": set(),
    "finding": set(),
    "errors": set(),
}

PURE = (
    *("model", "packing", "assessment", "calibration", "decision", "planning", "proposing", "groups"),
    *("workload", "simulation", "energy"),
)

#: Clocks, chance, and the ways to the world.
IMPURE = {
    "asyncio",
    "datetime",
    "fcntl",
    "getpass",
    "glob",
    "http",
    "io",
    "libvirt",
    "logging",
    "multiprocessing",
    "os",
    "paramiko",
    "pathlib",
    "pwd",
    "pyslurm",
    "random",
    "secrets",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "sqlite_utils",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
}

#: Every job waits for the hooks, and every copy of a state for the node agent: the standard library only.
STANDARD_LIBRARY_ONLY = ("api", "client", "defaults", "hook", "room_hook", "node_agent", "model", "errors")
STANDARD_LIBRARY_ONLY += ("adapters/munge",)
#: What a node runs of the platforms' packages, likewise.
STANDARD_LIBRARY_ONLY += tuple(
    f"adapters/platform/{name}"
    for name in ("node_base", "side_by_side", "node_factory", "libvirt/on_node", "libvirt/vm_shape")
)

#: Programs that start many times a minute, and those of their modules that each start loads.
STARTED_OFTEN = {
    "a command that asks the engine": ("cli.main", "cli.live.*", "client", "api.binding"),
    "the node agent": ("node_agent.main", "node_agent.calls"),
    "a platform's hook": ("node_agent.creation_hook", "adapters.platform.libvirt.on_node.creation"),
    "a hook": ("hook", "client", "room_hook", "accounts"),
}
#: Modules of the standard library that are slow to load. A program imports them in the function that needs them.
SLOW = {"ast", "asyncio", "dataclasses", "email", "hashlib", "http", "importlib.metadata", "inspect", "ssl"}
SLOW |= {"threading", "unittest", "urllib"}

#: Packages that are installed, and not of the standard library.
INSTALLED = {
    "aiohttp",
    "apscheduler",
    "cryptography",
    "kazoo",
    "libvirt",
    "lxml",
    "ortools",
    "paramiko",
    "plotext",
    "prometheus_client",
    "pycdlib",
    "pydantic",
    "pyslurm",
    "rich",
    "sdnotify",
    "sqlite_utils",
    "tzlocal",
}


#: By layer, its packages and modules in their order: each imports only from those before it.
ORDERS = {
    "engine": (
        *(
            "ledger",
            "territory",
            "context",
            "observe",
            "capacity",
            "assess",
            "execute",
            "reconcile",
            "decide",
            "upkeep",
            "power",
        ),
        *("schedule", "cycle", "controllers", "serve", "metrics", "periodic", "leadership", "shared_dir", "turn"),
        *("parted", "watchdog", "daemon"),
    ),
    "cli": (
        *(
            "shared",
            "live",
            "plan",
            "simulate",
            "compare",
            "report",
            "check",
            "setup",
            "ledger",
            "calibrate",
            "json_forms",
            "engine",
            "manager",
        ),
        "main",
    ),
    "adapters": (
        *(
            "absent",
            "bounded_child",
            "bounded",
            "command",
            "knock",
            "munge",
            "ssh_library",
            "coordination",
            "lease",
            "guests",
        ),
        *("seed", "rms", "platform", "nodes", "mail_program", "power", "simulated"),
    ),
    "manager": (
        *("numbers", "where", "merging", "backoff", "said", "child", "children", "site", "placed", "queue", "leader"),
        *("watching", "liveness", "stillness", "deafness", "fitness", "readings", "looking"),
        *(
            "handing",
            "handing_down",
            "pulse",
            "group_handover",
            "site_page",
            "site_events",
            "entry",
            "standing",
            "main",
        ),
    ),
    "adapters/platform": (
        "base",
        "checks_base",
        "node_base",
        "side_by_side",
        "host_files",
        "libvirt",
        "podman",
        "native",
        "factory",
        "node_factory",
    ),
    "adapters/simulated": ("ensemble", "guests", "hypervisor", "nodes", "power", "rms"),
    "wrapper": (
        *("process", "signals", "session", "engine", "carry_out", "prepare", "attach", "stand_in", "launch", "main"),
    ),
}

NATIVE = PACKAGE / "guest_tools" / "native"
_PROGRAMS = ("commands", "stepd", "script", "srun", "vm", "front", "image")
#: Folder of the guest's programs in C -> the folders whose headers it may include. "": main.c.
NATIVE_ALLOWED = {
    "base": set(),
    "protocol": {"base"},
    **{program: {"base", "protocol"} for program in _PROGRAMS},
    "": {"base", *_PROGRAMS},
}

#: Of these modules, names that are values: a duration is no clock.
#: Chance that comes from a seed is none.
PURE_NAMES = {"datetime.timedelta", "random.Random"}


@functools.cache
def modules() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


def place(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def all_imports(source: str, package: str) -> Iterator[tuple[int, str, bool]]:
    """Line and full name of everything imported, wherever in the file; whether TYPE_CHECKING guards it."""
    tree = ast.parse(source)
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, id(node) in guarded) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{alias.name}", id(node) in guarded) for alias in node.names)


def imports(source: str, package: str) -> list[tuple[int, str]]:
    """Line and full name of everything imported, wherever in the file, but what TYPE_CHECKING guards."""
    return [(line, name) for line, name, guarded in all_imports(source, package) if not guarded]


def package_of(path: Path) -> str:
    return ".".join(["rmsplugin", *path.relative_to(PACKAGE).parent.parts])


@functools.cache
def all_imports_of(path: Path) -> tuple[tuple[int, str, bool], ...]:
    """What ``all_imports`` yields of a module, which is parsed once for all rules."""
    return tuple(all_imports(path.read_text(), package_of(path)))


def imports_of(path: Path) -> list[tuple[int, str]]:
    return [(line, name) for line, name, guarded in all_imports_of(path) if not guarded]


def name_of(path: Path) -> str:
    parts = ("rmsplugin", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


@functools.cache
def imported_modules() -> dict[str, set[str]]:
    """By module, the modules of ours that it imports, for its types alone too."""
    names = {name_of(path) for path in modules()}
    found = {}
    for path in modules():
        whole = {name for _, name, _ in all_imports_of(path)}
        found[name_of(path)] = {name if name in names else name.rpartition(".")[0] for name in whole} & names
    return found


def faults(path: Path, found: Iterable[tuple[int, str]]) -> list[str]:
    own = layer(path)
    wrong = []
    for line, name in found:
        root, _, rest = name.partition(".")
        if root == "rmsplugin":
            target = rest.partition(".")[0]
            if target in ALLOWED and target not in {own, "errors"} | ALLOWED[own]:
                wrong.append(f"{place(path)}:{line}: {own} imports {name}")
        elif own in PURE and root in IMPURE and name not in PURE_NAMES:
            wrong.append(f"{place(path)}:{line}: {own} is pure and imports {name}")
    return wrong


def test_each_layer_says_what_it_may_import() -> None:
    assert {layer(path) for path in modules()} - {"__init__"} - set(ALLOWED) == set()


def test_imports_point_one_way() -> None:
    known = [path for path in modules() if layer(path) in ALLOWED]
    assert [fault for path in known for fault in faults(path, imports_of(path))] == []


def is_waited_for(path: Path) -> bool:
    """Whether jobs or copies of states wait for this module."""
    name = place(path).removesuffix(".py")
    return any(name == light or name.startswith(f"{light}/") for light in STANDARD_LIBRARY_ONLY)


def heavy(path: Path, found: Iterable[tuple[int, str]]) -> list[str]:
    """The imports of a module that are not of the standard library."""
    return [f"{place(path)}:{line}: {name}" for line, name in found if name.split(".")[0] in INSTALLED]


def test_what_others_wait_for_is_light() -> None:
    waited_for = [path for path in modules() if is_waited_for(path)]
    assert [fault for path in waited_for for fault in heavy(path, imports_of(path))] == []


def test_what_others_wait_for_is_there() -> None:
    found = {light for light in STANDARD_LIBRARY_ONLY for path in modules() if place(path).startswith(light)}
    assert found == set(STANDARD_LIBRARY_ONLY)


def test_a_heavy_import_is_found() -> None:
    assert heavy(PACKAGE / "hook.py", imports("def f():\n    import lxml.etree", "rmsplugin")) == [
        "hook.py:2: lxml.etree"
    ]


class _WithoutFunctions(ast.NodeTransformer):
    """A module as far as its import runs it."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.Pass:
        return ast.Pass()


def at_load(source: str, package: str) -> list[str]:
    """The full names that a module imports when it is imported itself."""
    return [name for _, name in imports(ast.unparse(_WithoutFunctions().visit(ast.parse(source))), package)]


def loaded(first: Iterable[str], known: Mapping[str, Callable[[], list[str]]]) -> dict[str, str]:
    """All that is loaded with the modules ``first``: name -> the module that imports it.

    Args:
        first: their full names.
        known: by module of ours, what ``at_load`` says of it.
    """
    found = dict.fromkeys(first, "")
    waiting = [*found]
    while waiting:
        importer = waiting.pop()
        for whole in known[importer]() if importer in known else ():
            for each in (whole, whole.rpartition(".")[0]):
                if each not in found and (each == whole or each in known):
                    found[each] = importer
                    waiting.append(each)
    return found


def slow(names: Mapping[str, str]) -> list[str]:
    """The slow modules among these, with who imports them."""
    return sorted(
        f"{importer} imports {name}"
        for name, importer in names.items()
        if any(f"{name}.".startswith(f"{each}.") for each in SLOW | INSTALLED)
    )


@pytest.mark.parametrize("program", STARTED_OFTEN)
def test_a_program_that_is_started_often_loads_nothing_slow(program: str) -> None:
    known = {name_of(path): functools.partial(at_load, path.read_text(), package_of(path)) for path in modules()}
    first = [name for pattern in STARTED_OFTEN[program] for name in fnmatch.filter(known, f"rmsplugin.{pattern}")]
    assert len(first) >= len(STARTED_OFTEN[program])
    assert slow(loaded(first, known)) == []


def test_a_slow_module_is_found_through_others_and_not_in_a_function() -> None:
    names = "import re\nclass Name:\n    from urllib.parse import quote"
    ours = {
        "rmsplugin.hook": "from rmsplugin.model import names",
        "rmsplugin.model.names": names,
        "rmsplugin.client": "def ask():\n    import http.client\nfrom rmsplugin.model.names import Name",
    }
    known = {name: functools.partial(at_load, text, "rmsplugin") for name, text in ours.items()}
    assert slow(loaded(["rmsplugin.hook"], known)) == ["rmsplugin.model.names imports urllib.parse.quote"]
    assert slow(loaded(["rmsplugin.client"], known)) == ["rmsplugin.model.names imports urllib.parse.quote"]
    known["rmsplugin.model.names"] = list
    assert slow(loaded(["rmsplugin.client"], known)) == []


@pytest.mark.parametrize(
    ("layer_name", "source", "count"),
    [
        ("model", "import time", 1),
        ("decision", "def f():\n    from subprocess import run", 1),
        ("planning", "import os.path", 1),
        ("planning", "from datetime import datetime, timedelta", 1),
        ("model", "from rmsplugin.decision import ffd", 1),
        ("decision", "from rmsplugin import engine", 1),
        ("decision", "from ..engine import cycle", 1),
        ("adapters", "from rmsplugin.engine.ledger.ledger import Ledger", 1),
        ("decision", "from rmsplugin.model.vjob import VJobState\nimport itertools", 0),
        ("model", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import os", 0),
    ],
)
def test_the_walk_finds_what_it_looks_for(layer_name: str, source: str, count: int) -> None:
    path = PACKAGE / layer_name / "module.py"
    assert len(faults(path, imports(source, f"rmsplugin.{layer_name}"))) == count


def back(imported: dict[str, set[str]], own: str) -> list[str]:
    """The imports in a layer, or in a package of it, that go against the order of its packages."""
    order, prefix = ORDERS[own], f"rmsplugin.{own.replace('/', '.')}."
    rank = {name: order.index(name.removeprefix(prefix).split(".")[0]) for name in imported if name.startswith(prefix)}
    return [f"{one} imports {other}" for one in rank for other in imported[one] if rank.get(other, -1) > rank[one]]


def circles(imported: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """One circle of imports, if there is any."""
    try:
        graphlib.TopologicalSorter(imported).prepare()
    except graphlib.CycleError as error:
        return [tuple(error.args[1])]
    return []


@pytest.mark.parametrize("own", ORDERS)
def test_the_packages_of_a_layer_import_only_from_those_before_them(own: str) -> None:
    found = {path.relative_to(PACKAGE / own).parts[0] for path in (PACKAGE / own).rglob("*.py")}
    assert {name.removesuffix(".py") for name in found} - {"__init__"} == set(ORDERS[own])
    assert back(imported_modules(), own) == []


def test_no_modules_import_each_other_in_a_circle_not_even_for_types() -> None:
    assert circles(imported_modules()) == []


def test_arrows_back_and_circles_are_found() -> None:
    ledger, cycle = "rmsplugin.engine.ledger.rows", "rmsplugin.engine.cycle"
    assert back({ledger: {cycle}, cycle: {ledger}}, "engine") == [f"{ledger} imports {cycle}"]
    assert circles({ledger: {cycle}, cycle: {ledger}}) != []
    assert circles({ledger: set(), cycle: {ledger}}) == []


@pytest.mark.parametrize("own", ORDERS)
def test_the_first_package_of_a_layer_may_not_import_from_the_last(own: str) -> None:
    first, last = (f"rmsplugin.{own.replace('/', '.')}.{name}" for name in (ORDERS[own][0], ORDERS[own][-1]))
    assert back({first: {last}, last: set()}, own) == [f"{first} imports {last}"]
    assert back({first: set(), last: {first}}, own) == []


def native_sources() -> dict[str, str]:
    """By path within the folder of the programs in C, the text of each source and header."""
    return {str(path.relative_to(NATIVE)): path.read_text() for path in sorted(NATIVE.rglob("*.[ch]"))}


def included(sources: dict[str, str]) -> dict[str, set[str]]:
    """By path, what each includes of ours: a name without a folder is of the own folder."""
    found = {}
    for path, text in sources.items():
        folder = path.rpartition("/")[0]
        names = re.findall(r'^#include "([^"]+)"', text, flags=re.MULTILINE)
        found[path] = {name if "/" in name or not folder else f"{folder}/{name}" for name in names}
    return found


def native_faults(graph: dict[str, set[str]]) -> list[str]:
    """What a source or header must not include."""
    return [
        f"{path} includes {other}"
        for path, others in graph.items()
        for folder in (path.rpartition("/")[0],)
        for other in sorted(others)
        if other.rpartition("/")[0] not in {folder} | NATIVE_ALLOWED[folder] or other not in graph
    ]


def test_the_programs_in_c_include_what_they_share_and_nothing_of_each_other() -> None:
    graph = included(native_sources())
    assert {path.rpartition("/")[0] for path in graph} == set(NATIVE_ALLOWED)
    assert native_faults(graph) == []
    assert circles(graph) == []


@pytest.mark.parametrize(
    ("sources", "faulty"),
    [
        ({"base/memory.c": '#include "memory.h"', "base/memory.h": "#include <stdint.h>"}, []),
        ({"srun/client.c": '#include "protocol/plan.h"', "protocol/plan.h": ""}, []),
        ({"base/memory.c": '#include "protocol/plan.h"', "protocol/plan.h": ""}, ["base/memory.c"]),
        (
            {"srun/client.c": '#include "x.h"\n#include "stepd/hub.h"', "stepd/hub.h": "", "srun/x.h": ""},
            ["srun/client.c"],
        ),
        ({"vm/account.c": '#include "../srun/options.h"', "srun/options.h": ""}, ["vm/account.c"]),
    ],
)
def test_an_include_against_the_order_is_found(sources: dict[str, str], faulty: list[str]) -> None:
    assert [fault.split()[0] for fault in native_faults(included(sources))] == faulty


def test_headers_that_include_each_other_are_found() -> None:
    sources = {"srun/options.h": '#include "values.h"', "srun/values.h": '#include "srun/options.h"'}
    assert native_faults(included(sources)) == []
    assert circles(included(sources)) != []


def uses_of_simulated(imported: dict[str, set[str]]) -> list[str]:
    """The imports of simulated neighbours by what a site runs."""
    simulated = "rmsplugin.adapters.simulated"
    return [
        f"{one} imports {other}"
        for one in imported
        if not f"{one}.".startswith(f"{simulated}.")
        for other in imported[one]
        if f"{other}.".startswith(f"{simulated}.")
    ]


def test_nothing_that_a_site_runs_imports_a_simulated_neighbour() -> None:
    assert uses_of_simulated(imported_modules()) == []


def test_an_import_of_a_simulated_neighbour_is_found() -> None:
    guests, factory = "rmsplugin.adapters.simulated.guests", "rmsplugin.adapters.rms.factory"
    assert uses_of_simulated({factory: {guests}}) == [f"{factory} imports {guests}"]
    assert uses_of_simulated({guests: {"rmsplugin.adapters.simulated.hypervisor.files", factory}}) == []


def test_planning_is_read_in_one_direction() -> None:
    """A target is judged by the plan that leads there: ``target`` imports ``order``, which knows of one target only."""
    found = {
        (path.name, name)
        for part, others in (("order", ("target",)), ("", ("order", "target")))
        for path in (PACKAGE / "planning" / part).glob("*.py")
        for _, name in imports_of(path)
        if any(name.startswith(f"rmsplugin.planning.{other}.") for other in others)
    }
    assert found == set()


#: The functions and classes that may take a whole ``Context``, and take it apart; all others say what they need of it.
TAKE_CONTEXT = {
    "cycle.Cycle",
    "capacity.memory_care.MemoryCare",
    "execute.executor.Executor",
    "execute.placing.Placing",
    "execute.switch.Switch",
    "execute.task.Task",
    "observe.observation.Observer",
    "reconcile.following.Following",
    "schedule.jobs.jobs_of",
    "serve.requests.Requests",
    "serve.service.Service",
}


def takers(tree: ast.Module) -> set[str]:
    """The functions and classes of a module that have a parameter of the type ``Context``."""
    found = set()
    for owner in (*tree.body, *(each for part in tree.body if isinstance(part, ast.ClassDef) for each in part.body)):
        if isinstance(owner, ast.FunctionDef):
            arguments = (*owner.args.posonlyargs, *owner.args.args, *owner.args.kwonlyargs)
            notes = [ast.unparse(each.annotation) for each in arguments if each.annotation is not None]
            if any("Context" in re.findall(r"\w+", note) for note in notes):
                found.add(owner)
    classes = {id(each): part.name for part in tree.body if isinstance(part, ast.ClassDef) for each in part.body}
    return {classes.get(id(each), each.name) if each.name == "__init__" else each.name for each in found}


def test_context_is_taken_apart_where_the_engine_is_put_together() -> None:
    found = set()
    for path in sorted((PACKAGE / "engine").rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE / "engine").with_suffix("").parts)
        found |= {f"{module}.{name}" for name in takers(ast.parse(path.read_text()))}
    assert found == TAKE_CONTEXT


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def act(context: Context) -> None: ...", {"act"}),
        ("class Part:\n    def __init__(self, context: Context | None) -> None: ...", {"Part"}),
        ("class Part:\n    def act(self, context: 'Context') -> None: ...", {"act"}),
        ("def act(contexts: Contexts) -> Context: ...", set()),
    ],
)
def test_a_function_that_takes_a_context_is_found(text: str, names: set[str]) -> None:
    assert takers(ast.parse(text)) == names
