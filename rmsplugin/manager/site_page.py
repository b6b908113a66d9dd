"""Site page: the live page of all groups, put together of what each engine tells of its own.

Each engine leaves out what the viewer may not see, so nothing of others comes here.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from pydantic import ValidationError

from rmsplugin import __version__
from rmsplugin.engine.serve.asked import Asked, Reply
from rmsplugin.engine.serve.live_pages import MOST_WAITING
from rmsplugin.engine.serve.waits import TooManyError
from rmsplugin.errors import RmspluginError, UnavailableError
from rmsplugin.live_page.document import document
from rmsplugin.live_page.scene import Scene
from rmsplugin.live_page.together import number_of, together
from rmsplugin.live_page.values import NewerFormError, scene_of
from rmsplugin.manager.numbers import Numbers

#: Asks all engines for this target on behalf of the caller: answers and errors, by group.
AskEach = Callable[[Asked, str], Awaitable[tuple[dict[str, Reply], dict[str, RmspluginError]]]]

#: Engines are asked for news once in so many seconds, however many look.
_LOOK_S = 1.0
#: The most pages of one user that wait for news at once, as with an engine.
_EACH = 8


class SitePage:
    """Used in one event loop."""

    def __init__(self, ask_each: AskEach, numbers: Callable[[], Numbers]) -> None:
        """``numbers``: of the site, by which context switches of groups are known."""
        self._ask_each, self._numbers = ask_each, numbers
        self._newest, self._looked = dict[str, int](), float("-inf")
        self._looking = asyncio.Lock()
        self._waiting: Counter[int] = Counter()

    async def page(self, asked: Asked) -> Reply:
        """The answer to `page`. Raises an error if no engine tells anything.

        An engine that does not tell its scene has a part in the number, as in that of the news. Else the news would be
        of another number for as long, and the page be asked for again and again.
        """
        node = asked.query.host("node")
        replies, errors = await self._ask_each(asked, "/v1/page?scene=1" + (f"&node={node}" if node else ""))
        others = await self._newest_numbers(asked) if errors else {}
        number = number_of({**others, **_numbers_in(replies)}.values())
        return await asyncio.to_thread(self._put_together, replies, errors, number, node)

    async def news(self, asked: Asked) -> Reply:
        """The answer to `page_news`. Raises TooManyError."""
        after, until = asked.query.number("after", 0), time.monotonic() + asked.query.seconds("wait")
        with self._one_more(asked.uid):
            while True:
                number = number_of((await self._newest_numbers(asked)).values())
                left_s = until - time.monotonic()
                if number != after or left_s <= 0:
                    return {"number": number, "changed": number != after}
                await asyncio.sleep(min(_LOOK_S, left_s))

    @contextmanager
    def _one_more(self, uid: int) -> Iterator[None]:
        if self._waiting[uid] >= _EACH or self._waiting.total() >= MOST_WAITING:
            raise TooManyError(f"{self._waiting.total()} pages are open already; close one of them")
        self._waiting[uid] += 1
        try:
            yield
        finally:
            self._waiting[uid] -= 1
            self._waiting += Counter()  # forgets those of whom none waits

    async def _newest_numbers(self, asked: Asked) -> Mapping[str, int]:
        """The number of each engine's newest scene, by group, as it was a second ago at most."""
        async with self._looking:
            if time.monotonic() - self._looked >= _LOOK_S:
                replies, _ = await self._ask_each(asked, "/v1/page/news?wait=0")
                self._newest, self._looked = _numbers_in(replies), time.monotonic()
            return self._newest

    def _put_together(
        self, replies: Mapping[str, Reply], errors: Mapping[str, RmspluginError], number: int, node: str
    ) -> Reply:
        numbers = self._numbers()
        silent = {group: str(error) for group, error in errors.items()}
        scenes = {}
        for group, reply in replies.items():
            try:
                scenes[group] = _with_numbers(scene_of(reply["scene"]), group, numbers)
            except NewerFormError:
                silent[group] = (
                    f"its engine is of a newer release than the manager on {socket.gethostname()}, which shows this "
                    f"page, and is of {__version__}. Install the newer one there, or ask a manager that has it; "
                    "`rmsplugin nodes` and `vjobs` tell of the group, too"
                )
            except (KeyError, ValidationError):
                silent[group] = "its engine is of another release"
        if not scenes:
            raise next(iter(errors.values()), UnavailableError("no engine tells what it sees"))
        parts = dict(sorted(scenes.items()))
        scene = together(number, parts, silent, socket.gethostname(), __version__, time.time())
        return {"number": number, "html": document(scene, node)}


def _numbers_in(replies: Mapping[str, Reply]) -> dict[str, int]:
    return {group: reply["number"] for group, reply in replies.items()}


def _with_numbers(scene: Scene, group: str, numbers: Numbers) -> Scene:
    switches = tuple(replace(each, number=numbers.site(group, each.number)) for each in scene.switches)
    return replace(scene, switches=switches)
