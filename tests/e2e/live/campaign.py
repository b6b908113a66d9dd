"""Campaign: one fault after another, and after each of them the question whether anything was lost."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from e2e.live import faults, judge, well
from e2e.live.acts import fates
from e2e.live.dice import KINDS, KINDS_OF_MANAGERS, Throw, orders, throws
from e2e.live.history import History
from e2e.live.site import Keeper, Site
from e2e.live.verdict import Round
from e2e.live.work import VJob, Work
from journal.check import check

#: By these a slurmctld may be lost.
_FORGET = ("slurmctld", "controller")
#: What was submitted, or has ended, in the last seconds before it was killed is not in a slurmctld's files.
_SAVED_S = 6.0
#: Vjobs count on for so long between two faults.
_BETWEEN_S = 5.0
_ENDS_S = 420.0


class Campaign:
    """All of it."""

    def __init__(
        self, site: Site, seed: int, say: Callable[[str], object], evidence: Path | None, only: Sequence[str]
    ) -> None:
        self._site, self._say, self._evidence = site, say, evidence
        self._throws = throws(seed, only, KINDS_OF_MANAGERS if site.groups else KINDS)
        self.work = Work(site, orders(seed))
        self.rounds: list[Round] = []
        self.at_the_end: list[str] = []
        self.history = History(site)
        self.journal: list[str] = []
        self._told: set[str] = set()

    def run(self, minutes: float) -> None:
        """Have faults for so long, then have all vjobs end, and judge."""
        keeper, over = Keeper(self._site), time.monotonic() + 60 * minutes
        with keeper.keeping():
            self._begin()
            while time.monotonic() < over:
                self.work.fill()
                time.sleep(_BETWEEN_S)
                if not self._fault(next(self._throws), keeper):
                    self.at_the_end.append("it was given up: not all was well again")
                    return
                self.work.wake_all()
            self._end()

    def _begin(self) -> None:
        recovery, now = well.begin_recovery(self._site), time.time()
        lacks = well.until_well(self._site, now, now, recovery, self.history)
        assert not lacks, f"the minicluster is not well from the beginning: {lacks}"
        self._say(f"all is well; Slurm drained {recovery.resumed}" if recovery.resumed else "all is well")

    def _fault(self, throw: Throw, keeper: Keeper) -> bool:
        """Live through one fault. Returns whether all was well afterwards."""
        earlier = self._before(throw)
        hosts, middle = faults.places(self._site, throw), self.work.begin_order(throw)
        self._say(f"{len(self.rounds) + 1}. {throw} on {', '.join(hosts)}" + (f" ({middle})" if middle else ""))
        recovery, begun = well.begin_recovery(self._site), time.time()
        with faults.under(self._site, keeper, throw, hosts):
            begun = time.time()
            if throw.submits:
                self._say(f"   {self.work.submit_anyway()}")
            while time.time() < begun + throw.seconds:
                well.watch(self._site, begun, recovery, self.history)
                time.sleep(0.5)
        healed = time.time()
        lacks = well.until_well(self._site, begun, healed, recovery, self.history)
        round_ = Round(
            throw.kind,
            throw.way,
            healed - begun,
            max(recovery.gaps.longest_s.values()) if recovery.well_s is not None else None,
            recovery.slurm_s,
            recovery.well_s,
            len(recovery.resumed),
            len(recovery.ended),
            unled_s=next((lead.began - begun for lead in self.history.leads() if lead.began > begun), None),
        )
        self.rounds.append(round_)
        lacking = [f"not well again: {each}" for each in lacks]
        round_.wrong = earlier + lacking + self._new(self._judged(forgets=throw.kind in _FORGET))
        for line in recovery.resumed:
            self._say(f"   resumed: {line}")
        for host in recovery.ended:
            self._say(f"   ended by hand: the slurmctld on {host}, which did not end by itself")
        for line in round_.wrong:
            self._say(f"   WRONG: {line}")
        late = f", later than the bound: {' and '.join(round_.late())}" if round_.late() else ""
        led = f"another one leads after {round_.unled_s:.1f} s, " if round_.unled_s is not None else ""
        self._say(
            f"   away {round_.held_s:.1f} s, {led}no decision for {_s(round_.undecided_s)}, "
            f"Slurm {_s(round_.slurm_s)}, well {_s(round_.well_s)}{late} (load {os.getloadavg()[0]:.0f})"
        )
        if round_.wrong or round_.late():
            self._keep_evidence(f"round-{len(self.rounds)}")
        return not lacks

    def _before(self, throw: Throw) -> list[str]:
        """What was wrong before a fault that would excuse it, once slurmctld has saved what is new."""
        if throw.kind not in _FORGET:
            return []
        time.sleep(_SAVED_S)
        return self._new(self._judged())

    def _judged(self, *, forgets: bool = False) -> list[str]:
        """What is wrong now; vjobs that have just ended have left nothing. ``forgets``: see ``judge.of_vjob``."""
        site, work = self._site, self.work
        before = work.alive()
        wrong = [each for vjob in before for each in judge.of_vjob(site, vjob, forgets=forgets)]
        wrong += judge.of_vms(site, work.alive())
        wrong += judge.left_over(site, [vjob for vjob in before if vjob.ended])
        if said := well.checks_of_ledger(site):
            wrong.append(said)
        self.history.look(time.time())
        self.history.read()
        return wrong + self.history.breaches()

    def _new(self, wrong: list[str]) -> list[str]:
        """Each breach is told once."""
        new = [each for each in wrong if each not in self._told]
        self._told |= {*new}
        return new

    def _end(self) -> None:
        """Have all vjobs end."""
        self._say("no more faults: all vjobs are told to end")
        deadline = time.time() + _ENDS_S
        wrong: list[str] = []
        while (alive := self.work.alive()) and time.time() < deadline:
            for vjob in alive:
                self._end_one(vjob)
                wrong += judge.of_vjob(self._site, vjob)
            time.sleep(3)
        wrong += [f"vjob {vjob.job} has not ended: {self._site.vjob(vjob.job)}" for vjob in self.work.alive()]
        wrong += judge.left_over(self._site, [vjob for vjob in self.work.all if vjob.ended])
        wrong += self._judged()
        self.journal = [*self.history.lines(), *self._fates(), '{"kind": "over", "time": 0}']
        wrong += check(self.journal).breaches
        self.at_the_end = self._new(wrong)
        for line in self.at_the_end:
            self._say(f"WRONG: {line}")
        if self.at_the_end:
            self._keep_evidence("end")

    def _end_one(self, vjob: VJob) -> None:
        state = (self._site.vjob(vjob.job) or {}).get("state")
        if state == "sleeping":
            self.work.order("resume", str(vjob.job))
        elif state == "running" and judge.begun(self._site, vjob):
            # A signal breaks off the opening of a file whose server was just started, as on any machine.
            self._site.run("scancel", "--batch", "--signal=USR1", str(vjob.job))

    def _fates(self) -> Iterator[str]:
        for vjob in self.work.all:
            yield from fates(vjob.job, vjob.submitted, judge.begun(self._site, vjob), vjob.ended)

    def _keep_evidence(self, name: str) -> None:
        if self._evidence is None:
            return
        target = self._evidence / name
        shutil.copytree(self._site.directory / "log", target / "log", dirs_exist_ok=True)
        told = {
            "jobs": self._site.run("scontrol", "show", "job").out,
            "nodes": self._site.run("scontrol", "show", "node").out,
            "vjobs": self._site.plugin("vjobs", "--all").out,
            "events": self._site.plugin("events", "-n", "2000").out,
            "status": self._site.plugin("status").out,
        }
        for what, text in told.items():
            (target / what).write_text(text)


def _s(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"
