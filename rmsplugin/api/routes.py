"""Routes: each request of the API in one place. Routing, the OpenAPI document and the tests are made from these.

A path begins with the version of the API. Within ``/v1`` requests, optional keys and keys of answers are added; none
leaves, and none changes its meaning.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmsplugin.api import answers
from rmsplugin.model import event_cursor
from rmsplugin.model.preferences import PREFERENCES
from rmsplugin.model.vjob import VJobState

Schema = Mapping[str, Any]


class Who(enum.Enum):
    """The users whose request is carried out, where powers count (``Door``)."""

    ANYONE = "anyone"
    OWNER = "the vjob's user, root, the engine's user"
    OWNER_OR_OPERATOR = "the vjob's user, operators"
    OPERATOR = "operators"
    ENGINE = "root, the engine's user"
    ASKER = "the user who asked for it"


class Door(enum.Enum):
    """The hosts from which a request is taken over TCP (``rmsplugin.engine.serve.doors``)."""

    ANY = "any"
    LOGIN = "login hosts"
    WRAPPER = "the front where the vjob's job runs, and login hosts"
    ACCESS = "for a wrapper the front where the vjob's job runs; login hosts"
    FRONT = "the front where the vjob's job runs: its hooks"
    ROOM = "the node of the room: its hooks"
    TRUSTED = "the controller"


class Tag(enum.Enum):
    """The callers that a request is made for."""

    MONITORING = "what there is, and what happens"
    CONTROL = "what users and operators have done to vjobs"
    ORDERS = "orders of operators to the engine, and about nodes and stores"
    REPORTS = "reports on the past"
    MANAGERS = "for the managers of groups of VM hosts; no interface for other programs"
    WRAPPERS = "for the wrapper of a vjob and `rmsplugin ssh`; no interface for other programs"
    HOOKS = "for Slurm's hooks; no interface for other programs"


class Media(enum.Enum):
    """The form of an answer that a browser gets on the engine's socket, if it accepts that; all others get JSON."""

    JSON = "application/json"
    HTML = "text/html"
    EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a path, a query or a body.

    Attributes:
        name: the key.
        schema: JSON Schema of its values, with ``examples``.
        what: its meaning.
        required: whether it has to be given.
    """

    name: str
    schema: Schema
    what: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One kind of request.

    Attributes:
        name: its name: ``operationId`` of OpenAPI, and the handler's name.
        method: GET or POST.
        path: its path, with the names of ``variables`` in braces.
        answer: the type of the body of its answer: a TypedDict, or a union of some.
        what: what it does.
        who: the users whose request is carried out.
        tag: the callers that it is made for.
        door: the hosts from which it is taken over TCP.
        variables: the keys of the path.
        query: the keys of the query.
        body: the keys of the body.
        long: whether the answer may be long.
        media: the form of its answer for browsers.
    """

    name: str
    method: str
    path: str
    answer: Any
    what: str
    who: Who
    tag: Tag
    door: Door = Door.ANY
    variables: tuple[Key, ...] = ()
    query: tuple[Key, ...] = ()
    body: tuple[Key, ...] = ()
    long: bool = False
    media: Media = Media.JSON


def path_of(route: Route, values: Mapping[str, str]) -> str:
    """The path with these values, percent-encoded by the caller, in the places of its variables."""
    return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], route.path)


# -- values -----------------------------------------------------------------------------------------------------------


def _text(pattern: str, example: str) -> Schema:
    return {"type": "string", "pattern": f"^{pattern}$", "examples": [example]}


def _number(example: int, maximum: int = 2**53) -> Schema:
    return {"type": "integer", "minimum": 0, "maximum": maximum, "examples": [example]}


def _or_nothing(schema: Schema) -> Schema:
    """The same in a body, where null and the empty text are as if the key were left out."""
    return {**schema, "type": ["string", "null"], "pattern": f"^({schema['pattern'][1:-1]})?$"}


def _list(items: Schema, example: list[object]) -> Schema:
    return {"type": "array", "items": items, "examples": [example]}


_JOB = "[1-9][0-9]{0,9}"
JOB_ID = _text(_JOB, "12")
DISPLAY_ID = _text(f"{_JOB}(_(0|{_JOB}))?", "12_3")
_INDEX = "(0|[1-9][0-9]{0,9})"
_RANGE = f"{_INDEX}(-{_INDEX})?"
JOB_NAME: Schema = {**_text(rf"{_JOB}(_(\[{_RANGE}(,{_RANGE})*\]|{_RANGE}))?", "12"), "maxLength": 4096}
NUMBER = _text("[1-9][0-9]{0,14}", "7")
GROUP = _text("[A-Za-z0-9_.+-]{1,64}", "vmhosts")
HOST = _text("[A-Za-z0-9][A-Za-z0-9._-]{0,252}", "n1")
VM_NAME = _text("vjob[1-9][0-9]{0,9}-(0|[1-9][0-9]{0,5})", "vjob12-0")
SENTENCE: Schema = {"type": "string", "maxLength": 1000, "pattern": "^[^\\x00-\\x1f\\x7f]*$", "examples": [""]}
FLAG: Schema = {"type": "integer", "enum": [0, 1], "examples": [1]}
SECONDS: Schema = {"type": "number", "minimum": 0, "examples": [0.5]}
MOMENT: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 2**53, "examples": [1763700000.0]}
COMMA_LIST: Schema = {
    **_text("[^\\x00-\\x1f\\x7f,]+(,[^\\x00-\\x1f\\x7f,]+)*", "vjob"),
    "maxLength": 4096,
}
EVENT_CURSOR: Schema = {**_text(event_cursor.PATTERN, "7:0b5e3f1a"), "maxLength": event_cursor.LONGEST}
_STATE = f"({'|'.join(VJobState)})"
_STATES: Schema = {**_text(f"{_STATE}(,{_STATE})*", "waiting,sleeping"), "maxLength": 4096}
_PREFERENCE: Schema = {"type": "string", "enum": list(PREFERENCES), "examples": ["running"]}
_AMOUNT: Schema = {"type": ["integer", "null"], "minimum": 0, "maximum": 999_999_999, "examples": [1]}
WORDS = _list(SENTENCE, ["bob"])
JOB_NAMES = _list(JOB_NAME, ["12"])

_OF_A_VJOB = "of a job, or of an element of a job array: `12`, `12_3`"
_SEVERAL = f"{_OF_A_VJOB}; or several elements: `12_[1-3,7]`; the id of an array means all of them"
_WAIT = Key("wait", SECONDS, "answer when it has come, at the latest after this many seconds; more than 300 is 300")
_AFTER = Key("after", _number(0), "`next` of the page before")
_ONLY = Key("vjob", JOB_NAME, "only those of vjobs of this name")
_LIMIT = Key("limit", _number(10, 10_000), "at most that many, the newest")
_PAGE_GROUP = Key("group", GROUP, "of a manager: the group of VM hosts; else the page of all groups")
_TO = Key("to", _or_nothing(HOST), "the node to use; else the engine chooses")


#: Choose among vjobs that have not ended: each has words with commas between them, of which one has to fit.
_CHOICE = (
    Key("state", _STATES, "only vjobs in one of these states"),
    Key("partition", COMMA_LIST, "only those of these partitions"),
    Key("user", COMMA_LIST, "only those of these users"),
    Key("account", COMMA_LIST, "only those of these accounts of Slurm"),
    Key("node", COMMA_LIST, "only those that have a VM on one of these nodes"),
    Key("name", COMMA_LIST, "only those whose jobs have one of these names"),
)


def _job(name: str, method: str, ending: str, answer: Any, what: str, who: Who, tag: Tag, **more: Any) -> Route:
    """A request about the vjobs that ``id`` names."""
    variable = Key("id", more.pop("of", JOB_NAME), more.pop("called", _SEVERAL), required=True)
    return Route(name, method, f"/v1/jobs/{{id}}{ending}", answer, what, who, tag, variables=(variable,), **more)


def _hook(name: str, ending: str, answer: Any, what: str, door: Door, **more: Any) -> Route:
    """A request of a hook of a job."""
    called = {"of": JOB_ID, "called": "of the job"}
    return _job(name, "POST", ending, answer, what, Who.ENGINE, Tag.HOOKS, door=door, **called, **more)


def _wrapper(name: str, answer: Any, what: str, **more: Any) -> Route:
    """A request of the wrapper of a vjob."""
    called = {"of": DISPLAY_ID, "called": _OF_A_VJOB, "door": Door.WRAPPER}
    return _job(name, "POST", f"/{name}", answer, what, Who.OWNER, Tag.WRAPPERS, **called, **more)


def _order(name: str, path: str, answer: Any, what: str, **more: Any) -> Route:
    """An order of an operator."""
    return Route(name, "POST", path, answer, what, Who.OPERATOR, Tag.ORDERS, Door.TRUSTED, **more)


def _list_of(name: str, path: str, answer: Any, what: str, **more: Any) -> Route:
    """A list for anyone."""
    return Route(name, "GET", path, answer, what, Who.ANYONE, Tag.MONITORING, long=True, **more)


_NODE = Key("name", HOST, "of the node", required=True)
_PREVIEW = Key(
    "preview",
    {"type": "boolean", "examples": [True]},
    "do nothing; say what would become of which vjobs, or refuse what would be refused",
)
_OPERATION = answers.Begun | answers.Elements

ROUTES: tuple[Route, ...] = (
    # -- monitoring
    Route(
        "status",
        "GET",
        "/v1/status",
        answers.Status,
        "The engine: its release, its last cycle, problems of the site, what is held back, whether it is paused.",
        Who.ANYONE,
        Tag.MONITORING,
    ),
    _list_of("nodes", "/v1/nodes", answers.NodesAnswer, "The nodes that may host VMs, and what of them is taken."),
    _list_of("groups", "/v1/groups", answers.GroupsAnswer, "The groups of VM hosts, as last decided about."),
    Route(
        "summary",
        "GET",
        "/v1/summary",
        answers.SummaryAnswer,
        "What the engine of one group tells the leader of all: its room, its vjobs, and those that it has given up.",
        Who.ENGINE,
        Tag.MANAGERS,
        Door.TRUSTED,
        long=True,
    ),
    _list_of(
        "vjobs",
        "/v1/vjobs",
        answers.VJobsPage,
        "Vjobs that have not ended, in pages of 1000 by job id; vjobs that have ended, if asked for. Keys that choose "
        "do not choose among those that have ended, or are asked for by name.",
        query=(
            Key("ended", FLAG, "1: the first page also has the newest vjobs that have ended"),
            Key("limit", _number(10, 10_000), "at most that many vjobs that have ended; 1000 at most at a time"),
            Key("vjob", JOB_NAME, "only vjobs of this name, ended or not"),
            _AFTER,
            Key("before", _number(0), "only ended vjobs submitted before this one: `older` of the page before"),
            Key(
                "at",
                _number(0),
                "when `before` was first submitted, in microseconds, for an engine that does not have it",
            ),
            *_CHOICE,
        ),
    ),
    _list_of(
        "unmet",
        "/v1/unmet",
        answers.UnmetPage,
        "Jobs of vjob partitions that Slurm has and the engine does not know yet, such as pending elements of arrays, "
        "which are folded as squeue folds them; in pages of about 1000 jobs and elements.",
        query=(Key("vjob", JOB_NAME, "only jobs of this name"), _AFTER, *_CHOICE),
    ),
    _job(
        "vjob",
        "GET",
        "",
        answers.VJobAnswer,
        "One vjob, also one that the engine has not met yet.",
        Who.ANYONE,
        Tag.MONITORING,
    ),
    _list_of(
        "vms",
        "/v1/vms",
        answers.VMsPage,
        "VMs of vjobs that have not ended, in pages of about 1000.",
        query=(_AFTER, _ONLY),
    ),
    _job(
        "usage",
        "GET",
        "/usage",
        answers.UsageAnswer,
        "What the processes of vjobs have used; VMs that run are asked now, for up to 20 s.",
        Who.OWNER_OR_OPERATOR,
        Tag.MONITORING,
        door=Door.LOGIN,
        long=True,
    ),
    _job(
        "decisions",
        "GET",
        "/decisions",
        answers.DecisionsAnswer,
        "The decisions about a vjob, one for each change.",
        Who.ANYONE,
        Tag.MONITORING,
        long=True,
    ),
    _list_of(
        "events",
        "/v1/events",
        answers.EventsAnswer,
        "What happened, oldest first.",
        query=(
            Key("since", _number(0), "only events after the one of this number, which the same engine has given"),
            Key(
                "after",
                EVENT_CURSOR,
                "`cursor` of an answer: only what is told since then, and of more than `limit` events the oldest; the "
                "next question goes on. Unlike `since` it misses no event of a group whose engine is late, or did not "
                "answer. One engine refuses with 409 what managers have given, and managers what one engine has given",
            ),
            Key("vjob", JOB_NAME, "only events of vjobs of this name"),
            Key(
                "from",
                {**SECONDS, "maximum": 1e12, "examples": [1763700000.5]},
                "only those that happened then or later",
            ),
            Key("node", COMMA_LIST, "only those that name one of these nodes"),
            Key("user", COMMA_LIST, "only those of vjobs of these users"),
            Key("kind", COMMA_LIST, "only those of these kinds"),
            _LIMIT,
        ),
    ),
    _list_of("cycles", "/v1/cycles", answers.CyclesAnswer, "The newest context switches.", query=(_LIMIT,)),
    _list_of(
        "cycle",
        "/v1/cycles/{number}",
        answers.CycleAnswer,
        "One context switch with its steps.",
        variables=(Key("number", NUMBER, "of the cycle", required=True),),
    ),
    _list_of(
        "plan",
        "/v1/plan",
        answers.Preview,
        "The context switch that the next cycle would make. Waits for a cycle that runs; callers share one preview.",
        query=(
            Key("dot", FLAG, "1: with the reconfiguration graph"),
            Key("starts", FLAG, "1: with a forecast of when each vjob runs"),
        ),
    ),
    _list_of("schedule", "/v1/schedule", answers.ScheduleAnswer, "What is done at times of day."),
    _list_of(
        "page",
        "/v1/page",
        answers.Page,
        "The live page: nodes, VMs, queue and context switches, as one HTML document that needs no script.",
        query=(
            Key("node", HOST, "list the VMs of this node, too"),
            Key("scene", FLAG, "1: what the page shows as values, in place of the document; a manager asks so"),
            _PAGE_GROUP,
        ),
        media=Media.HTML,
    ),
    Route(
        "page_news",
        "GET",
        "/v1/page/news",
        answers.PageNews,
        "Whether the live page has changed. For an EventSource each answer is one event, or none.",
        Who.ANYONE,
        Tag.MONITORING,
        query=(Key("after", _number(0), "the number of the page that is shown"), _WAIT, _PAGE_GROUP),
        media=Media.EVENTS,
    ),
    _list_of("config", "/v1/config", answers.Config, "The settings that the engine, or the manager, runs with."),
    _list_of("openapi", "/v1/openapi.json", answers.OpenApi, "This document."),
    # -- control
    _job(
        "suspend",
        "POST",
        "/suspend",
        _OPERATION,
        "Save a running or paused vjob; it sleeps until it is resumed.",
        Who.OWNER_OR_OPERATOR,
        Tag.CONTROL,
        door=Door.LOGIN,
    ),
    _job(
        "resume",
        "POST",
        "/resume",
        _OPERATION,
        "Resume a sleeping vjob, or let a paused one go on where it is.",
        Who.OWNER_OR_OPERATOR,
        Tag.CONTROL,
        door=Door.LOGIN,
        body=(_TO,),
    ),
    _job(
        "migrate",
        "POST",
        "/migrate",
        _OPERATION,
        "Migrate one VM, or all VMs, of a running vjob.",
        Who.OPERATOR,
        Tag.CONTROL,
        door=Door.TRUSTED,
        body=(_TO, Key("vm", _or_nothing(VM_NAME), "this VM only")),
    ),
    _job(
        "prefer",
        "POST",
        "/prefer",
        answers.Preferred,
        "Prefer that vjobs run, or that they do not; the next cycles obey where they can, until the vjobs end.",
        Who.OPERATOR,
        Tag.CONTROL,
        door=Door.TRUSTED,
        body=(Key("state", _PREFERENCE, "what is preferred; `auto`: nothing any more", required=True),),
    ),
    _job(
        "resize",
        "POST",
        "/resize",
        answers.Resized,
        "Have each VM of running vjobs do with less than is booked for it, or take that back; kept until they end.",
        Who.OWNER_OR_OPERATOR,
        Tag.CONTROL,
        door=Door.LOGIN,
        body=(
            Key("cpus", _AMOUNT, "its CPUs; 0: all that are booked; one of the two has to be given"),
            Key("memory_mib", _AMOUNT, "its memory, of the requested memory, in MiB; 0: all that is booked"),
        ),
    ),
    Route(
        "operation",
        "GET",
        "/v1/operations/{number}",
        answers.Operation,
        "How far an operation is; with `wait`, when it has ended.",
        Who.OWNER_OR_OPERATOR,
        Tag.CONTROL,
        Door.LOGIN,
        variables=(Key("number", NUMBER, "of the operation", required=True),),
        query=(_WAIT,),
    ),
    Route(
        "states",
        "GET",
        "/v1/states",
        answers.StatesPage,
        "Saved states that were put aside: one's own, for operators all; in pages of 1000.",
        Who.OWNER_OR_OPERATOR,
        Tag.CONTROL,
        Door.LOGIN,
        query=(_AFTER,),
        long=True,
    ),
    Route(
        "take_back",
        "POST",
        "/v1/states/{number}/take-back",
        answers.Begun,
        "Let a vjob sleep in saved states that were put aside; its run since then is thrown away.",
        Who.OWNER_OR_OPERATOR,
        Tag.CONTROL,
        Door.LOGIN,
        variables=(Key("number", NUMBER, "of the saved states", required=True),),
    ),
    Route(
        "drop_states",
        "POST",
        "/v1/states/{number}/drop",
        answers.Ok,
        "Delete saved states that were put aside.",
        Who.OWNER_OR_OPERATOR,
        Tag.CONTROL,
        Door.LOGIN,
        variables=(Key("number", NUMBER, "of the saved states", required=True),),
    ),
    # -- orders
    _order("pause", "/v1/pause", answers.PauseAnswer, "Begin no context switch, start or resume until `unpause`."),
    _order("unpause", "/v1/unpause", answers.PauseAnswer, "End the pause: decide again."),
    _order(
        "handover",
        "/v1/handover",
        answers.Handover,
        "Have an engine that stands by lead. What is under way is finished first, for engine.stop_wait_s at most. "
        "Refused where none stands by. The answer comes before the lead passes: ask the status of the next one. With "
        "managers: have a group go to another manager, and stay there until that one is gone.",
        body=(
            Key(
                "to", _or_nothing(HOST), "the host of the engine that is to lead, or of the manager; else any that can"
            ),
            Key("group", _or_nothing(GROUP), "with managers: the group; `any` as `to` has the leader choose again"),
        ),
    ),
    _order(
        "confirm",
        "/v1/confirm",
        answers.Confirmed,
        "What is held back about these vjobs is true: the next cycle acts on it.",
        body=(Key("vjobs", JOB_NAMES, "names of the vjobs"),),
    ),
    _order(
        "new_store",
        "/v1/new-store",
        answers.Ok,
        "A store is a new one: it is set up at its next use, and states that are missing there are lost.",
        body=(Key("store", _or_nothing(HOST), "the node of the store, or `shared`"),),
    ),
    _order(
        "node_gone",
        "/v1/nodes/{name}/gone",
        answers.NodeOrder,
        "The node is dead, or its VMs are gone. Refused while its platform or its node agent answers.",
        variables=(_NODE,),
        body=(_PREVIEW,),
    ),
    _order(
        "node_fence",
        "/v1/nodes/{name}/fence",
        answers.NodeOrder,
        "Cut the power of the node; once it is off, it is gone.",
        variables=(_NODE,),
        body=(_PREVIEW,),
    ),
    _order(
        "node_back",
        "/v1/nodes/{name}/back",
        answers.Ok,
        "The node is there again; VMs and files left there are removed before it takes VMs.",
        variables=(_NODE,),
    ),
    # -- reports
    Route(
        "begin_report",
        "POST",
        "/v1/reports",
        answers.ReportBegun,
        "Have a report made on the caller's own jobs, for operators on all; it replaces the caller's former one.",
        Who.ANYONE,
        Tag.REPORTS,
        Door.LOGIN,
        body=(
            Key("since", MOMENT, "of jobs from then on"),
            Key("until", {**MOMENT, "examples": [1763800000.0]}, "of jobs until then"),
            Key("users", WORDS, "of jobs of these users"),
            Key("accounts", WORDS, "of jobs of these accounts"),
            Key("partitions", WORDS, "of jobs of these partitions"),
            Key("jobs", JOB_NAMES, "of these jobs"),
            Key("hosts", {"type": "boolean", "examples": [True]}, "with the lives of jobs and the nodes of VMs"),
        ),
    ),
    Route(
        "report",
        "GET",
        "/v1/reports/{number}",
        answers.ReportComing | answers.ReportPiece,
        "A piece of a report, at most 256 KiB; with `wait`, when it is made.",
        Who.ASKER,
        Tag.REPORTS,
        Door.LOGIN,
        variables=(Key("number", NUMBER, "of the report", required=True),),
        query=(_WAIT, Key("from", _number(0), "the piece begins at this byte")),
        long=True,
    ),
    # -- wrappers
    _job(
        "access",
        "GET",
        "/access",
        answers.Access | answers.Waits,
        "The way to the VMs of one's own vjob; with `wait`, when they are up.",
        Who.OWNER,
        Tag.WRAPPERS,
        door=Door.ACCESS,
        query=(
            _WAIT,
            Key("host", HOST, "the caller's own; not used"),
            Key("run", _number(0, (1 << 32) - 1), "of a wrapper: how often its job was requeued before its run"),
            Key("wrapper", FLAG, "1: the wrapper asks, which is its sign of life"),
        ),
    ),
    _wrapper("started", answers.Ok, "The script is about to start."),
    _wrapper("attached", answers.Attached, "The sign of life of the wrapper."),
    _wrapper(
        "finished",
        answers.Ok,
        "The script has ended, and all its output is delivered.",
        body=(
            Key("exit_code", _number(0, 255), "of the script; left out: 0"),
            Key("signal", _number(0, 127), "that ended it; left out: 0, none"),
        ),
    ),
    _wrapper(
        "requeued",
        answers.Requeued,
        "A requeue on purpose of the run with that many restarts before it.",
        body=(
            Key(
                "by",
                {"type": "string", "enum": ["script", "nobody", "others"], "examples": ["others"]},
                "who asks for it: the script; nobody, because Slurm refused the script; or others",
                required=True,
            ),
            Key("restarts", _number(0, (1 << 32) - 1), "before that run; left out: 0"),
        ),
    ),
    # -- hooks
    _hook(
        "prolog",
        "/prolog",
        answers.HookState,
        "Look at this job now; with `wait`, when its VMs are up, or will not come for this run of the job.",
        Door.TRUSTED,
        query=(_WAIT,),
    ),
    _hook(
        "account",
        "/account",
        answers.AccountTaken,
        "Who the job's user is on the front.",
        Door.FRONT,
        body=tuple(
            Key(name, schema, what, required=True)
            for name, schema, what in (
                ("name", {**SENTENCE, "examples": ["alice"]}, "name of the account"),
                ("uid", _number(2001, 2**32 - 2), "its uid"),
                ("gid", _number(2001, 2**32 - 2), "its primary group"),
                ("gecos", SENTENCE, "its comment"),
                ("home", {**SENTENCE, "examples": ["/home/alice"]}, "its home"),
                ("shell", {**SENTENCE, "examples": ["/bin/sh"]}, "its shell"),
                ("groups", _list({"type": "array"}, [["physics", 2001, []]]), "name, gid and members of each group"),
                ("people", _list({"type": "array"}, [["bob", 2002, 2002]]), "name, uid and gid of each member"),
            )
        ),
    ),
    _hook("epilog", "/epilog", answers.HookState, "Look at this job now.", Door.FRONT),
    Route(
        "room_report",
        "POST",
        "/v1/rooms/{id}/report",
        answers.Ok,
        "What the hooks of a room's job found on its node.",
        Who.ENGINE,
        Tag.HOOKS,
        Door.ROOM,
        variables=(Key("id", JOB_ID, "of the room's job", required=True),),
        body=(
            Key(
                "hook",
                {"type": "string", "enum": ["prolog", "epilog"], "examples": ["epilog"]},
                "which hook",
                required=True,
            ),
            Key("node", _or_nothing(HOST), "the node"),
            Key("problem", SENTENCE, "why the node is not fit, or not clean; empty: it is"),
            Key("ended", _list(VM_NAME, ["vjob12-0"]), "the VMs that the epilog had to end"),
            Key("age_s", {"type": "number", "minimum": 0, "maximum": 86400, "examples": [1.5]}, "age of the findings"),
        ),
    ),
)
