"""Drawing: the nodes of a scene as boxes, which an engine draws, so that a manager has only to put them together."""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.live_page.nodes import box
from rmsplugin.live_page.scene import Drawing, Node, Scene

#: The most boxes that are kept of one scene: viewers of whom each sees something else could ask for any number.
_KEPT = 20_000


class Boxes:
    """Keeps the boxes of the last two scenes: a node that looks as it did is not drawn again. Threads may share it."""

    def __init__(self) -> None:
        """Nothing was drawn yet."""
        # By the node's hash, which goes through all of its VMs, and is made once for each scene.
        self._now: dict[int, tuple[Node, str]] = {}
        self._before: dict[int, tuple[Node, str]] = {}

    def begin_scene(self) -> None:
        """There is a newer scene: boxes that neither it nor the one before it has are forgotten."""
        self._before, self._now = self._now, {}

    def of(self, node: Node) -> str:
        """The box of a node, drawn if need be."""
        key = hash(node)
        kept = self._now.get(key) or self._before.get(key)
        if kept is None or kept[0] != node:
            kept = node, box(node)
        if len(self._now) < _KEPT:
            self._now[key] = kept
        return kept[1]


def drawn(scene: Scene, name: str = "", boxes: Boxes | None = None) -> Scene:
    """The scene with a drawing in place of its nodes; only the one of this name, whose VMs are to be listed, is kept.

    A scene that is drawn already, and one without nodes, is returned as it is.

    Args:
        scene: as its viewer may see it.
        name: of the node whose VMs are to be listed; empty: none.
        boxes: of scenes that were drawn before; None: each node is drawn.
    """
    if scene.drawings or not scene.nodes:
        return scene
    vms = sum(each.state != "arriving" for node in scene.nodes for each in node.machines)
    chosen = tuple(node for node in scene.nodes if node.name == name)
    made = "".join(map(boxes.of if boxes else box, scene.nodes))
    return replace(scene, nodes=chosen, drawings=(Drawing(len(scene.nodes), vms, made),))
