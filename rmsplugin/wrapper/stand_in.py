"""Stand-in: acts for a wrapper that SIGSTOP has stopped.

Called ``stand_in ENGINE... WRAPPER CHILD stop``; after the stop of a suspension, ``continue`` stands for ``stop``.

``scancel --batch -s STOP`` stops the process that stands for the script. The stand-in then has the script stopped in
its VM, and goes on telling the engine that the job is looked after. The wrapper itself passes SIGCONT on, once it runs
again.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from rmsplugin.client import WORDS, EngineClient
from rmsplugin.errors import RmspluginError
from rmsplugin.wrapper import process
from rmsplugin.wrapper.engine import EngineLink
from rmsplugin.wrapper.process import is_stopped
from rmsplugin.wrapper.session.session import Session, SupersededError

_LOOK_S = 0.2
_AGAIN_S = 1.0


class StandIn:
    """Stands in for one wrapper until that runs again."""

    def __init__(
        self,
        stopped: Callable[[], bool],
        all_stopped: Callable[[], bool],
        tell: Callable[[int, bool], None],
        pause: Callable[[float], object],
    ) -> None:
        """Take the callbacks.

        Args:
            stopped: tells whether the wrapper is stopped.
            all_stopped: tells whether its child is, which stands for all processes of the script.
            tell: sends a signal to the script, or to all of its session; raises RmspluginError.
            pause: waits.
        """
        self._stopped, self._all_stopped, self._tell, self._pause = stopped, all_stopped, tell, pause

    def keep_stopped(self) -> None:
        """Keep the script stopped as long as the wrapper is stopped."""
        everything = self._all_stopped()
        if not self._insist(signal.SIGSTOP, everything, self._stopped):
            return
        late = not self._stopped()
        while self._stopped():
            self._pause(_LOOK_S)
        # The wrapper passes SIGCONT on to the script alone, and may have done so before our own signal arrived.
        if late or (everything and not self._all_stopped()):
            self._insist(signal.SIGCONT, everything, lambda: True)

    def undo(self) -> None:
        """Have all of the script go on: it was stopped, and no SIGCONT comes from the wrapper."""
        self._insist(signal.SIGCONT, True, lambda: True)

    def _insist(self, number: int, everything: bool, due: Callable[[], bool]) -> bool:
        """Send a signal as long as it is due; returns whether it was sent."""
        while due():
            try:
                self._tell(number, everything)
                return True
            except RmspluginError:
                self._pause(_AGAIN_S)  # The VM sleeps or moves, or the script has not begun.
        return False


def main(argv: list[str]) -> None:
    """Stand in for the wrapper whose process id, and whose child's, are the words before the last one."""
    process.die_with_parent()
    process.set_name("rmsplugin-job")
    engine_words, (*pids, to_do) = argv[1 : 1 + WORDS], argv[1 + WORDS :]
    wrapper, child = map(int, pids)
    engine = EngineLink(EngineClient.from_words(engine_words), os.environ["SLURM_JOB_ID"])
    engine.show_signs_of_life(lambda _: None)

    def stopped() -> bool:
        return is_stopped(wrapper)

    def tell(number: int, everything: bool) -> None:
        access = engine.access()
        session = Session.connect(access, process.run_of_job(os.environ))
        try:
            # It may have waited for the VM for a long time.
            if number != signal.SIGSTOP or stopped():
                session.signal(number, everything=everything)
        except SupersededError:
            return  # the script is another wrapper's
        finally:
            session.close()

    stand_in = StandIn(stopped, lambda: is_stopped(child), tell, time.sleep)
    if to_do == "continue":
        stand_in.undo()
    else:
        stand_in.keep_stopped()
    os._exit(0)
