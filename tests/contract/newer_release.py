"""A newer release of the program: a copy of this one with another version, and one more step of the ledger's schema."""

from __future__ import annotations

import shutil
from pathlib import Path

import rmsplugin

VERSION = "99.0.0"
_STEP = '''

@migrations()
def m900_newer_release(db: Database) -> None:
    """What a later release adds."""
    db.execute("create table newer (id integer primary key)")
'''


def newer_release(directory: Path, *, schema: bool = True) -> Path:
    """Make it; returns what PYTHONPATH has to be. ``schema``: with one more step."""
    source = Path(rmsplugin.__file__).parent
    code = directory / "newer" / "rmsplugin"
    shutil.copytree(source, code, ignore=shutil.ignore_patterns("__pycache__"))
    said = (code / "__init__.py").read_text()
    (code / "__init__.py").write_text(said.replace(f'"{rmsplugin.__version__}"', f'"{VERSION}"'))
    if schema:
        steps = code / "engine/ledger/migrations.py"
        steps.write_text(steps.read_text() + _STEP)
    return code.parent
