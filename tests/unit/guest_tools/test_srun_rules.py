"""Rules of Slurm's srun that are easily got wrong: each as native Slurm 22.05.8 was seen to do it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from unit import guestbox

pytestmark = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")


@pytest.fixture(scope="module")
def box() -> Iterator[guestbox.Guestbox]:
    """Two VMs of 2 CPUs each."""
    with guestbox.ready("busybox", 2) as made:
        for guest in made.guests:
            # What a user writes lies in his home, which all VMs share.
            guest.run("mkdir -p /home/work && chmod 777 /home/work")
        yield made


def run(box: guestbox.Guestbox, script: str, vm: int = 0) -> list[str]:
    """Lines (both streams) of a script of the user's that finds srun."""
    prelude = "exec 2>&1; cd /home/work; rm -rf ./*; PATH=/run/rmsplugin/bin:$PATH; unset SLURM_HOSTFILE;"
    return box.guests[vm].run(f"{prelude} {script}\n:", user=True).splitlines()


def both(box: guestbox.Guestbox, script: str) -> None:
    """Do that in both VMs, whose directories stand for one that they share."""
    for vm in range(2):
        run(box, script, vm)


FULL = "srun: error: Allocation failure of 1 nodes: job size of 2, already allocated 2 nodes to previous components."
SHOW = "sh -c 'echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS $SLURM_NNODES $SLURM_STEP_TASKS_PER_NODE'"


# ---- several programs: srun a : b ----


def test_each_program_of_a_step_runs_with_its_own_words(box: guestbox.Guestbox) -> None:
    lines = run(box, "srun -l -N 1 -n 1 echo a : -N 1 -n 1 echo b | sort; echo code $?")
    assert lines == ["0: a", "1: b", "code 0"]
    assert run(box, "srun -l -n 2 echo a : -n 2 echo b | sort") == ["0: a", "1: a", "2: b", "3: b"]
    assert run(box, "srun -l -n 1 : -n 1 echo both | sort") == ["0: both", "1: both"]


def test_tasks_of_all_programs_are_numbered_together(box: guestbox.Guestbox) -> None:
    assert sorted(run(box, f"srun -N 1 -n 2 {SHOW} : -n 1 {SHOW}")) == [
        "0 0 0 3 2 2,1",
        "1 1 0 3 2 2,1",
        "2 0 1 3 2 2,1",
    ]
    turned = run(box, f"srun -w vjob12-1 -n 1 {SHOW} : -n 2 {SHOW}")
    assert sorted(turned) == ["0 0 0 3 2 2,1", "1 0 1 3 2 2,1", "2 1 1 3 2 2,1"]
    hosts = run(box, "srun -l -w vjob12-1 -n 1 hostname : -n 2 hostname")
    assert sorted(hosts) == ["0: vjob12-1", "1: vjob12-0", "2: vjob12-0"]


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        ("-n 1 sh -c 'exit 3' : -n 1 sh -c 'exit 5'", "srun: error: vjob12-1: task 0: Exited with exit code 5", 5),
        ("-n 1 sh -c 'exit 7' : -n 1 true", "srun: error: vjob12-0: task 0: Exited with exit code 7", 7),
        ("-n 1 echo a :", "srun: fatal: No command given to execute.", 1),
        ("-n 1 echo a : -n 1", "srun: fatal: No command given to execute.", 1),
        (
            "-n 1 echo a : -n 1 echo b : -n 1 echo c",
            FULL,
            1,
        ),
        (
            "-n 3 echo a : -n 1 echo b",
            FULL,
            1,
        ),
        (
            "-n 1 --multi-prog /etc/passwd : -n 1 echo b",
            "srun: fatal: --multi-prog option not supported with multiple het groups",
            1,
        ),
    ],
)
def test_several_programs_end_with_the_highest_code_or_are_refused(
    box: guestbox.Guestbox, words: str, said: str, code: int
) -> None:
    lines = run(box, f"srun {words}; echo code $?")
    assert said in lines
    assert lines[-1] == f"code {code}"


def test_options_of_files_and_directories_go_on_for_the_next_program(box: guestbox.Guestbox) -> None:
    assert run(box, "srun -D /tmp -n 1 pwd : -n 1 pwd") == ["/tmp"] * 2
    assert sorted(run(box, "srun -o one -n 1 echo a : -n 1 echo b; cat one")) == ["a", "b"]
    assert sorted(run(box, "srun -n 1 echo a : -n 1 -o two echo b; echo .; cat two")) == [".", "a", "b"]
    assert run(box, "echo in | srun -l -n 1 cat : -n 1 cat") == ["0: in"]
    both(box, "true")
    run(box, "srun -N 1 -n 1 -o c%t.%n echo a : -N 1 -n 1 echo b")
    names = [box.guests[vm].run("cd /home/work; grep . c*").strip() for vm in range(2)]
    assert names == ["a", "b"]
    assert [box.guests[vm].run("ls /home/work").strip() for vm in range(2)] == ["c0.0", "c1.0"]


def test_a_colon_within_a_word_separates_nothing(box: guestbox.Guestbox) -> None:
    assert run(box, "srun -Q -n 1 echo a :b c: '' ::") == ["a :b c:  ::"]


# ---- patterns of files ----

TASKS = [f"{n}" for n in range(2)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("%A_%a", ["12_4294967294"]),
        ("%%", ["%"]),
        ("%%t", ["%t"]),
        ("%%%t", ["%0", "%1"]),
        ("%%%%", ["%%"]),
        ("%3t.%%", ["000.%", "001.%"]),
        ("%12j", ["0000000012"]),
        ("%12t", ["0000000000", "0000000001"]),
        ("%05t", ["00000", "00001"]),
        ("%t%t", ["00", "11"]),
        ("%t-%j", ["0-12", "1-12"]),
        ("%j-%t", ["12-0", "12-1"]),
        ("%n", ["0"]),
        ("%4n", ["0000"]),
        ("%N", ["vjob12-0"]),
        ("%5N", ["vjob12-0"]),
        ("%x", ["the job"]),
        ("%5x", ["the job"]),
        ("a\\%t", ["a%t"]),
        ("a\\\\%t", ["a%t"]),
        ("%q", ["%q"]),
        ("%", ["%"]),
        ("x%", ["x%"]),
        ("%%j", ["%j"]),
        ("7", ["7"]),
        ("1x", ["1x"]),
        ("%b%T%-5t", ["%b%T%-5t"]),
    ],
)
def test_names_of_files_are_slurms(box: guestbox.Guestbox, pattern: str, names: list[str]) -> None:
    before = "unset SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID; export SLURM_JOB_NAME='the job';"
    lines = run(box, f"{before} srun -J other -N 1 -n 2 -o '{pattern}' echo x; ls -A")
    assert lines == names


def test_names_of_files_know_the_step_and_its_array(box: guestbox.Guestbox) -> None:
    array = "export SLURM_ARRAY_JOB_ID=9 SLURM_ARRAY_TASK_ID=4;"
    lines = run(box, f"{array} srun -Q -n 1 -o 'o-%A_%a' -e 'e-%4A_%3a' sh -c 'echo x; echo y >&2'; ls; cat *")
    assert lines == ["e-0009_004", "o-9_4", "y", "x"]
    step, *files = run(box, "srun -Q -n 1 -o '%J.%s' sh -c 'echo $SLURM_STEP_ID'; cat *; ls")
    assert files == [f"12.{step}.{step}"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("all", ["0: x", "1: x"]),
        ("allx", ["0: x", "1: x"]),
        ("-x", ["0: x", "1: x"]),
        ("NONE", []),
        ("1", ["1: x"]),
        ("+1", ["1: x"]),
        ("", ["0: x"]),
    ],
)
def test_words_of_srun_are_no_names_of_files(box: guestbox.Guestbox, name: str, lines: list[str]) -> None:
    assert run(box, f"srun -l -N 1 -n 2 --output='{name}' echo x | sort; ls -A") == lines


# ---- --multi-prog ----


@pytest.mark.parametrize(
    ("file", "options", "expected"),
    [
        (
            "# c\n0  echo  'one  two' \\\n   three %t\n*  echo rest %o %%x %q %\n",
            "-n 2",
            ["0: one  two  three 0 more words", "1: rest 1 x   more words"],
        ),
        (
            "0-1 echo %t %o\n2,3 echo %t:%o\n",
            "-n 4",
            [f"{n}: {n}{':' if n > 1 else ' '}{n % 2} more words" for n in range(4)],
        ),
        ("3 echo r\n0-2 echo s\n", "-n 4", [f"{n}: {'r' if n == 3 else 's'} more words" for n in range(4)]),
        ("0-3 echo all\n", "", [f"{n}: all more words" for n in range(4)]),
        (
            "0 echo \"a b\" 'c d'e f\\ g 'x\\y'\n1 echo x\n",
            "-n 2",
            ['0: "a b" c de f g x\\y more words', "1: x more words"],
        ),
        ("  0 echo lead\n\n\t# c\n1 echo tab\t2\n", "-n 2", ["0: lead more words", "1: tab 2 more words"]),
        ("0,,1 echo x%o\n", "-n 2", ["0: x0 more words", "1: x1 more words"]),
        ("0 echo a\r\n1 echo b\r\n", "-n 2", ["0: a more words", "1: b more words"]),
        ("0,2 echo x%o\n1,3 echo y%o\n", "-n 4", [f"{n}: {'xy'[n % 2]}{n // 2} more words" for n in range(4)]),
        ("0 echo no newline\n1 echo end", "-n 2", ["0: no newline more words", "1: end more words"]),
        ("0 echo %t%o%%t '' a\\\n#b\n1 true\n", "-n 2", ["0: 00t  a#b more words"]),
        ("# c \\\n0 echo comment\n0-1 echo x\n", "-n 2", ["0: x more words", "1: x more words"]),
    ],
)
def test_files_of_several_programs_are_read_as_slurm_does(
    box: guestbox.Guestbox, file: str, options: str, expected: list[str]
) -> None:
    box.guests[0].run(f"cat >/tmp/programs <<'END'\n{file}\nEND")
    if not file.endswith("\n"):
        box.guests[0].run('printf %s "$(cat /tmp/programs)" >/tmp/whole; mv /tmp/whole /tmp/programs')
    assert run(box, f"srun -l {options} --multi-prog /tmp/programs more words 2>&1 | sort") == expected


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("0-9 echo r", ["Invalid task id, 9 >= ntasks", "Line 1 of configuration file f invalid"]),
        (
            "* echo s\n0 echo r",
            ["Task range specification with asterisk must be last", "Line 2 of configuration file f invalid"],
        ),
        ("0 echo a\n0 echo b\n1 echo c", ["Duplicate record for task 0", "Line 2 of configuration file f invalid"]),
        ("0\n1 true", ["Line 1 of configuration file f invalid"]),
        ("0 \n1 true", ["Line 1 of configuration file f invalid"]),
        ("1-0 echo x", ["Invalid task range, 1-0", "Line 1 of configuration file f invalid"]),
        ("0-x echo x", ["Invalid task range specification", "Line 1 of configuration file f invalid"]),
        ("x echo x", ["Invalid task range specification (x)", "Line 1 of configuration file f invalid"]),
        ("", ["Configuration file f invalid, no record for task id 0"]),
        ("0 true", ["Configuration file f invalid, no record for task id 1"]),
    ],
)
def test_files_of_several_programs_are_refused_in_slurms_words(
    box: guestbox.Guestbox, file: str, said: list[str]
) -> None:
    lines = run(box, f"cat >f <<'END'\n{file}\nEND\nsrun -n 2 --multi-prog f; echo code $?")
    assert lines == [*(f"srun: error: {line}" for line in said), "code 1"]


# ---- distributions ----

PLACED = "sh -c 'echo $SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $SLURM_DISTRIBUTION ${SLURM_DIST_PLANESIZE-}'"


@pytest.mark.parametrize(
    ("options", "nodes", "told"),
    [
        ("-n 4", "0011", "block"),
        ("-n 2", "01", "cyclic"),
        ("-n 4 -m block", "0011", "block"),
        ("-n 4 -m cyclic", "0101", "cyclic"),
        ("-n 4 -m plane=1", "0101", "plane 1"),
        ("-n 4 -m plane=2", "0011", "plane 2"),
        ("-n 4 -m plane=3", "0011", "plane 3"),
        ("-n 3 -m PLANE=2", "001", "plane 2"),
        ("-n 7 -O -m plane=2", "0011001", "plane 2"),
        ("-n 7 -O -m pack", "0000111", "block,pack"),
        ("-n 7 -O -m cyclic", "0101010", "cyclic"),
        ("-n 7 -O", "0000111", "block"),
        ("-n 4 -m block:cyclic", "0011", "block:cyclic"),
        ("-n 4 -m cyclic:block:fcyclic", "0101", "cyclic:block:fcyclic"),
        ("-n 4 -m '*:*:*'", "0011", "block:cyclic:cyclic"),
        ("-n 3 -m block:block,Pack", "001", "block:block,pack"),
        ("-n 4 -m block,", "0011", "block"),
        ("-m arbitrary -w vjob12-0,vjob12-1,vjob12-0", "010", "arbitrary"),
        ("-m hostfile -w vjob12-1,vjob12-0 -n 2", "10", "arbitrary"),
    ],
)
def test_tasks_are_distributed_as_slurm_does(box: guestbox.Guestbox, options: str, nodes: str, told: str) -> None:
    lines = sorted(run(box, f"unset SLURM_DIST_PLANESIZE; srun -Q {options} {PLACED}"))
    assert "".join(line.split()[1] for line in lines) == nodes
    assert {" ".join(line.split()[3:]) for line in lines} == {told}


def test_the_jobs_own_distribution_is_obeyed(box: guestbox.Guestbox) -> None:
    def nodes(before: str, options: str = "-n 4") -> str:
        return "".join(line.split()[1] for line in sorted(run(box, f"{before} srun -Q {options} {PLACED}")))

    assert nodes("SLURM_DISTRIBUTION=plane SLURM_DIST_PLANESIZE=1") == "0101"
    assert nodes("SLURM_DISTRIBUTION=block,pack") == "0011"
    hosts = "printf '# c\\nvjob12-1\\nvjob12-0 # x\\n\\nvjob12-1\\n' >hosts; SLURM_HOSTFILE=hosts"
    assert nodes(hosts, "-n 3") == "101"
    assert nodes(hosts, "-n 2") == "10"
    assert nodes("printf 'vjob12-1*2\\nvjob12-0\\n' >hosts; SLURM_HOSTFILE=hosts", "-n 3") == "110"


@pytest.mark.parametrize("options", ["-m plane", "-m plane=0", "-m plane=x", "-m bogus", "-m block:bogus", "-m ,pack"])
def test_what_is_no_distribution_is_refused_with_slurms_code(box: guestbox.Guestbox, options: str) -> None:
    lines = run(box, f"unset SLURM_DIST_PLANESIZE; srun -n 1 {options} true; echo code $?")
    assert lines[-2:] == ["srun: error: Invalid --distribution specification", "code 255"]


def test_lists_of_places_have_as_many_as_there_are_tasks(box: guestbox.Guestbox) -> None:
    lines = run(box, "srun -m arbitrary -w vjob12-0 -n 2 true; echo code $?")
    assert lines == ["srun: error: You asked for 2 tasks but hostlist specified 1 nodes", "code 1"]
    assert run(box, "echo vjob12-0 >h; SLURM_HOSTFILE=h srun -n 2 true; echo code $?") == [
        "srun: error: Too few NodeNames in Slurm Hostfile",
        "srun: error: Failure getting NodeNames from hostfile",
        "code 1",
    ]


# ---- options ----


def test_options_that_ask_for_nothing_are_taken(box: guestbox.Guestbox) -> None:
    words = (
        "--gres=none --gres=gpu:0 --gpus=0 --gpus-per-node=0 --gpus-per-task=0 --resv-ports=0 --resv-ports --whole "
        "--epilog=none --prolog=none --mail-type=END --mail-user=me -d singleton --dependency=afterok:1 -E -H --hold "
        "--licenses=x -L x --reboot --bb=x --power=x --mcs-label=x --gpu-bind=none --bcast-exclude=none --prefer=x "
        "--oom-kill-step=0 -b now"
    )
    assert run(box, f"srun -n 1 {words} echo works") == [
        "srun: error: --begin is ignored because nodes are already allocated.", "works",
    ]  # fmt: skip
    assert run(box, "SLURM_GRES=none SLURM_GPUS=0 srun -n 1 echo works") == ["works"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--gres=gpu:1", "--gres is not possible inside a vjob: VMs have no generic resources"),
        ("--gpus=1", "--gpus is not possible inside a vjob: VMs have no GPUs"),
        ("--gpus-per-task=a100:2", "--gpus is not possible inside a vjob: VMs have no GPUs"),
        ("--resv-ports=2", "--resv-ports is not possible inside a vjob: VMs have no reserved ports"),
        ("--epilog=/bin/true", "--epilog is not possible inside a vjob: run it in the script, after srun"),
        ("--whole --exact", "--exact and --whole are mutually exclusive."),
        ("-r 0 -w vjob12-0", "-r,--relative not allowed with -w,--nodelist or -x,--exclude."),
    ],
)
def test_options_that_ask_for_something_are_refused(box: guestbox.Guestbox, words: str, said: str) -> None:
    first, code = run(box, f"srun -n 1 {words} true; echo code $?")
    assert first.startswith(f"srun: error: {said}")
    assert code == "code 1"


def test_counts_in_the_environment_stay_with_preserve_env(box: guestbox.Guestbox) -> None:
    assert run(box, "SLURM_NTASKS=3 SLURM_NNODES=7 srun -N 1 -n 1 -E sh -c 'echo $SLURM_NTASKS $SLURM_NNODES'") == [
        "3 7"
    ]


def test_tasks_per_node_of_the_job_are_no_matter_for_a_smaller_step(box: guestbox.Guestbox) -> None:
    job = "export SLURM_NTASKS=4 SLURM_NNODES=2 SLURM_NTASKS_PER_NODE=2;"
    assert run(box, f"{job} srun -N 1 -n 1 echo one; srun -N 1 -n 2 echo two") == ["one", "two", "two"]
    assert run(box, f"{job} srun -O -N 1 -n 3 true") == [
        "srun: Warning: can't honor --ntasks-per-node set to 2 which doesn't match the requested tasks 3 with the "
        "number of requested nodes 1. Ignoring --ntasks-per-node."
    ]


def test_errors_of_srun_have_the_code_that_the_user_wants(box: guestbox.Guestbox) -> None:
    for words in ("-n 99 true", "-w no-such true", "-N 3 -n 3 true", "-n 1 -o /no/dir/x true"):
        assert run(box, f"SLURM_EXIT_ERROR=17 srun {words}; echo code $?")[-1] == "code 17", words
    assert run(box, "SLURM_EXIT_ERROR=17 srun --bogus true; echo code $?")[-1] == "code 255"
    assert run(box, "SLURM_EXIT_ERROR=17 srun -n 1 false; echo code $?")[-1] == "code 1"
    assert run(box, "srun -t bogus true; echo code $?")[-1] == "code 255"


def test_verbose_says_which_nodes_and_tasks(box: guestbox.Guestbox) -> None:
    lines = run(box, "srun -v -n 4 true")
    assert lines[0] == "srun: jobid 12: nodes(2):`vjob12-[0-1]', cpu counts: 2(x2)"
    assert [line.split(" on host ")[1] for line in lines if "launching" in line] == [
        "vjob12-0, 2 tasks: [0-1]",
        "vjob12-1, 2 tasks: [2-3]",
    ]


# ---- where a program is found ----


def test_programs_are_found_where_slurm_finds_them(box: guestbox.Guestbox) -> None:
    make = "mkdir -p sub other/sub; for f in prog sub/prog other/sub/prog; do "
    make += "printf '#!/bin/sh\\necho '$f'\\n' >$f; done; chmod +x prog */prog other/sub/prog;"
    for words, found in {
        "prog": "prog",
        "./prog": "prog",
        "sub/prog": "sub/prog",
        ".//sub/prog": "sub/prog",
        "-D sub prog": "sub/prog",
        "--export=NONE prog": "prog",
    }.items():
        assert run(box, f"{make} srun -Q -N 1 -n 1 {words}") == [found], words
    assert run(box, f"{make} PATH=sub:$PATH srun -Q -n 1 prog") == ["sub/prog"]
    assert run(box, f"{make} PATH=$PWD/other:$PATH srun -Q -n 1 sub/prog") == ["other/sub/prog"]
    assert run(box, f"{make} srun=$(command -v srun); env -u PATH $srun -Q -n 1 prog") == ["prog"]


@pytest.mark.parametrize(
    ("make", "program", "said", "code"),
    [
        (
            "printf '#!/bin/sh\\r\\necho\\r\\n' >p; chmod +x p",
            "p",
            "bad interpreter(/bin/sh\r): No such file or directory",
            2,
        ),
        ("printf '#!/no/such -x\\n' >p; chmod +x p", "p", "bad interpreter(/no/such -x): No such file or directory", 2),
        ("echo echo >p; chmod +x p", "p", "p: Exec format error", 8),
        (": >p; chmod +x p", "./p", "/home/work/./p: Exec format error", 8),
        ("echo >p", "p", "p: Permission denied", 13),
        ("mkdir p", "p", "p: Permission denied", 13),
        (":", "p", "p: No such file or directory", 2),
        (":", ".p", "/home/work/.p: No such file or directory", 2),
        ("mkdir d; echo >d/p; PATH=$PWD/d:$PATH", "p", "/home/work/d/p: Permission denied", 13),
    ],
)
def test_a_program_that_cannot_be_run_is_told_in_slurms_words(
    box: guestbox.Guestbox, make: str, program: str, said: str, code: int
) -> None:
    script = f"{make}; srun -N 1 -n 1 {program} >said 2>&1; echo code $?"
    assert run(box, script)[-1] == f"code {code}"
    assert f"slurmstepd-vjob12-0: error: execve(): {said}\n" in box.guests[0].run("cat /home/work/said")


# ---- sbcast ----


@pytest.mark.parametrize(
    "words",
    ["-f f {to}", "f {to} -f", "f -f {to}", "-fpv f {to}", "f {to} --verbose --force -F 4 -s 1k", "-f -- f {to}"],
)
def test_options_of_sbcast_may_stand_anywhere(box: guestbox.Guestbox, words: str) -> None:
    said = run(box, f"echo new >f; echo old >/tmp/cast; sbcast {words.format(to='/tmp/cast')}; echo code $?")
    assert said[-1] == "code 0"
    assert [guest.run("cat /tmp/cast; rm -f /tmp/cast") for guest in box.guests] == ["new\n"] * 2


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        ("f /tmp/there", "sbcast: error: REQUEST_FILE_BCAST(vjob12-0): File exists", 17),
        ("-f f /tmp/adir", "sbcast: error: REQUEST_FILE_BCAST(vjob12-0): Is a directory", 21),
        ("-f f /no/dir/x", "sbcast: error: REQUEST_FILE_BCAST(vjob12-0): No such file or directory", 2),
        ("-f f /etc/x", "sbcast: error: REQUEST_FILE_BCAST(vjob12-0): Permission denied", 13),
        ("missing /tmp/x", "sbcast: error: Can't open `missing`: No such file or directory", 255),
        ("secret /tmp/x", "sbcast: error: Can't open `secret`: Permission denied", 255),
        ("/tmp/adir /tmp/x", "sbcast: error: Can't mmap file `/tmp/adir`, No such device.", 255),
        ("-f empty /tmp/fresh", "sbcast: error: Warning: file `empty` is empty.", 0),
        ("-f f /tmp/", "sbcast: error: Target filename cannot be a directory.", 1),
        ("f", "Need two file names, have 1 names", 1),
        ("a b c", "Need two file names, have 3 names", 1),
        ("--bogus=1 f g", "sbcast: unrecognized option '--bogus'", 1),
        ("-y f g", "sbcast: invalid option -- 'y'", 1),
        ("-j 13 f g", "sbcast: error: inside a vjob, files go to the VMs of its own job, 12", 1),
        ("--jobid=12 -v f /tmp/there", "sbcast: dest       = /tmp/there", 17),
        ("-V", "slurm 22.05.8", 0),
    ],
)
def test_sbcast_ends_with_slurms_words_and_code(box: guestbox.Guestbox, words: str, said: str, code: int) -> None:
    for guest in box.guests:
        guest.run(
            "echo >/tmp/there; mkdir -p /tmp/adir; sed -i s/^slurm_release=.*/slurm_release=22.05.8/"
            " /run/rmsplugin/etc/vjob"
        )
    lines = run(box, f"echo new >f; >empty; >secret; chmod 0 secret; sbcast {words}; echo code $?")
    assert said in lines
    assert lines[-1] == f"code {code}"


def test_sbcast_v_says_what_is_sent_and_where(box: guestbox.Guestbox) -> None:
    script = (
        "echo new >f; chmod 640 f; touch -d '2026-01-02 03:04:05' f; export SLURM_JOB_NODELIST='vjob12-[0-1]' TZ=UTC0;"
    )
    lines = run(box, f"{script} sbcast -fv f /tmp/cast; echo code $?")
    words = [line.removeprefix("sbcast: ").split(maxsplit=2) for line in lines if " = " in line]
    assert " ".join(word[0] for word in words) == (
        "force preserve verbose source dest modes uid gid atime mtime ctime size jobid node_list"
    )
    said = {key: value for key, _equals, value in words}
    assert (said["modes"], said["mtime"], said["size"]) == ("100640", "Fri Jan 02 03:04:05 2026", "4")
    assert (said["jobid"], said["node_list"]) == ("12", "vjob12-[0-1]")
    assert lines[-1] == "code 0"
