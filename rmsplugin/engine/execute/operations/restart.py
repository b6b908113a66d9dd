"""Restart: a vjob whose state is lost goes back to its checkpoint, or to states put aside, or begins again."""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.engine.execute.old_checkpoints import drop_old
from rmsplugin.engine.execute.operations.allocation import back_behind_gate
from rmsplugin.engine.execute.operations.aside import give_back, put_aside, require_addresses
from rmsplugin.engine.execute.operations.go_back import go_back
from rmsplugin.engine.execute.operations.stop import remove_all
from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.failures import LOSS
from rmsplugin.errors import NotFoundError, RefusedError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase

#: A vjob lost within so many seconds of its start may be lost by its own script; for instance, a guest powers off.
_SOON_S = 600.0
#: After so many of these losses in a row the job is held: by then its starts have waited for some minutes.
_MOST_LOSSES = 8


def restart(task: Task) -> None:
    """Bring a vjob whose state is truly lost from *stopping* back to *waiting*, its job to the start (I5).

    With an intact checkpoint the vjob becomes *sleeping* in it, and goes on from there. The rest of its state is put
    aside. A vjob that takes back states put aside before becomes *sleeping*, too. A vjob whose own script asked for the
    requeue begins anew, whatever is left of it.
    """
    vjob = task.vjob()
    if vjob.taking_back:
        _take_back(task, vjob.taking_back)
        return
    if vjob.begins_anew:
        _clear(task)
        with task.context.ledger.transaction():
            _to_waiting(task, "its job was requeued, and its script begins anew", losses=vjob.losses)
        drop_old(task.context.settings, task.context.ledger, task.context.nodes, task.context.stores, task.job_id)
        return
    if go_back(task):
        return
    _clear(task)
    _begin_again(task)


def _begin_again(task: Task) -> None:
    context, vjob = task.context, task.vjob()
    losses = _losses_in_a_row(task)
    held = losses >= _MOST_LOSSES and _hold(task)
    with context.ledger.transaction():
        if losses == 1:
            context.ledger.failures.vjob_done(task.job_id, LOSS)
        if losses:
            context.ledger.failures.vjob_failed(task.job_id, LOSS, "its state was lost")
        reason = _why_lost(losses, held=held) if losses else vjob.reason
        if vjob.script_started:
            why = vjob.reason.removeprefix("lost: ")
            task.event("lost", f"{why}; it starts again from the beginning, {vjob.ran_s:.0f} s of its run are repeated")
        _to_waiting(task, reason, losses=vjob.losses + (1 if vjob.script_started else 0))
    drop_old(context.settings, context.ledger, context.nodes, context.stores, task.job_id)


def _to_waiting(task: Task, reason: str, *, losses: int) -> None:
    """Record that nothing of the run is left; the caller has begun a transaction."""
    ledger = task.context.ledger
    ledger.set_aside.close(task.job_id)
    ledger.checkpoints.retire(task.job_id)
    ledger.set_vms(task.job_id, [])
    ledger.transition(
        task.job_id,
        VJobState.WAITING,
        reason,
        script_started=False,
        finished=False,
        resumes=False,
        taking_back=0,
        losses=losses,
        private_key="",
        public_key="",
        requeue_of=-1,
        begins_anew=False,
    )


def _losses_in_a_row(task: Task) -> int:
    """How often in a row its state was lost soon after its start, with now; 1 after a long run, 0 before its script."""
    vjob = task.vjob()
    if not vjob.script_started:
        return 0
    before = task.context.ledger.failures.of_vjob(task.job_id, LOSS)
    return 1 if before is None or vjob.ran_s > _SOON_S else before.failures + 1


def _hold(task: Task) -> bool:
    """Have the RMS hold the job until an operator releases it; False if the RMS refuses."""
    try:
        task.context.rms.hold(task.job_id)
    except (NotFoundError, RefusedError) as error:
        task.event("hold-refused", str(error))
        return False
    return True


def _why_lost(losses: int, *, held: bool) -> str:
    if losses == 1:
        return "its state was lost; it starts again from the beginning"
    lost = f"its state was lost soon after its start, {losses} times in a row"
    if held:
        return f"{lost}: its job is held; `scontrol release` by an operator starts it once more"
    return f"{lost}; it starts again from the beginning, later each time"


def _clear(task: Task) -> None:
    """Remove everything of the vjob but its saved states, which are put aside; its job goes back behind the gate."""
    put_aside(task)
    remove_all(task)
    try:
        back_behind_gate(task)
    except (NotFoundError, RefusedError) as error:
        task.event("requeue-refused", str(error))


def _take_back(task: Task, number: int) -> None:
    """Bring a vjob from *stopping* to *sleeping*, in the saved states that were put aside as ``number``.

    The states were verified before. The vjob's run since they were put aside is thrown away; if it has slept meanwhile,
    the states of that sleep are put aside in turn.
    """
    context, ledger = task.context, task.context.ledger
    aside = ledger.set_aside.numbered(number)
    if {vm.uuid for vm in task.vms()} != {vm.uuid for vm in aside.vms}:
        _clear(task)
        try:
            with ledger.transaction():
                require_addresses(context.ledger, aside)
                ledger.set_aside.close(task.job_id)
                ledger.set_vms(task.job_id, (replace(vm, phase=VMPhase.SAVED) for vm in aside.vms))
        except RefusedError as error:  # the addresses were free when this began; the states stay aside
            task.event("not-taken-back", str(error))
            _begin_again(task)
            return
    give_back(context.settings, context.ledger, context.nodes, context.stores, aside)
    with ledger.transaction():
        ledger.set_aside.drop(number)
        ledger.checkpoints.retire(task.job_id)  # they belong to a run that is thrown away
        ledger.transition(
            task.job_id,
            VJobState.SLEEPING,
            "its saved states were taken back; `rmsplugin resume` lets it go on from there",
            taking_back=0,
            script_started=True,
            finished=False,
            resumes=False,
            losses=aside.losses,
            private_key=aside.private_key,
            public_key=aside.public_key,
        )
