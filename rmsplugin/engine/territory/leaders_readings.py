"""Leader's readings: the engine of a group asks its manager for what the managers' leader reads of Slurm.

A reading is begun after it was asked for, and serves all engines that have asked by then. Nothing is compared with a
clock of another host.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from typing import Any

from rmsplugin.adapters.rms.slurm_reading import SlurmTexts, unpacked
from rmsplugin.client import EngineClient
from rmsplugin.errors import RmspluginError, UnavailableError

#: The request to a manager, and between managers. A reading that is under way is asked for again and again.
READING = "/v1/slurm-reading"
#: A manager that is silent for so long is given up, and so is a reading that takes longer than that. In seconds.
_SILENT_S, _LONGEST_S = 1.0, 10.0
#: Waiting in vain takes this part of all time at most; and an answer without a reading has others asked no sooner.
_PART, _REST_S = 0.1, 5.0


class LeadersReadings:
    """Readings of the leader. Several threads may call."""

    def __init__(
        self,
        client: EngineClient,
        epoch: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask for none yet.

        Args:
            client: of the manager on this host.
            epoch: that of the leader whose word is followed: no reading of one before counts.
            monotonic: seconds that pass.
        """
        self._client, self._least_epoch, self._monotonic = client, epoch, monotonic
        self._epoch = 0  # the highest that was seen
        self._rests_until, self._why = 0.0, ""

    def texts(self) -> SlurmTexts:
        """A reading that was begun after this call.

        Raises:
            RmspluginError: there is none, or was none a moment ago.
            ValueError: what came is no reading.
        """
        began = self._monotonic()
        if began < self._rests_until:
            raise UnavailableError(self._why)
        try:
            return unpacked(self._whole(began))
        except RmspluginError as error:
            now, self._why = self._monotonic(), str(error)
            self._rests_until = now + max(_REST_S, (now - began) * (1 / _PART - 1))
            raise

    def _whole(self, began: float) -> bytes:
        """All parts of one reading."""
        told = self._ask(0, 0)
        epoch, number, parts = told["epoch"], told["reading"], [told["data"]]
        self._epoch = max(self._epoch, self._least_epoch())
        if epoch < self._epoch:
            raise UnavailableError(f"epoch {epoch} is that of a leader before: {self._epoch} was seen")
        self._epoch = epoch
        while not told["parts"]:
            if self._monotonic() - began >= _LONGEST_S:
                raise UnavailableError(f"the leader's reading of Slurm takes more than {_LONGEST_S:g} s")
            told = self._ask(number, 0, epoch)
            parts = [told["data"]]
        if told["age_s"] > self._monotonic() - began:
            raise UnavailableError("the leader's reading of Slurm was begun before it was asked for")
        parts += [self._ask(number, part, epoch)["data"] for part in range(1, told["parts"])]
        return base64.b64decode("".join(parts), validate=True)

    def _ask(self, number: int, part: int, epoch: int | None = None) -> Mapping[str, Any]:
        told = self._client.request("GET", f"{READING}?reading={number}&part={part}", timeout_s=_SILENT_S)
        if epoch is not None and (told["epoch"], told["reading"]) != (epoch, number):
            raise UnavailableError("another leader has followed meanwhile")
        return told
