"""A campaign: a long test that somebody runs by hand, on a minicluster of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable

from e2e import common_templates
from e2e.cluster import Cluster
from e2e.conftest import minicluster


def on_minicluster(act: Callable[[Cluster], object], rooms: str, *options: str) -> int:
    """Do it, and take the minicluster down. Returns the exit code: 1, with a sentence, where something was wrong."""
    common_templates.begin_run()
    try:
        for cluster in minicluster(rooms, *options):
            act(cluster)
    except AssertionError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    finally:
        common_templates.end_run()
    return 0
