"""Scene: what the live page shows, at one moment; and what of it one viewer may see. Plain values.

Times are seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.veil import veiled


@made_at_once
@dataclass(frozen=True, slots=True)
class Machine:
    """One VM, as it is drawn on a node.

    Attributes:
        vjob: display id of its vjob; empty: the viewer may not know it.
        user: whose it is.
        name: of the job.
        cpus: that are booked for it.
        memory_mib: that is booked for it.
        state: of its vjob; ``arriving`` and ``leaving`` while it is on the way.
        other: the other node of its way.
        needs_cpus: CPUs that it was seen to need lately; None: not known, as of one that does not run.
        needs_mib: memory that its guest says it needs; None: it says nothing.
    """

    vjob: str
    user: str
    name: str
    cpus: float
    memory_mib: int
    state: str
    other: str = ""
    needs_cpus: float | None = None
    needs_mib: int | None = None


@made_at_once
@dataclass(frozen=True, slots=True)
class Node:
    """One VM host.

    Attributes:
        state: Slurm's word, or the engine's.
        usable: whether VMs may come now.
        reason: why none may come now, or what it is kept for; empty: nothing to be said.
        watts: None: not measured.
        saved: how many VMs have their saved states in its store.
    """

    name: str
    state: str
    usable: bool
    reason: str
    cpus: float
    memory_mib: int
    machines: tuple[Machine, ...] = ()
    watts: int | None = None
    celsius: int | None = None
    saved: int = 0


@dataclass(frozen=True, slots=True)
class Drawing:
    """The VM hosts of an engine, drawn by it for one viewer.

    Attributes:
        nodes: how many they are.
        vms: how many VMs are on them; one that migrates is counted where it leaves.
        boxes: a box for each, as HTML. It is the engine that makes sure that texts in it are no markup.
        group: of a page of all groups: whose they are.
    """

    nodes: int
    vms: int
    boxes: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Act:
    """One VM, or its saved state, to which something is done now; ``part``: from 0 to 1; None: unknown."""

    vjob: str
    user: str
    kind: str
    vm: str
    source: str
    destination: str
    part: float | None
    since: float


@made_at_once
@dataclass(frozen=True, slots=True)
class Row:
    """One vjob that does not run.

    Attributes:
        position: in the queue, from 1 on; None: it has none.
        elements: how many elements of an array the row stands for.
        reason: a sentence.
        nodes: where it is, on disk or in memory.
        size_bytes: of its saved states.
    """

    vjob: str
    user: str
    name: str
    partition: str
    state: str
    position: int | None
    cpus: int
    memory_mib: int
    since: float
    code: str
    reason: str
    elements: int = 1
    nodes: tuple[str, ...] = ()
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Switch:
    """One context switch; ``expected_s`` is None where that is not known, ``took_s`` where nothing was begun."""

    number: int
    time: float
    state: str
    sentence: str
    cost_mib: int
    bound_mib: int
    expected_s: float | None
    took_s: float | None
    steps_done: int
    steps: int


@dataclass(frozen=True, slots=True)
class Scene:
    """All of it.

    Attributes:
        number: it grows with each scene of one engine.
        time: when it was put together.
        host: where the engine runs that leads.
        group: whose engine it is; empty: of all VM hosts.
        leader: a sentence about the engine that leads, and those that stand by.
        cycle: a sentence about the last cycle; ``cycle_time``: when it began; 0: none has.
        notices: what is not as it should be, and what is paused, each a sentence.
        energy: sentences about watts, and nodes that are off.
        nodes: all VM hosts; of a scene that is drawn, the one whose VMs are listed.
        drawings: of a scene that is drawn: its VM hosts, of each group its own.
        private: whether Slurm tells users of their own jobs only.
        nodes_private: whether Slurm tells users of no nodes.
        hidden: how many vjobs of other users are left out.
    """

    number: int = 0
    time: float = 0.0
    version: str = ""
    host: str = ""
    group: str = ""
    leader: str = ""
    cycle: str = ""
    cycle_time: float = 0.0
    notices: tuple[str, ...] = ()
    energy: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    acts: tuple[Act, ...] = ()
    queue: tuple[Row, ...] = ()
    paused: tuple[Row, ...] = ()
    sleeping: tuple[Row, ...] = ()
    switches: tuple[Switch, ...] = ()
    private: bool = False
    nodes_private: bool = False
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks; ``sees_all``: whether Slurm tells all of all jobs to whoever this is, as it does to operators."""

    user: str = ""
    sees_all: bool = True
    sees_nodes: bool = True


def seen_by(scene: Scene, viewer: Viewer) -> Scene:
    """The scene as this viewer may see it.

    Where Slurm's PrivateData has *jobs*, other users' VMs are drawn without a name, and nothing else of them is told:
    no row, and no sentence that might name them. Where it has *nodes*, no node is told.
    """
    if scene.nodes_private and not viewer.sees_nodes:
        scene = replace(scene, nodes=(), energy=(), notices=(), cycle="")
    if viewer.sees_all or not scene.private:
        return scene
    queue, paused, sleeping = (_own(rows, viewer) for rows in (scene.queue, scene.paused, scene.sleeping))
    whole = len(scene.queue) + len(scene.paused) + len(scene.sleeping)
    return replace(
        scene,
        queue=queue,
        paused=paused,
        sleeping=sleeping,
        hidden=whole - len(queue) - len(paused) - len(sleeping),
        nodes=tuple(_veiled(node, viewer) for node in scene.nodes),
        acts=tuple(act for act in scene.acts if act.user == viewer.user),
        switches=tuple(replace(each, sentence="") for each in scene.switches),
        notices=(),
        cycle="",
    )


def _own(rows: tuple[Row, ...], viewer: Viewer) -> tuple[Row, ...]:
    own = (row for row in rows if row.user == viewer.user)
    return tuple(replace(row, reason=veiled(row.reason, (row.vjob,))) for row in own)


def _veiled(node: Node, viewer: Viewer) -> Node:
    machines = tuple(
        each
        if each.user == viewer.user
        else replace(each, vjob="", user="", name="", other="", needs_cpus=None, needs_mib=None)
        for each in node.machines
    )
    return replace(node, machines=machines, reason="")
