"""Scenes for tests of the live page: names that attack it, and as many nodes as wanted."""

from __future__ import annotations

from rmsplugin.live_page.scene import Act, Machine, Node, Row, Scene, Switch

#: A job's name may be anything that Slurm takes.
HOSTILE = '</title><script>window.owned=1</script><img src=x onerror="window.owned=1">\'"&\u202egnp'
_NOW = 1_763_700_000.0


def machine(vjob: str = "12", user: str = "alice", state: str = "running", **more: object) -> Machine:
    """One VM of one CPU and 1 GiB."""
    return Machine(vjob, user, f"job{vjob}", 1.0, 1024, state, **more)  # type: ignore[arg-type]


def row(vjob: str, user: str = "alice", state: str = "waiting", **more: object) -> Row:
    """A vjob that does not run."""
    told = {"position": 1, "code": "no-room", "reason": "no node has room for its VM", "name": f"job{vjob}"}
    values = {**told, **more}
    return Row(vjob=vjob, user=user, partition="vjob", state=state, cpus=2, memory_mib=2048, since=_NOW, **values)  # type: ignore[arg-type]


def scene(nodes: int = 3, vms: int = 2, *, hostile: bool = False, private: bool = False) -> Scene:
    """Nodes with VMs, one that moves, and jobs of two users in all lists."""
    name = HOSTILE if hostile else "render"
    made = [
        Node(
            f"n{number}",
            "mixed",
            True,
            "",
            4.0,
            8192,
            tuple(machine(f"{number}{each}", ("alice", "bob")[each % 2]) for each in range(vms)),
            watts=210,
        )
        for number in range(1, nodes + 1)
    ]
    if nodes >= 3:
        made[0] = _with(made[0], machine("90", "alice", "leaving", other="n3"), machine("91", "bob", "paused"))
        made[2] = _with(made[2], machine("90", "alice", "arriving", other="n1"))
        made[1] = Node("n2", "drained", False, f"it is being drained: {name}", 4.0, 8192, saved=2)
    return Scene(
        number=7,
        time=_NOW,
        version="1.0",
        host="controller",
        leader="The engine on controller is alone.",
        cycle="1 vjob moves; 3 waiting",
        cycle_time=_NOW,
        notices=("Context switches are paused by root",),
        energy=("3 nodes take 630 W.",),
        nodes=tuple(made),
        acts=(Act("90", "alice", "migrate", "vjob90-0", "n1", "n3", 0.42, _NOW),) if nodes >= 3 else (),
        queue=(
            row("100", name=name, reason=f"it waits behind {name}"),
            row("101_[2-5]", "bob", position=2, elements=4),
        ),
        paused=(row("91", "bob", "paused", nodes=("n1",)),),
        sleeping=(row("95", state="sleeping", nodes=("n2",), size_bytes=3 << 30),),
        switches=(Switch(4, _NOW, "done", f"{name} moves", 1024, 1024, 3.2, 4.5, 2, 2),),
        private=private,
    )


def _with(node: Node, *machines: Machine) -> Node:
    return Node(
        *(node.name, node.state, node.usable, node.reason, node.cpus, node.memory_mib),
        machines=(*node.machines, *machines),
        watts=node.watts,
    )
