"""Answers: the JSON object with which each request of the API is answered, as a type. Standard library only.

Times are seconds since the epoch, amounts of memory MiB, unless a name says otherwise. Within ``/v1`` answers may get
further keys; no key leaves them, and none changes its meaning. ``rmsplugin.api.schemas`` makes JSON Schema from these
classes, with the texts of their docstrings.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

#: States of a vjob: those of ``rmsplugin.model.vjob.VJobState``.
VJobWord = Literal[
    "waiting",
    "starting",
    "running",
    "pausing",
    "paused",
    "unpausing",
    "suspending",
    "sleeping",
    "resuming",
    "stopping",
    "terminated",
]
OutcomeWord = Literal["running", "done", "failed"]


class Failure(TypedDict):
    """The answer to a request that was refused, or failed.

    Attributes:
        error: the reason, one line for a person.
    """

    error: str


class Ok(TypedDict):
    """The request was carried out.

    Attributes:
        ok: always true.
    """

    ok: Literal[True]


# -- vjobs and VMs ----------------------------------------------------------------------------------------------------


class Checkpoint(TypedDict):
    """The newest whole checkpoint of a vjob.

    Attributes:
        number: its number.
        time: when it was taken.
        age_s: its age, in seconds.
        bytes: the size of its states together.
        nodes: the nodes that hold them.
    """

    number: int
    time: float
    age_s: float
    bytes: int
    nodes: list[str]


class Progress(TypedDict):
    """How far an operation is.

    Attributes:
        id: number of the operation.
        kind: what is done to the vjob: start, stop, suspend, resume, migrate, pause, unpause, restart, ...
        bytes_done: bytes that have been moved.
        bytes_total: bytes to be moved; 0 while that is not known.
        ended: whether it has ended.
    """

    id: int
    kind: str
    bytes_done: int
    bytes_total: int
    ended: bool


class UnmetVJob(TypedDict):
    """A job of a vjob partition that the engine does not know yet, or elements of an array: what Slurm says of it.

    Attributes:
        job_id: its job id in Slurm.
        display_id: its name: the job id, ARRAYID_INDEX for an element of a job array, or ARRAYID_[1-3,7] for several.
        name: the name of its job.
        user: the user who submitted it.
        account: its account in Slurm; empty: not known.
        partition: its partition.
        state: its state.
        code: why it is in that state, in a word: Slurm's own where Slurm keeps it; empty: nothing is to be said.
        reason: the same in a sentence.
        nodes: the nodes where its VMs are.
        submitted: when it was first submitted.
        time_limit_s: its time limit in seconds; null: it has none, or it is not known.
        priority: its priority by Slurm, as it would be now.
        position: its place among the vjobs that wait for their turn, from 1 on; null: it does not wait for that.
        expansion: its waits and the time that it still needs, as a multiple of that time; of one that has ended, its
            whole time as a multiple of its run; null: not known.
    """

    job_id: int
    display_id: str
    name: str
    user: str
    account: str
    partition: str
    state: VJobWord
    code: str
    reason: str
    nodes: list[str]
    submitted: float
    time_limit_s: float | None
    priority: int
    position: int | None
    expansion: float | None


class UnmetVJobs(UnmetVJob):
    """A job that the engine does not know yet, or elements of an array that wait for the same.

    Attributes:
        job_id: its job id in Slurm.
        display_id: its name: the job id, ARRAYID_INDEX for an element of a job array, or ARRAYID_[1-3,7] for several.
        name: the name of its job.
        user: the user who submitted it.
        account: its account in Slurm; empty: not known.
        partition: its partition.
        state: its state.
        code: why it is in that state, in a word: Slurm's own where Slurm keeps it; empty: nothing is to be said.
        reason: the same in a sentence.
        nodes: the nodes where its VMs are.
        submitted: when it was first submitted.
        time_limit_s: its time limit in seconds; null: it has none, or it is not known.
        priority: its priority by Slurm, as it would be now.
        position: its place among the vjobs that wait for their turn, from 1 on; null: it does not wait for that.
        expansion: its waits and the time that it still needs, as a multiple of that time; of one that has ended, its
            whole time as a multiple of its run; null: not known.
        elements: how many elements of an array it stands for.
    """

    elements: int


class UnmetPage(TypedDict):
    """A page of jobs that the engine does not know yet, by job id.

    Attributes:
        vjobs: those of this page; all elements of an array are on one page.
        next: ``after`` of the next page; null: there is none.
        silent: of a manager: groups whose engines do not answer, so that what they have is missing here.
    """

    vjobs: list[UnmetVJobs]
    next: int | None
    silent: NotRequired[list[str]]


class VJob(UnmetVJob):
    """A virtualised job.

    Attributes:
        job_id: its job id in Slurm.
        display_id: its name: the job id, or ARRAYID_INDEX for an element of a job array.
        name: the name of its job.
        user: the user who submitted it.
        account: its account in Slurm; empty: not known.
        partition: its partition.
        state: its state.
        code: why it is in that state, in a word: Slurm's own where Slurm keeps it; empty: nothing is to be said.
        reason: the same in a sentence.
        nodes: the nodes where its VMs are.
        submitted: when it was first submitted.
        time_limit_s: its time limit in seconds; null: it has none, or it is not known.
        priority: its priority by Slurm, as it would be now.
        position: its place among the vjobs that wait for their turn, from 1 on; null: it does not wait for that.
        expansion: its waits and the time that it still needs, as a multiple of that time; of one that has ended, its
            whole time as a multiple of its run; null: not known.
        vms: number of its VMs.
        cpus: CPUs of each VM, or of the larger ones.
        memory_mib: memory of each VM, or of the larger ones.
        state_since: when it came into its state.
        resumes: whether it sleeps because the engine suspended it, and resumes when its turn comes.
        preference: what an administrator prefers about it: ``running``, ``sleeping``; empty: nothing.
        resized_cpus: to so many CPUs each VM was resized by hand; null: never.
        resized_memory_mib: the same of its requested memory.
        ran_s: seconds that it has run since its start; sleeps do not count.
        losses: how often its state was lost and its script began anew.
        returns: how often it went back to a checkpoint.
        repeated_s: seconds of its run that were repeated by that, at most.
        checkpoint: its newest whole checkpoint; null: it has none.
        operation: the operation on it now; null: none.
    """

    vms: int
    cpus: int
    memory_mib: int
    state_since: float
    resumes: bool
    preference: str
    resized_cpus: int | None
    resized_memory_mib: int | None
    ran_s: float
    losses: int
    returns: int
    repeated_s: float
    checkpoint: Checkpoint | None
    operation: Progress | None


class VJobAnswer(TypedDict):
    """One vjob.

    Attributes:
        vjob: the vjob, or what Slurm says of a job that the engine has not met yet.
    """

    vjob: VJob | UnmetVJobs


class VJobsPage(TypedDict):
    """A page of vjobs, in order of first submission.

    Attributes:
        vjobs: those of this page.
        more: whether there are more vjobs that have ended than this page tells.
        next: ``after`` of the next page; null: there is none.
        ended: how many vjobs of this page have ended; not told of vjobs asked for by name.
        older: ``before`` of the page of older vjobs that have ended; null: there is none.
        silent: of a manager: groups whose engines do not answer, so that what they have is missing here.
    """

    vjobs: list[VJob]
    more: bool
    next: int | None
    ended: NotRequired[int]
    older: NotRequired[int | None]
    silent: NotRequired[list[str]]


class VM(TypedDict):
    """One VM of a vjob.

    Attributes:
        name: its name, also its host name.
        vjob: display id of its vjob.
        state: the state of its vjob, or ``migrating``.
        node: the node where it is, or will be soon; empty while it is in a file.
        address: its IP address.
        image_node: the node of its saved state; empty: it has none.
        image_bytes: size of its saved state.
        cpus: its CPUs.
        memory_mib: its memory, with that of its image.
        cpus_demand: CPUs that it demands, as observed; null: not observed, all its CPUs count.
        memory_demand_mib: memory that it needs, as its guest says; null: not observed, all its memory counts.
        received_bytes_s: bytes a second that it received over the network, between the last readings; null: not known.
        sent_bytes_s: bytes a second that it sent, likewise.
    """

    name: str
    vjob: str
    state: str
    node: str
    address: str
    image_node: str
    image_bytes: int
    cpus: int
    memory_mib: int
    cpus_demand: float | None
    memory_demand_mib: int | None
    received_bytes_s: int | None
    sent_bytes_s: int | None


class VMsPage(TypedDict):
    """A page of the VMs of vjobs that have not ended, by job id.

    Attributes:
        vms: those of this page; all VMs of a vjob are on one page.
        next: ``after`` of the next page; null: there is none.
        silent: of a manager: groups whose engines do not answer, so that what they have is missing here.
    """

    vms: list[VM]
    next: int | None
    silent: NotRequired[list[str]]


class Usage(TypedDict):
    """What the processes of a vjob have used inside its VMs, in this run of its script. Null: no guest has told.

    Attributes:
        job_id: its job id in Slurm.
        display_id: its name.
        user: its user.
        group: the user's group.
        state: the state, in Slurm's words.
        exit_code: exit code of its script; null: it has not ended by itself.
        signal: the signal that ended the script; 0: none.
        vms: number of VMs.
        cpus: CPUs of each VM, or of the larger ones.
        memory_mib: memory of each VM, or of the larger ones.
        cpus_total: CPUs of all VMs.
        memory_total_mib: memory of all VMs.
        elapsed_s: seconds with running VMs.
        counted: when a guest last told.
        cpu_s: seconds of CPU time.
        user_s: those outside of the kernel.
        system_s: those inside of the kernel.
        cpu_efficiency: CPU time as a part of the CPU time that was there, from 0 to 1.
        memory_used_mib: the most that all processes had at once, summed over the VMs.
        memory_most_mib: the most of one VM.
        memory_with_caches_mib: the most with the kernel's caches of files, summed over the VMs.
        memory_efficiency: ``memory_used_mib`` as a part of the memory that was asked for.
        read_mib: amount that was read.
        written_mib: amount that was written.
    """

    job_id: int
    display_id: str
    user: str
    group: str
    state: str
    exit_code: int | None
    signal: int
    vms: int
    cpus: int
    memory_mib: int
    cpus_total: int
    memory_total_mib: int
    elapsed_s: float
    counted: float | None
    cpu_s: float | None
    user_s: float | None
    system_s: float | None
    cpu_efficiency: float | None
    memory_used_mib: float | None
    memory_most_mib: float | None
    memory_with_caches_mib: float | None
    memory_efficiency: float | None
    read_mib: float | None
    written_mib: float | None


class UsageAnswer(TypedDict):
    """The usage of vjobs.

    Attributes:
        usage: an object for each vjob of that name.
    """

    usage: list[Usage]


# -- operations -------------------------------------------------------------------------------------------------------


class Element(TypedDict):
    """An element of a job array.

    Attributes:
        vjob: its display id.
        state: its state.
    """

    vjob: str
    state: VJobWord


class Begun(TypedDict):
    """An operation was begun.

    Attributes:
        operation: its number, for ``GET /v1/operations/{number}``.
    """

    operation: int


class Preferred(TypedDict):
    """What an operator prefers about vjobs is kept.

    Attributes:
        vjobs: the vjobs for which it is kept.
        refused: by vjob, why it is not kept: a sentence.
    """

    vjobs: list[str]
    refused: dict[str, str]


class Resized(TypedDict):
    """To what the VMs of vjobs are resized is kept; it is carried out from the next cycle on.

    Attributes:
        vjobs: the vjobs for which it is kept.
        refused: by vjob, why it is not kept: a sentence.
    """

    vjobs: list[str]
    refused: dict[str, str]


class Elements(TypedDict):
    """The name means several elements of a job array. Nothing was begun: ask for each of them.

    Attributes:
        elements: the elements that have not ended, or all if all have.
    """

    elements: list[Element]


class Action(TypedDict):
    """One action on a VM, within an operation.

    Attributes:
        id: its number.
        operation_id: number of its operation.
        vm: the VM.
        kind: run, stop, suspend, resume, migrate, pause, unpause, checkpoint or copy.
        source: the node where the VM is before.
        destination: the node where it is afterwards.
        state: running, done or failed.
        bytes_done: bytes that have been moved.
        bytes_total: bytes to be moved; 0 while that is not known.
        error: why it failed.
        created: when it began.
        ended: when it ended; 0: it has not.
        memory_mib: memory of the VM; 0: not known.
    """

    id: int
    operation_id: int
    vm: str
    kind: str
    source: str
    destination: str
    state: OutcomeWord
    bytes_done: int
    bytes_total: int
    error: str
    created: float
    ended: float
    memory_mib: int


class Operation(Progress):
    """One operation on a vjob.

    Attributes:
        id: its number.
        kind: what is done to the vjob.
        bytes_done: bytes that have been moved.
        bytes_total: bytes to be moved; 0 while that is not known.
        ended: whether it has ended.
        vjob: display id of the vjob.
        state: running, done or failed.
        error: why it failed.
        actions: its actions on VMs.
    """

    vjob: str
    state: OutcomeWord
    error: str
    actions: list[Action]


# -- nodes, groups, status --------------------------------------------------------------------------------------------


class Rest(TypedDict):
    """A kind of action that a node gets no more of for a while, because several in a row failed.

    Attributes:
        kind: the kind of action.
        until: when the node gets it again.
        failures: how many failed.
        error: the last failure.
    """

    kind: str
    until: float
    failures: int
    error: str


class Node(TypedDict):
    """A node that may host VMs.

    Attributes:
        name: its name in Slurm.
        state: Slurm's word, or ``unreachable`` (its platform does not answer), or ``gone`` (somebody said so).
        cpus: CPUs that VMs may take.
        cpus_used: CPUs that VMs have taken, or demand.
        memory_mib: memory that VMs may take.
        memory_used_mib: memory that VMs have taken, or need.
        cpu_load: its load average of a minute, as slurmd measured it; null: not measured.
        memory_free_mib: memory that no process there has, likewise.
        watts: the power that it takes, as its BMC tells (``power.sense_s``), or Slurm where it has a plugin for energy.
        temperature_c: its temperature in degrees Celsius, as its BMC tells, or Slurm where it has external sensors.
        hot: whether it is hot, so that it takes no VM and its VMs leave.
        vms: number of VMs on it.
        room: the engine's room there: none, requested, starting, held or leaving.
        room_job: the room's job in Slurm; null: none.
        since: since when the engine has the node for VMs; null: it has not.
        until: when Slurm takes the node back; null: not known, or never.
        features: its active features.
        reason: why no VM may come now; empty: they may.
        rests: the kinds of actions that it gets no more of for a while.
        reserved_for: the VM for which the node is reserved; null: none.
        reserved_since: since when; null: it is not reserved.
        guests: VMs that have moved there since.
        pressed: why it has to lose a VM; empty: it has not.
        power: whether the engine has switched it: on, going-off, off, coming-on; or failed: it did not come on, or
            somebody else switched it on.
        power_since: since when; null: it is on.
        power_why: why; empty: it is on.
        gone_since: since when it is gone; null: it is not.
        gone_by: who said so; null: nobody.
    """

    name: str
    state: str
    cpus: float
    cpus_used: float
    memory_mib: int
    memory_used_mib: int
    cpu_load: float | None
    memory_free_mib: int | None
    watts: int | None
    temperature_c: int | None
    hot: bool
    vms: int
    room: Literal["none", "requested", "starting", "held", "leaving"]
    room_job: int | None
    since: float | None
    until: float | None
    features: list[str]
    reason: str
    rests: list[Rest]
    reserved_for: str | None
    reserved_since: float | None
    guests: list[str]
    pressed: str
    power: Literal["on", "going-off", "off", "coming-on", "failed"]
    power_since: float | None
    power_why: str
    gone_since: float | None
    gone_by: str | None


class NodesAnswer(TypedDict):
    """All nodes that may host VMs, as last seen.

    Attributes:
        nodes: the nodes; none before the engine's first look.
        silent: of a manager: groups whose engines do not answer, so that what they have is missing here.
    """

    nodes: list[Node]
    silent: NotRequired[list[str]]


class Group(TypedDict):
    """A group of VM hosts, as last decided about. Sizes and what is free are of its nodes that take VMs.

    Attributes:
        name: its name.
        state: up, draining or down.
        nodes: number of its hosts.
        nodes_up: number of those that take VMs.
        hosts: their names.
        cpus: CPUs that VMs may take.
        memory_mib: memory that VMs may take.
        cpus_free: CPUs that are free.
        memory_free_mib: memory that is free.
        cpus_largest: CPUs of the largest hole, which is on one node.
        memory_largest_mib: memory of the largest hole.
        running: number of vjobs that run there.
        paused: number of vjobs that are paused there.
        sleeping: number of vjobs that sleep and were given to it.
        waiting: number of vjobs that wait and were given to it.
        cpus_demanded: CPUs that all these demand.
        memory_demanded_mib: memory that all these demand.
        hot: with migration domains, who has no room there, and without whom it would have some; null: nobody.
    """

    name: str
    state: Literal["up", "draining", "down"]
    nodes: int
    nodes_up: int
    hosts: list[str]
    cpus: float
    memory_mib: int
    cpus_free: float
    memory_free_mib: int
    cpus_largest: float
    memory_largest_mib: int
    running: int
    paused: int
    sleeping: int
    waiting: int
    cpus_demanded: float
    memory_demanded_mib: int
    hot: HotVJobs | None


class GroupsAnswer(TypedDict):
    """All groups of VM hosts.

    Attributes:
        groups: the groups; none before the first decision of an engine.
        silent: of a manager: groups whose engines do not answer, so that what they have is missing here.
    """

    groups: list[Group]
    silent: NotRequired[list[str]]


class NodeClass(TypedDict):
    """The nodes of a group that take VMs and are of one size. Amounts are CPUs, and MiB of memory.

    Attributes:
        size: what VMs may take of each.
        nodes: how many there are.
        free: what is free on all of them together.
        holes: hundredths of a CPU, MiB, and how many nodes have a hole of that size.
    """

    size: list[float]
    nodes: int
    free: list[float]
    holes: list[list[int]]


class Summary(TypedDict):
    """A group of VM hosts in a few numbers.

    Attributes:
        name: its name.
        state: up, draining or down.
        nodes: number of its hosts.
        up: number of those that take VMs.
        classes: those, by size.
        largest: the largest hole: CPUs, and MiB.
    """

    name: str
    state: Literal["up", "draining", "down"]
    nodes: int
    up: int
    classes: list[NodeClass]
    largest: list[float]


class PackedVJob(TypedDict):
    """A vjob on its way to another group.

    Attributes:
        parcel: the number under which it is sent.
        to: the group on whose nodes its saved states are.
    """

    parcel: str
    to: str


class HotVJobs(TypedDict):
    """Who has no room in a group, and without whom it would have some.

    Attributes:
        waits: the vjob, or array, that is left without room.
        vjobs: vjobs that run, and are in its way.
    """

    waits: int
    vjobs: list[int]


class SummaryAnswer(TypedDict):
    """What the engine of a group tells the leader.

    Attributes:
        group: the name of the group.
        epoch: of its engine.
        seen: epoch and number of the leader's word by which it has given up all that it can.
        released: vjobs, and arrays, that it has given up by that word.
        can_go: vjobs that sleep, and that can be handed over to another group.
        going: vjobs that are being suspended to go to another group, or whose saved states are copied there, or were.
        hot: the vjob that is left without room, and those that run without any one of which it would have some, the
            cheapest first; null: there is none.
        packed: by job id, the vjobs that it has handed over, until the other group has taken them in.
        unclean: vjobs of other groups, of which something may be left on its nodes.
        summary: its room.
        vjobs: by job id, or id of the array, the state of each that has not ended; that of an array's begun one.
    """

    group: str
    epoch: int
    seen: list[int]
    released: list[int]
    can_go: list[int]
    going: list[int]
    packed: dict[str, PackedVJob]
    hot: HotVJobs | None
    unclean: list[int]
    summary: Summary
    vjobs: dict[str, str]


class Scheduled(TypedDict):
    """Something that is done at times of day.

    Attributes:
        job: its name; ``quiet-hours`` for a window of quiet hours.
        what: what is done.
        cron: when, as in crontab.
        state: waiting, running, done, failed, interrupted or off.
        next: when it is done next, by the host's clock; null: never.
        last: when it was last begun, by the engine's clock; null: never.
        took_s: how long that took, in seconds; null: not known.
        failures: how often it failed in a row.
        result: its last result, in a sentence.
    """

    job: str
    what: str
    cron: str
    state: str
    next: float | None
    last: float | None
    took_s: float | None
    failures: int
    result: str


class MeasuredValue(TypedDict):
    """A value that the engine uses in place of that of its settings.

    Attributes:
        value: what was measured.
        count: how many times.
        since: when the engine began to use it.
    """

    value: float
    count: int
    since: float


class MeasuredAction(TypedDict):
    """An action whose measured durations the engine uses.

    Attributes:
        action: its name in the keys of section durations.
        count: how many times it was measured.
        since: when the engine began to use that.
    """

    action: str
    count: int
    since: float


class Config(TypedDict):
    """The settings that the engine read when it started, defaults included. They have no secrets.

    Attributes:
        settings: by section, the keys with their values, as docs/settings.md has them.
        measured: by section and key, as `durations.suspend_s`, what is used in place of the settings.
    """

    settings: dict[str, Any]
    measured: dict[str, MeasuredValue]


class ScheduleAnswer(TypedDict):
    """What is done at times of day.

    Attributes:
        schedule: jobs, then windows of quiet hours.
        silent: of a manager: groups whose engines do not answer, so that what they have is missing here.
    """

    schedule: list[Scheduled]
    silent: NotRequired[list[str]]


class Pause(TypedDict):
    """An operator's order that the engine begin no context switch.

    Attributes:
        since: when it was given.
        by: by whom.
    """

    since: float
    by: str


class PauseAnswer(TypedDict):
    """Whether the engine is paused.

    Attributes:
        changed: whether the request has changed that.
        paused: the pause; null: it is not paused.
    """

    changed: bool
    paused: Pause | None


class LastCycle(TypedDict):
    """The last cycle of the engine.

    Attributes:
        time: when it began; 0: there was none.
        seconds: how long it took.
        sentence: what it did.
    """

    time: float
    seconds: float
    sentence: str


class Cycles(TypedDict):
    """The cycles of this engine since its start.

    Attributes:
        number: how many.
        seconds: how long they took together.
    """

    number: int
    seconds: float


class Held(TypedDict):
    """What is not done to a vjob because something is not seen.

    Attributes:
        vjob: display id of the vjob.
        what: what would be done.
        reason: why it would be done.
        proved: true: too many at once; false: there is no proof.
    """

    vjob: str
    what: str
    reason: str
    proved: bool


class PowerAct(TypedDict):
    """A node that was switched off or on.

    Attributes:
        action: what was done to the node.
        node: the node.
        needs: numbers of the steps that it waited for: those that emptied the node.
        state: how far it is.
        began: when it was decided.
        ended: when it was proved, or given up; null: it is under way.
        error: why it failed, or was given up; empty: it did not.
    """

    action: Literal["power-off", "power-on"]
    node: str
    needs: list[int]
    state: Literal["running", "done", "failed"]
    began: float
    ended: float | None
    error: str


class Cycle(TypedDict):
    """A cycle that decided a context switch.

    Attributes:
        number: its number.
        time: when it decided.
        state: running, done or failed; or nothing was begun: rejected, stale or none.
        policy: the policy; by hand; forced; or energy: a node is emptied.
        sentence: the decision.
        cost_mib: the cost of the plan.
        lower_bound_mib: the proven least cost of any plan.
        expected_s: the seconds that it was expected to take.
        expected_known: whether that is likely to be right within a factor of 2: most of the last context switches took
            about as long as they were expected to.
        took_s: the seconds that it took, or has taken until now; null: nothing was begun.
        decided_s: the seconds that deciding and planning took.
        steps: number of its steps.
        steps_done: number of those that are done.
        steps_open: number of those that are planned or running.
        powers: nodes that were switched from then on, until the next cycle that decided a context switch.
        fallback: what took the place of the answer; empty: nothing.
        error: what went wrong; empty: nothing.
    """

    number: int
    time: float
    state: Literal["running", "done", "failed", "rejected", "stale", "none"]
    policy: str
    sentence: str
    cost_mib: int
    lower_bound_mib: int
    expected_s: float
    expected_known: bool
    took_s: float | None
    decided_s: float
    steps: int
    steps_done: int
    steps_open: int
    powers: list[PowerAct]
    fallback: str
    error: str


class CyclesAnswer(TypedDict):
    """The newest context switches.

    Attributes:
        cycles: oldest first.
        silent: of a manager: groups whose engines do not answer, so that what they have is missing here.
    """

    cycles: list[Cycle]
    silent: NotRequired[list[str]]


class Step(TypedDict):
    """One step of a context switch: an operation on a vjob.

    Attributes:
        number: its number.
        vjob: display id of the vjob.
        kind: start, suspend, resume, migrate, pause or unpause.
        hosts: by VM, the node where it is afterwards.
        needs: numbers of the steps that it waits for.
        state: planned, running, done, failed or skipped.
        reason: why it is done.
        error: why it failed, or was skipped.
        began: when it began; null: it has not.
        ended: when it ended; null: it has not.
        operation: of a running step, how far it is; else null.
    """

    number: int
    vjob: str
    kind: str
    hosts: dict[str, str]
    needs: list[int]
    state: Literal["planned", "running", "done", "failed", "skipped", "needless"]
    reason: str
    error: str
    began: float | None
    ended: float | None
    operation: Progress | None


class CycleAnswer(TypedDict):
    """One context switch.

    Attributes:
        cycle: the switch.
        steps: its steps.
    """

    cycle: Cycle
    steps: list[Step]


class Page(TypedDict):
    """The live page.

    Attributes:
        number: of what it shows; it grows.
        html: the document. Browsers get it alone.
        scene: what it shows, as values, if asked for; ``html`` is empty then. Its form is no part of the API.
    """

    number: int
    html: str
    scene: NotRequired[dict[str, Any]]


class PageNews(TypedDict):
    """Whether there is a newer live page.

    Attributes:
        number: of the newest one.
        changed: whether it is another one than that which the caller has.
    """

    number: int
    changed: bool


class Decided(TypedDict):
    """A decision about a vjob, as recorded.

    Attributes:
        time: when it was made.
        cycle: the number of the context switch; null: nothing had to be done.
        vjob: display id of the vjob.
        state: the state that was decided.
        code: the kind of the reason, one word.
        reason: the reason, in a sentence.
    """

    time: float
    cycle: int | None
    vjob: str
    state: str
    code: str
    reason: str


class DecisionsAnswer(TypedDict):
    """The decisions about a vjob.

    Attributes:
        decisions: one for each change, oldest first.
    """

    decisions: list[Decided]


class Handover(TypedDict):
    """The lead passes to another engine, or a group to another manager.

    Attributes:
        to: the host of the engine that leads next, or of the manager; empty: the leader of the managers chooses.
        url: its address; empty: engine.url does not tell.
        version: its release.
        group: of a manager: the group.
    """

    to: str
    url: str
    version: str
    group: NotRequired[str]


class Standby(TypedDict):
    """An engine that stands by.

    Attributes:
        host: its host.
        url: its address; empty: engine.url does not tell, or its release does not say.
        version: its release; empty: it does not say.
    """

    host: str
    url: str
    version: str


class Cluster(TypedDict):
    """The engines of a cluster.

    Attributes:
        leads_since: when this engine began to lead.
        standbys: the other ones that are there, in the order in which they would lead.
        degraded: what is not as it should be, each a sentence.
    """

    leads_since: float
    standbys: list[Standby]
    degraded: list[str]


class GroupLead(TypedDict):
    """A group, and the engine that has it.

    Attributes:
        name: its name.
        host: the host of the manager that it is given to; empty: none is there.
        url: the address of that manager; empty: engine.url does not tell.
        answers: whether its engine answers.
        epoch: the number of its engine's turn; null: it does not answer.
        leads_since: when its engine began to lead; null: it does not answer.
        problem: why it does not answer: if it has ended, how, and the last sentence that it said; empty: it answers.
        kept_on: the host where it is to be by an operator's word, until that manager is gone; empty: nobody said so.
        kept_by: that operator.
    """

    name: str
    host: str
    url: str
    answers: bool
    epoch: int | None
    leads_since: float | None
    problem: str
    kept_on: str
    kept_by: str


class Lateness(TypedDict):
    """How late vjobs are because nodes were off.

    Attributes:
        share: the share of their time from submission to end for which vjobs waited for nodes to come on, or were
            behind vjobs that did. What was a week ago counts by 1/e. Of a manager: that of the group where it is
            highest.
        at_most: what power.late_at_most allows; null: no bound is set.
        kept_on: how many idle nodes stay on for that, beside power.reserve.
        sentence: all of it, for a person.
    """

    share: float
    at_most: float | None
    kept_on: int
    sentence: str


class Status(TypedDict):
    """The engine, and what it did last. A manager tells of all groups: the sums, and the cycle that is longest ago.

    Attributes:
        version: release of the engine.
        started: when it started.
        host: the host on which it runs; of several engines, the one that leads.
        epoch: the number of its turn; 1: it is alone.
        cluster: it and the engines that stand by; null: it is alone.
        last_cycle: its last cycle.
        cycles: its cycles since its start.
        ills: why it is not well, each a sentence: its last cycle failed, or is too long ago; none: it is well.
        problems: problems of the site, each a sentence.
        quiet: the quiet hours that have begun; null: none.
        power: the nodes that are off, that go off or come on, and that failed to, in a sentence; null: all are on.
        lateness: how late vjobs are because nodes were off; null: the engine switches no nodes, or has seen no vjob
            yet; left out by older releases.
        durations: of each action whose measured durations are used in place of those of the settings, by
            planning.measured_durations; left out by older releases.
        held: what is not done because something is not seen.
        paused: the pause; null: the engine is not paused.
        last_plan: the newest context switch; null: there was none.
        groups: of a manager: the groups of the site.
    """

    version: str
    started: float
    host: str
    epoch: int
    cluster: Cluster | None
    last_cycle: LastCycle
    cycles: Cycles
    ills: list[str]
    problems: list[str]
    quiet: str | None
    power: str | None
    lateness: NotRequired[Lateness | None]
    durations: NotRequired[list[MeasuredAction]]
    held: list[Held]
    paused: Pause | None
    last_plan: Cycle | None
    groups: NotRequired[list[GroupLead]]


class Event(TypedDict):
    """Something that happened.

    Attributes:
        id: its number; of a manager the time in microseconds, which two events may share.
        time: when it happened.
        vjob: display id of the vjob that it concerns; empty: none.
        vm: the VM that it concerns; empty: none.
        node: the node that it concerns; empty: none.
        kind: its kind, one word.
        message: what happened, in a sentence.
    """

    id: int
    time: float
    vjob: str
    vm: str
    node: str
    kind: str
    message: str


class EventsAnswer(TypedDict):
    """What happened.

    Attributes:
        events: oldest first.
        cursor: what has been told, as `after` of the next question takes it.
        silent: of a manager: groups whose engines do not answer, so that what they have is missing here.
    """

    events: list[Event]
    cursor: NotRequired[str]
    silent: NotRequired[list[str]]


# -- the next context switch ------------------------------------------------------------------------------------------


class Reason(TypedDict):
    """The decision about a vjob.

    Attributes:
        state: the state that is decided.
        reason: why, in a sentence.
        code: the kind of the reason, one word.
        numbers: the numbers of the sentence.
    """

    state: str
    reason: str
    code: str
    numbers: dict[str, float | int | str | None]


class Place(TypedDict):
    """The place of a VM after the context switch.

    Attributes:
        state: running, paused, sleeping, waiting or terminated.
        host: the node where it runs, or is paused.
        image: the node of its saved state, or ``shared``.
    """

    state: str
    host: NotRequired[str]
    image: NotRequired[str]


_From = TypedDict("_From", {"from": str}, total=False)


class PlanAction(_From):
    """One action of the plan.

    Attributes:
        action: run, stop, migrate, suspend, resume, pause or unpause.
        vm: the VM.
        from: the node where it is before.
        to: the node where it is afterwards.
        image: of a suspend: the node of the saved state, or ``shared``.
        local: of a resume: whether the state is on that node already.
        bypass: true: a migration that breaks a cycle of others.
        requeue: true: the job is queued again.
        paused: true: the VM is paused before and after.
        cost: its local cost, in MiB.
        id: its number.
        needs: numbers of the actions that it waits for.
    """

    action: str
    vm: str
    to: NotRequired[str]
    image: NotRequired[str]
    local: NotRequired[bool]
    bypass: NotRequired[bool]
    requeue: NotRequired[bool]
    paused: NotRequired[bool]
    cost: int
    id: int
    needs: list[int]


class NodeAction(TypedDict):
    """One action of the plan on a node.

    Attributes:
        action: what is done to the node.
        node: the node.
        needs: numbers of the actions that it waits for.
    """

    action: str
    node: str
    needs: list[int]


class Makespan(TypedDict):
    """The seconds that the plan is expected to take.

    Attributes:
        pools: if each pool waits for the whole pool before it.
        dependencies: if each action waits only for those that it needs.
    """

    pools: float
    dependencies: float


class Plan(TypedDict):
    """The plan of a context switch.

    Attributes:
        nodes: actions of nodes, where there are any.
        pools: its actions, in pools; those of one pool are feasible in parallel.
        cost: its cost, in MiB.
        lower_bound: the proven least cost of any plan.
        optimal: whether its cost is that.
        makespan_s: the seconds that it is expected to take.
    """

    nodes: NotRequired[list[NodeAction]]
    pools: list[list[PlanAction]]
    cost: int
    lower_bound: int
    optimal: bool
    makespan_s: Makespan


class PlannedStep(TypedDict):
    """One step of the next context switch.

    Attributes:
        id: its number.
        vjob: display id of the vjob.
        kind: start, suspend, resume, migrate, pause or unpause.
        hosts: by VM, the node where it is afterwards.
        needs: numbers of the steps that it waits for.
    """

    id: int
    vjob: str
    kind: str
    hosts: dict[str, str]
    needs: list[int]


class PlannedPower(TypedDict):
    """A node that is switched off or on: under way, or begun by the next cycle.

    Attributes:
        action: what is done to the node.
        node: the node.
        needs: numbers of the steps that it waits for.
        needed_by: display ids of vjobs that start once it is on.
        takes_s: the seconds that it will take, or still takes, as its class says.
        state: whether it has begun.
        reason: why it is switched.
    """

    action: Literal["power-off", "power-on"]
    node: str
    needs: list[int]
    needed_by: list[str]
    takes_s: float
    state: Literal["planned", "running"]
    reason: str


class LeftOut(TypedDict):
    """A vjob about which nothing is decided.

    Attributes:
        why: the kind of the reason, one word.
        reason: the reason, in a sentence.
    """

    why: str
    reason: str


class Preview(TypedDict):
    """The context switch that the next cycle would make.

    Attributes:
        decision: by vjob, the decision.
        target: by VM, its place afterwards.
        plan: the plan; null: there is none. Of a manager: that of the groups that have one.
        nodes_used: number of nodes with VMs afterwards.
        nodes_lower_bound: the proven least number.
        seconds: how long it took to find it.
        policy: the policy.
        sentence: the decision in a sentence.
        time: when the preview was asked for.
        paused: the pause; null: the engine is not paused.
        fault: the fault that the checker found; empty: none.
        undecided: of a manager, where other groups have a plan: by group that has none, why.
        fallback: what took the place of the answer; empty: nothing.
        summary: the whole in a sentence.
        now: by vjob, its state now.
        steps: the steps.
        powers: the nodes that are switched.
        left_out: by vjob, why nothing is decided about it.
        out_of_reach: by node, why nothing is done there.
        dot: the reconfiguration graph, in Graphviz' language; only if asked for.
        starts: by vjob that does not run, the seconds until it is likely to, by the plan and by time limits; 0: it
            begins with this switch; null: not known; only if asked for.
        silent: of a manager: groups whose engines do not answer, so that what they have is missing here.
    """

    decision: dict[str, Reason]
    target: dict[str, Place]
    plan: Plan | None
    nodes_used: NotRequired[int]
    nodes_lower_bound: NotRequired[int]
    seconds: NotRequired[dict[str, float]]
    policy: str
    sentence: str
    time: float
    paused: Pause | None
    fault: str
    undecided: NotRequired[dict[str, str]]
    fallback: str
    summary: str
    now: dict[str, str]
    steps: list[PlannedStep]
    powers: list[PlannedPower]
    left_out: dict[str, LeftOut]
    out_of_reach: dict[str, str]
    dot: NotRequired[str]
    starts: NotRequired[dict[str, float | None]]
    silent: NotRequired[list[str]]


# -- reports and saved states -----------------------------------------------------------------------------------------


class ReportBegun(TypedDict):
    """A report is being made.

    Attributes:
        report: its number, for ``GET /v1/reports/{number}``.
    """

    report: int


class ReportComing(TypedDict):
    """The report is not made yet.

    Attributes:
        made: false.
        doing: what is done now.
        part: how far that is, from 0 to 1.
    """

    made: Literal[False]
    doing: str
    part: float


class ReportPiece(TypedDict):
    """A piece of a report that is made.

    Attributes:
        made: true.
        bytes: size of the whole report.
        text: the piece: lines of JSON, as ``rmsplugin/report/document.py`` has them.
    """

    made: Literal[True]
    bytes: int
    text: str


class SavedStates(TypedDict):
    """The saved states of a vjob that were put aside.

    Attributes:
        number: their number.
        vjob: display id of the vjob.
        user: its user.
        time: when they were put aside.
        vms: number of the vjob's VMs.
        states: number of the states.
        nodes: the nodes that hold them.
        bytes: their size together.
        reason: why they were put aside.
    """

    number: int
    vjob: str
    user: str
    time: float
    vms: int
    states: int
    nodes: list[str]
    bytes: int
    reason: str


class StatesPage(TypedDict):
    """A page of saved states that were put aside, by number.

    Attributes:
        states: those of this page.
        next: ``after`` of the next page; null: there is none.
        silent: of a manager: groups whose engines do not answer, so that what they have is missing here.
    """

    states: list[SavedStates]
    next: int | None
    silent: NotRequired[list[str]]


class NodeOrder(TypedDict):
    """What follows from the loss of a node.

    Attributes:
        begin_again: display ids of the vjobs with VMs there, which begin again.
        wait: display ids of the vjobs whose saved states are there, which wait for the node.
    """

    begin_again: list[str]
    wait: list[str]


class Confirmed(TypedDict):
    """The vjobs about which something was held back, and is done now.

    Attributes:
        confirmed: their display ids.
    """

    confirmed: list[str]


# -- wrappers and hooks -----------------------------------------------------------------------------------------------


class HookState(TypedDict):
    """The state of a vjob, for a hook of its job.

    Attributes:
        state: the state; ``waiting`` for a job that the engine has not met yet.
        reason: why it is in that state.
        starts: how many starts were begun.
        nearly_up: whether its VMs need no more than a moment.
    """

    state: VJobWord
    reason: str
    starts: int
    nearly_up: bool


class AccountTaken(TypedDict):
    """The user's account was taken.

    Attributes:
        changed: whether the engine knew it otherwise.
    """

    changed: bool


class Waits(TypedDict):
    """The VMs are not to be reached now.

    Attributes:
        state: the state of the vjob.
        reason: why it is in that state.
    """

    state: VJobWord
    reason: str


class AccessVM(TypedDict):
    """A way to a VM.

    Attributes:
        name: the VM.
        address: its IP address.
        host_key: the public key of its ssh server.
    """

    name: str
    address: str
    host_key: str


class Access(TypedDict):
    """The way to the VMs of one's own vjob.

    Attributes:
        state: running.
        job_id: its job id in Slurm.
        user: its user.
        vms: the ways to its VMs.
        private_key: the key to all of them, a secret.
        start: number of this start of its script.
        returns: how often it went back to a checkpoint.
        returned: a sentence about the last time; empty: none.
    """

    state: Literal["running"]
    job_id: int
    user: str
    vms: list[AccessVM]
    private_key: str
    start: int
    returns: int
    returned: str


class Attached(TypedDict):
    """The sign of life of a wrapper was heard.

    Attributes:
        state: the state of the vjob.
        returns: how often it went back to a checkpoint.
    """

    state: VJobWord
    returns: int


class Requeued(TypedDict):
    """A requeue was recorded.

    Attributes:
        own: whether the script itself has asked for it.
    """

    own: bool


class OpenApi(TypedDict):
    """The OpenAPI document of the API.

    Attributes:
        openapi: release of OpenAPI.
        info: title, release of the engine, what the API is.
        tags: the parts of the API.
        paths: by path and method, each request.
        components: the forms of answers, and the ways in which callers prove who they are.
        security: which of these ways are taken.
    """

    openapi: str
    info: dict[str, Any]
    tags: list[dict[str, Any]]
    paths: dict[str, Any]
    components: dict[str, Any]
    security: list[dict[str, Any]]
