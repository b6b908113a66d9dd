"""Controllers: the engines that may lead, as the one that leads sees them; and who is to lead after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rmsplugin.adapters.coordination.candidates import Standing
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.coordination.servers import ServerFact, ask_servers, quorum
from rmsplugin.engine.controllers.shared_writes import SharedWrites
from rmsplugin.errors import RefusedError, UnavailableError

#: Seconds between two looks at the ensemble.
LOOK_S = 5.0
#: Clocks of controllers may differ by so many seconds before it is said.
CLOCKS_S = 2.0
#: Those who wait before a chosen engine may take so long to go to the end of the line; that is looked at so often.
_MAKE_WAY_S, _PAUSE_S = 5.0, 0.05


class Controllers:
    """What the leader knows of the engines that stand by. All threads may call."""

    def __init__(
        self,
        elected: Elected,
        about: Mapping[str, str],
        servers: Sequence[str],
        writes: SharedWrites | None,
        *,
        asked: Callable[[Sequence[str]], list[ServerFact]] = ask_servers,
        time_of_day: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Have seen nothing yet.

        Args:
            elected: this engine, which leads.
            about: what it says of itself.
            servers: of the ensemble.
            writes: to the shared directory; None if there is none.
            asked: asks servers.
            time_of_day: the host's clock.
            clock: one that nobody sets.
        """
        self._elected, self._about, self._addresses, self._asked = elected, about, servers, asked
        self._writes, self._clock = writes, clock
        self._since = time_of_day()
        self._others: tuple[Standing, ...] | None = None  # None: not seen yet
        self._own: Standing | None = None
        self._servers: tuple[ServerFact, ...] = ()
        self._silent_since: float | None = None
        self._handed_over: Callable[[], object] = lambda: None

    # -- how they stand ------------------------------------------------------------------------------------------

    def see(self) -> None:
        """Look at the ensemble, and at who stands by."""
        self._servers = tuple(self._asked(self._addresses))
        try:
            self._see_others()
        except UnavailableError:
            self._silent_since = self._silent_since or self._clock()

    def _see_others(self) -> tuple[Standing, ...]:
        standing = self._elected.standing()
        self._own = next((each for each in standing if each.node == self._elected.node), None)
        others = self._others = tuple(each for each in standing if each.node != self._elected.node)
        self._silent_since = None
        return others

    def view(self) -> dict[str, Any]:
        """What `status` tells: since when this engine leads, who stands by, and what is not as it should be."""
        return {
            "leads_since": self._since,
            "standbys": [
                {"host": host_of(each), "url": each.about.get("url", ""), "version": each.about.get("version", "")}
                for each in self._others or ()
            ],
            "degraded": [*self._degraded()],
        }

    def _degraded(self) -> list[str]:
        found = []
        if (since := self._silent_since) is not None:
            silent_s = self._clock() - since
            found.append(f"the ensemble has not answered for {silent_s:.0f} s: without it this engine ends soon")
        found += degraded_ensemble(self._servers)
        if self._others is not None:
            if not self._others:
                found.append("no other engine stands by: nobody leads if this host dies")
            for each in self._others:
                found += differences(self._about, each)
                found += self._clocks(each)
        if problem := self.shared_problem():
            found.append(problem)
        return found

    def shared_problem(self) -> str:
        """What is wrong with the shared directory, in a sentence; empty if nothing is, or if there is none."""
        return "" if self._writes is None else self._writes.problem()

    def _clocks(self, other: Standing) -> list[str]:
        own = self._own
        if own is None or own.ahead_s is None or other.ahead_s is None:
            return []
        apart_s = other.ahead_s - own.ahead_s
        if abs(apart_s) <= CLOCKS_S:
            return []
        return [f"the clock of {host_of(other)} differs by {apart_s:+.1f} s from that of this host"]

    # -- handing over --------------------------------------------------------------------------------------------

    def on_hand_over(self, act: Callable[[], object]) -> None:
        """Have this called when the lead is to be handed over."""
        self._handed_over = act

    def next(self, to: str) -> Standing:
        """The engine that leads after this one: that on the host ``to``, or else the first that can.

        It is the next in the line then. Blocks for as long as others take to make way.

        Raises:
            RefusedError: there is none, or it could not lead. Nothing was changed.
            UnavailableError: the ensemble does not answer.
        """
        chosen = self._choose(to)
        self._elected.have_next(chosen.node)
        # One that was killed is in the line until its session has ended.
        deadline = self._clock() + self._elected.session_s + _MAKE_WAY_S
        try:
            while not (others := self._see_others()) or others[0].node != chosen.node:
                if self._clock() > deadline:
                    raise RefusedError(
                        f"{others[0].name if others else 'another engine'} stands before {chosen.name}, and does not "
                        "make way: end it, or let it be the next one"
                    )
                time.sleep(_PAUSE_S)
        except Exception:
            self._elected.have_next("")
            raise
        return chosen

    def hand_over(self) -> None:
        """Hand the lead over; returns at once."""
        self._handed_over()

    def _choose(self, to: str) -> Standing:
        others = self._see_others()
        if not others:
            raise RefusedError(
                "no other engine stands by: nothing was done. Start one on another controller, and see that "
                "`rmsplugin status` lists it"
            )
        named = [each for each in others if not to or _short(host_of(each)) == _short(to)]
        if not named:
            names = ", ".join(host_of(each) for each in others)
            raise RefusedError(f"no engine stands by on {to}: nothing was done. Those that do: {names}")
        able = [each for each in named if not reads_less(self._about, each)]
        if not able:
            first = named[0]
            raise RefusedError(
                f"the engine on {host_of(first)} is of release {first.about.get('version', 'unknown')}, which cannot "
                "read this ledger: nothing was done. Install this release there first"
            )
        return able[0]


def host_of(standing: Standing) -> str:
    """The host of an engine; engines of older releases have it in their names only."""
    return standing.about.get("host") or standing.name.rpartition(":")[0] or standing.name


def reads_less(about: Mapping[str, str], other: Standing) -> bool:
    """Whether the other engine's release knows fewer steps of the ledger's schema."""
    return other.about.get("ledger", "") < about.get("ledger", "")


def differences(about: Mapping[str, str], other: Standing) -> list[str]:
    """What of the other engine is not as here, in sentences."""
    host, found = host_of(other), []

    if reads_less(about, other):
        release = other.about.get("version", "unknown")
        found.append(f"{host} cannot take over: its release {release} cannot read this ledger; install this one there")

    def differs(key: str) -> bool:
        return key in other.about and other.about[key] != about.get(key)

    if differs("settings") and not differs("version"):  # another release has other keys
        found.append(f"the settings of {host} differ from those of this host")
    if differs("agent_key"):
        found.append(f"the key nodes.agent_key of {host} is another one than this host's")
    return found


def degraded_ensemble(servers: Sequence[ServerFact]) -> list[str]:
    """What is wrong with the servers of the ensemble, in sentences."""
    silent = [each for each in servers if each.problem]
    if not silent:
        return []
    left = len(servers) - len(silent) - quorum(len(servers))
    follows = "nobody leads without a quorum" if left < 0 else "one more, and nobody leads"
    names = ", ".join(f"{each.address} ({each.problem})" for each in silent)
    return [
        f"{len(silent)} of {len(servers)} servers of the ensemble do not serve: {names}" + (f"; {follows}" * (left < 1))
    ]


def _short(host: str) -> str:
    return host.partition(".")[0]
