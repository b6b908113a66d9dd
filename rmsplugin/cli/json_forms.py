"""JSON forms: what each command prints with --json, as types, and the JSON Schema that is made of them."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from rmsplugin.api import answers
from rmsplugin.api.schemas import Schema, components_of, schema_of
from rmsplugin.cli.shared.document import VERSION


class VJobsShown(TypedDict):
    """`rmsplugin vjobs`.

    Attributes:
        vjobs: the vjobs; those that only Slurm has are without what the ledger knows of the others. With --start each
            has `start`, when it is likely to run; null: not known.
    """

    vjobs: list[answers.VJob | answers.UnmetVJobs]


class VMsShown(TypedDict):
    """`rmsplugin vms`.

    Attributes:
        vms: the VMs.
    """

    vms: list[answers.VM]


class NodesShown(TypedDict):
    """`rmsplugin nodes`.

    Attributes:
        nodes: the nodes.
    """

    nodes: list[answers.Node]


class StatesShown(TypedDict):
    """`rmsplugin states`.

    Attributes:
        states: the saved states that were put aside.
    """

    states: list[answers.SavedStates]


class HeldShown(TypedDict):
    """`rmsplugin confirm`.

    Attributes:
        held: what is held back.
    """

    held: list[answers.Held]


class ConfirmedShown(TypedDict):
    """`rmsplugin confirm --yes`.

    Attributes:
        confirmed: what was held back, and is done now.
    """

    confirmed: list[answers.Held]


class BegunOf(TypedDict):
    """An operation that was begun on one of several vjobs.

    Attributes:
        vjob: display id of the vjob.
        operation: its number.
    """

    vjob: str
    operation: int


class OperationsShown(TypedDict):
    """`rmsplugin suspend`, `resume` or `migrate` of several vjobs.

    Attributes:
        operations: those that have ended, or with --no-wait those that were begun.
    """

    operations: list[answers.Operation | BegunOf]


class PreferredShown(TypedDict):
    """`rmsplugin prefer`.

    Attributes:
        state: what is preferred.
        vjobs: display ids of the vjobs for which it is kept.
    """

    state: str
    vjobs: list[str]


class ResizedShown(TypedDict):
    """`rmsplugin resize`.

    Attributes:
        cpus: the CPUs that each VM is to have; 0: all that are booked; null: no change.
        memory_mib: the same of its memory.
        vjobs: display ids of the vjobs for which it is kept.
    """

    cpus: int | None
    memory_mib: int | None
    vjobs: list[str]


class LeaderShown(TypedDict):
    """`rmsplugin handover`: `from` and `to` are the hosts.

    Attributes:
        to: the host of the engine that leads now.
        epoch: its epoch.
        seconds: how long it took.
    """

    to: str
    epoch: int | None
    seconds: float


class GroupHanded(TypedDict):
    """A group that was handed over; `from` is the host where it was.

    Attributes:
        group: its name.
        to: the host where it is now; empty: it need not stay where it is.
        epoch: of its engine; null: none is known.
        seconds: how long it took.
    """

    group: str
    to: str
    epoch: int | None
    seconds: float


class GroupsHandedShown(TypedDict):
    """`rmsplugin handover --all`.

    Attributes:
        groups: those that were handed over.
    """

    groups: list[GroupHanded]


class VJobShown(TypedDict):
    """`rmsplugin show vjob`.

    Attributes:
        vjob: the vjob, or elements of an array.
        vms: their VMs.
        decisions: the newest decisions about them.
        events: the newest events of them.
    """

    vjob: list[answers.VJob | answers.UnmetVJobs]
    vms: list[answers.VM]
    decisions: list[answers.Decided]
    events: list[answers.Event]


class VMShown(TypedDict):
    """`rmsplugin show vm`.

    Attributes:
        vm: the VM.
        vjob: its vjob.
        events: the newest events of it.
    """

    vm: list[answers.VM]
    vjob: list[answers.VJob | answers.UnmetVJobs]
    events: list[answers.Event]


class NodeShown(TypedDict):
    """`rmsplugin show node`.

    Attributes:
        node: the node.
        vms: the VMs that are there, or whose saved states are.
        events: the newest events that name it.
    """

    node: list[answers.Node]
    vms: list[answers.VM]
    events: list[answers.Event]


class ValueShown(TypedDict):
    """A setting.

    Attributes:
        key: section and key, as `engine.cycle_s`.
        value: what the engine runs with; null: nothing.
        file: what the file says now; null: nothing.
        differs: whether the file says otherwise than at the engine's start: it has to be started again to have that.
        measured: how often the value was measured, and since when it is used in place of the settings; null: it was
            not, or is not.
    """

    key: str
    value: Any
    file: Any
    differs: bool
    measured: answers.MeasuredValue | None


class ConfigShown(TypedDict):
    """`rmsplugin config show`.

    Attributes:
        config: the settings.
    """

    config: list[ValueShown]


class PlanShown(TypedDict):
    """`rmsplugin plan --instance`.

    Attributes:
        decision: by vjob, the decision.
        target: by VM, its place afterwards.
        plan: the plan.
        nodes_used: number of nodes with VMs afterwards.
        nodes_lower_bound: the proven least number.
        seconds: by stage, how long it took.
        policy: the policy.
        sentence: the decision in a sentence.
    """

    decision: dict[str, answers.Reason]
    target: dict[str, answers.Place]
    plan: answers.Plan
    nodes_used: int
    nodes_lower_bound: int
    seconds: dict[str, float]
    policy: str
    sentence: str


class PackShown(TypedDict):
    """`rmsplugin pack`.

    Attributes:
        nodes_used: number of nodes that host the VMs.
        lower_bound: the proven least number.
        optimal: whether these are equal.
        ffd_nodes_used: number of nodes by First Fit Decreasing; null: it finds no place for all.
        assignment: by VM, its node.
        seconds: how long it took.
    """

    nodes_used: int
    lower_bound: int
    optimal: bool
    ffd_nodes_used: int | None
    assignment: dict[str, str]
    seconds: float


class SimulationShown(TypedDict):
    """`rmsplugin simulate`; further keys are the metrics.

    Attributes:
        policy: the policy.
        platform: what runs the jobs.
        rules: the number of placement rules that VMs obey.
        wishes: the number of jobs whose users' wishes about VMs beside each other are kept.
        cluster: the cluster that was simulated.
        context_switches: actions on VMs by kind, and what they cost.
        trace: what was read.
        seconds: how long reading and simulation took.
    """

    policy: str
    platform: str
    rules: int
    wishes: int
    cluster: dict[str, Any]
    context_switches: dict[str, Any]
    trace: dict[str, Any]
    seconds: dict[str, float]


class ComparisonShown(TypedDict):
    """`rmsplugin compare`.

    Attributes:
        policies: what each policy was worth.
        trace: what was read.
    """

    policies: list[dict[str, Any]]
    trace: dict[str, Any]


class ReportShown(TypedDict):
    """`rmsplugin report`; further keys are utilisation, switches and costs.

    Attributes:
        kind: whether it is of a cluster or of a simulation.
        made: when it was made.
        since: begin of the time that it is about.
        until: its end.
        jobs: each job, with its intervals.
        totals: by user, account, partition, and of all.
    """

    kind: str
    made: float
    since: float
    until: float
    jobs: list[dict[str, Any]]
    totals: dict[str, Any]


class LatenessShown(TypedDict):
    """How late vjobs were because nodes were off.

    Attributes:
        share: the share of their time from submission to end for which vjobs waited for nodes to come on, or were
            behind vjobs that did.
        at_most: what power.late_at_most allows; null: no bound is set, or the settings are not known.
        sentence: all of it, for a person.
    """

    share: float
    at_most: float | None
    sentence: str


class EnergyShown(TypedDict):
    """`rmsplugin energy`; further keys have a row for each node, user, and so on.

    Attributes:
        since: begin of the time that it is about.
        until: its end.
        energy: the energy of all.
        lateness: how late vjobs were in that time; null: no engine that switches nodes has seen any.
    """

    since: float
    until: float
    energy: dict[str, Any]
    lateness: LatenessShown | None


class FindingShown(TypedDict):
    """A finding of `rmsplugin check`.

    Attributes:
        level: whether it is in order.
        subject: what was looked at.
        what: what is there.
        remedy: what to do; empty: nothing.
    """

    level: Literal["ok", "warning", "error"]
    subject: str
    what: str
    remedy: str


class FindingsShown(TypedDict):
    """`rmsplugin check`.

    Attributes:
        findings: what was found.
    """

    findings: list[FindingShown]


class RowsShown(TypedDict):
    """`rmsplugin ledger query`.

    Attributes:
        rows: each by its columns.
        more: whether there are more than --limit allows.
    """

    rows: list[dict[str, Any]]
    more: bool


class CalibrationShown(TypedDict):
    """`rmsplugin calibrate`.

    Attributes:
        ledger: the ledgers that were read.
        since: only what began since then; 0: all.
        actions: what was measured of each action.
        durations: the values for section [durations] of the settings.
        power: by class of nodes and kind of switch, what was measured.
    """

    ledger: str
    since: float
    actions: list[dict[str, Any]]
    durations: dict[str, float]
    power: list[dict[str, Any]]


_OPERATION = (answers.Operation, answers.Begun, OperationsShown)
#: By command, the forms that its answer may have.
FORMS: dict[tuple[str, ...], tuple[type, ...]] = {
    ("vjobs",): (VJobsShown,),
    ("vms",): (VMsShown,),
    ("nodes",): (NodesShown,),
    ("groups",): (answers.GroupsAnswer,),
    ("events",): (answers.EventsAnswer,),
    ("status",): (answers.Status,),
    ("cycles",): (answers.CyclesAnswer, answers.CycleAnswer),
    ("decisions",): (answers.DecisionsAnswer,),
    ("schedule",): (answers.ScheduleAnswer,),
    ("suspend",): _OPERATION,
    ("resume",): _OPERATION,
    ("migrate",): _OPERATION,
    ("prefer",): (PreferredShown,),
    ("resize",): (ResizedShown,),
    ("states",): (StatesShown, answers.Operation, answers.Ok),
    ("usage",): (answers.UsageAnswer,),
    ("confirm",): (HeldShown, ConfirmedShown, answers.Ok),
    ("config", "show"): (ConfigShown,),
    ("show", "vjob"): (VJobShown,),
    ("show", "vm"): (VMShown,),
    ("show", "node"): (NodeShown,),
    ("node", "gone"): (answers.NodeOrder,),
    ("node", "fence"): (answers.NodeOrder,),
    ("node", "back"): (answers.Ok,),
    ("pause",): (answers.PauseAnswer,),
    ("unpause",): (answers.PauseAnswer,),
    ("handover",): (LeaderShown, GroupsHandedShown),
    ("plan",): (answers.Preview, PlanShown),
    ("pack",): (PackShown,),
    ("simulate",): (SimulationShown,),
    ("report",): (ReportShown,),
    ("energy",): (EnergyShown,),
    ("compare",): (ComparisonShown,),
    ("check",): (FindingsShown,),
    ("ledger", "query"): (RowsShown,),
    ("calibrate",): (CalibrationShown,),
}

_SENTENCES = {
    "type": "array",
    "items": {"type": "object", "properties": {"description": {"type": "string"}}, "required": ["description"]},
}
_END: Schema = {
    "type": "object",
    "properties": {
        "meta": {
            "type": "object",
            "properties": {
                "version": {"description": "version of these forms", "const": VERSION},
                "rmsplugin": {"description": "release of the command", "type": "string"},
                "command": {"description": "the command", "enum": [list(words) for words in FORMS]},
            },
            "required": ["version", "rmsplugin", "command"],
        },
        "errors": {"description": "what could not be done, in sentences", **_SENTENCES},
        "warnings": {"description": "what else one has to know, in sentences", **_SENTENCES},
    },
    "required": ["meta", "errors", "warnings"],
}
#: Of a command that could not be carried out there is no answer.
_FAILED: Schema = {"properties": {"errors": {"minItems": 1}}, "maxProperties": len(_END["properties"])}


def json_schema() -> Schema:
    """The schema of all documents: which form one has is told by its ``meta.command``."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What the commands of rmsplugin print with --json",
        "description": f"Made by contrib/make-docs. Version {VERSION}: keys are added to documents; none leaves, and "
        "none changes its meaning. Readers have to take no notice of keys that they do not know. Times are seconds "
        "since the epoch.",
        "allOf": [{"$ref": "#/components/schemas/End"}, *(_of_command(words) for words in FORMS)],
        "components": {"schemas": {"End": _END, **components_of(form for forms in FORMS.values() for form in forms)}},
    }
    return schema


def _of_command(words: tuple[str, ...]) -> Schema:
    command = {"properties": {"meta": {"properties": {"command": {"const": list(words)}}}}}
    return {"if": command, "then": {"anyOf": [_FAILED, *(schema_of(form) for form in FORMS[words])]}}
