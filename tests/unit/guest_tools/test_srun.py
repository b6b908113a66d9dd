"""srun and its daemon, run for real between two guests of both kinds."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from unit import guestbox

STATE = "/run/rmsplugin/state"
SRUN = "/run/rmsplugin/bin/srun"

pytestmark = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")


@pytest.fixture(scope="module", params=guestbox.FLAVOURS)
def box(request: pytest.FixtureRequest) -> Iterator[guestbox.Guestbox]:
    """Two VMs of 2 CPUs each."""
    with guestbox.ready(request.param, 2) as made:
        yield made


def run(box: guestbox.Guestbox, script: str, vm: int = 0) -> list[str]:
    """Lines (both streams) of a script of the user's that finds srun and stepd."""
    text = box.guests[vm].run(f"exec 2>&1; cd /tmp; PATH=/run/rmsplugin/bin:$PATH; {script}\n:", user=True)
    return text.splitlines()


def srun(box: guestbox.Guestbox, words: str, before: str = "") -> str:
    """Output (both streams) of an srun of the user's in VM 0, and its exit code."""
    return box.guests[0].run(f"cd /tmp; {before} {SRUN} {words} 2>&1; echo exit $?", user=True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-n 2", ["0 0 0 2 1(x2)", "1 0 1 2 1(x2)"]),
        ("-n 3", ["0 0 0 3 2,1", "1 1 0 3 2,1", "2 0 1 3 2,1"]),
        ("-n4 -N1 -O", ["0 0 0 4 4", "1 1 0 4 4", "2 2 0 4 4", "3 3 0 4 4"]),
        ("-n 3 -m cyclic", ["0 0 0 3 2,1", "1 0 1 3 2,1", "2 1 0 3 2,1"]),
        ("-n 9 -O", [f"{n} {n % 5} {n // 5} 9 5,4" for n in range(9)]),
        ("-n 2 -N 1 -w vjob12-1", ["0 0 0 2 2", "1 1 0 2 2"]),
        ("--ntasks-per-node=2", ["0 0 0 4 2(x2)", "1 1 0 4 2(x2)", "2 0 1 4 2(x2)", "3 1 1 4 2(x2)"]),
        ("--ntasks=2 --ntasks-per-node 2", ["0 0 0 2 2", "1 1 0 2 2"]),
        ("", ["0 0 0 2 1(x2)", "1 0 1 2 1(x2)"]),
    ],
)
def test_srun_numbers_tasks_as_slurm_does(box: guestbox.Guestbox, options: str, expected: list[str]) -> None:
    command = "sh -c 'echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS $SLURM_STEP_TASKS_PER_NODE'"
    lines = srun(box, f"{options} {command}").splitlines()
    assert sorted(lines[:-1]) == expected
    assert lines[-1] == "exit 0"


def test_srun_gives_arguments_environment_and_directory_as_they_are(box: guestbox.Guestbox) -> None:
    box.guests[1].run("mkdir -p '/tmp/a dir' && chmod 777 '/tmp/a dir'")
    arguments = "'a  b' '' '*' '$HOME' \"it's\" '\"' 'new\nline\n' 'back\\slash' -n '\303\251\201\210'"
    before = (
        "mkdir -p '/tmp/a dir'; cd '/tmp/a dir'; umask 027; "
        "export rank=mine first=mine plan=mine ntasks='' directory=mine TEXT=\"a'b\nc\\$x \\`y\\` \201\210\377\";"
    )
    show = 'printf "<%s>" "$@"; echo "|$rank|$first|$plan|$ntasks|$directory|$TEXT|$(pwd)|$(umask)"'
    output = srun(box, f"-l -n 2 sh -c '{show}' sh {arguments}", before).split("\n")
    local = box.guests[0].run(f"{before} sh -c '{show}' sh {arguments}", user=True).split("\n")
    # Their lines come as they may, in between each other.
    of_tasks = [[line[3:] for line in output if line.startswith(f"{task}: ")] for task in range(2)]
    assert [*of_tasks, output[-2:]] == [local[:-1], local[:-1], ["exit 0", ""]]


def test_srun_labels_each_line_and_keeps_the_streams_apart(box: guestbox.Guestbox) -> None:
    command = "sh -c 'echo one; printf two; echo three >&2'"
    lines = srun(box, f"-l -n 2 {command}").splitlines()
    assert sorted(lines) == sorted(["0: one", "0: two", "0: three", "1: one", "1: two", "1: three", "exit 0"])
    only_out = box.guests[0].run(f"{SRUN} -l -O -n 11 sh -c 'echo x; echo y >&2' 2>/dev/null", user=True)
    assert sorted(only_out.splitlines()) == sorted([f"{rank:2}: x" for rank in range(11)])


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("sh -c 'exit $SLURM_PROCID'", 1),
        ("sh -c 'exit $((9 - SLURM_PROCID))'", 9),
        ("/no/such/program", 2),
        ("/etc/passwd", 13),
        ("sh -c '[ $SLURM_PROCID = 0 ] && exit 3; kill -SEGV $$'", 139),
    ],
)
def test_srun_returns_the_highest_exit_code(box: guestbox.Guestbox, command: str, code: int) -> None:
    assert srun(box, f"-n 2 {command}").splitlines()[-1] == f"exit {code}"


def test_ends_are_told_together_as_slurm_does(box: guestbox.Guestbox) -> None:
    lines = run(box, "srun -n 4 sh -c 'sleep 0.2; exit 3'")
    assert sorted(lines) == [
        "srun: error: vjob12-0: tasks 0-1: Exited with exit code 3",
        "srun: error: vjob12-1: tasks 2-3: Exited with exit code 3",
    ]
    killed, forced = run(box, "srun -n 1 sh -c 'kill -KILL $$'")
    assert killed == "srun: error: vjob12-0: task 0: Killed"
    assert re.fullmatch(r"srun: Force Terminated StepId=12\.\d+", forced)
    assert run(box, "srun -n 1 /no/such") == [
        "slurmstepd-vjob12-0: error: execve(): /no/such: No such file or directory",
        "srun: error: vjob12-0: task 0: Exited with exit code 2",
    ]


def test_what_a_task_has_said_is_told_before_its_end(box: guestbox.Guestbox) -> None:
    """Its daemon stands still until it has ended, and has all that it wrote to read then."""
    later = "(sleep 0.5; kill -CONT $PPID) >/dev/null 2>&1 &"
    lines = run(box, f"srun -n 1 sh -c 'kill -STOP $PPID; {later} seq 1 9000; exit 3'")
    assert lines == [*map(str, range(1, 9001)), "srun: error: vjob12-0: task 0: Exited with exit code 3"]


def test_standard_input_goes_to_all_tasks_or_to_one(box: guestbox.Guestbox) -> None:
    assert sorted(run(box, "echo in | srun -l -n 3 cat")) == ["0: in", "1: in", "2: in"]
    assert run(box, "echo in | srun -l -n 3 -i 2 cat") == ["2: in"]
    assert run(box, "echo in | srun -l -n 3 --input none cat") == []
    assert sorted(run(box, "echo file >in; srun -l -n 2 -i in cat")) == ["0: file", "1: file"]


def test_much_input_and_output_goes_through_whole(box: guestbox.Guestbox) -> None:
    size = 3_000_000
    assert run(box, f"head -c {size} /dev/zero | srun -n 2 wc -c") == [str(size)] * 2
    assert run(box, f"srun -n 2 head -c {size} /dev/zero | wc -c") == [str(2 * size)]


def test_a_task_that_does_not_read_and_a_reader_that_waits_hold_up_nobody_else(box: guestbox.Guestbox) -> None:
    script = (
        "mkfifo hold; srun -n 2 yes 2>/dev/null >hold & slow=$!; exec 3<hold; "
        "yes | srun -n 1 --overlap sleep 1000 2>/dev/null & deaf=$!; sleep 0.5; "
        "srun --overlap -n 2 echo quick; kill $slow $deaf; exec 3<&-; rm hold; wait"
    )
    assert run(box, script)[:2] == ["quick", "quick"]
    memory = box.guests[0].run(
        "cat /proc/[0-9]*/status | awk '/^Name:.*(stepd|srun)/ { n = 1 } /VmRSS/ && n { print $2 }'"
    )
    assert max(map(int, memory.split())) < 16384  # KiB: what is not taken is not piled up


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        ("--gres=gpu:1 true", "srun: error: --gres is not possible inside a vjob: VMs have no generic resources", 1),
        ("--pty sh", "srun: error: --pty is not possible inside a vjob: use 'rmsplugin ssh JOBID'", 1),
        ("--mpi=pmi2 true", "What works: mpirun --hostfile $RMSPLUGIN_HOSTFILE", 1),
        ("--frob true", "srun: unrecognized option '--frob'", 255),
        ("-y true", "srun: invalid option -- 'y'", 255),
        ("-n 0 true", 'Invalid numeric value "0" for --ntasks.', 1),
        ("-n two true", 'Invalid numeric value "two" for --ntasks.', 1),
        ("-N 3 -n 3 true", "Only allocated 2 nodes asked for 3", 1),
        ("-n 5 true", "Unable to create step for job 12: More processors requested than permitted", 1),
        ("-n 1 -c 3 true", "Unable to create step for job 12: More processors requested than permitted", 1),
        ("-n 3 -N 1 true", "Unable to create step for job 12: More processors requested than permitted", 1),
        ("-w vjob12-7 true", "Unable to create step for job 12: Requested node configuration is not available", 1),
        ("--mem=97M true", "Unable to create step for job 12: Memory required by task is not available", 1),
        ("--jobid=13 true", "Unable to confirm allocation for job 13", 1),
        ("-o /no/dir/x true", "srun: error: Could not open stdout file: No such file or directory", 1),
        ("-v -Q true", "srun: error: don't specify both --verbose (-v) and --quiet (-Q)", 1),
        ("-n 2", "srun: fatal: No command given to execute.", 1),
        ("-n", "srun: option '-n' requires an argument", 255),
    ],
)
def test_srun_refuses_with_a_sentence_and_slurms_code(
    box: guestbox.Guestbox, words: str, message: str, code: int
) -> None:
    output = srun(box, words)
    assert message in output
    assert output.endswith(f"exit {code}\n")


def test_options_that_change_nothing_here_are_taken(box: guestbox.Guestbox) -> None:
    words = "--exact --cpu-bind=none --mem=50M --mpi=none --jobid=12 -J name -p any -u -v -k --mem-bind=no"
    # A task's output and word of its end come by two ways, as in Slurm: either may be first.
    assert sorted(run(box, f"srun -n 1 {words} echo works")[-2:]) == ["srun: vjob12-0: task 0: Completed", "works"]


#: A step that has all CPUs until its srun, $holds, is ended.
HOLDS_ALL = (
    "rm -f up said; srun -n 4 sh -c 'echo up >>/tmp/up; exec sleep 1000' 2>/dev/null & holds=$!; "
    "until grep -q up up; do sleep 0.1; done 2>/dev/null"
)
UNTIL_BUSY = "until grep -q retrying said; do sleep 0.1; done 2>/dev/null"


def test_steps_side_by_side_wait_for_cpus_and_use_all(box: guestbox.Guestbox) -> None:
    step = "sh -c 'began=$(cat /proc/uptime); sleep 1; echo $(hostname) ${began% *} $(cat /proc/uptime)'"
    lines = [
        line.split() for line in run(box, f"for i in 1 2 3 4 5 6; do srun -Q --exclusive -n 1 {step} & done; wait")
    ]
    assert sorted({line[0] for line in lines}) == ["vjob12-0", "vjob12-1"]
    assert len(lines) == 6
    spans = [(float(began), float(ended)) for _, began, ended, _ in lines]
    most = max(sum(began <= at < ended for began, ended in spans) for at, _ in spans)
    assert 2 <= most <= 4, "six on four CPUs: not one after the other, and not all at once"
    late = f"srun -n 1 echo late >said 2>&1 & {UNTIL_BUSY}; kill $holds; wait; cat said"
    waits = run(box, f"{HOLDS_ALL}; {late}")
    assert waits[-3:] == [
        "srun: Job 12 step creation temporarily disabled, retrying (Requested nodes are busy)",
        "srun: Step created for job 12",
        "late",
    ]
    at_once = run(box, f"{HOLDS_ALL}; srun --overlap -n 1 echo now; srun -I -n 1 echo no; kill $holds; wait")
    assert at_once[:2] == ["now", "srun: error: Unable to create step for job 12: Requested nodes are busy"]


def test_an_srun_that_ends_while_it_waits_takes_no_cpus(box: guestbox.Guestbox) -> None:
    waits = f"srun -n 4 echo no 2>said & {UNTIL_BUSY}; kill -KILL $!; kill $holds; wait"
    assert run(box, f"{HOLDS_ALL}; {waits}; srun -n 4 -l echo free | sort")[-4:] == [
        f"{task}: free" for task in range(4)
    ]


def test_files_for_each_task_by_pattern(box: guestbox.Guestbox) -> None:
    box.guests[1].run("rm -f /tmp/out.*")
    lines = run(
        box, "srun -D /tmp -n 2 -N 1 -o out.%j.%3t.%N sh -c 'echo to $SLURM_PROCID; echo e >&2'; cat out.*; ls out.*"
    )
    names = ["out.12.000.vjob12-0", "out.12.001.vjob12-0"]
    assert lines == ["to 0", "e", "to 1", "e", *names]
    assert run(box, "srun -n 2 -o both -e bad sh -c 'echo o; echo e >&2'; cat both bad; rm both bad") == [
        "o",
        "o",
        "e",
        "e",
    ]
    assert run(box, "srun -l -n 2 -o 1 echo x; srun -n 2 -o none echo x") == ["1: x"]
    assert run(box, "echo was >log; srun -n 1 --open-mode=a -o log echo new; cat log; rm log") == ["was", "new"]


def test_the_environment_is_slurms(box: guestbox.Guestbox) -> None:
    lines = run(box, "umask 027; srun -n 3 env")
    assert {name for name in lines if lines.count(name) == 3} >= {
        "SLURM_NTASKS=3",
        "SLURM_STEP_NUM_TASKS=3",
        "SLURM_STEP_NUM_NODES=2",
        "SLURM_STEP_NODELIST=vjob12-[0-1]",
        "SLURM_STEP_TASKS_PER_NODE=2,1",
        "SLURM_LAUNCH_NODE_IPADDR=127.0.0.11",
        "SLURM_UMASK=0027",
        "SLURM_DISTRIBUTION=block",
    }
    assert lines.count("SLURM_GTIDS=0,1") == 2
    assert lines.count("SLURMD_NODENAME=vjob12-1") == 1
    only = run(box, "export SLURM_X=1 OTHER=1; srun -n 1 --export=A=b,PATH env | grep -E '^(A|OTHER|SLURM_X)=' | sort")
    assert only == ["A=b", "SLURM_X=1"]
    assert run(box, "export OTHER=1; srun -n 1 --export=ALL,A=b env | grep -E '^(A|OTHER)=' | sort") == [
        "A=b",
        "OTHER=1",
    ]
    assert run(box, "SLURM_NTASKS=2 SLURM_LABELIO=1 srun echo x | sort") == ["0: x", "1: x"]
    assert run(box, "SLURM_NPROCS=2 SLURM_NTASKS=1 srun echo x") == ["x"]


def test_limits_and_umask_reach_the_tasks_of_all_vms(box: guestbox.Guestbox) -> None:
    assert run(box, "umask 027; ulimit -S -n 77; srun -n 2 sh -c 'echo $(umask) $(ulimit -S -n)'") == ["0027 77"] * 2
    assert run(box, "srun -n 2 sh -c 'ulimit -S -n' | grep -c 77 || :") == ["0"]


def test_kill_on_bad_exit_and_wait_end_the_step(box: guestbox.Guestbox) -> None:
    one_fails = "sh -c '[ $SLURM_PROCID = 1 ] && exit 4; exec sleep 1000'"
    bad = run(box, f"srun -K -n 3 {one_fails}; echo code $?")
    assert bad[0] == "srun: error: vjob12-0: task 1: Exited with exit code 4"
    assert "srun: error: vjob12-1: task 2: Terminated" in bad
    assert bad[-1] == "code 143"
    waited = run(box, f"srun -W 1 -n 3 {one_fails}")
    assert "srun: First task exited 1s ago" in waited
    assert [line.partition(" ")[2].partition(" ")[2] for line in waited if "running" in line] == ["tasks 0,2: running"]


def test_steps_that_srun_ends_are_told_in_the_words_of_the_sites_slurm(box: guestbox.Guestbox) -> None:
    etc = "/run/rmsplugin/etc/vjob"
    change = "s/^slurm_release=.*/slurm_release=22.05.8/; s/^kill_wait=.*/kill_wait=5/"
    box.guests[0].run(f"cp {etc} /tmp/vjob; sed -i '{change}' {etc}")
    try:
        bad = run(box, "srun -K -n 2 sh -c '[ $SLURM_PROCID = 1 ] && exit 4; exec sleep 30'")
        assert any(line.startswith("srun: launch/slurm: _step_signal: Terminating StepId=") for line in bad)
        assert not any("aborted" in line for line in bad)
        killed = run(
            box, "srun -n 1 sh -c 'trap : TERM; while :; do sleep 1; done' & sleep 1; kill $!; wait $!; echo code $?"
        )
        assert "srun: Job step aborted: Waiting up to 7 seconds for job step to finish." in killed
        assert "srun: error: vjob12-0: task 0: Killed" in killed
        assert killed[-1] == "code 137"
        assert not any("Force Terminated" in line for line in killed)
    finally:
        box.guests[0].run(f"cp /tmp/vjob {etc}")


def test_task_prologs_change_the_environment_and_epilogs_come_after(box: guestbox.Guestbox) -> None:
    prolog = "#!/bin/sh\\necho export MADE=here\\necho unset GONE\\necho print from it\\necho noise\\n"
    epilog = "#!/bin/sh\\necho after $SLURM_PROCID $SLURM_SCRIPT_CONTEXT >>after; exit 3\\n"
    make = f"cd /tmp; printf '{prolog}' >pro; printf '{epilog}' >epi; chmod +x pro epi; rm -f after;"
    lines = run(
        box,
        f"{make} GONE=1 srun -n 1 --task-prolog=/tmp/pro --task-epilog=/tmp/epi sh -c 'echo $MADE ${{GONE-gone}}'; "
        "cat after",
    )
    assert lines == [
        "from it",
        "here gone",
        "slurmstepd-vjob12-0: error: TaskEpilog failed status=768",
        "after 0 epilog_task",
    ]
    missing = run(box, "srun -n 1 --task-prolog=/tmp/missing true; echo code $?")
    assert "slurmstepd-vjob12-0: error: --task-prolog failed status=1" in missing
    assert missing[-1] == "code 1"
    slow = "printf '#!/bin/sh\\nsleep 30\\n' >/tmp/slow; chmod +x /tmp/slow; "
    assert run(box, f"{slow} srun -n 1 --task-epilog=/tmp/slow true") == [
        "slurmstepd-vjob12-0: error: TaskEpilog failed status=9"
    ]


def test_tasks_of_an_srun_that_one_of_our_own_programs_ends_may_clean_up(box: guestbox.Guestbox) -> None:
    # As a job's end does; here Slurm ends the step around the inner srun.
    inner = "exec srun --overlap -n 1 sh -c 'trap \"echo cleaned; exit 5\" TERM; : >up; while :; do sleep 0.1; done'"
    until = "until [ -e up ]; do sleep 0.1; done"
    signal = f"echo step $(($(cat {STATE}/steps) - 2)) 15 | rmsplugin-guest control"
    lines = run(
        box, f"cat >inner <<'END'\n{inner}\nEND\nrm -f up; srun -n 1 sh inner & {until}; {signal}; wait $!; rm inner up"
    )
    assert "cleaned" in lines


def test_signals_reach_the_tasks(box: guestbox.Guestbox) -> None:
    task = "sh -c 'trap \"echo got; exit 5\" USR1; echo ready; while :; do sleep 0.05; done'"
    of_step = f"echo step $(($(cat {STATE}/steps) - 1)) 10 | /run/rmsplugin/bin/rmsplugin-guest control >/dev/null"
    for command in ("kill -USR1 $!", of_step):
        lines = run(
            box,
            f": >out; {SRUN} -n 2 {task} >out 2>/dev/null & until [ $(wc -l <out) = 2 ]; do sleep 0.1; done; "
            f"{command}; wait $!; echo code $?; cat out; rm out",
        )
        assert lines == ["code 5", "ready", "ready", "got", "got"], command
    assert run(box, "echo step 0 99 | rmsplugin-guest control || echo $?")[-1] == "2"


def test_the_wrapper_hears_of_steps_and_ends_one(box: guestbox.Guestbox) -> None:
    events = run(box, f"cat {STATE}/step-events; rm {STATE}/step-events")
    first = int(run(box, f"cat {STATE}/steps")[0])
    assert events[-1].startswith(f"ended {first - 1} ")
    lines = run(
        box,
        f"srun -n 3 -O sh -c 'exit $SLURM_PROCID'; srun -J 'a\tname' -n 1 sh -c 'kill -SEGV $$'; "
        f"{SRUN} -n 1 sleep 60 & until grep -q 'began {first + 2}' {STATE}/step-events; do sleep 0.1; done; "
        f"echo step {first + 2} 9 | rmsplugin-guest control; wait $!; echo code $?",
    )
    assert lines[-1] == "code 137"
    assert any("CANCELLED AT" in line for line in lines)
    assert run(box, f"cat {STATE}/step-events") == [
        f"began {first} 3 sh", f"ended {first} exit 2",
        f"began {first + 1} 1 a?name", f"ended {first + 1} signal 11",
        f"began {first + 2} 1 sleep", f"ended {first + 2} signal 9",
    ]  # fmt: skip


def test_a_signal_that_comes_before_the_tasks_of_a_step_reaches_them(box: guestbox.Guestbox) -> None:
    first = int(run(box, f"cat {STATE}/steps 2>/dev/null || echo 0")[0])
    script = (
        f"n={first}; while [ $n -lt {first + 25} ]; do {SRUN} -n 1 sleep 20 & "
        f'until grep -q "^began $n " {STATE}/step-events 2>/dev/null; do :; done; '
        "echo step $n 9 | rmsplugin-guest control; wait $!; echo code $?; n=$((n + 1)); done"
    )
    codes = [line for line in run(box, script) if line.startswith("code ")]
    assert codes == ["code 137"] * 25


def test_what_tasks_leave_behind_is_killed_with_the_step(box: guestbox.Guestbox) -> None:
    assert run(box, "srun -n 1 sh -c 'setsid sleep 4321 & echo left'") == ["left"]
    count = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep [4]321' || :"
    assert box.guests[0].run(count).strip() == "0"


def test_srun_in_other_vms_and_in_tasks(box: guestbox.Guestbox) -> None:
    assert sorted(run(box, "srun -l -n 2 hostname", vm=1)) == ["0: vjob12-0", "1: vjob12-1"]
    assert sorted(run(box, "srun -n 1 -w vjob12-1 srun -l -N 2 -n 2 hostname")) == ["0: vjob12-0", "1: vjob12-1"]


def test_multi_prog(box: guestbox.Guestbox) -> None:
    file = "printf '%s\\n' '# comment' '0 echo zero \"a b\"' '1-2 echo %t of %o' >prog; "
    assert sorted(run(box, f"{file} srun -n 3 --multi-prog prog x")) == ["1 of 0 x", "2 of 1 x", 'zero "a b" x']
    assert "no record for task id 3" in run(box, f"{file} srun -n 4 --multi-prog prog")[0]


def kill_stepd(guest: guestbox.Guest, verb: str) -> None:
    """Kill what runs as `stepd VERB` in a VM; some of it may have ended with what was killed before it."""
    killed = guest.run(
        "for process in /proc/[0-9]*; do case $(tr '\\0' ' ' <$process/cmdline) in "
        f"*'stepd {verb} ') kill -9 ${{process#/proc/}} && echo $process ;; esac; done 2>/dev/null || :"
    )
    assert killed


def sleeping(guest: guestbox.Guest) -> bool:
    return "sleep 765" in guest.run("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' || :")


def start_sleepers(box: guestbox.Guestbox) -> None:
    """A step with a task in each VM, in the background; its output comes to /tmp/sleepers."""
    step = f"{SRUN} -n 2 sleep 765 >sleepers 2>&1; echo code $? >>sleepers"
    box.guests[0].run(f"cd /tmp; rm -f sleepers; ({step}) >/dev/null 2>&1 &", user=True)
    guestbox.wait_until(lambda: all(map(sleeping, box.guests)), what="the tasks run")


def sleepers_end(box: guestbox.Guestbox) -> list[str]:
    read = "cat /tmp/sleepers"
    guestbox.wait_until(lambda: "code" in box.guests[0].run(read), what="srun ends")
    return box.guests[0].run(read).splitlines()


def test_a_vm_that_is_gone_ends_the_step_and_the_next_step_works(box: guestbox.Guestbox) -> None:
    start_sleepers(box)
    kill_stepd(box.guests[1], "agent")
    lines = sleepers_end(box)
    assert lines[0].startswith("srun: error: Node failure on vjob12-1: ")
    assert lines[-1] == "code 143"
    assert sorted(run(box, "srun -l -n 2 echo again")) == ["0: again", "1: again"]


def test_a_hub_that_is_killed_ends_its_steps_and_is_started_anew(box: guestbox.Guestbox) -> None:
    start_sleepers(box)
    kill_stepd(box.guests[0], "hub")
    assert sleepers_end(box)[-1] == "code 1"
    guestbox.wait_until(lambda: not any(map(sleeping, box.guests)), what="the tasks end")
    assert sorted(run(box, "srun -l -n 2 echo again")) == ["0: again", "1: again"]


def test_the_hub_talks_to_the_jobs_user_only(box: guestbox.Guestbox) -> None:
    run(box, "srun -n 1 true")
    socket = box.guests[0].run(f"ls -ln {STATE}/stepd.socket").split()
    assert socket[0].startswith("srwx------")
    assert socket[2] == str(guestbox.UID)
    refused = box.guests[0].run(f"{SRUN} -n 1 true 2>&1 || echo refused").splitlines()
    assert refused == ["srun: error: steps can be made by the job's own user only", "refused"]


@pytest.mark.parametrize("signal", ["KILL", "TERM"])
def test_tasks_die_with_their_srun(box: guestbox.Guestbox, signal: str) -> None:
    here = box.guests[0]
    # A task with a child of its own, one of them deaf to SIGTERM.
    task = "trap : TERM; sleep 1234 & while :; do sleep 0.1; done"
    here.run(f"{SRUN} -n 2 sh -c '{task}' >/dev/null 2>&1 & echo $! >/tmp/srun.pid", user=True)
    count = "n=0; for p in /proc/[0-9]*; do grep -q 'sleep.1234' $p/cmdline && n=$((n + 1)); done 2>/dev/null; echo $n"

    def running() -> list[int]:
        # The shell that carries the task's text has the words in its command line, too.
        return [int(guest.run(count)) for guest in box.guests]

    guestbox.wait_until(lambda: all(n >= 2 for n in running()), what="tasks run")
    here.run(f"kill -{signal} $(cat /tmp/srun.pid)")
    guestbox.wait_until(lambda: all(n <= 1 for n in running()), what="tasks are gone")
    assert run(box, "srun -Q -n 4 echo free") == ["free"] * 4


def test_steps_are_numbered(box: guestbox.Guestbox) -> None:
    first, second = (int(srun(box, "-n 1 sh -c 'echo $SLURM_STEP_ID'").splitlines()[0]) for _ in range(2))
    assert second == first + 1


def test_bcast_copies_a_program_that_is_in_one_vm_to_all_and_runs_the_copies(box: guestbox.Guestbox) -> None:
    program = '#!/bin/sh\\necho \\$0 \\$SLURM_NODEID \\"\\$@\\"\\n'
    run(box, f'mkdir -p only; printf "{program}" >only/here; chmod +x only/here')
    assert run(box, "srun -n 2 --bcast=/tmp/copied only/here 'a b' | sort") == [
        "/tmp/copied 0 a b",
        "/tmp/copied 1 a b",
    ]
    [line] = run(box, "PATH=$PATH:/tmp/only; srun -n 1 --bcast=/tmp/ here x")
    place, *rest = line.split()
    assert place.startswith("/tmp/slurm_bcast_12.")
    assert rest == ["0", "x"]
    *_, said, code = run(box, "srun -n 1 --bcast=/no/such/place only/here; echo $?")
    assert (said, code) == ("srun: error: Unable to copy only/here to /no/such/place in all VMs", "1")
    assert "execve(): no-such-command: " in "".join(run(box, "srun -n 1 --bcast=/tmp/x no-such-command"))


def test_an_srun_that_was_started_to_ignore_signals_takes_them_as_slurms_does(box: guestbox.Guestbox) -> None:
    """As a script without job control starts what it puts in the background."""
    script = (
        "rm -f up; (trap '' INT; exec srun -n 1 sh -c 'touch up; exec sleep 60') & srun=$!; "
        "until [ -e up ]; do sleep 0.1; done; kill -INT $srun; sleep 0.3; kill -INT $srun; wait $srun; echo $?"
    )
    lines = run(box, script)
    assert lines[0] == "srun: interrupt (one more within 1 sec to abort)"
    assert lines[-1] == "130"


def test_the_limit_of_a_step_is_slurms_and_srun_says_so_when_slurm_ends_it(box: guestbox.Guestbox) -> None:
    """Slurm's limits are minutes; where it says before that it is over, it is somebody's scancel."""
    step = int(run(box, f"cat {STATE}/steps 2>/dev/null || echo 0")[0])
    until = f"until grep -q 'began {step} ' {STATE}/step-events; do sleep 0.1; done"
    lines = run(
        box,
        f"srun -t 0:02 -n 1 sh -c 'trap \"echo got TERM; exit 0\" TERM; while :; do sleep 0.1; done' & {until}; "
        f"sleep 3; echo step {step} 15 | rmsplugin-guest control; wait $!",
    )
    assert "got TERM" in lines
    assert not any("CANCELLED" in line for line in lines)
    assert f"limit {step} 1" in run(box, f"cat {STATE}/step-events")
