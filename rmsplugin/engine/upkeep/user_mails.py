"""User mails: users whose jobs ask for mail of all kinds are mailed what the engine has done to them.

One vjob has a mail at once, and then one every so many seconds at most, with all that happened in between. Mails are
sent beside cycles, and no operation waits for them. A mail that the program does not take is lost.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rmsplugin.adapters.mail_program import Mail, send_mail
from rmsplugin.adapters.rms.base import MailWish, Rms
from rmsplugin.engine.context.rest import Rest
from rmsplugin.engine.upkeep.user_news import News
from rmsplugin.errors import RmspluginError, UnavailableError

log = logging.getLogger(__name__)

#: The most mails that are sent in a row.
_MOST = 20
#: The most news of one vjob that are kept for one mail: the newest.
_KEPT = 20
#: Seconds after which mails are sent again, after Slurm did not answer, or the program failed.
_FIRST_S, _MOST_S = 30.0, 1800.0
#: `--mail-type=ALL`, as Slurm prints it.
_ALL = frozenset({"INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT"})
_TASKS = "ARRAY_TASKS"
#: Of a job's name its user decides: nothing else of it is in a mail, so that it is nothing but a word there.
_STRANGE = re.compile(r"[^A-Za-z0-9._+@:=-]")
_NAME_LENGTH = 64


@dataclass(slots=True)
class _Unsent:
    """News of one vjob that were not mailed yet."""

    news: deque[News] = field(default_factory=lambda: deque(maxlen=_KEPT))
    count: int = 0
    not_before: float = 0.0

    def take(self, news: News) -> None:
        self.news.append(news)
        self.count += 1


class UserMails:
    """Takes news once a cycle, and sends mails when it is asked to, in one thread at a time."""

    def __init__(
        self,
        rms: Rms,
        clock: Callable[[], float],
        every_s: float,
        send: Callable[[str, Mail], None] = send_mail,
    ) -> None:
        """Have nothing to send yet.

        Args:
            rms: tells whose jobs ask for mail.
            clock: seconds.
            every_s: from one mail about a vjob to the next, at least.
            send: has a program send a mail.
        """
        self._rms, self._clock, self._every_s, self._send = rms, clock, every_s, send
        self._rest = Rest(clock, _FIRST_S, _MOST_S)
        self._unsent: dict[int, _Unsent] = {}
        self._lock = threading.Lock()

    @property
    def is_due(self) -> bool:
        """Whether there may be a mail to be sent now."""
        return self._rest.is_over and bool(self._due())

    def take(self, news: Iterable[News]) -> None:
        """Have these news mailed; what is older than a mail's rest is forgotten."""
        now = self._clock()
        with self._lock:
            self._unsent = {job: each for job, each in self._unsent.items() if each.count or each.not_before > now}
            for each in news:
                self._unsent.setdefault(each.vjob.job_id, _Unsent()).take(each)

    def send(self, program: str) -> None:
        """Send mails by this program (Slurm: MailProg); the others are sent later."""
        for job_id in self._due()[:_MOST]:
            try:
                wish = self._rms.mail_wish(job_id)
            except UnavailableError:
                self._rest.begin()
                return
            except RmspluginError:
                wish = None  # it has ended
            news, count = self._taken(job_id)
            if wish is None or not _wants(wish, news[-1]):
                continue
            try:
                self._send(program, _mail(wish, news, count))
            except RmspluginError as error:
                log.warning("a mail about vjob %s is lost: %s", news[-1].vjob.display_id, error)
                self._rest.begin()
                return
            self._rest.end()

    def _due(self) -> list[int]:
        now = self._clock()
        with self._lock:
            return [job_id for job_id, each in self._unsent.items() if each.count and now >= each.not_before]

    def _taken(self, job_id: int) -> tuple[list[News], int]:
        """The news of a vjob, which are then told, and their number with those that were not kept."""
        with self._lock:
            before = self._unsent[job_id]
            self._unsent[job_id] = _Unsent(not_before=self._clock() + self._every_s)
            return [*before.news], before.count


def _wants(wish: MailWish, news: News) -> bool:
    """Whether the job of these news asks for mail of all kinds; of one element of an array, for that, too."""
    is_element = "_" in news.vjob.display_id
    return wish.uid == news.vjob.uid and wish.kinds >= _ALL and (not is_element or _TASKS in wish.kinds)


def _mail(wish: MailWish, news: list[News], count: int) -> Mail:
    vjob = news[-1].vjob
    name = _STRANGE.sub("_", vjob.job_name)[:_NAME_LENGTH]
    others = f" (and {count - 1} before)" if count > 1 else ""
    left_out = [f"({count - len(news)} more before)"] if count > len(news) else []
    lines = [f"Job {vjob.display_id} ({name}):", "", *left_out, *(f"{each.moment} {each.said}" for each in news)]
    return Mail(
        to=wish.address,
        subject=f"Slurm Job_id={vjob.display_id} Name={name} {news[-1].said}{others}",
        text="\n".join([*lines, "", "Sent by rmsplugin, since the job asks for mail of all kinds.", ""]),
    )
