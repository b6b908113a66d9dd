"""Story: a job makes way for one that goes first, goes on, moves, makes way again, and nothing is lost."""

from __future__ import annotations

from typing import Any

from minicluster_lib.settings_file import IMAGE_OVERHEAD_MIB, largest_request_mib

from quickstart_lib.stage import Stage, check

_DIRECTORY = "/home/alice/quickstart"
_COUNTER = f"{_DIRECTORY}/counter.sh"
_OUTPUT = f"{_DIRECTORY}/counter.out"
_UNTIL_TOLD = "until test -e /tmp/go; do sleep 1; done"
_SCRIPT = """\
#!/bin/bash
# Prints a number each second until it is told to end; each has to arrive, once.
number=0
until test -e /tmp/go; do
    number=$((number + 1))
    echo "$number"
    sleep 1
done
echo end
"""
_QUEUE = ["squeue", "--all", "--format=%.6i %.9P %.14j %.6u %.11T %.8M %R"]


def tell(stage: Stage) -> None:
    """Tell it; every sentence is checked."""
    busy = [row["display_id"] for row in stage.ask("vjobs") if row["state"] != "terminated"]
    check(not busy, f"vjobs {', '.join(busy)} are on this cluster; let them end, or name another with --dir")
    nodes = stage.await_("the engine to see the nodes", lambda: stage.ask("nodes") or None)
    check(len(nodes) >= 2, "a cluster with at least two nodes is needed")
    stage.run(["mkdir", "-p", _DIRECTORY], user="alice")
    stage.run(["dd", f"of={_COUNTER}", "status=none"], user="alice", stdin=_SCRIPT)
    stage.run(["rm", "-f", _OUTPUT], user="alice")

    stage.say(
        "Two nodes of an ordinary partition; nothing runs. Jobs of partitions vjob and urgent run on front1 for Slurm."
    )
    stage.show(["sinfo", "--Node", "--format=%.8N %.9P %.6t %.5c %.8m"])
    others, counter = _fill(stage, nodes)
    home = _node(stage, counter)
    _go_first(stage, counter, home, _size(nodes))
    short = _be_short(stage, [*others, counter], _size(nodes))
    _move(stage, others, counter, home)
    _make_way(stage, counter, _node(stage, counter))

    stage.say("The counting job is told to end; every number has arrived once, in order.")
    stage.show(["rmsplugin", "ssh", counter, "--", "touch", "/tmp/go"])
    stage.await_("its end", lambda: _state(stage, counter) == "terminated" or None)
    *numbers, last = stage.await_("its last line", lambda: _complete(_numbers(stage)), timeout_s=15)
    print(f"  {' '.join(numbers)} {last}")
    check(numbers == [str(number) for number in range(1, len(numbers) + 1)], "counter.out is not what was printed")

    stage.say("The plugin and Slurm's accounting show what was asked for; Elapsed leaves out the time that it slept.")
    stage.show(["rmsplugin", "vjobs", "--all", "--format=jobid,user,state,submitted,reason"])
    jobs = [counter, *others, short]
    fields = "--format=JobID,JobName%11,State,ExitCode,Elapsed,Suspended,ReqMem,AllocTRES%34"
    stage.await_("the accounting", lambda: _accounted(stage, jobs), timeout_s=30)
    stage.show(["sacct", "-X", "-j", ",".join(jobs), fields])
    tres = stage.run(["sacct", "-X", "-n", "-P", "-j", counter, "-o", "AllocTRES"])
    cpus, memory_mib = _size(nodes)
    check(f"cpu={cpus}," in tres and f"mem={memory_mib}M" in tres, f"sacct says that job {counter} had {tres.strip()}")
    stage.say("All of it was as it should be.")


def _size(nodes: list[dict[str, Any]]) -> tuple[int, int]:
    """CPUs of a VM that has all of a node's, and memory in MiB, so that two VMs fit there."""
    return int(nodes[0]["cpus"]), largest_request_mib(int(nodes[0]["memory_mib"]) // 2, IMAGE_OVERHEAD_MIB)


def _options(size: tuple[int, int], directory: str) -> list[str]:
    cpus, memory_mib = size
    return [f"--cpus-per-task={cpus}", f"--mem={memory_mib}", f"--chdir={directory}"]


def _fill(stage: Stage, nodes: list[dict[str, Any]]) -> tuple[list[str], str]:
    """Jobs that keep all nodes busy, the last of them counts."""
    stage.say("Alice, an ordinary user, submits with plain sbatch: jobs that keep all nodes busy, one of them counts.")
    options = ["--partition=vjob", *_options(_size(nodes), _DIRECTORY)]
    others = [_submit(stage, [*options, f"--wrap={_UNTIL_TOLD}"]) for _ in nodes[1:]]
    stage.await_("their VMs to boot", lambda: all(_state(stage, job) == "running" for job in others) or None)
    counter = _submit(stage, [*options, "--nice", "--output=counter.out", _COUNTER])
    stage.await_("its VM to boot", lambda: _state(stage, counter) == "running" or None)
    # What has just started is not suspended for 10 s (PreemptExemptTime).
    stage.await_("the first numbers", lambda: len(_numbers(stage)) >= 12 or None)
    stage.show(["rmsplugin", "vms", "--format=name,state,node,address,cpus,memory"])
    stage.say(
        "For each node that hosts VMs the engine has a *room*, a job of its own: Slurm starts nothing beside VMs."
    )
    stage.show(_QUEUE)
    stage.show(["sinfo", "--Node", "--partition=plain", "--format=%.8N %.9P %.6t %.12C"])
    states = set(stage.run(["sinfo", "-h", "-N", "-p", "plain", "-o", "%T"]).split())
    check(states == {"allocated"}, f"Slurm says {', '.join(states)} of nodes that host VMs")
    return others, counter


def _go_first(stage: Stage, counter: str, home: str, size: tuple[int, int]) -> None:
    """A job of a partition of a higher tier takes the room of the last in the queue, which goes on afterwards."""
    stage.say(
        "Bob submits to partition urgent, whose PriorityTier is higher. Every node is full, and no person does a thing:"
    )
    print("  the engine suspends the last job of the queue, the counting one, and starts bob's job in its place.")
    options = ["--partition=urgent", *_options(size, "/home/bob")]
    urgent = _submit(stage, [*options, f"--wrap=hostname; {_UNTIL_TOLD}"], user="bob")
    stage.await_("the counting job to sleep", lambda: _state(stage, counter) == "sleeping" or None)
    before = _numbers(stage)
    stage.await_("bob's job to run", lambda: _state(stage, urgent) == "running" or None)
    stage.show(_QUEUE)
    slurm_state = stage.run(["squeue", "-h", "-j", counter, "-o", "%T"]).strip()
    check(slurm_state == "SUSPENDED", f"Slurm says {slurm_state} of job {counter}, not SUSPENDED")
    check(_node(stage, urgent) == home, f"vjob {urgent} is on {_node(stage, urgent)}, not on {home}")
    running = stage.run(["virsh", "list", "--name"], host=home).split()
    check(f"vjob{counter}-0" not in running, f"the VM of vjob {counter} still runs on {home}")
    stage.show(["rmsplugin", "vms", "--format=name,vjob,state,node,image,imagesize"])
    stage.show(["rmsplugin", "vjobs", "--format=jobid,user,state,reason"])
    check(_numbers(stage) == before, "the sleeping job went on counting")

    stage.say("Bob's job is told to end. The counting job is resumed where it was, as soon as there is room.")
    stage.show(["rmsplugin", "ssh", urgent, "--", "touch", "/tmp/go"], user="bob")
    stage.await_("the next numbers", lambda: len(_numbers(stage)) >= len(before) + 2 or None)
    check(_node(stage, counter) == home, f"vjob {counter} is not on {home}")


def _be_short(stage: Stage, running: list[str], size: tuple[int, int]) -> str:
    """A job of two seconds runs at once on a full cluster; who makes way for it is paused, and goes on in its place."""
    stage.say(
        "All nodes are busy, and bob submits a job of two seconds to the same partition. The engine, begun anew with"
    )
    print(
        "  with other settings (no job notices), pauses the job that makes way: its memory stays on its node meanwhile."
    )
    with stage.engine_with('policy = "slowdown"', "pause_limit_s = 3600"):
        options = ["--partition=vjob", "--time=1", *_options(size, "/home/bob")]
        short = _submit(stage, [*options, "--wrap=sleep 2"], user="bob")
        stage.await_("its end", lambda: _state(stage, short) == "terminated" or None)
        stage.await_("all others to run", lambda: all(_state(stage, job) == "running" for job in running) or None)
        told = _events(stage, "vjob-paused", "script-started", "script-ended", "vjob-running")
        since = next(place for place, (_, vjob, *_) in enumerate(told) if vjob == short)
        for event in told[max(0, since - 2) :]:
            print(f"  {' '.join(event)[:110]}")
        paused = [vjob for _, vjob, kind, _ in told if kind == "vjob-paused"]
        check(len(paused) == 1 and paused[0] in running, f"paused were: {', '.join(paused) or 'none'}")
    return short


def _events(stage: Stage, *kinds: str) -> list[list[str]]:
    """Time, vjob, kind and message of all events of some kinds, oldest first."""
    words = ["rmsplugin", "events", "-n", "1000", "--noheader", "--parsable2", "--format=time,vjob,kind,message"]
    rows = [line.split("|", 3) for line in stage.run(words).splitlines()]
    return [row for row in rows if row[2] in kinds]


def _move(stage: Stage, others: list[str], counter: str, home: str) -> None:
    """An operator moves a running vjob to a node that has become free."""
    stage.say("Alice logs in to the VM of another job and tells it to end; an operator moves the counting job there,")
    print("  while it runs: the job does not notice.")
    elsewhere = _node(stage, others[0])
    for job in others:
        stage.show(["rmsplugin", "ssh", job, "--", "touch", "/tmp/go"])
    stage.await_("room there", lambda: all(_state(stage, job) == "terminated" for job in others) or None)
    stage.show(["rmsplugin", "migrate", counter, "--to", elsewhere], user="root")
    check(elsewhere not in ("", home), f"vjob {others[0]} was on {elsewhere or 'no node'}, vjob {counter} on {home}")
    check(_node(stage, counter) == elsewhere, f"vjob {counter} is not on {elsewhere}")
    seen = len(_numbers(stage))
    stage.await_("the next numbers", lambda: len(_numbers(stage)) >= seen + 2 or None)
    stage.show(_QUEUE)


def _make_way(stage: Stage, counter: str, home: str) -> None:
    """A native job takes the node of the counting job, which goes on where there is room."""
    stage.say(
        f"Bob submits an ordinary job that needs all of {home}. His partition goes first, so Slurm takes the node"
    )
    print("  back; the engine has a grace time to move the VM away, live, or to save it.")
    options = ["--partition=plain", "--exclusive", f"--nodelist={home}", "--chdir=/home/bob"]
    native = _submit(stage, [*options, "--wrap=hostname; sleep 15"], user="bob")
    running = ["squeue", "-h", "-j", native, "-o", "%T"]
    stage.await_("his job to run", lambda: stage.run(running).strip() == "RUNNING" or None)
    stage.show(_QUEUE)
    stage.show(["rmsplugin", "nodes", "--format=node,state,room,vms,reason"])
    left = stage.run(["virsh", "list", "--name"], host=home).split()
    check(not left, f"{', '.join(left)} run beside the job of bob's on {home}")
    seen = len(_numbers(stage))
    stage.await_("the counting job to go on", lambda: len(_numbers(stage)) >= seen + 2 or None)
    check(_node(stage, counter) not in ("", home), f"vjob {counter} is on {_node(stage, counter) or 'no node'}")


def _submit(stage: Stage, words: list[str], *, user: str = "alice") -> str:
    return stage.show(["sbatch", "--parsable", *words], user=user).strip()


def _vjob(stage: Stage, job: str) -> dict[str, object]:
    return next((row for row in stage.ask("vjobs") if row["display_id"] == job), {"state": "", "reason": ""})


def _state(stage: Stage, job: str) -> str:
    return str(_vjob(stage, job)["state"])


def _node(stage: Stage, job: str) -> str:
    return next((str(row["node"]) for row in stage.ask("vms") if row["vjob"] == job), "")


def _numbers(stage: Stage) -> list[str]:
    return stage.run(["sh", "-c", f"cat {_OUTPUT} 2>/dev/null || :"], user="alice").split()


def _complete(numbers: list[str]) -> list[str] | None:
    return numbers if numbers and numbers[-1] == "end" else None


def _accounted(stage: Stage, jobs: list[str]) -> bool | None:
    """Whether all jobs have ended well, as Slurm's database has it; None while it does not know."""
    text = stage.run(["sacct", "-X", "-n", "-P", "-j", ",".join(jobs), "-o", "State,ExitCode"])
    rows = text.split()
    if len(rows) < len(jobs) or any(row.split("|")[0] in ("RUNNING", "COMPLETING", "PENDING") for row in rows):
        return None
    check(set(rows) == {"COMPLETED|0:0"}, f"not all jobs are COMPLETED with exit code 0: {' '.join(rows)}")
    return True
