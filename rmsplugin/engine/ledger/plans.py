"""Plans: the part of the ledger with the decisions of cycles, their plans, step by step, and the pause."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.engine.ledger.rows import (
    OPEN_STEPS,
    DecisionRow,
    OperationKind,
    Pause,
    Plan,
    PlanState,
    Step,
    StepState,
)
from rmsplugin.engine.ledger.table import LedgerTable, called, insert, update
from rmsplugin.model.job_names import parse
from rmsplugin.proposing.steps import PlannedStep

_OPEN = ", ".join(f"'{state}'" for state in OPEN_STEPS)


class Plans(LedgerTable):
    """The ledger's tables of plans, steps, decisions and the pause. Times are seconds since the epoch."""

    #: By display id, the last decision about a vjob, and the code of its reason; read once in the life of an engine.
    _last: dict[str, tuple[str, str]] | None = None

    # -- plans ---------------------------------------------------------------------------------------------------

    def add(self, plan: Plan, steps: Sequence[PlannedStep] = (), reasons: Mapping[str, str] | None = None) -> int:
        """Record a plan, and its steps as planned. Returns the plan's id; the id in ``plan`` is not used.

        Args:
            plan: the row of the plan.
            steps: its steps.
            reasons: by display id, the reason why the vjob is started, suspended, ...
        """
        with self._write() as db:
            row = {name: getattr(plan, name) for name in _PLAN_COLUMNS}
            plan_id = insert(db, "plans", {**row, "state": str(plan.state)})
            ids: list[int] = []
            for step in steps:
                ids.append(
                    insert(
                        db,
                        "steps",
                        {
                            "plan_id": plan_id,
                            "vjob": step.vjob,
                            "kind": str(step.kind),
                            "hosts": json.dumps(dict(step.hosts)),
                            "reason": (reasons or {}).get(step.vjob, ""),
                            "state": str(StepState.PLANNED),
                            "operation_id": 0,
                            "error": "",
                            "began": 0.0,
                            "ended": 0.0,
                        },
                    )
                )
                for need in step.needs:
                    insert(db, "step_needs", {"step_id": ids[-1], "need_id": ids[need]})
            return plan_id

    def plan(self, plan_id: int) -> Plan | None:
        """One plan; None if there is none."""
        rows = self._rows("select * from plans where id = ?", [plan_id])
        return _plan(rows[0]) if rows else None

    def plans(self, limit: int) -> list[Plan]:
        """The newest plans, oldest first."""
        rows = self._rows("select * from plans order by id desc limit ?", [limit])
        return [_plan(row) for row in reversed(rows)]

    def from_one(self, plan_id: int) -> list[Plan]:
        """This plan, and the one after it, if there is one."""
        return [_plan(row) for row in self._rows("select * from plans where id >= ? order by id limit 2", [plan_id])]

    def running(self) -> list[Plan]:
        """The plans that have not ended."""
        return [_plan(row) for row in self._rows("select * from plans where state = 'running' order by id")]

    def end(self, plan_id: int, state: PlanState, error: str = "") -> None:
        """Record how a plan ended."""
        with self._write() as db:
            update(db, "plans", {"id": plan_id}, {"state": str(state), "error": error, "ended": self._clock()})

    # -- steps ---------------------------------------------------------------------------------------------------

    def steps(self, plan_id: int) -> list[Step]:
        """The steps of a plan, each after all steps that it waits for."""
        return self._steps("plan_id = ?", [plan_id])

    def open_steps(self) -> list[Step]:
        """All steps that are planned or running, oldest first."""
        return self._steps(f"state in ({_OPEN})", [])

    def _steps(self, where: str, parameters: Sequence[Any]) -> list[Step]:
        needs: dict[int, list[int]] = {}
        sql = f"select step_id, need_id from step_needs join steps on id = step_id where {where} order by need_id"
        for row in self._rows(sql, parameters):
            needs.setdefault(row["step_id"], []).append(row["need_id"])
        rows = self._rows(f"select * from steps where {where} order by id", parameters)
        return [_step(row, needs.get(row["id"], ())) for row in rows]

    def step_states(self, ids: Collection[int]) -> dict[int, StepState]:
        """The states of steps, by id."""
        marks = ",".join("?" * len(ids))
        rows = self._rows(f"select id, state from steps where id in ({marks})", list(ids))
        return {row["id"]: StepState(row["state"]) for row in rows}

    def step_counts(self, plans: Collection[int]) -> dict[int, dict[StepState, int]]:
        """By plan id, the number of steps in each state; a plan without steps is left out."""
        marks = ",".join("?" * len(plans))
        sql = f"select plan_id, state, count(*) as number from steps where plan_id in ({marks}) group by plan_id, state"
        counts: dict[int, dict[StepState, int]] = {}
        for row in self._rows(sql, list(plans)):
            counts.setdefault(row["plan_id"], {})[StepState(row["state"])] = row["number"]
        return counts

    def step_begins(self, step_id: int, operation_id: int) -> None:
        """Record the operation that carries out a step."""
        changes = {"state": str(StepState.RUNNING), "operation_id": operation_id, "began": self._clock()}
        with self._write() as db:
            update(db, "steps", {"id": step_id}, changes)

    def step_ends(self, step_id: int, state: StepState, error: str = "") -> None:
        """Record how a step ended."""
        with self._write() as db:
            update(db, "steps", {"id": step_id}, {"state": str(state), "error": error, "ended": self._clock()})

    def step_is_needless(self, operation_id: int, why: str) -> None:
        """Record of the step that an operation carries out, if there is one, that nobody needs it any more."""
        with self._write() as db:
            db.execute(
                "update steps set state = ?, error = ?, ended = ? where operation_id = ? and state = 'running'",
                [str(StepState.NEEDLESS), why, self._clock(), operation_id],
            )

    # -- decisions -----------------------------------------------------------------------------------------------

    def decided(self, decision: Decision, plan_id: int) -> None:
        """Record the decision about each vjob for which it, or the code of its reason, differs from the last one."""
        if self._last is None:  # there may be many rows
            sql = "select vjob, state, code, max(id) from decisions group by vjob"
            self._last = {row["vjob"]: (row["state"], row["code"]) for row in self._rows(sql)}
        known, reasons, in_transit = self._last, decision.reasons, ReasonCode.IN_TRANSIT
        changed = [
            {
                "time": self._clock(),
                "plan_id": plan_id,
                "vjob": name,
                "state": str(state),
                "code": str(reasons[name].code),
                "sentence": reasons[name].sentence,
            }
            for name, state in decision.states.items()
            # Both are words: of the row that was written last, and of what was decided.
            if known.get(name) != (state, reasons[name].code) and reasons[name].code is not in_transit
        ]
        if changed:
            with self._write() as db:
                for row in changed:
                    insert(db, "decisions", row)
            known |= {str(row["vjob"]): (str(row["state"]), str(row["code"])) for row in changed}

    def decisions(self, vjob: str) -> list[DecisionRow]:
        """The decisions about the vjob with this display id, oldest first."""
        where, parameters = called("vjob", parse(vjob))
        rows = self._rows(f"select * from decisions where {where} order by id", parameters)
        return [DecisionRow(**row) for row in rows]

    def prune(self, before: float) -> None:
        """Forget plans that ended, and decisions that were made, before this time."""
        old = "select id from plans where ended > 0 and ended < ?"
        of_old = f"select id from steps where plan_id in ({old})"
        with self._write() as db:
            db.execute(f"delete from step_needs where step_id in ({of_old})", [before])
            db.execute(f"delete from steps where plan_id in ({old})", [before])
            db.execute("delete from plans where ended > 0 and ended < ?", [before])
            db.execute("delete from decisions where time < ?", [before])

    # -- pause ---------------------------------------------------------------------------------------------------

    @property
    def pause(self) -> Pause | None:
        """The pause of the engine, with its time and author; None if the engine is not paused."""
        rows = self._rows("select since, by from pause")
        return Pause(**rows[0]) if rows else None

    def set_pause(self, by: str) -> Pause:
        """Pause the engine; the first to pause it is remembered."""
        with self._write() as db:
            db.execute("insert or ignore into pause (id, since, by) values (1, ?, ?)", [self._clock(), by])
            pause = self.pause
            assert pause is not None
            return pause

    def clear_pause(self) -> None:
        """End the pause."""
        with self._write() as db:
            db.execute("delete from pause")


_PLAN_COLUMNS = (
    "time",
    "policy",
    "sentence",
    "fallback",
    "cost_mib",
    "lower_bound_mib",
    "estimate_s",
    "decided_s",
    "error",
    "ended",
)


def _plan(row: dict[str, Any]) -> Plan:
    return Plan(**{**row, "state": PlanState(row["state"])})


def _step(row: dict[str, Any], needs: Iterable[int]) -> Step:
    typed = {
        "kind": OperationKind(row["kind"]),
        "hosts": json.loads(row["hosts"]),
        "state": StepState(row["state"]),
        "needs": tuple(needs),
    }
    return Step(**{**row, **typed})
