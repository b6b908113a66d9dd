"""Drawing: the nodes of a scene as boxes, which an engine draws, so that a manager has only to put them together."""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.live_page.nodes import boxes
from rmsplugin.live_page.scene import Drawing, Scene


def drawn(scene: Scene, name: str = "") -> Scene:
    """The scene with a drawing in place of its nodes; only the one of this name, whose VMs are to be listed, is kept.

    A scene that is drawn already, and one without nodes, is returned as it is.
    """
    if scene.drawings or not scene.nodes:
        return scene
    vms = sum(each.state != "arriving" for node in scene.nodes for each in node.machines)
    chosen = tuple(node for node in scene.nodes if node.name == name)
    return replace(scene, nodes=chosen, drawings=(Drawing(len(scene.nodes), vms, boxes(scene.nodes)),))
