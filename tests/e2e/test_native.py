"""A few cases of tests/e2e/cases; ``contrib/run-campaign native`` runs all (issue 12)."""

from __future__ import annotations

import pytest
from e2e.cluster import Cluster
from e2e.native.case import read_cases
from e2e.native.judging import judge, told

pytestmark = pytest.mark.e2e


def test_jobs_are_what_they_are_in_a_native_partition_but_for_what_their_cases_admit(cluster: Cluster) -> None:
    verdicts = judge(cluster, [case for case in read_cases() if case.ci])
    wrong = [told(verdict) for verdict in verdicts if not verdict.good]
    assert not wrong, "\n".join(wrong)
