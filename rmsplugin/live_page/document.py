"""Document: a scene as one HTML document, which is complete without its script.

The document does not trust the texts in it. A policy, sent with it, allows our style and our script by their hashes,
questions to the same origin, and nothing else; no other site may show the page in a frame.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources

from rmsplugin.live_page import nodes, tables
from rmsplugin.live_page.drawing import drawn
from rmsplugin.live_page.scene import Drawing, Node, Scene
from rmsplugin.live_page.words import moment, several, text


def document(scene: Scene, node: str = "") -> str:
    """The whole document; with ``node``, the VMs of this node are listed, too."""
    scene = drawn(scene, node)
    title = f"VM jobs: {text(scene.group or scene.host)}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<style>{_own('live.css')}</style></head><body>"
        '<a class="skip" href="#waiting-h">Skip to the queue</a>'
        f'<header><h1>{title}</h1><p id="news" role="status"></p></header>'
        f"{nodes.DEFINITIONS}{_main(scene, node)}"
        f"<footer><p>rmsplugin {text(scene.version)}. Times are those of {text(scene.host)}.</p></footer>"
        f"<script>{_own('live.js')}</script></body></html>\n"
    )


def headers() -> dict[str, str]:
    """The headers that come with a document."""
    return {
        "Content-Security-Policy": _policy(),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


@functools.cache
def _own(name: str) -> str:
    return (resources.files(__package__) / "files" / name).read_text(encoding="utf-8")


@functools.cache
def _policy() -> str:
    return (
        f"default-src 'none'; script-src {_hash('live.js')}; style-src {_hash('live.css')}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(name: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(_own(name).encode()).digest()).decode()}'"


# -- the parts -------------------------------------------------------------------------------------------------------


def _main(scene: Scene, node: str) -> str:
    parts = (
        _now(scene),
        _notices(scene),
        _named(scene, node),
        _section("nodes", f"Nodes ({_count(scene)})", _of_nodes(scene)),
        _section("acts", "Under way", tables.acts(scene.acts)),
        _section("waiting", f"Queue ({len(scene.queue)})", _hidden(scene) + tables.queue(scene.queue)),
        _section("paused", f"Paused ({len(scene.paused)})", tables.paused(scene.paused)),
        _section("sleeping", f"Sleeping ({len(scene.sleeping)})", tables.sleeping(scene.sleeping)),
        _section("switches", "Last context switches", tables.switches(scene.switches)),
    )
    return f'<main id="main" tabindex="-1" data-number="{scene.number}">{"".join(parts)}</main>'


def _count(scene: Scene) -> int:
    return sum(each.nodes for each in scene.drawings)


def _section(name: str, title: str, body: str) -> str:
    return f'<section aria-labelledby="{name}-h"><h2 id="{name}-h" tabindex="-1">{title}</h2>{body}</section>'


def _now(scene: Scene) -> str:
    cycle = "No cycle has run yet."
    if scene.cycle_time:
        cycle = f"Last cycle at {moment(scene.cycle_time)}" + (f": {text(scene.cycle)}." if scene.cycle else ".")
    vms = sum(each.vms for each in scene.drawings)
    facts = (
        f"{several(vms, 'VM')} on {several(_count(scene), 'node')}. As of {moment(scene.time)}.",
        cycle,
        *((text(scene.leader),) if scene.leader else ()),
        *map(text, scene.energy),
    )
    return _section("now", "Now", "".join(f"<p>{fact}</p>" for fact in facts))


def _notices(scene: Scene) -> str:
    if not scene.notices:
        return ""
    items = "".join(f"<li>{text(each)}</li>" for each in scene.notices)
    return _section("notices", f"Notices ({len(scene.notices)})", f'<ul class="notices">{items}</ul>')


def _named(scene: Scene, name: str) -> str:
    """The VMs of the node that the viewer has chosen."""
    if not name:
        return ""
    node = next((each for each in scene.nodes if each.name == name), None)
    body = "<p>There is no such VM host.</p>" if node is None else _node(node)
    back = '<p><a href="?">All nodes</a></p>'
    return (
        f'<section id="vms" aria-labelledby="vms-h"><h2 id="vms-h" tabindex="-1">Node {text(name)}</h2>'
        f"{body}{back}</section>"
    )


def _node(node: Node) -> str:
    why = f"<p>{text(node.reason)}</p>" if node.reason else ""
    return f"<p>Its state is {text(node.state)}.</p>{why}{tables.machines(node)}"


def _of_nodes(scene: Scene) -> str:
    if not scene.drawings and scene.nodes_private:
        return "<p>Slurm tells you of no nodes (PrivateData).</p>"
    if not scene.drawings:
        return "<p>No VM host was seen yet.</p>"
    scale = '<p class="facts">Upper bar: CPUs. Lower bar: memory. Both are drawn to the scale of their node.</p>'
    return f'{nodes.legend()}{scale}<div class="map">{"".join(map(_map, scene.drawings))}</div>'


def _map(drawing: Drawing) -> str:
    name = text(drawing.group)
    title = f'<h3><a href="?group={name}">Group {name}</a> ({drawing.nodes})</h3>' if name else ""
    return f'{title}<ul class="nodes">{drawing.boxes}</ul>'


def _hidden(scene: Scene) -> str:
    if not scene.private or not scene.hidden:
        return ""
    others = several(scene.hidden, "job")
    return f"<p>Slurm tells you of your own jobs only (PrivateData). {others} of others: not shown.</p>"
