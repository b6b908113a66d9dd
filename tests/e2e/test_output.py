"""Much output through a small VM, whatever happens to it on the way; gigabytes: ``contrib/run-campaign flood``."""

from __future__ import annotations

import pytest
from e2e.cluster import Cluster
from e2e.flood import flood

# Without KVM, on a busy machine, a megabyte may take a second or two.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]


def test_much_output_through_a_small_vm_across_a_suspend_and_a_migration(cluster: Cluster) -> None:
    flood(cluster, blocks=64, switches=2)
