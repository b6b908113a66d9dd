"""The guest's parsers with sanitizers, and mutations of what they read."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_HERE = Path(__file__).parent
_NATIVE = _HERE.parents[1] / "rmsplugin/guest_tools/native"
#: Their own functions are fuzzed, so that they are included in tests/fuzz, not linked; main() is the driver's.
_INCLUDED = ("main.c", "srun/client.c", "srun/request.c", "commands/serve.c", "stepd/task_scripts.c")
#: Nothing that a parser reads is so long that more would be needed: a count that nobody checked is.
_MOST_MIB = 64


def missing() -> str:
    """Why parsers cannot be fuzzed here; empty if they can."""
    return "" if shutil.which("gcc") else "gcc is not installed"


def build(directory: Path, *optimised: str) -> Path:
    """Compile the driver with sanitizers; the program. ``optimised``: options, for runs that take far longer."""
    program = directory / "parsers"
    sources = [path for path in sorted(_NATIVE.rglob("*.c")) if str(path.relative_to(_NATIVE)) not in _INCLUDED]
    flags = ("-std=gnu11", "-g1", *optimised, "-fno-omit-frame-pointer", "-fsanitize=address,undefined")
    wrapped = ("-fno-sanitize-recover=undefined", "-Wl,--wrap=exit,--wrap=_exit")
    words = ["gcc", *flags, *wrapped, f"-I{_NATIVE}", f"-I{_HERE}"]
    subprocess.run([*words, "-o", program, *sorted(_HERE.glob("*.c")), *sources], check=True)
    return program


def fuzz(program: Path, seed: int, rounds: int, timeout_s: float = 600.0) -> str:
    """Fuzz all parsers; what was wrong, empty if nothing was."""
    log = program.with_name("sanitizer")
    options = f"detect_leaks=0:max_allocation_size_mb={_MOST_MIB}:log_path={log}"
    environment = {"ASAN_OPTIONS": options, "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={log}", "PATH": os.defpath}
    result = subprocess.run(
        [program, str(seed), str(rounds)], env=environment, capture_output=True, text=True, timeout=timeout_s
    )
    if result.returncode == 0:
        return ""
    reports = [path.read_text(errors="replace") for path in sorted(program.parent.glob("sanitizer.*"))]
    return "\n".join([result.stderr, *reports[:3]])
