"""Why tests of the suite differ, in words of our own: a test that differs and is not here makes the campaign fail."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: Mapping[str, str] = {
    "2.7": "scontrol pidinfo is refused in a VM, as the user guide says; the test has that in a file, not in its log",
}
