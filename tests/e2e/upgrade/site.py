"""Site: the minicluster of the older release, whose hosts get the newer one with the steps of the upgrade guide."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from e2e.cluster import REPOSITORY, Cluster, Result
from e2e.upgrade.release import NEXT
from minicluster_lib.slurm import HOOKS_DIRECTORY


class Site(Cluster):
    """A running minicluster whose hosts have the program at ``tree``."""

    def __init__(self, directory: Path, tree: Path, *, of_packages: bool = False) -> None:
        """``of_packages``: the programs are those of packages, which see no modules but their own."""
        super().__init__(directory)
        self._tree, self._of_packages = tree, of_packages
        self.program = tree / ".venv/bin/rmsplugin"

    def manage(self, *words: str, timeout_s: float = 900) -> Result:
        """As the older release's ``contrib/minicluster`` does it."""
        owner = ("--owner", str(os.getpid())) if words[0] == "up" else ()
        command = [str(self._tree / "contrib/minicluster"), words[0], "--dir", str(self.directory)]
        return self._run([*command, *owner, *words[1:]], timeout_s)

    def plugin(self, *argv: str, user: str = "root", timeout_s: float = 300) -> Result:
        """Run ``rmsplugin ARGV`` on the head, of the release that is there."""
        return self.run(str(self.program), *argv, user=user, timeout_s=timeout_s)

    def newer(self, *argv: str) -> Result:
        """Run ``rmsplugin ARGV`` of the newer release on the head, where the older one is installed."""
        code = "import sys; from rmsplugin.cli.main import main; sys.exit(main())"
        if self._of_packages:
            python = [str(self._tree / NEXT / ".venv/bin/python3"), "-I"]
        else:
            python = ["env", f"PYTHONPATH={self._tree / NEXT}", str(self.program.parent / "python3")]
        return self.run(*python, "-c", code, *argv, timeout_s=300)

    def install(self, host: str) -> None:
        """Have the newer release on a host."""
        self.ok("mount", "--bind", str(self._tree / NEXT), str(self._tree), host=host)

    def copy_files(self) -> None:
        """Copy Lua files and hooks, as step 3 of the guide says."""
        for file in (REPOSITORY / "lua").glob("*.lua"):
            shutil.copy2(file, self.directory / "shared/slurm" / file.name)
        for host in ("head", "front2", *self.nodes):
            for hook in self.host_path(host, HOOKS_DIRECTORY).glob("*"):
                source = REPOSITORY / "hooks" / hook.name
                if source.is_file():
                    shutil.copyfile(source, hook)
        text = (REPOSITORY / "hooks/qemu").read_text()
        own = text.replace("/usr/bin/rmsplugin-node", str(self.program.with_name("rmsplugin-node")))
        for node in self.nodes:
            self.host_path(node, "/etc/libvirt/hooks/qemu").write_text(own)
        self.ok("scontrol", "reconfigure")
