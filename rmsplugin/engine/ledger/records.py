"""Records: conversion of rows of the ledger's tables to values of this program, and back."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any

from rmsplugin.engine.ledger.rows import Operation, OperationKind, Outcome, SetAsideState, VJobRow, VMRow
from rmsplugin.model.priority import Standing
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.model.vm_phase import VMPhase


def ran_s(vjob: VJobRow, target: VJobState, now: float) -> float:
    """The seconds that a vjob has run since its start, when it leaves its state for ``target``."""
    if target in (VJobState.WAITING, VJobState.STARTING):
        return 0.0
    return vjob.ran_by(now)


def vjob_record(vjob: VJobRow) -> dict[str, Any]:
    """The row of a vjob."""
    record = {field.name: getattr(vjob, field.name) for field in fields(vjob)}
    return {
        **record,
        "geometry": str(vjob.geometry),
        "state": str(vjob.state),
        "standing": standing_text(vjob.standing),
    }


def standing_text(standing: Standing | None) -> str:
    """The standing as it is written to the ledger; empty: none."""
    return json.dumps(asdict(standing)) if standing else ""


@lru_cache(maxsize=4096)
def _standing(text: str) -> Standing | None:
    return Standing(**json.loads(text)) if text else None


#: Many vjobs have the same geometry and share one value, since all vjobs are read at once.
_geometry = lru_cache(maxsize=4096)(Geometry.parse)


def read_vjob(row: dict[str, Any]) -> VJobRow:
    """The vjob of a row."""
    typed = {
        "geometry": _geometry(row["geometry"]),
        "state": VJobState(row["state"]),
        "script_started": bool(row["script_started"]),
        "finished": bool(row["finished"]),
        "resumes": bool(row["resumes"]),
        "standing": _standing(row["standing"]),
        "begins_anew": bool(row["begins_anew"]),
        "paused": bool(row["paused"]),
    }
    return VJobRow(**{**row, **typed})


def vm_record(vm: VMRow) -> dict[str, Any]:
    """The row of a VM."""
    record = {field.name: getattr(vm, field.name) for field in fields(vm)}
    return {**record, "touched": json.dumps(list(vm.touched)), "phase": str(vm.phase)}


def read_vm(row: dict[str, Any]) -> VMRow:
    """The VM of a row."""
    typed = {
        "touched": tuple(json.loads(row["touched"])),
        "observed": bool(row.get("observed")),
        "phase": VMPhase(row["phase"]),
    }
    return VMRow(**{**row, **typed})


def read_aside(row: dict[str, Any]) -> SetAsideState:
    """The saved states put aside, of a row."""
    typed = {"complete": bool(row["complete"]), "vms": tuple(read_vm(vm) for vm in json.loads(row["vms"]))}
    return SetAsideState(**{**row, **typed})


def read_operation(row: dict[str, Any]) -> Operation:
    """The operation of a row."""
    typed = {
        "kind": OperationKind(row["kind"]),
        "state": Outcome(row["state"]),
        "arguments": json.loads(row["arguments"]),
    }
    return Operation(**{**row, **typed})
