"""Every disagreement of ledger, RMS and VMs has one answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow, VMRow
from rmsplugin.engine.reconcile.reconcile import ENDED_GRACE_S, RmsAct, reconcile
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.model.vm_phase import VMPhase

SILENT_S = 1.0
ORPHAN_S = 30.0

VJOB = VJobRow(
    job_id=7,
    display_id="7",
    user="alice",
    uid=2001,
    partition="vjob",
    geometry=Geometry(1, 1, 128),
    state=VJobState.RUNNING,
    reason="",
    submitted=1.0,
    state_since=10.0,
)
VM = VMRow(
    name="vjob7-0", job_id=7, idx=0, uuid="u", mac="m", address="a", host="n1", memory_mib=512, phase=VMPhase.LIVE
)
JOB = RmsJob(
    display_id="7",
    job_id=7,
    partition="vjob",
    user="alice",
    uid=2001,
    name="job",
    state=JobState.RUNNING,
    detail="RUNNING",
    reason="None",
    held=False,
    gated=False,
    completing=False,
    cpus=1,
    memory_mib=16,
    priority=0,
    submit_time=1,
    eligible=True,
    nodes=("n1",),
    batch_host="n1",
    restarts=0,
)

PENDING = replace(JOB, state=JobState.PENDING, detail="PENDING", reason="Licenses", gated=True)
OPENED = replace(PENDING, reason="Priority", gated=False)
SUSPENDED = replace(JOB, state=JobState.SUSPENDED, detail="SUSPENDED")
CANCELLED = replace(JOB, state=JobState.ENDED, detail="CANCELLED")
COMPLETING = replace(CANCELLED, completing=True)
#: Its script has ended with exit code 3, in the run that Slurm counts as the first.
OVER = replace(
    VJOB, state=VJobState.TERMINATED, finished=True, exit_code=3, seen_restarts=0, seen_submitted=JOB.submit_time
)
S = VJobState
K = OperationKind

CASES = [
    ("running and seen: nothing", VJOB, [VM], JOB, [], None),
    ("vm lost: from the start", VJOB, [VM], JOB, [VM], K.RESTART),
    ("vm gone after the script's end: nothing is lost", replace(VJOB, finished=True), [VM], JOB, [VM], None),
    ("an interrupted migration", VJOB, [replace(VM, phase=VMPhase.MIGRATING, destination="n2")], JOB, [], K.MIGRATE),
    ("requeued by hand: attach again", VJOB, [VM], PENDING, [], K.REATTACH),
    ("scontrol suspend by hand", VJOB, [VM], SUSPENDED, [], K.SUSPEND),
    ("cancelled, the script may still react", VJOB, [VM], COMPLETING, [], None),
    ("cancelled, the script has ended", replace(VJOB, finished=True), [VM], COMPLETING, [], K.STOP),
    ("cancelled and cleaned up", VJOB, [VM], CANCELLED, [], K.STOP),
    ("forgotten by Slurm", VJOB, [VM], None, [], K.STOP),
    ("cancelled while waiting", replace(VJOB, state=S.WAITING), [], CANCELLED, [], RmsAct.FORGET),
    ("cancelled while starting", replace(VJOB, state=S.STARTING), [VM], COMPLETING, [], K.STOP),
    ("cancelled while sleeping", replace(VJOB, state=S.SLEEPING), [VM], COMPLETING, [], K.STOP),
    ("stop taken up again", replace(VJOB, state=S.STOPPING), [VM], CANCELLED, [], K.STOP),
    ("restart taken up again", replace(VJOB, state=S.STOPPING), [VM], JOB, [], K.RESTART),
    ("start taken up again", replace(VJOB, state=S.STARTING), [VM], PENDING, [], K.START),
    ("suspend taken up again", replace(VJOB, state=S.SUSPENDING), [VM], SUSPENDED, [], K.SUSPEND),
    ("resume taken up again", replace(VJOB, state=S.RESUMING), [VM], SUSPENDED, [], K.RESUME),
    ("pause taken up again", replace(VJOB, state=S.PAUSING), [VM], SUSPENDED, [], K.PAUSE),
    ("its end taken up again", replace(VJOB, state=S.UNPAUSING), [VM], SUSPENDED, [], K.UNPAUSE),
    ("paused: nothing", replace(VJOB, state=S.PAUSED), [VM], SUSPENDED, [], None),
    ("paused, and resumed by hand", replace(VJOB, state=S.PAUSED), [VM], JOB, [], K.UNPAUSE),
    ("paused, and its vm lost", replace(VJOB, state=S.PAUSED), [VM], SUSPENDED, [VM], K.RESTART),
    ("cancelled while paused", replace(VJOB, state=S.PAUSED), [VM], COMPLETING, [], K.STOP),
    ("requeued while paused", replace(VJOB, state=S.PAUSED), [VM], OPENED, [], RmsAct.REQUEUE),
    ("requeued while paused, gated", replace(VJOB, state=S.PAUSED), [VM], PENDING, [], None),
    ("held while paused: saved", replace(VJOB, state=S.PAUSED), [VM], replace(PENDING, held=True), [], K.SUSPEND),
    ("sleeping: nothing", replace(VJOB, state=S.SLEEPING), [VM], SUSPENDED, [], None),
    ("scontrol resume by hand", replace(VJOB, state=S.SLEEPING), [VM], JOB, [], K.RESUME),
    ("requeued while sleeping", replace(VJOB, state=S.SLEEPING), [VM], OPENED, [], RmsAct.REQUEUE),
    ("requeued while sleeping, gated", replace(VJOB, state=S.SLEEPING), [VM], PENDING, [], None),
    ("the gate was opened by another hand", replace(VJOB, state=S.WAITING), [], OPENED, [], RmsAct.GATE),
    ("waiting behind the gate: nothing", replace(VJOB, state=S.WAITING), [], PENDING, [], None),
    ("started by another hand", replace(VJOB, state=S.WAITING), [], JOB, [], RmsAct.REQUEUE),
    ("ended and requeued", replace(VJOB, state=S.TERMINATED), [], PENDING, [], RmsAct.RENEW),
    ("its end is forgotten", OVER, [], JOB, [], RmsAct.TELL_END),
    ("it ended by a signal, which is forgotten", replace(OVER, exit_signal=9), [], JOB, [], RmsAct.TELL_END),
    ("nobody saw how it ended", replace(OVER, exit_code=None), [], JOB, [], RmsAct.RENEW),
    ("its script has not ended", replace(OVER, finished=False), [], JOB, [], RmsAct.RENEW),
    ("ended, requeued, and runs again", OVER, [], replace(JOB, restarts=1), [], RmsAct.RENEW),
    (
        "the run that ended was not the last",
        replace(OVER, seen_restarts=1),
        [],
        replace(JOB, restarts=1),
        [],
        RmsAct.RENEW,
    ),
    ("ended, and another job has its id", OVER, [], replace(JOB, submit_time=2), [], RmsAct.RENEW),
    ("ended, and suspended", OVER, [], SUSPENDED, [], RmsAct.RENEW),
    ("ended: nothing", replace(VJOB, state=S.TERMINATED), [], CANCELLED, [], None),
]


@pytest.mark.parametrize(
    ("vjob", "vms", "job", "missing", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_reconcile(vjob, vms, job, missing, expected) -> None:
    directive = reconcile(vjob, vms, job, missing, SILENT_S, ORPHAN_S)
    assert (directive.what if directive else None) == expected
    if directive:
        assert directive.reason


@pytest.mark.parametrize(
    ("state", "job", "what"),
    [
        (S.WAITING, JOB, RmsAct.REQUEUE),
        (S.WAITING, SUSPENDED, RmsAct.REQUEUE),
        (S.SLEEPING, SUSPENDED, K.RESTART),
        (S.SLEEPING, OPENED, K.RESTART),
    ],
)
def test_what_ends_vms_that_the_ledger_does_not_know_is_disputed(state, job, what) -> None:
    directive = reconcile(replace(VJOB, state=state), [VM], job, [], SILENT_S, ORPHAN_S, copies={VM.name: "n2"})
    assert directive is not None
    assert (directive.what, directive.disputed) == (what, True)
    assert "vjob7-0 on n2" in directive.reason


def test_loss_of_what_is_suspended_in_slurm_is_disputed() -> None:
    for vjob, missing in ((VJOB, [VM]), (replace(VJOB, state=S.WAITING), [])):
        directive = reconcile(vjob, [VM], SUSPENDED, missing, SILENT_S, ORPHAN_S)
        assert directive is not None
        assert (directive.absence, directive.disputed) == (True, True)


def test_vjob_that_sleeps_only_in_the_ledger_is_resumed_where_all_its_vms_run() -> None:
    asleep, other = replace(VJOB, state=S.SLEEPING), replace(VM, name="vjob7-1", idx=1)
    directive = reconcile(asleep, [VM], JOB, [], SILENT_S, ORPHAN_S, copies={VM.name: "n2"})
    assert directive is not None
    assert (directive.what, directive.hosts, directive.disputed) == (K.RESUME, {VM.name: "n2"}, False)
    directive = reconcile(asleep, [VM, other], JOB, [], SILENT_S, ORPHAN_S, copies={VM.name: "n2"})
    assert directive is not None
    assert (directive.what, directive.disputed) == (K.RESTART, True)


@pytest.mark.parametrize(("copies", "disputed"), [({}, False), ({VM.name: "n2"}, True)])
def test_lost_state_is_disputed_where_its_vm_is_seen(copies, disputed) -> None:
    vjob = replace(VJOB, state=S.RESUMING)
    directive = reconcile(vjob, [VM], SUSPENDED, [], SILENT_S, ORPHAN_S, copies=copies, lost="no state")
    assert directive is not None
    assert (directive.what, directive.reason) == (K.RESTART, "lost: no state")
    assert (directive.absence, directive.disputed) == (True, disputed)


def test_lost_state_on_a_node_that_is_gone_is_not_held_back() -> None:
    vjob = replace(VJOB, state=S.RESUMING)
    directive = reconcile(vjob, [VM], SUSPENDED, [], SILENT_S, ORPHAN_S, gone=["n1"], lost="no state")
    assert directive is not None
    assert (directive.absence, directive.disputed) == (False, False)


def test_a_paused_vm_that_runs_is_paused_again() -> None:
    directive = reconcile(replace(VJOB, state=S.PAUSED), [VM], SUSPENDED, [], SILENT_S, ORPHAN_S, awake={VM.name})
    assert directive is not None
    assert (directive.what, directive.reason) == (K.PAUSE, "vjob7-0 was seen running")


def test_loss_of_a_paused_vm_is_one_of_many_things_not_seen_and_nobody_disputes_it() -> None:
    directive = reconcile(replace(VJOB, state=S.PAUSED), [VM], SUSPENDED, [VM], SILENT_S, ORPHAN_S)
    assert directive is not None
    assert (directive.absence, directive.disputed) == (True, False)
    assert directive.reason == "lost: vjob7-0 not paused on n1 any more"


def test_a_second_copy_of_a_paused_vm_is_looked_after() -> None:
    paused = replace(VJOB, state=S.PAUSED)
    directive = reconcile(paused, [VM], SUSPENDED, [], SILENT_S, ORPHAN_S, copies={VM.name: "n2"})
    assert directive is not None
    assert (directive.what, directive.destinations) == (K.MIGRATE, {VM.name: "n2"})


def test_a_silent_wrapper_is_replaced_but_not_while_its_job_completes() -> None:
    directive = reconcile(VJOB, [VM], JOB, [], ORPHAN_S + 1, ORPHAN_S)
    assert directive is not None
    assert directive.what is RmsAct.REQUEUE
    assert reconcile(VJOB, [VM], replace(JOB, completing=True), [], ORPHAN_S + 1, ORPHAN_S) is None


def test_a_job_that_its_user_stopped_is_no_silent_one() -> None:
    assert reconcile(VJOB, [VM], replace(JOB, detail="STOPPED"), [], ORPHAN_S + 1, ORPHAN_S) is None


def test_a_wrapper_that_stands_still_is_let_go_on_while_its_job_runs_and_its_script_does() -> None:
    def follows(vjob: VJobRow = VJOB, job: RmsJob = JOB, silent_s: float = 5.0) -> OperationKind | RmsAct | None:
        directive = reconcile(vjob, [VM], job, [], silent_s, ORPHAN_S, stands_still=True)
        return directive.what if directive else None

    assert follows() is K.GO_ON
    assert follows(silent_s=ORPHAN_S + 1) is RmsAct.REQUEUE
    assert follows(job=replace(JOB, detail="STOPPED")) is None
    assert follows(job=replace(JOB, completing=True)) is None
    assert follows(replace(VJOB, finished=True)) is None
    assert follows(job=SUSPENDED) is K.SUSPEND


def test_a_cancelled_script_has_its_grace_and_no_more() -> None:
    assert reconcile(VJOB, [VM], COMPLETING, [], ENDED_GRACE_S - 1, ORPHAN_S) is None
    directive = reconcile(VJOB, [VM], COMPLETING, [], ENDED_GRACE_S, ORPHAN_S)
    assert directive is not None
    assert directive.what is K.STOP


@pytest.mark.parametrize("state", list(VJobState))
@pytest.mark.parametrize("job", [JOB, PENDING, OPENED, SUSPENDED, CANCELLED, COMPLETING, None])
def test_every_combination_has_a_legal_answer(state: VJobState, job: RmsJob | None) -> None:
    """Whatever is seen, the answer is a move that the life cycle has."""
    from rmsplugin.engine.execute.executor import _ACTS
    from rmsplugin.model.vjob import check_transition

    directive = reconcile(replace(VJOB, state=state), [VM], job, [], SILENT_S, ORPHAN_S)
    if (
        directive is not None
        and isinstance(directive.what, OperationKind)
        and _ACTS[directive.what].during is not state
    ):
        check_transition("7", state, _ACTS[directive.what].during)
