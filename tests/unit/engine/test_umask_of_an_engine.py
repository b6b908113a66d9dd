"""What an engine or a manager makes is its own, whatever the umask is under which it is started."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

SETTINGS = """
[engine]
user = "{user}"
state_dir = "{state}"
[slurm]
partitions = ["vjob"]
[partition.vjob]
hosts = "vmhosts"
[network]
pool = "10.0.0.10-10.0.0.20"
prefix_length = 24
[image.default]
kind = "kernel"
kernel = "/k"
initrd = "/i"
[cluster]
coordination = "zookeeper"
servers = ["127.0.0.1:1"]
shared_dir = "{state}/no-such-directory"
{groups}
"""


@pytest.mark.parametrize(
    ("command", "groups"), [("engine", ""), ("manager", '[group.a]\nhosts = "n1"\n')], ids=["engine", "manager"]
)
def test_nobody_else_writes_above_the_state_directory(tmp_path: Path, command: str, groups: str) -> None:
    """It refuses to lead, for there is no shared directory; its own is made by then."""
    config, user = tmp_path / "rmsplugin.toml", pwd.getpwuid(os.geteuid()).pw_name
    config.write_text(SETTINGS.format(user=user, state=tmp_path / "above/state", groups=groups))
    done = subprocess.run(
        [sys.executable, "-m", "rmsplugin.cli.main", command, "--config", config],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        umask=0,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 2, done.stderr
    assert "no-such-directory" in done.stderr
    assert (tmp_path / "above").stat().st_mode & 0o777 == 0o700
