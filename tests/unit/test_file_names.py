"""Names of test files: pytest collects no two of one name, unless their directories are packages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_no_two_test_files_have_one_name() -> None:
    files = [path for path in TESTS.rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    assert len(files) > 300
    assert [name for name, times in Counter(path.name for path in files).items() if times > 1] == []
