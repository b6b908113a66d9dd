"""Rules for the file servers from which VMs mount: whether they answer at the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmsplugin.finding import Finding, ok, warning


def judge_servers(subject: str, found: Mapping[str, str]) -> Iterator[Finding]:
    """Judge one node; ``found``: by HOST:PORT why nothing could be connected there, "" if it could."""
    silent = {server: why for server, why in found.items() if why}
    for server, why in silent.items():
        yield warning(
            subject,
            f"does not reach {server}, from which VMs mount ({why}): none starts there, unless the guests' network has "
            "another way",
            "have the server run, and let nodes and guests reach it; see [[guest.mounts]]",
        )
    if found and not silent:
        yield ok(subject, f"reaches the file servers of VMs: {', '.join(found)}")
