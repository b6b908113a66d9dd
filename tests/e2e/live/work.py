"""Work: vjobs that count, submitted again and again, and the orders that people give about them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass

from e2e.cluster import PROGRAM
from e2e.live.dice import Order, Throw, one_of
from e2e.live.site import Site
from e2e.rooms import COUNT

#: So many are not yet over at most.
MOST = 5
_ORDER_S = 60.0
_SUBMIT_S = 15
_UNDER_WAY_S = 15.0


@dataclass
class VJob:
    """One that was submitted."""

    job: int
    order: Order
    submitted: float
    ended: float = 0.0
    restarts: int = 0  # so often its job was requeued, for a reason that is known


class Work:
    """All vjobs of a campaign."""

    def __init__(self, site: Site, orders: Iterator[Order]) -> None:
        self._site, self._orders = site, orders
        self.all: list[VJob] = []
        self._asleep: set[str] = set()  # vjobs that somebody has suspended

    def alive(self) -> list[VJob]:
        return [each for each in self.all if not each.ended]

    def fill(self) -> None:
        """Submit until there are enough. Fails where one is refused: all is well now."""
        while len(self.alive()) < MOST:
            order = next(self._orders)
            job = self._site.sbatch(COUNT, *order.options, user=order.user, arguments=(str(order.numbers),))
            self.all.append(VJob(job, order, time.time()))

    def submit_anyway(self) -> str:
        """Submit one while something fails: it may be refused, and is a vjob like any other if it is not."""
        order = next(self._orders)
        script = self._site.home(order.user) / "count.sh"
        script.write_text(COUNT)
        words = ["sbatch", "--parsable", "-p", "vjob", *order.options, "count.sh", str(order.numbers)]
        said = f"cd /home/{order.user} && exec timeout {_SUBMIT_S} {shlex.join(words)}"
        told = self._site.run("sh", "-c", said, user=order.user)
        number = told.out.split(";")[0].strip()
        if told.code == 0 and number.isdecimal():
            self.all.append(VJob(int(number), order, time.time()))
            return f"submitted {number}"
        return f"not submitted: {told.err.strip()[:100]}"

    def begin_order(self, throw: Throw) -> str:
        """Give the order of a throw to a vjob that can follow it, and wait until it is under way. Returns which one."""
        fit = self._in_state("sleeping" if throw.order == "resume" else "running")
        if not throw.order or not fit:
            return ""
        job = one_of(fit, throw.whose)
        fit = fit[fit.index(job) :] + fit[: fit.index(job)]
        found = self._first_that_follows(throw.order, fit)
        if not found and throw.order == "migrate" and self._made_room(job):
            found = self._first_that_follows(throw.order, fit[1:])
        return self._under_way(throw.order, found) if found else f"{throw.order} refused"

    def _in_state(self, state: str) -> list[str]:
        """Vjobs of ours that are in it."""
        ours = {each.job for each in self.alive()}
        return sorted(
            str(each["job_id"]) for each in self._site.vjobs() if each["state"] == state and each["job_id"] in ours
        )

    def _first_that_follows(self, order: str, jobs: list[str]) -> str:
        """Give the order to one after the other until it is taken. Returns to which; empty: none has taken it."""
        return next((job for job in jobs if not self.order(order, job).startswith("refused")), "")

    def _made_room(self, job: str) -> bool:
        """Have a vjob sleep, so that another one can migrate to where it was: mostly all CPUs are taken."""
        if self.order("suspend", job).startswith("refused"):
            return False
        deadline = time.monotonic() + _UNDER_WAY_S
        while job not in self._in_state("sleeping") and time.monotonic() < deadline:
            time.sleep(0.5)
        return job in self._in_state("sleeping")

    def _under_way(self, order: str, job: str) -> str:
        """Wait until it is under way. Returns what it is about."""
        try:
            self._site.wait_action(job, order, timeout_s=_UNDER_WAY_S / 4)
        except AssertionError:
            return f"{order} {job}, over or not begun"
        return f"{order} {job}"

    def order(self, order: str, job: str) -> str:
        """Give an order, as root on a host whose commands find an engine."""
        told = self._site.run(str(PROGRAM), order, job, "--no-wait", timeout_s=_ORDER_S)
        if told.code:
            return f"refused: {order} {job}: {told.err.strip()[:120]}"
        (self._asleep.add if order == "suspend" else self._asleep.discard)(job)
        return f"{order} {job}"

    def wake_all(self) -> None:
        """Have those that somebody has suspended go on, but for one: the next throw may resume it."""
        self._asleep &= {str(each.job) for each in self.alive()}
        for job in sorted(self._asleep)[1:]:
            self.order("resume", job)
