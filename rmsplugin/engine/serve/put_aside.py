"""Put aside: the requests about saved states that were put aside, and the callers' rights to them."""

from __future__ import annotations

from typing import Any

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.engine.context.stores import Stores
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.operations.aside import drop_aside, require_whole
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import Operation, OperationKind, SetAsideState
from rmsplugin.engine.serve import views
from rmsplugin.engine.serve.rights import Rights, user_name
from rmsplugin.errors import ForbiddenError, RefusedError
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings


class PutAside:
    """One method for each request; each is given the uid of the caller."""

    def __init__(
        self, settings: Settings, ledger: Ledger, nodes: Nodes, stores: Stores, executor: Executor, rights: Rights
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._nodes = nodes
        self._stores = stores
        self._executor = executor
        self._rights = rights

    def page(self, uid: int, after: int = 0) -> dict[str, Any]:
        """A page of the saved states that were put aside, by number: the caller's own, or, for operators, all.

        ``next``: the next page has those ``after`` this number; None: there is none.
        """
        of = None if self._rights.is_operator(uid) else uid
        found = self._ledger.set_aside.after(after, views.MOST_AT_ONCE + 1, of)
        page = found[: views.MOST_AT_ONCE]
        return {"states": [views.aside_view(each) for each in page], "next": page[-1].id if page != found else None}

    def take_back(self, uid: int, number: int) -> Operation:
        """Let a vjob sleep in saved states that were put aside; its run since then is thrown away."""
        aside = self._aside(uid, number)
        vjob = self._ledger.vjob(aside.job_id)
        if vjob.state not in (VJobState.WAITING, VJobState.RUNNING, VJobState.PAUSED, VJobState.SLEEPING):
            raise RefusedError(f"vjob {vjob.display_id} is {vjob.state}; try again when it is not")
        require_whole(self._settings, self._ledger, self._nodes, self._stores, aside)
        self._executor.held_back.require_settled(vjob)
        name = user_name(uid)
        reason = f"{name} takes back the saved states that were put aside as {number}"
        return self._executor.begin(vjob.job_id, OperationKind.RESTART, reason, requested_by=name, taking_back=number)

    def drop(self, uid: int, number: int) -> dict[str, Any]:
        """Delete saved states that were put aside."""
        aside = self._aside(uid, number)
        drop_aside(self._settings, self._ledger, self._nodes, self._stores, aside)
        self._ledger.event(
            "aside-dropped", f"{user_name(uid)} dropped the saved states put aside as {number}", vjob=aside.display_id
        )
        return {"ok": True}

    def _aside(self, uid: int, number: int) -> SetAsideState:
        aside = self._ledger.set_aside.numbered(number)
        if uid != aside.uid and not self._rights.is_operator(uid):
            raise ForbiddenError(f"the saved states put aside as {number} are {aside.user}'s")
        vjob = self._ledger.vjobs_among([aside.job_id]).get(aside.job_id)
        if not aside.complete or (vjob is not None and vjob.taking_back == number):
            raise RefusedError(f"vjob {aside.display_id} is being restarted; try again when it is not")
        return aside
