"""contrib/try-release: what it takes from this machine into a root, and whose directories it leaves alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from try_release_lib import apt, cli, inside, root

REPOSITORY = Path(__file__).resolve().parents[3]

TARGETS = """\
Google|Google|https://packages.example.org/apt/
Debian|Debian|http://mirror.example.org/debian/
Debian|Debian|http://second.example.org/debian/
Debian|Debian-Security|http://mirror.example.org/debian-security/
"""
DUMP = """\
Acquire "";
Acquire::http::Proxy "http://proxy.example.org:3128";
Acquire::https::Proxy-Auto-Detect "/usr/local/bin/find-proxy";
Acquire::Check-Valid-Until "false";
Acquire::IndexTargets::deb::Packages::Optional "0";
DPkg::Post-Invoke:: "/usr/bin/only-here";
"""


def test_debian_comes_from_where_this_machine_has_it() -> None:
    archive, security = apt.archives(TARGETS)
    assert apt.sources("trixie", archive, security).splitlines() == [
        "deb http://mirror.example.org/debian trixie main",
        "deb http://mirror.example.org/debian trixie-updates main",
        "deb http://mirror.example.org/debian-security trixie-security main",
    ]
    assert apt.sources("sid", archive, security) == "deb http://mirror.example.org/debian sid main\n"


def test_of_a_newer_release_only_criu_is_taken_and_what_it_needs() -> None:
    lines = apt.sources("trixie", "http://m/debian", "http://m/security", apt.NEWER["trixie"]).splitlines()
    assert lines[-1] == "deb http://m/debian forky main"
    everything, criu = apt.preferences("forky").split("\n\n")
    assert everything.splitlines() == ["Package: *", "Pin: release n=forky", "Pin-Priority: -1"]
    assert "criu" in criu.split() and "podman" not in criu and int(criu.split()[-1]) > 500


@pytest.mark.parametrize(
    ("capabilities", "has"), [("000001ffffffffff", True), ("000001fffeffffff", False), ("0", False)]
)
def test_whether_root_may_ask_for_limits_of_others_is_read_from_its_capabilities(capabilities: str, has: bool) -> None:
    assert root.has_sys_resource(f"Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t{capabilities}\n") == has


@pytest.mark.skipif(root.has_sys_resource(), reason="root may do that here")
def test_limits_of_another_users_process_are_read_where_root_may_not_ask_for_them(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    source = REPOSITORY / "contrib/try_release_lib/criu/prlimit.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, source, "-ldl"], check=True)
    asks = (
        "import ctypes, sys; limit = (ctypes.c_uint64 * 2)(); libc = ctypes.CDLL(None, use_errno=True); "
        "said = libc.syscall(302, int(sys.argv[1]), int(sys.argv[2]), None, limit); print(said, *limit)"
    )
    limited = [
        "prlimit",
        "--nofile=123:456",
        "--cpu=77:unlimited",
        "setpriv",
        "--reuid=65534",
        "--clear-groups",
        "sleep",
        "60",
    ]
    with subprocess.Popen(limited) as process:
        try:
            while "sleep" not in Path(f"/proc/{process.pid}/comm").read_text():
                pass

            def ask(number: int, **environment: str) -> str:
                words = [sys.executable, "-c", asks, str(process.pid), str(number)]
                return subprocess.run(
                    words, env={**os.environ, **environment}, capture_output=True, text=True
                ).stdout.strip()

            assert ask(7).startswith("-1"), "without the library"
            assert ask(7, LD_PRELOAD=str(library)) == "0 123 456"
            assert ask(0, LD_PRELOAD=str(library)) == f"0 77 {2**64 - 1}"
            assert ask(99, LD_PRELOAD=str(library)).startswith("-1")
        finally:
            process.kill()


def test_on_another_distribution_it_comes_from_debian() -> None:
    assert apt.archives("Ubuntu|Ubuntu|http://archive.ubuntu.com/ubuntu/\n") == (
        apt.DEFAULT_ARCHIVE,
        apt.DEFAULT_SECURITY,
    )


def test_of_apts_settings_those_are_taken_that_say_how_to_reach_an_archive() -> None:
    assert apt.reaching(DUMP).splitlines() == [
        'Acquire::http::Proxy "http://proxy.example.org:3128";',
        'Acquire::Check-Valid-Until "false";',
    ]


def test_the_environment_has_how_the_network_is_reached_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "https_proxy": "http://p",
        "PIP_INDEX_URL": "http://i",
        "SECRET": "s",
        "PYTHONPATH": "/x",
    }.items():
        monkeypatch.setenv(name, value)
    made = root.environment()
    assert (made["https_proxy"], made["PIP_INDEX_URL"], made["HOME"]) == ("http://p", "http://i", "/root")
    assert not {"SECRET", "PYTHONPATH"} & made.keys()


def test_local_indices_of_pip_are_shown_with_the_files_beside_them(tmp_path: Path) -> None:
    (tmp_path / "index/simple").mkdir(parents=True)
    (tmp_path / "wheels").mkdir()
    texts = [f"[global]\nextra-index-url = file://{tmp_path}/index/simple https://pypi.example.org/simple\n"]
    texts += [f"{tmp_path}/wheels", "/etc/ssl/certs", "/", f"{tmp_path}/missing"]
    assert root.named_directories(texts) == [f"{tmp_path}/index", f"{tmp_path}/wheels"]


def test_the_copy_of_a_checkout_keeps_what_was_made_in_it_and_forgets_what_has_gone(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for name in ("keep/file", "gone/file", ".venv/theirs", "keep/__pycache__/theirs", "was-file", "was-directory/file"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("1")
    (source / "link").symlink_to("keep/file")
    (source / "keep/file").chmod(0o755)
    target.mkdir()
    root._mirror(source, target)
    (target / ".venv").mkdir()
    (target / ".venv/ours").touch()
    for path in ("gone/file", "was-file", "was-directory/file"):
        (source / path).unlink()
    (source / "gone").rmdir()
    (source / "was-directory").rmdir()
    (source / "was-directory").write_text("2")
    (source / "was-file").mkdir()
    (source / "keep/file").write_text("2")
    root._mirror(source, target)
    found = {str(path.relative_to(target)) for path in target.rglob("*")}
    assert found == {"keep", "keep/file", ".venv", ".venv/ours", "was-file", "was-directory", "link"}
    assert (target / "keep/file").read_text() == "2"
    assert stat.S_IMODE((target / "keep/file").stat().st_mode) == 0o755
    assert os.readlink(target / "link") == "keep/file"


def test_a_directory_that_it_did_not_make_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    place = root.Place(tmp_path, "trixie")
    for action in (place.remove, lambda: place.make(None)):
        with pytest.raises(root.RefusedError, match="was not made by try-release"):
            action()
    assert (tmp_path / "precious").exists()


def test_a_root_of_another_release_is_left_alone_and_its_own_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    (directory / "root/etc").mkdir(parents=True)
    (directory / ".rmsplugin-try-release").write_text("trixie\n")
    with pytest.raises(root.RefusedError, match="has Debian trixie, not bookworm"):
        root.Place(directory, "bookworm").remove()
    assert root.Place(directory, "trixie").remove()
    assert not directory.exists()
    assert not root.Place(directory, "trixie").remove()


def test_two_do_not_run_in_one_root(tmp_path: Path) -> None:
    place = root.Place(tmp_path / "d", "trixie")
    with place.lock(), pytest.raises(root.RefusedError, match="something else runs"), place.lock():
        pass


@pytest.mark.parametrize("words", [[], ["Trixie"], ["../x"], ["trixie", "dance"], ["--remove", "trixie", "shell"]])
def test_wrong_arguments_are_refused(words: list[str]) -> None:
    done = subprocess.run([REPOSITORY / "contrib/try-release", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["--remove", "trixie", "--dir"], ["trixie", "--dir"], ["trixie", "--fast", "--dir"]])
def test_a_directory_that_is_named_behind_the_release_is_refused_and_no_other_root_is_taken(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    taken: list[Path] = []
    monkeypatch.setattr(cli, "_run", lambda _, place: taken.append(place.directory) or 0)
    monkeypatch.setattr("sys.argv", ["try-release", *words, str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, taken) == (2, [])
    assert f"--dir {tmp_path}" in capsys.readouterr().err


def test_a_directory_that_is_named_before_the_release_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    taken: list[Path] = []
    monkeypatch.setattr(cli, "_run", lambda _, place: taken.append(place.directory) or 0)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("sys.argv", ["try-release", "--remove", "--dir", str(tmp_path), "trixie"])
    assert cli.main() == 0
    assert taken == [tmp_path]


def test_each_program_is_told_its_own_exit_status_and_the_caller_that_one_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    statuses = {"tests": 3, "quickstart": 0}
    monkeypatch.setattr(inside, "run", lambda place, command: statuses[command[0]])
    assert cli._run_each(root.Place(tmp_path, "trixie"), "trixie", [["tests", "-x"], ["quickstart"]]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "try-release: trixie: tests -x",
        "try-release: trixie: tests: exit status 3",
        "try-release: trixie: quickstart",
        "try-release: trixie: quickstart: exit status 0",
    ]


def test_a_quickstart_of_another_release_or_root_has_a_directory_of_its_own(tmp_path: Path) -> None:
    def directory(place: root.Place) -> str:
        [command] = cli._commands("quickstart", [], place)
        return command[command.index("--dir") + 1]

    places = [
        root.Place(tmp_path / name, release) for name, release in (("a", "trixie"), ("b", "trixie"), ("c", "sid"))
    ]
    assert len({"/var/tmp/rmsplugin-minicluster", *map(directory, places)}) == 4
    assert directory(places[0]) == directory(root.Place(tmp_path / "a", "trixie"))
