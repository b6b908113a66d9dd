"""Engine link: the wrapper's questions and reports to the engine, however long the engine is down."""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import socket
import time
from collections.abc import Callable

from rmsplugin.client import EngineClient
from rmsplugin.errors import NotFoundError, RefusedError, RmspluginError, UnavailableError
from rmsplugin.wrapper.session.access import Access
from rmsplugin.wrapper.session.session import Ending

TYPE_CHECKING = False  # see rmsplugin/client.py
if TYPE_CHECKING:
    from typing import Any, TypeVar

    _T = TypeVar("_T")

_ACCESS_WAIT_S = 25
_ANSWER_TIMEOUT_S = 10.0
# Over TCP each request costs a munge and an unmunge on both sides. The times are spread, so that the wrappers of a
# restarted front do not come all at once for ever.
_SIGN_OF_LIFE_S = (11.0, 19.0)
# A sign that nobody answered is repeated soon: after a whole period more the engine may miss this wrapper.
_SIGN_AGAIN_S = (2.0, 5.0)
_LONGEST_PAUSE_S = 5.0
_CHUNK_BYTES = 1 << 16
# The least time between two reports that this process goes on.
_LEAST_SIGN_OF_LIFE_S = 1.0
# A "no" is believed when it is repeated: an engine that has just been restarted may not know all its vjobs yet.
_REFUSALS = 4
_REFUSED_PAUSE_S = 1.0
# Slurm learns the ending from our exit; the engine has to know it first only if we die in between.
_FINISHED_PATIENCE_S = 60.0


class EngineLink:
    """Talks to the engine about one job."""

    def __init__(self, client: EngineClient, job_id: str, run: int = 0) -> None:
        """For the job that this process wraps, and the number of its requeues before this run."""
        self._client = client
        self._path = f"/v1/jobs/{job_id}"
        # A first run leaves this out: an engine of an older release does not know the word.
        self._run = f"&run={run}" if run else ""
        self._wakes, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._silent = False
        self._host = "".join(c for c in socket.gethostname() if c.isalnum() or c in "-.")

    def access(self) -> Access:
        """Wait until the VMs run, as long as it takes, and return the way into them.

        Raises:
            RmspluginError: the engine says, again and again, that this will never be.
        """
        query = f"{self._path}/access?wait={_ACCESS_WAIT_S}&wrapper=1&host={self._host}{self._run}"

        def ask() -> Access:
            asked = time.monotonic()
            answer = self._client.request("GET", query, timeout_s=_ACCESS_WAIT_S + _ANSWER_TIMEOUT_S)
            access = Access.parse(answer)
            if access is None:
                # The engine has waited for us; if it has not, this process must not run in circles.
                time.sleep(max(1.0 - (time.monotonic() - asked), 0.0))
                raise _NotYetError("the VMs do not run")
            return access

        return insist(ask)

    def starting(self) -> None:
        """Have the engine record that the script is about to start. Raises as ``access``."""
        insist(lambda: self._post("started"))

    def finished(self, ending: Ending) -> None:
        """Tell how the script ended, if the engine accepts it in time."""
        body = {"exit_code": ending.exit_code, "signal": ending.signal}
        try:
            insist(lambda: self._post("finished", body), patience_s=_FINISHED_PATIENCE_S)
        except RmspluginError:
            return

    def requeued(self, by: str, restarts: int, *, patience_s: float | None = None) -> bool:
        """Tell of a requeue on purpose: by ``script`` (``nobody``, if Slurm refused it) or ``others``.

        Returns whether the script itself has asked for the requeue that is under way.

        Raises:
            RmspluginError: as ``access``; or ``patience_s`` are over.
        """
        body = {"by": by, "restarts": restarts}
        return bool(insist(lambda: self._post("requeued", body), patience_s=patience_s).get("own"))

    def show_signs_of_life(self, returned: Callable[[int], object]) -> None:
        """Tell the engine from now on that a wrapper is attached to the script.

        Args:
            returned: called, in another thread, with the number of times that the vjob went back to a checkpoint.
        """
        _thread.start_new_thread(self._signs_of_life, (returned,))

    def fall_silent(self) -> None:
        """Give no sign of life any more."""
        self._silent = True

    def goes_on(self) -> None:
        """Report that this process was stopped and goes on: a sign of life is sent soon. Any thread may call."""
        with contextlib.suppress(BlockingIOError):  # then one is sent soon anyway
            os.write(self._wake, b"!")

    def _signs_of_life(self, returned: Callable[[int], object]) -> None:
        poll = select.poll()
        poll.register(self._wakes, select.POLLIN)
        while not self._silent:
            shortest, longest = self._sign_of_life(returned)
            time.sleep(_LEAST_SIGN_OF_LIFE_S)
            poll.poll(1000 * (shortest + (longest - shortest) * os.urandom(1)[0] / 255 - _LEAST_SIGN_OF_LIFE_S))
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakes, _CHUNK_BYTES)

    def _sign_of_life(self, returned: Callable[[int], object]) -> tuple[float, float]:
        """Give one sign. Returns the least and the most seconds until the next one."""
        try:
            returned(int(self._tell_attached().get("returns", 0)))
        except (UnavailableError, OSError):
            return _SIGN_AGAIN_S
        except RmspluginError:  # an engine has heard this one, and refuses it
            pass
        return _SIGN_OF_LIFE_S

    def _tell_attached(self) -> dict[str, Any]:
        """Give a sign of life; where there are several addresses, to the next one if the one before has lost it."""
        for _ in range(self._client.addresses - 1):
            with contextlib.suppress(UnavailableError):
                return self._post("attached")
        return self._post("attached")

    def _post(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._client.request("POST", f"{self._path}/{verb}", body, timeout_s=_ANSWER_TIMEOUT_S)


class _NotYetError(UnavailableError):
    """The engine answered, but there is nothing to connect to yet: ask again at once."""


def insist(ask: Callable[[], _T], *, patience_s: float | None = None) -> _T:
    """Repeat a request that an engine or a VM that is down cannot answer; with a longer and longer pause, up to 5 s.

    Raises:
        RmspluginError: the request was refused several times in a row, or ``patience_s`` are over.
    """
    deadline = None if patience_s is None else time.monotonic() + patience_s
    pause_s, refusals = 0.1, 0
    while True:
        try:
            return ask()
        except _NotYetError:
            pause_s, refusals = 0.1, 0
        except UnavailableError:
            refusals = 0
            if deadline is not None and time.monotonic() > deadline:
                raise
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            time.sleep(pause_s)
        except (RefusedError, NotFoundError):
            refusals += 1
            if refusals >= _REFUSALS:
                raise
            time.sleep(_REFUSED_PAUSE_S)
