"""The other commands that the guides show to be typed: run here below a directory, or by the test that is named.

Those of `rmsplugin` are run in test_commands_of_guides.py and test_live_commands_of_guides.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.shown_commands import DOCS, in_code

ROOT = DOCS.parent
PAGES = [DOCS / name for name in ("faq.md", "security.md", "moving-a-job-script.md", "writing-a-policy.md")]
PAGES += [
    ROOT / "README.md",
    *(page for name in ("operator", "user", "simulation") for page in (DOCS / name).glob("*.md")),
]
#: Programs that write files, and need nothing else of the machine.
HERE = ("cat", "cp", "for", "install", "ln", "ssh-keygen", "tar")
#: By how a command begins: the file that runs the like of it, and what stands there.
ELSEWHERE = {
    "apparmor_parser": ("tests/security/test_apparmor.py", "apparmor_parser"),
    "apt-get install ./": (
        "tests/packaged/__main__.py",
        "apt-get -q -y install --no-install-recommends /srv/debs/*.deb",
    ),
    "chown slurm": ("tests/e2e/test_restored_ledger.py", "install -o slurm -m 600"),
    "contrib/build-packages": ("tests/packaged/__main__.py", '"contrib/build-packages", release'),
    "contrib/quickstart": ("contrib/try_release_lib/cli.py", "quickstart"),
    "contrib/run-tests": (".ci/run", "contrib/run-tests"),
    "journalctl -u rmsplugin-engine": ("tests/real_site/trouble.py", "journalctl -u"),
    "/opt/rmsplugin/bin/pip install .": ("contrib/lib.sh", '"libvirt-python==$libvirt"'),
    "python3 -m venv": ("contrib/lib.sh", "-m venv"),
    "sacct -D": ("tests/e2e/mixed.py", '"--duplicates"'),
    "sacctmgr add user slurm account=root": ("tests/real_site/steps.py", "sacctmgr -i add user slurm account=root"),
    "sbatch": ("tests/real_site/vjobs.py", "sbatch"),
    "scp": ("contrib/ansible/roles/rmsplugin/tasks/node.yml", "/etc/rmsplugin/nodes/"),
    "squeue -j": ("tests/e2e/flood.py", '"squeue"'),
    "systemctl": ("tests/real_site/steps.py", "systemctl enable --now"),
}
#: What there is to be named: packages of Debian, and extras of ours.
NAMES = ("apt-get install", "pip install")
#: NetworkManager is on no machine of ours: `nmcli --offline` was run by hand with the lines that add something.
NOT_RUN = ("nmcli",)
BEGINNINGS = (*HERE, *ELSEWHERE, *NAMES, *NOT_RUN)
#: Programs of which a line that begins with one is a command, and no line of a file.
PROGRAMS = {
    *("apparmor_parser", "apt-get", "cat", "chmod", "chown", "cp", "curl", "dpkg", "for", "install", "ip", "ln"),
    *("journalctl", "mkdir", "mount", "mv", "nft", "nmcli", "openssl", "pip", "podman", "python3", "rm", "sacct"),
    *("sacctmgr", "sbatch", "scancel", "scontrol", "scp", "sinfo", "squeue", "srun", "ssh", "ssh-keygen", "su"),
    *("systemctl", "tar", "touch", "virsh"),
}


def is_command(line: str) -> bool:
    """Whether it begins as a command does, with one of these programs, or with one of a checkout or an installation."""
    program, _, arguments = line.partition(" ")
    if program == "for":
        return "; do " in arguments
    return bool(arguments or "/" in program) and (program in PROGRAMS or program.startswith(("contrib/", "/opt/")))


def lines_of(page: Path) -> list[str]:
    """The lines of a page that are commands, without who gives them and without remarks."""
    found = (re.sub(r"^ *(?:[$#] )?(?:sudo )?| +# .*$", "", line) for line in in_code(page.read_text()).splitlines())
    return [line for line in dict.fromkeys(found) if is_command(line)]


SHOWN = {page: lines for page in PAGES if (lines := lines_of(page))}

MAKING = [page for page, lines in SHOWN.items() if any(line.split(" ")[0] in HERE for line in lines)]


def begins(line: str, words: str) -> bool:
    return line == words or line.startswith(words if words.endswith("/") else f"{words} ")


def test_each_command_that_is_shown_is_run_or_said_not_to_be() -> None:
    unknown = [(page.name, line) for page, lines in SHOWN.items() for line in lines
               if not any(begins(line, words) for words in BEGINNINGS)]  # fmt: skip
    assert unknown == []


@pytest.mark.parametrize("words", ELSEWHERE)
def test_the_others_are_run_where_it_is_said(words: str) -> None:
    file, shown = ELSEWHERE[words]
    assert shown in (ROOT / file).read_text()
    assert any(begins(line, words) for lines in SHOWN.values() for line in lines), "no guide shows it any more"


def below(line: str, system: Path) -> str:
    """The command with the directories of the system below another one, and files that are its caller's."""
    moved = re.sub(
        r"(?<![\w./-])/(?=(?:etc|opt|shared|usr|var)\b)", f"{system}/", line.replace("-C / ", f"-C {system} ")
    )
    return moved.replace("-o slurm ", "")


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """What a host has before: directories, the engine's keys, a backup's place."""
    for name in ("etc/apparmor.d/local", "etc/systemd/system", "opt/rmsplugin/bin", "usr/bin", "var/backups"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("etc/rmsplugin/hooks", "shared/rmsplugin", "var/lib/rmsplugin"):
        (tmp_path / name).mkdir(parents=True)
    for number in (1, 5):
        (tmp_path / f"usr/local/share/man/man{number}").mkdir(parents=True)
    (tmp_path / "opt/rmsplugin/bin/rmsplugin").touch()
    (tmp_path / "var/backups/rmsplugin.sqlite").touch()
    for place in ("var/lib/rmsplugin", "shared/rmsplugin"):
        for name in ("guest_root_key", "guest_root_key.pub", "identity"):
            (tmp_path / place / name).touch()
    return tmp_path


@pytest.mark.parametrize("page", MAKING, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_files_are_made_as_it_is_shown(system: Path, page: Path) -> None:
    """The commands of a page, one after the other, in a checkout."""
    script = [below(line, system) for line in SHOWN[page] if line.split(" ")[0] in HERE]
    done = subprocess.run(["sh", "-eu", "-c", "\n".join(script)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_packages_and_extras_that_are_named_exist() -> None:
    packages = (ROOT / "contrib/packages.txt").read_text().split()
    controls = "".join(path.read_text() for path in (ROOT / "contrib/debian").glob("*.control"))
    known = {*packages, *re.findall(r"[a-z][a-z0-9.+-]+", controls), "zookeeperd"}
    extras = re.findall(r"^([a-z]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    unknown = []
    for page, lines in SHOWN.items():
        for line in lines:
            if line.startswith("apt-get install ") and "./" not in line:
                unknown += [(page.name, word) for word in line.split()[2:] if word not in known]
            unknown += [(page.name, word) for word in re.findall(r"rmsplugin\[(\w+)\]", line) if word not in extras]
    assert unknown == []


#: How programs of others are asked what they know; in what they say, a verb begins a line.
ASKED = {
    **dict.fromkeys(("sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "systemctl"), ("--help",)),
    "virsh": ("--help", "help"),
}
#: Options that there are, and that their program's help does not name.
UNTOLD = {("squeue", "--me"), ("squeue", "--steps")}
#: Slurm's clients say nothing without one; nobody is asked.
SLURM_CONF = """\
ClusterName=c
SlurmctldHost=localhost
AccountingStorageType=accounting_storage/slurmdbd
NodeName=n1
PartitionName=p Nodes=n1
"""
#: Programs whose first word is what they are to do.
WITH_VERBS = ("scontrol", "systemctl", "virsh")


def words_of(program: str) -> Iterator[tuple[str, str]]:
    """Options and verbs with which pages show a program, in lines and in sentences, each with the page's name."""
    for page in PAGES:
        text = page.read_text()
        for shown in [*lines_of(page), *re.findall(rf"`({program} [^`]+)`", text)]:
            name, *words = re.split(r"[|;&]| --wrap", shown)[0].split()
            if name != program:
                continue
            if name in WITH_VERBS and words and words[0][0] != "-":
                yield page.name, words[0]
            yield from ((page.name, word.partition("=")[0]) for word in words if re.match(r"--?[a-zA-Z]", word))


@pytest.mark.parametrize("program", ASKED)
def test_what_a_program_of_others_is_told_is_known_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here")
    (tmp_path / "slurm.conf").write_text(SLURM_CONF)
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    said = "".join(subprocess.run([program, how], capture_output=True, text=True).stdout for how in ASKED[program])
    named = set(words_of(program))
    assert named, "no guide names it any more"
    unknown = sorted((page, word) for page, word in named if not knows(said, word) and (program, word) not in UNTOLD)
    assert unknown == [], said


def knows(said: str, word: str) -> bool:
    """Whether a program's help has the option, of which a short one may have its value behind it, or the verb."""
    if word.startswith("--"):
        return bool(re.search(rf"(?<![\w-]){word}(?![\w-])", said))
    if word.startswith("-"):
        return bool(re.search(rf"(?<![\w-]){word[:2]}(?![\w-])", said))
    return bool(re.search(rf"^\s+{word}\b", said, re.MULTILINE))
