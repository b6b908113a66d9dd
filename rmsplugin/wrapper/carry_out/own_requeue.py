"""Own requeue: whether a request from the VM is a requeue of this very job, of which the engine is told first.

A script that asks for its requeue begins anew, as natively; a requeue by anybody else loses no work (decision 0051).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from rmsplugin.client import EngineClient
from rmsplugin.errors import NotFoundError, RefusedError
from rmsplugin.wrapper import process
from rmsplugin.wrapper.engine import EngineLink

# scontrol accepts any prefix of at least three letters of it, in any case.
_VERB, _LEAST = "requeuehold", 3
#: No number of an element has 18 digits, and Python refuses to read thousands of them.
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?")
# Exit codes: Slurm was not asked, or has refused. By a signal the client ends only after it has asked.
_SIGNALLED = 128


def names_own_job(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether these words of a client are a requeue of the job with this environment, or of its whole array."""
    if not words or words[0] != "scontrol":
        return False
    verbs = (at for at, word in enumerate(words) if len(word) >= _LEAST and _VERB.startswith(word.lower()))
    at = next(verbs, None)
    if at is None:
        return False
    array, task = environ.get("SLURM_ARRAY_JOB_ID", ""), environ.get("SLURM_ARRAY_TASK_ID", "")
    names = {environ.get("SLURM_JOB_ID", ""), *({array, f"{array}_{task}"} if array else ())} - {""}
    # In brackets there are commas, too.
    jobs = re.findall(r"[^,\[\]]+(?:\[[^\]]*\])?", ",".join(words[at + 1 :]))
    return any(job in names or _has_task(job, array, task) for job in jobs)


def _has_task(job: str, array: str, task: str) -> bool:
    """Whether ``job`` is a list of elements of the array, such as ``12_[1-5,7]``, that includes this one."""
    match = re.fullmatch(r"([0-9]+)_\[([^\]]*)\]", job)
    if match is None or match[1] != array or not task.isdecimal():
        return False
    for each in match[2].partition("%")[0].split(","):
        if found := _RANGE.fullmatch(each):
            first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
            if int(task) in range(first, last + 1, step or 1):
                return True
    return False


def carried_out(act: Callable[[], int], engine_words: list[str], environ: Mapping[str, str]) -> int:
    """Have the requeue carried out after the engine was told of it; returns its exit code.

    It waits for the engine as for a slurmctld that is down. If the engine did not know, the new run would find a script
    that has ended, and end as that did.
    """
    run = process.run_of_job(environ)
    engine = EngineLink(EngineClient.from_words(engine_words), environ["SLURM_JOB_ID"])
    try:
        engine.requeued("script", run)
    except (NotFoundError, RefusedError):
        return act()  # an engine of an older release
    code = act()
    if 0 < code < _SIGNALLED:
        engine.requeued("nobody", run)
    return code
