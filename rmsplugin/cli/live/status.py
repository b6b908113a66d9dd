"""Status: `rmsplugin status`, whether the engine runs, and what it did last."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Generic, TypeVar

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.sentences import cycle_sentence, pause_sentence
from rmsplugin.cli.shared.table import local_time
from rmsplugin.errors import NoMungeError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmsplugin.api.answers import Cluster, GroupLead, Status
    from rmsplugin.api.binding import Engine

T = TypeVar("T")

#: Whoever watches the engine is answered within so many seconds, once the settings are read.
_ANSWER_S = 2.0
#: Settings that are not read within so many seconds lie where nobody answers; a busy host takes some.
_SETTINGS_S = 30.0
#: An engine that has not answered within this part of that is taken for silent, and munge is looked at.
_SOON = 0.25
_WITHOUT_MUNGE = (
    "without it nobody on another host can be asked from here: see `systemctl status munge`, and start it again"
)


def add_command(commands: options.Commands) -> None:
    """Add status to the command line."""
    status = options.add_command(
        commands,
        "status",
        "tell whether the engine runs, what its last cycle did, and how far the last context switch is",
        _status,
        """
        Of several engines the one that leads answers: on which host, since when, who stands by, and what is degraded,
        such as an ensemble without one of its servers, or a shared directory that is slow. A manager tells of all
        groups: on which host the engine of each runs, since when, and which one does not answer.

        For monitoring: exit code 0: the engine is well. 1: it does not answer within two seconds, its last cycle failed
        (Slurm or the ledger did not answer) or is too long ago, or the engine of a group does not answer; standard
        error says which. 2: the settings are wrong; on a busy host reading them takes longer than that.

        examples:
          rmsplugin status
          rmsplugin status --json
        """,
    )
    status.add_argument("--json", action="store_true", help="the engine's answer, as JSON")


def _status(arguments: argparse.Namespace) -> int:
    answer = _within(_ANSWER_S, _find(arguments))
    ills = [*answer.get("ills", ()), *_silent_groups(answer)]
    if arguments.json:
        print_document(arguments, answer, errors=ills, warnings=answer.get("problems", ()))
        return 1 if ills else 0
    started = answer.get("started")
    since = f", started {local_time(started)}" if isinstance(started, int | float) else ""
    host = answer.get("host")
    where = f" on {host}" if isinstance(host, str) else ""
    print(printable(f"engine {answer.get('version', '?')}{where}{since}"))
    if isinstance(epoch := answer.get("epoch"), int) and epoch > 1:
        _print_cluster(epoch, answer.get("cluster"))
    _print_groups(answer.get("groups", []))
    cycle = answer.get("last_cycle")
    if cycle and cycle["time"]:
        took = f"{local_time(cycle['time'])} ({cycle['seconds']:.1f} s)"
        print(printable(f"last cycle {took}: {cycle['sentence']}"))
    else:
        print("no cycle yet")
    if last := answer.get("last_plan"):
        print(printable(cycle_sentence(last)))
    if pause := answer.get("paused"):
        print(printable(f"{pause_sentence(pause)}; `rmsplugin unpause` has it decide again"))
    if quiet := answer.get("quiet"):
        print(printable(quiet))
    if power := answer.get("power"):
        print(printable(power))
    if lateness := answer.get("lateness"):
        print(printable(lateness["sentence"]))
    if measured := answer.get("durations"):
        used = (f"{each['action']} ({each['count']} times, since {local_time(each['since'])})" for each in measured)
        print(printable(f"durations as measured: {', '.join(used)}"))
    for problem in answer.get("problems", []):
        print(printable(f"problem: {problem}"))
    for ill in ills:
        print(f"rmsplugin status: {printable(ill)}", file=sys.stderr)
    return 1 if ills else 0


def _silent_groups(answer: Status) -> list[str]:
    """A sentence for each group whose engine does not answer."""
    return [
        f"the engine of group {each['name']} does not answer"
        for each in answer.get("groups", ())
        if not each.get("answers", True)
    ]


class _Asked(Generic[T]):
    """A question in a thread of its own: a socket, munge or a file server may hang, each with a bound of its own."""

    def __init__(self, ask: Callable[[], T]) -> None:
        import threading  # here: other commands need none

        self._ask, self._said = ask, list[T | Exception]()
        self._thread = threading.Thread(target=self._keep_answer, daemon=True)
        self._thread.start()

    def _keep_answer(self) -> None:
        try:
            self._said.append(self._ask())
        except Exception as error:
            self._said.append(error)  # the command says it; a thread would print a traceback

    def wait(self, seconds: float) -> bool:
        """Whether it is answered, or has failed, after so long at most."""
        self._thread.join(max(0.0, seconds))
        return bool(self._said)

    def answer(self) -> T:
        """The answer; raises the error with which it has failed."""
        if isinstance(self._said[0], Exception):
            raise self._said[0]
        return self._said[0]


def _find(arguments: argparse.Namespace) -> Engine:
    """The engine that the settings name. Raises what ``find_engine`` raises, however long the host takes for it."""
    finding = _Asked(lambda: find_engine(arguments))
    if not finding.wait(_SETTINGS_S):
        raise UnavailableError(f"the settings file was not read within {_SETTINGS_S:g} s: see where it lies")
    engine = finding.answer()
    engine.while_asked = lambda place, bound_s: nullcontext()  # the answer is given up before anything would be said
    return engine


def _within(seconds: float, engine: Engine) -> Status:
    """The answer of the engine. Raises UnavailableError with what keeps it away, after so long at the latest."""
    began = time.monotonic()
    asked, proved = _Asked(engine.status), None
    if not asked.wait(seconds * _SOON) and _needs_munge(engine.places):
        proved = _Asked(_prove)
    if not asked.wait(began + seconds - time.monotonic()):
        munge_hangs = proved is not None and not proved.wait(0.0)
        raise UnavailableError(_why_silent(seconds, engine.places, munge_hangs=munge_hangs))
    try:
        return asked.answer()
    except NoMungeError as error:
        raise UnavailableError(f"{error}; {_WITHOUT_MUNGE}") from None


def _needs_munge(places: Sequence[str]) -> bool:
    return not all(place.startswith("/") for place in places)


def _prove() -> None:
    """Have munge make a credential. Ends late where it hangs; an error of it is that of the question, too."""
    from rmsplugin.adapters import munge

    munge.encode(b"")


def _why_silent(seconds: float, places: Sequence[str], *, munge_hangs: bool) -> str:
    said = f"the engine at {', '.join(places)} did not answer within {seconds:g} s"
    return f"{said}; munge on this host does not answer either, and {_WITHOUT_MUNGE}" if munge_hangs else said


def _print_groups(groups: Sequence[GroupLead]) -> None:
    """Tell where the engine of each group runs, since when, or why it does not answer."""
    for group in groups:
        since = f", since {local_time(group['leads_since'])}" if group["leads_since"] else ""
        epoch = f" with epoch {group['epoch']}" if group["epoch"] is not None else ""
        problem = f": {group['problem']}" if group["problem"] else ""
        where = f"on {group['host']}" if group["host"] else "has no manager"
        print(printable(f"group {group['name']} {where}{epoch}{since}{_order(group)}{problem}"))


def _order(group: GroupLead) -> str:
    """Where an operator wants the group to be; empty of an older release, too."""
    if not (host := group.get("kept_on")):
        return ""
    by = f"by order of {group['kept_by']}"
    return f", {by}" if host == group["host"] else f", to go to {host} {by}"


def _print_cluster(epoch: int, cluster: Cluster | None) -> None:
    """Tell since when the engine leads, who stands by, and what is degraded; nothing more of an older release."""
    since = f", since {local_time(cluster['leads_since'])}" if cluster else ""
    print(f"leads with epoch {epoch}{since}")
    for standby in cluster["standbys"] if cluster else ():
        words = [standby["host"], standby["version"] and f"rmsplugin {standby['version']}", standby["url"]]
        print(printable(f"stands by: {', '.join(word for word in words if word)}"))
    for sentence in cluster["degraded"] if cluster else ():
        print(printable(f"degraded: {sentence}"))
