"""The ledger's schema, as the steps that led to it. Steps are only ever added: any older ledger can be upgraded."""

from __future__ import annotations

import json
import re
from typing import Any

from sqlite_utils import Database, Migrations

migrations = Migrations("rmsplugin-ledger")


@migrations()
def m001_first_schema(db: Database) -> None:
    """Vjobs, VMs, operations, actions, events."""
    db.execute(
        """create table vjobs (
            job_id integer primary key, display_id text not null, user text not null, uid integer not null,
            partition text not null, geometry text not null, state text not null, reason text not null,
            submitted real not null, state_since real not null, script_started integer not null,
            finished integer not null, losses integer not null, restarts integer not null,
            wrapper_seen real not null, not_before real not null, private_key text not null,
            public_key text not null)"""
    )
    db.execute("create index vjobs_display_id on vjobs (display_id)")
    db.execute("create index vjobs_state on vjobs (state)")
    db.execute(
        """create table vms (
            name text primary key, job_id integer not null references vjobs (job_id), idx integer not null,
            uuid text not null, mac text not null, address text not null, host text not null,
            destination text not null, image_node text not null, image_bytes integer not null,
            image_blake2b text not null, touched text not null, host_key text not null,
            host_key_public text not null)"""
    )
    db.execute("create index vms_job_id on vms (job_id)")
    db.execute(
        """create table operations (
            id integer primary key, job_id integer not null references vjobs (job_id), kind text not null,
            state text not null, requested_by text not null, arguments text not null, error text not null,
            created real not null, ended real not null)"""
    )
    # The database itself keeps the rule "one operation at a time for each vjob".
    db.execute("create unique index operations_running on operations (job_id) where state = 'running'")
    db.execute(
        """create table actions (
            id integer primary key, operation_id integer not null references operations (id), vm text not null,
            kind text not null, source text not null, destination text not null, state text not null,
            bytes_done integer not null, bytes_total integer not null, error text not null,
            created real not null, ended real not null)"""
    )
    db.execute("create index actions_operation_id on actions (operation_id)")
    db.execute(
        """create table events (
            id integer primary key, time real not null, vjob text not null, vm text not null, node text not null,
            kind text not null, message text not null)"""
    )
    db.execute("create index events_vjob on events (vjob)")


@migrations()
def m002_priority_and_rooms(db: Database) -> None:
    """The queue is in Slurm's order; nodes are borrowed, and the epilog of a room proves that its node is clean."""
    db.execute("alter table vjobs add column priority integer not null default 0")
    db.execute("alter table vjobs add column evacuated integer not null default 0")
    db.execute(
        """create table room_reports (
            id integer primary key, time real not null, room integer not null, node text not null, hook text not null,
            problem text not null, ended text not null)"""
    )
    db.execute("create index room_reports_room on room_reports (room)")


@migrations()
def m003_stores_and_states_put_aside(db: Database) -> None:
    """Stores prove themselves by their markers; a restart puts saved states aside instead of deleting them."""
    db.execute("create table stores (name text primary key, marker text not null)")
    db.execute(
        """create table asides (
            id integer primary key, job_id integer not null, display_id text not null, user text not null,
            uid integer not null, time real not null, reason text not null, complete integer not null,
            losses integer not null, private_key text not null, public_key text not null, vms text not null)"""
    )
    db.execute("create index asides_job_id on asides (job_id)")
    db.execute("alter table vjobs add column taking_back integer not null default 0")


@migrations()
def m004_failures_in_a_row(db: Database) -> None:
    """Every kind of operation has a back-off that outlives the engine, for each vjob; nodes that fail rest."""
    db.execute(
        """create table vjob_failures (
            job_id integer not null references vjobs (job_id), kind text not null, failures integer not null,
            not_before real not null, error text not null, primary key (job_id, kind))"""
    )
    db.execute(
        """create table node_failures (
            node text not null, kind text not null, user text not null, failures integer not null, last real not null,
            error text not null, primary key (node, kind, user))"""
    )
    db.execute("alter table vjobs drop column not_before")


@migrations()
def m005_context_switches(db: Database) -> None:
    """The decision of each cycle, its plan as steps that outlive the engine, and the pause."""
    db.execute(
        """create table plans (
            id integer primary key, time real not null, policy text not null, sentence text not null,
            fallback text not null, cost_mib integer not null, lower_bound_mib integer not null,
            estimate_s real not null, decided_s real not null, state text not null, error text not null,
            ended real not null)"""
    )
    db.execute(
        """create table steps (
            id integer primary key, plan_id integer not null references plans (id), vjob text not null,
            kind text not null, hosts text not null, reason text not null, state text not null,
            operation_id integer not null, error text not null, began real not null, ended real not null)"""
    )
    db.execute("create index steps_plan_id on steps (plan_id)")
    db.execute("create index steps_open on steps (state) where state in ('planned', 'running')")
    db.execute(
        """create table step_needs (
            step_id integer not null references steps (id), need_id integer not null references steps (id),
            primary key (step_id, need_id)) without rowid"""
    )
    db.execute(
        """create table decisions (
            id integer primary key, time real not null, plan_id integer not null, vjob text not null,
            state text not null, code text not null, sentence text not null)"""
    )
    db.execute("create index decisions_vjob on decisions (vjob)")
    db.execute("create table pause (id integer primary key check (id = 1), since real not null, by text not null)")
    db.execute("alter table vjobs rename column evacuated to resumes")
    db.execute("alter table vjobs add column ran_s real not null default 0")


@migrations()
def m006_cpu_demands(db: Database) -> None:
    """Running VMs demand what they are seen to use; changes of the demand are kept."""
    db.execute("alter table vms add column centi_cpus integer")
    db.execute(
        """create table samples (
            vm text not null, time integer not null, centi_cpus integer not null, memory_rss_kib integer,
            primary key (vm, time)) without rowid"""
    )
    db.execute("create index samples_time on samples (time)")


@migrations()
def m007_nodes(db: Database) -> None:
    """Nodes that are gone, by somebody's word or by fencing, and the VMs and files left behind there."""
    db.execute(
        """create table nodes (
            name text primary key, gone_at real not null default 0, gone_by text not null default '',
            fence_failures integer not null default 0, fence_last real not null default 0,
            fence_error text not null default '')"""
    )
    db.execute(
        """create table left_behind (
            node text not null, vm text not null, what text not null, primary key (node, vm, what))"""
    )


@migrations()
def m008_checkpoints(db: Database) -> None:
    """Running vjobs are written to files now and then, and go back to these when their VMs are lost."""
    # Numbers are parts of file names, so none is ever given again.
    db.execute(
        """create table checkpoints (
            id integer primary key autoincrement, job_id integer not null, state text not null, began real not null,
            taken real not null, whole_at real not null, ran_s real not null, used integer not null,
            targets text not null, vms text not null)"""
    )
    db.execute("create index checkpoints_job_id on checkpoints (job_id)")
    db.execute("alter table vjobs add column returns integer not null default 0")
    db.execute("alter table vjobs add column returned text not null default ''")
    db.execute("alter table vjobs add column repeated_s real not null default 0")


@migrations()
def m009_samples_to_the_second(db: Database) -> None:
    """Samples are kept to the second. Older ones, kept to the minute, get its end: so none is too early."""
    db.execute("update samples set time = time + 59")


@migrations()
def m010_memory_demands(db: Database) -> None:
    """The memory that running VMs need, as their guests say."""
    db.execute("alter table vms add column memory_demand_mib integer")
    db.execute("alter table samples add column memory_demand_mib integer")


@migrations()
def m011_memory_by_observation(db: Database) -> None:
    """VMs that take of their nodes the memory they are seen to need; names of jobs; nodes that are reserved."""
    db.execute("alter table vms add column observed integer not null default 0")
    db.execute("alter table vjobs add column job_name text not null default ''")
    db.execute("create index vjobs_user_job_name on vjobs (user, job_name)")
    db.execute(
        """create table reservations (
            node text primary key, vm text not null, since real not null, guests text not null) without rowid"""
    )
    db.execute("create table truly_full (id integer primary key check (id = 1), until real not null)")


@migrations()
def m012_memory_and_usage(db: Database) -> None:
    """VMs are larger than requested, while existing VMs keep the size with which they were booted.

    Also the usage of the processes of vjobs, and how their scripts ended.
    """
    db.execute("alter table vms add column memory_mib integer not null default 0")
    db.execute("alter table actions add column memory_mib integer not null default 0")
    requested = {}
    for job_id, geometry in db.execute("select job_id, geometry from vjobs").fetchall():
        said = re.search(r"\bmemory=(\d+)", geometry)
        requested[job_id] = int(said[1]) if said else 0
    for job_id, mib in requested.items():
        db.execute("update vms set memory_mib = ? where job_id = ?", [mib, job_id])
    for number, job_id, vms in db.execute("select id, job_id, vms from asides").fetchall():
        rows = [{**vm, "memory_mib": requested.get(job_id, 0)} for vm in json.loads(vms)]
        db.execute("update asides set vms = ? where id = ?", [json.dumps(rows), number])
    db.execute(
        """create table usage (
            job_id integer not null, idx integer not null, time real not null, cpu_us integer not null,
            user_us integer not null, system_us integer not null, memory_bytes integer not null,
            peak_bytes integer not null, read_bytes integer not null, written_bytes integer not null,
            available_kib integer not null, primary key (job_id, idx)) without rowid"""
    )
    db.execute("alter table vjobs add column exit_code integer")
    db.execute("alter table vjobs add column exit_signal integer not null default 0")


@migrations()
def m013_accounts(db: Database) -> None:
    """The user of a vjob, as the front on which Slurm runs its job knows him."""
    db.execute("alter table vjobs add column account text not null default ''")


@migrations()
def m014_ends_of_scripts(db: Database) -> None:
    """When the script of a vjob ended; its job may run on."""
    db.execute("alter table vjobs add column finished_at real not null default 0")


@migrations()
def m015_standing(db: Database) -> None:
    """The parts of a vjob's priority when Slurm last computed it."""
    db.execute("alter table vjobs add column standing text not null default ''")


@migrations()
def m016_requeues_on_purpose(db: Database) -> None:
    """Which run of a job was requeued on purpose, and whether its script has to begin anew."""
    db.execute("alter table vjobs add column requeue_of integer not null default -1")
    db.execute("alter table vjobs add column begins_anew integer not null default 0")


@migrations()
def m017_identity_of_jobs(db: Database) -> None:
    """The marks that tell the job of a vjob from another job with its id."""
    db.execute("alter table vjobs add column script_digest text not null default ''")
    db.execute("alter table vjobs add column seen_restarts integer not null default -1")
    db.execute("alter table vjobs add column seen_submitted integer not null default 0")


@migrations()
def m018_newest_ended(db: Database) -> None:
    """An index: the newest ended vjobs are found without reading the others."""
    db.execute("create index vjobs_state_submitted on vjobs (state, submitted, job_id)")


@migrations()
def m019_paused(db: Database) -> None:
    """Whether the VMs of a vjob stand still: after a failed save such a vjob stands still again."""
    db.execute("alter table vjobs add column paused integer not null default 0")


@migrations()
def m020_codes_of_failures(db: Database) -> None:
    """What kind of failure it was: its error, by which that was told until now, is for people."""
    db.execute("alter table vjob_failures add column code text not null default ''")
    db.execute("update vjob_failures set code = 'not-started' where error like 'Slurm does not start it%'")


@migrations()
def m021_scheduled_runs(db: Database) -> None:
    """The runs of what is done at times of day."""
    db.execute(
        """create table scheduled_runs (
            id integer primary key, job text not null, cron text not null, host_time real not null,
            began real not null, ended real not null, state text not null, result text not null,
            failures integer not null)"""
    )
    db.execute("create index scheduled_runs_job on scheduled_runs (job)")


@migrations()
def m022_phases_of_vms(db: Database) -> None:
    """What there is of each VM, told until now by which of its places are set; and where it was booted."""
    db.execute("alter table vms add column phase text not null default 'placed'")
    db.execute("alter table vms add column booted_on text not null default ''")
    states = dict(db.execute("select job_id, state from vjobs").fetchall())
    names = ("name", "job_id", "host", "destination", "image_node", "image_bytes", "image_blake2b", "touched")
    for row in db.execute(f"select {', '.join(names)} from vms").fetchall():
        vm = dict(zip(names, row, strict=True))
        new = _with_phase(vm, states.get(vm["job_id"], ""))
        del new["touched"]
        columns = ", ".join(f"{name} = :{name}" for name in new)
        db.execute(f"update vms set {columns} where name = :name", new)
    for number, vms in db.execute("select id, vms from asides").fetchall():
        rows = [_with_phase(vm, "") for vm in json.loads(vms)]
        db.execute("update asides set vms = ? where id = ?", [json.dumps(rows), number])


@migrations()
def m023_epoch(db: Database) -> None:
    """The highest epoch of an engine that has led with this ledger."""
    db.execute("create table epoch (id integer primary key check (id = 1), epoch integer not null)")


@migrations()
def m024_given(db: Database) -> None:
    """Of a group's engine: the newest word of the leader that it has followed, and the vjobs that it gave up then."""
    db.execute(
        """create table given (
            id integer primary key check (id = 1), epoch integer not null, serial integer not null)"""
    )
    db.execute(
        """create table released (
            number integer primary key, epoch integer not null, serial integer not null)"""
    )


@migrations()
def m025_parcels(db: Database) -> None:
    """Of a group's engine: saved states that are copied to other groups, and vjobs that go there or come from there."""
    db.execute(
        """create table copies (
            vm text not null, node text not null, number integer not null, to_group text not null,
            size_bytes integer not null, blake2b text not null, arrived integer not null,
            primary key (vm, node)) without rowid"""
    )
    db.execute(
        """create table parcels (
            id text primary key, kind text not null, number integer not null, to_group text not null,
            time real not null, content text not null, addresses text not null) without rowid"""
    )
    db.execute("create unique index parcels_vjob on parcels (number) where kind = 'vjob'")
    db.execute(
        """create table taken (
            id text primary key, number integer not null, giver text not null, time real not null,
            told integer not null) without rowid"""
    )


@migrations()
def m026_power(db: Database) -> None:
    """The nodes that the engine switches off and on, and their idle periods."""
    db.execute(
        """create table power_switches (
            node text primary key, state text not null, since real not null, why text not null, checked real not null,
            told real not null, ordered real not null, proved real not null, boot_before integer not null,
            failures integer not null, not_before real not null, error text not null,
            action integer not null) without rowid"""
    )
    db.execute(
        """create table power_acts (
            id integer primary key, node text not null, kind text not null, began real not null, ended real not null,
            error text not null)"""
    )
    db.execute("create table power_idle (node text primary key, since real not null) without rowid")
    db.execute("create table power_averages (class text primary key, expected_s real not null) without rowid")


@migrations()
def m028_sensors(db: Database) -> None:
    """The nodes that are hot, and what the sensors of nodes showed."""
    db.execute(
        """create table hot_nodes (
            node text primary key, since real not null, celsius real not null, hot_c real not null) without rowid"""
    )
    db.execute(
        """create table node_samples (
            node text not null, time integer not null, watts real, celsius real, primary key (node, time))
            without rowid"""
    )
    db.execute("create index node_samples_time on node_samples (time)")


@migrations()
def m029_preferences(db: Database) -> None:
    """What an administrator prefers about each vjob."""
    db.execute("alter table vjobs add column preference text not null default ''")


@migrations()
def m030_times_of_switches(db: Database) -> None:
    """How long a node took to go off, or to come on."""
    db.execute("alter table power_acts add column took_s real not null default 0")


@migrations()
def m031_resized_vjobs(db: Database) -> None:
    """To what the VMs of each vjob were resized by hand."""
    db.execute("alter table vjobs add column resized_cpus integer not null default 0")
    db.execute("alter table vjobs add column resized_memory_mib integer not null default 0")


@migrations()
def m032_indexes_of_what_was_done(db: Database) -> None:
    """What was done with a vjob, a VM or a room is asked in each cycle, and so is which plans run."""
    db.execute("create index operations_job_id_kind on operations (job_id, kind)")
    db.execute("create index actions_vm on actions (vm)")
    db.execute("create index room_reports_node on room_reports (node)")
    db.execute("create index plans_running on plans (state) where state = 'running'")
    db.execute("create index steps_operation_id on steps (operation_id)")


@migrations()
def m033_lateness(db: Database) -> None:
    """How late vjobs were because nodes were off."""
    db.execute(
        """create table power_late (
            began real primary key, ended real not null, late_s real not null, vjobs_s real not null,
            off_s real not null, kept_s real not null, seen_s real not null) without rowid"""
    )


@migrations()
def m034_identity(db: Database) -> None:
    """The identity of the ledger, by which readers of its events know it. Copies keep it."""
    db.execute("create table identity (id text not null)")
    db.execute("insert into identity values (lower(hex(randomblob(4))))")


def _with_phase(vm: dict[str, Any], vjob: str) -> dict[str, Any]:
    """The row of an older release with the phase that its places told, and without places that do not belong to it.

    Args:
        vm: the row.
        vjob: the state of its vjob; empty for a state that was put aside.
    """
    touched = json.loads(vm["touched"])
    host, destination, image, digest = (vm[each] for each in ("host", "destination", "image_node", "image_blake2b"))
    if image and digest:
        awake = "restoring" if vjob == "resuming" else "sealed"
        phase = awake if host else "moving" if destination else "saved"
    elif image and host:
        phase = "sealing"
    elif host and (vjob == "starting" or not touched):
        phase = "booting" if touched else "placed"
    elif host:
        phase = "migrating" if destination else "live"
    else:
        phase = "lost"
    none: dict[str, Any] = {}
    if phase not in ("migrating", "moving"):
        none |= {"destination": ""}
    if phase not in ("sealing", "sealed", "saved", "moving", "restoring"):
        none |= {"image_node": ""}
    if phase not in ("sealed", "saved", "moving", "restoring"):
        none |= {"image_bytes": 0, "image_blake2b": ""}
    return {**vm, **none, "phase": phase, "booted_on": touched[0] if touched else ""}
