"""Slurm's clients called inside a VM: carried out on the front, once, by what the site has there."""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from unit import guestbox
from unit.wrapper.test_wrapper import Bench

pytestmark = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")

BIN = "/run/rmsplugin/bin"
JOB = "/run/rmsplugin/job"
DESK = f"{JOB}/commands"


class Site(Bench):
    """A bench whose front has clients of a few lines, which write down how they were called."""

    def __init__(self, directory: Path, box: guestbox.Guestbox, flavour: str) -> None:
        super().__init__(directory, box, flavour)
        self.calls = directory / "calls"
        self.set_commands("true")
        self.client("sbatch", 'for w; do case $w in /*) test ! -f "$w" || cat "$w"; esac; done; cat')
        self.client("squeue", "cat; echo to stderr >&2; exit 3")

    def set_commands(self, value: str) -> None:
        """The setting, for wrappers that are started from now on."""
        (self.directory / "rmsplugin.toml").write_text(
            f'[engine]\nsocket = "{self.directory}/engine.sock"\n'
            f'[slurm]\nbin_dir = "{self.directory}/bin"\n[guest]\ncommands = {value}\n'
        )

    def client(self, name: str, does: str) -> None:
        """Have a client on the front that does something, after it has written down its arguments."""
        program = self.directory / "bin" / name
        note = f"""printf "%s\\n" "$(printf "<%s>" {name} "$@")" >>{self.calls}"""  # at once: many may run together
        program.write_text(f"#!/bin/sh\n{note}\n{does}\n")
        program.chmod(0o755)

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines()

    def fresh(self) -> None:
        super().fresh()
        self.calls.write_text("")
        self.calls.chmod(0o666)


def _site(flavour: str) -> Iterator[Site]:
    with guestbox.ready(flavour, 1) as box:
        yield Site(box.directory, box, flavour)


@pytest.fixture(scope="module", params=guestbox.FLAVOURS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    yield from _site(request.param)


@pytest.fixture(scope="module")
def small() -> Iterator[Site]:
    yield from _site("busybox")


def test_output_error_and_exit_code_are_those_of_the_sites_client(site: Site) -> None:
    site.client("squeue", r'printf "a\0b\\n"; seq 1 20000; printf no-end; echo "to stderr" >&2; exit 3')
    assert site.run("#!/bin/sh\nsqueue -o '%i %j' \"it's\" '' 'new\nline'\necho \" $?\"\nexit 0\n") == 0
    lines = b"".join(b"%d\n" % n for n in range(1, 20001))
    assert site.out.read_bytes() == b"a\0b\n" + lines + b"no-end 3\n"
    assert site.err.read_bytes() == b"to stderr\n"
    assert site.calls.read_text() == "<squeue><-o><%i %j><it's><><new\nline>\n"


def test_it_runs_where_and_as_it_was_asked_for_with_the_users_variables(site: Site) -> None:
    site.client("sinfo", 'pwd; umask; id -u; env | grep -E "^(SLURM_X|PATH|LD_|SLURM_CONF|RMSPLUGIN_H)" | sort; cat')
    script = (
        "#!/bin/sh\ncd /etc; umask 027; export SLURM_X='a b' LD_LIBRARY_PATH=/l LD_PRELOAD= SLURM_CONF=/x\n"
        f"PATH={BIN}:/opt/x:/bin sinfo </etc/passwd\n"
    )
    assert site.run(script) == 0
    assert site.out.read_text() == f"/etc\n0027\n{guestbox.UID}\nPATH=/opt/x:/bin\nSLURM_X=a b\n"


SCRIPT = "#!/bin/sh\n#SBATCH -n 2\necho it\n"

# What sbatch is called with, and what it is called with on the front: $S is where the script is.
WORDS = [
    ("x.sh", "$S"),
    ("-n 2 x.sh -n 3", "-n|2|$S|-n|3"),
    ("-HQ -n2 --mem=5 --hold --exclusive x.sh x.sh", "-HQ|-n2|--mem=5|--hold|--exclusive|$S|x.sh"),
    ("-Hn 2 --job-name x.sh ./x.sh", "-Hn|2|--job-name|x.sh|$S"),
    ("--parsab --depend afterok:1 -- x.sh", "--parsab|--depend|afterok:1|--|$S"),
    ("found.sh a", "$S|a"),
    ("--wrap 'x.sh a'", "--wrap|x.sh a"),
    ("--wrap='x.sh a' -n 2", "--wrap=x.sh a|-n|2"),
    ("nowhere.sh", "nowhere.sh"),
    ("--help", "--help"),
]


def test_sbatch_finds_a_script_that_lies_in_the_vm_only(site: Site) -> None:
    lines = [f"sbatch {words} <left >got; cat got; cat got >>all; echo =" for words, _ in WORDS]
    text = (
        f"#!/bin/sh\nmkdir -p /tmp/here/bin; cd /tmp/here; PATH=$PATH:/tmp/here/bin; echo left >left\n"
        f"printf '{SCRIPT}' >x.sh; cp x.sh bin/found.sh\n" + "\n".join(lines) + "\n"
    )
    assert site.run(text) == 0
    outputs = site.out.read_text().split("=\n")
    missing = "--chdir=/tmp/here"
    for (words, expected), call, output in zip(WORDS, site.called(), outputs, strict=False):
        found = call.removeprefix("<sbatch><").removesuffix(">").split("><")
        assert found[0] == missing, "there is no such directory on the front"
        assert len(found) - 1 == len(expected.split("|")), (words, call)
        for got, want in zip(found[1:], expected.split("|"), strict=True):
            if want == "$S":
                assert got.endswith(("/x.sh", "/found.sh")), (words, got)
                assert not Path(got).exists(), "nothing is left on the front"
            else:
                assert got == want, words
        assert output == (SCRIPT if "$S" in expected else ""), words
    assert "sbatch: error: couldn't chdir to '/tmp/here': No such file or directory" in site.err.read_text()


def test_sbatch_takes_a_script_from_standard_input_and_leaves_it_alone_otherwise(site: Site) -> None:
    text = (
        "#!/bin/sh\nprintf '#!/bin/sh\\nexit 0\\n' >/tmp/y.sh\n"
        "sbatch -n 1 <<X\n#!/bin/sh\necho heredoc\nX\n"
        "printf 'one\\ntwo\\n' | while read -r w; do sbatch /tmp/y.sh $w >/dev/null; echo $w; done\n"
    )
    assert site.run(text) == 0
    assert site.out.read_text() == "#!/bin/sh\necho heredoc\none\ntwo\n"


def test_sbatch_takes_a_script_from_a_pipe_that_has_a_name(site: Site) -> None:
    """As `sbatch <(...)` of bash gives it."""
    text = (
        "#!/bin/sh\nprintf '#!/bin/sh\\nexit 1\\n' | sbatch /proc/self/fd/0\n"
        "printf '#!/bin/sh\\nexit 2\\n' | (exec 5<&0 </dev/null; sbatch -n 1 /proc/self/fd/5)\n"
    )
    assert site.run(text) == 0
    assert site.out.read_text() == "#!/bin/sh\nexit 1\n#!/bin/sh\nexit 2\n"
    assert [call.rpartition("/")[2] for call in site.called()] == ["0>", "5>"], "named as natively"


def test_what_would_tell_of_the_front_is_refused(small: Site) -> None:
    small.client("scontrol", "echo told")
    text = "#!/bin/sh\nscontrol listpids; echo $?; scontrol show job 12\n"
    assert small.run(text) == 0
    assert small.out.read_text() == "1\ntold\n"
    assert "scontrol: error: listpids is not possible inside a vjob" in small.err.read_text()


def test_a_script_that_submits_itself_has_the_name_that_slurm_gives_it(small: Site) -> None:
    text = '#!/bin/sh\nsbatch "$0" again\n'
    assert small.run(text) == 0
    assert small.out.read_text() == text
    [call] = small.called()
    assert call.endswith("/slurm_script><again>")


def test_a_script_that_is_the_same_on_the_front_keeps_its_path(small: Site) -> None:
    shared = small.directory / "shared.sh"
    shared.write_text(SCRIPT)
    place = shlex.quote(str(shared.parent))
    small.fresh()
    small.guest.run(f"mkdir -p {place} && printf '{SCRIPT}' >{place}/shared.sh && chmod -R a+rX {place}")
    small.guest.run(f"chmod a+rx {small.directory.parent} {place}")
    assert small.run(f"#!/bin/sh\ncd {place}; sbatch shared.sh\n") == 0
    assert small.called() == ["<sbatch><shared.sh>"]


def test_nothing_but_clients_of_slurm_is_started_on_the_front(small: Site) -> None:
    small.client("evil", "echo done")
    text = f"#!/bin/sh\nln -s {BIN}/slurm-client /tmp/evil; /tmp/evil; echo $?; salloc; echo $?; scrontab -e; echo $?\n"
    assert small.run(text) == 0
    assert small.out.read_text() == "1\n1\n1\n"
    errors = small.err.read_text()
    assert "no client of Slurm's" in errors
    assert "salloc: error: not inside a vjob" in errors
    assert small.called() == []


def test_a_client_that_the_site_lacks_is_named(small: Site) -> None:
    assert small.run("#!/bin/sh\nsprio\n") == 1
    assert small.err.read_text() == "sprio: error: sprio is not installed on this front\n"


@pytest.fixture
def older(small: Site) -> Iterator[Site]:
    """A site whose VM has tools that know answers as a whole only, and say nothing of parts."""
    program = (
        "#!/bin/sh\n"
        f'[ "$1" = serve ] || exec {BIN}/vjob-tools commands "$@"\n'
        f'{BIN}/vjob-tools commands "$@" | {{ read -r parts && [ "$parts" = parts ] && exec cat; }}\n'
    )
    place = shlex.quote(f"{BIN}/commands")
    small.guest.run(f"mv {place} {BIN}/newer && printf %s {shlex.quote(program)} >{place} && chmod 755 {place}")
    yield small
    small.guest.run(f"mv {BIN}/newer {BIN}/commands")


def test_a_vm_of_an_older_release_has_answers_whole(older: Site) -> None:
    older.client("squeue", "echo one; sleep 1; echo two; echo to stderr >&2; exit 3")
    assert older.run("#!/bin/sh\nsqueue; echo $?\n") == 0
    assert (older.out.read_text(), older.err.read_text()) == ("one\ntwo\n3\n", "to stderr\n")


def test_more_output_than_a_vm_of_an_older_release_can_take_is_cut_off_and_told(older: Site) -> None:
    older.client("sacct", "yes")
    assert older.run("#!/bin/sh\nsacct | wc -c; sacct >/dev/null\n") == 1
    assert 16 << 20 <= int(older.out.read_text()) < 17 << 20
    assert older.err.read_text().count("sacct: error: the output was cut off after 16 MiB\n") == 2


def test_output_of_any_size_comes_whole(small: Site) -> None:
    small.client("sacct", "seq 4000000; seq 300000 >&2")
    assert small.run("#!/bin/sh\n{ sacct | md5sum; } 2>&1 >/tmp/sum | md5sum; cat /tmp/sum\n") == 0
    sums = [hashlib.md5(b"".join(b"%d\n" % n for n in range(1, last + 1))).hexdigest() for last in (300000, 4000000)]
    assert [line.split()[0] for line in small.out.read_text().splitlines()] == sums


def talking(site: Site) -> None:
    """A client that prints on both streams, and the rest once the file `go` is there."""
    (site.directory / "go").unlink(missing_ok=True)
    site.client(
        "sbatch",
        f"echo Submitted; echo waits >&2; until test -e {site.directory}/go; do sleep 0.1; done; echo ended; exit 5",
    )


def test_what_a_client_prints_is_there_while_it_runs(site: Site) -> None:
    site.fresh()
    talking(site)
    site.script("#!/bin/sh\nsbatch --wait; echo $?\n")
    process = site.start()
    guestbox.wait_until(lambda: site.out.read_text() == "Submitted\n", what="the first line")
    guestbox.wait_until(lambda: site.err.read_text() == "waits\n", what="standard error")
    (site.directory / "go").touch()
    assert process.wait(PATIENCE_S) == 0
    assert (site.out.read_text(), site.err.read_text()) == ("Submitted\nended\n5\n", "waits\n")
    assert site.guest.run(f"ls -A {DESK}").split() == ["wake"]


def test_in_another_vm_too(site: Site) -> None:
    site.fresh()
    talking(site)
    # This VM now takes itself for the second one, though it is the first.
    site.guest.run("sed -i 's/^index=.*/index=1/' /run/rmsplugin/etc/vjob")
    try:
        site.script("#!/bin/sh\nsbatch --wait; echo $?\n")
        process = site.start()
        guestbox.wait_until(lambda: site.out.read_text() == "Submitted\n", what="the first line")
        (site.directory / "go").touch()
        assert process.wait(PATIENCE_S) == 0
    finally:
        site.guest.run("sed -i 's/^index=.*/index=0/' /run/rmsplugin/etc/vjob")
    assert (site.out.read_text(), site.err.read_text()) == ("Submitted\nended\n5\n", "waits\n")
    assert site.guest.run(f"ls -A {DESK}").split() == ["wake"]


def counting(site: Site, pause_s: str) -> Path:
    """A client that prints numbers; the file has how far it is."""
    count = site.directory / "count"
    count.write_text("0")
    count.chmod(0o666)
    site.client("squeue", f"i=0; while :; do i=$((i + 1)); echo $i; echo $i >{count}; sleep {pause_s}; done")
    return count


#: In a guest: wait until nobody's request or answer lies on the desk any more.
TIDY = f'until test "$(ls -A {DESK})" = wake; do sleep 0.1; done'


def running(word: str) -> bool:
    """Whether a client of a site runs on this machine."""
    return any(
        word.encode() in path.read_bytes().split(b"\0")
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.parent.exists()
    )


def test_a_client_whose_reader_is_gone_ends(site: Site) -> None:
    counting(site, "0.2")
    program = str(site.directory / "bin" / "squeue")
    assert site.run(f"#!/bin/sh\n{{ squeue; echo $? >/tmp/code; }} | head -n 2; cat /tmp/code\n{TIDY}\n") == 0
    assert site.out.read_text() == "1\n2\n141\n"
    guestbox.wait_until(lambda: not running(program), "its end on the front")


def test_a_client_whose_asker_was_killed_ends(site: Site) -> None:
    counting(site, "0.2")
    program = str(site.directory / "bin" / "squeue")
    text = f"squeue >/tmp/numbers & until test -s /tmp/numbers; do sleep 0.1; done; kill -9 $!; {TIDY}"
    assert site.run(f"#!/bin/sh\n{text}\n") == 0
    assert site.out.read_text() == ""
    guestbox.wait_until(lambda: not running(program), "its end on the front")


def test_a_client_whose_asker_was_killed_while_it_printed_ends(site: Site) -> None:
    site.client("squeue", "exec yes")
    text = (
        "rm -f /tmp/full; mkfifo /tmp/full; sleep 1000 </tmp/full & still=$!; squeue >/tmp/full & "
        f"until ls {DESK}/*.taken/answer.1 >/tmp/seen 2>&1; do sleep 0.1; done; kill -9 $!; {TIDY}; kill $still"
    )
    assert site.run(f"#!/bin/sh\n{text}\n") == 0


def test_a_reader_that_stands_still_holds_up_its_client_and_nothing_else(site: Site) -> None:
    site.fresh()
    site.guest.run("rm -f /tmp/go")
    large = site.directory / "large"
    site.client("sacct", f"head -c 30000000 /dev/zero; echo done >{large}")
    site.client("squeue", "echo others")
    large.write_text("")
    large.chmod(0o666)
    site.script(
        "#!/bin/sh\nsacct | (until test -e /tmp/go; do sleep 0.1; done; wc -c) &\n"
        "sleep 2; squeue; timeout 2 sacct | (sleep 3; wc -c >/dev/null; echo still); kill -0 $! && echo reads; wait\n"
    )
    process = site.start()
    guestbox.wait_until(lambda: site.out.read_text() == "others\nstill\nreads\n", what="what others print")
    assert large.read_text() == ""
    # A part of each of the two clients at most, of 1 MiB and what was read last: the killed one's goes a moment later.
    held = site.guest.run(f"cat {DESK}/*.taken/answer.* | wc -c")
    assert int(held) < 3 << 20
    site.guest.run("touch /tmp/go")
    assert process.wait(PATIENCE_S) == 0
    assert site.out.read_text() == "others\nstill\nreads\n30000000\n"
    assert large.read_text() == "done\n"


def test_parts_come_once_and_in_order_over_connections_that_break(site: Site) -> None:
    site.fresh()
    site.client("squeue", "for i in $(seq 100); do echo $i; sleep 0.05; done")
    site.script("#!/bin/sh\nsqueue; echo $?\n")
    process = site.start()
    for lines in (5, 40, 70):
        guestbox.wait_until(lambda lines=lines: site.out.read_text().count("\n") >= lines)  # type: ignore[misc]
        site.guest.signal_servers(guestbox.signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 0
    assert site.out.read_text().split() == [*(str(i) for i in range(1, 101)), "0"]


def test_a_wrapper_that_dies_leaves_what_came_and_says_that_the_rest_is_lost(site: Site) -> None:
    site.fresh()
    talking(site)
    site.script("#!/bin/sh\nsbatch --wait; echo $?\n")
    first = site.start()
    guestbox.wait_until(lambda: site.out.read_text() == "Submitted\n", what="the first line")
    first.kill()
    first.wait()
    assert site.start().wait(PATIENCE_S) == 0
    assert site.out.read_text() == "Submitted\n1\n"
    assert "the command may have been carried out, or not" in site.err.read_text()


def asked(then: str) -> str:
    """Lines of a script in the guest: squeue is asked for, `wrapper NUMBER` answers as a wrapper would."""
    return f"""
        : >/tmp/said
        ({BIN}/squeue >>/tmp/said 2>&1; echo $? >>/tmp/said) &
        until test -e {DESK}/*.new/client; do sleep 0.1; done
        id=$(basename {DESK}/*.new .new)
        mkfifo {DESK}/wake; exec 3<>{DESK}/wake
        mv {DESK}/$id.new {DESK}/$id.taken
        part() {{ printf '%s 2 0\n%s\n' "$2" "$1" | {BIN}/commands answer $id $1; }}
        {then}
        wait; cat /tmp/said
    """


def test_a_part_that_comes_again_is_not_printed_again_and_told_again(site: Site) -> None:
    site.fresh()
    told = "read -r verb _ number <&3; echo $verb $number"
    text = asked(f"part 1 -; {told}; part 1 -; {told}; part 2 -; {told}; part 1 -; {told}; part 3 7")
    assert site.guest.run(text, user=True).splitlines() == ["more 1", "more 1", "more 2", "more 2", "1", "2", "3", "7"]


def test_a_vm_that_went_back_says_so_where_a_part_does_not_follow(site: Site) -> None:
    site.fresh()
    text = asked("part 1 -; read -r verb _ <&3; part 3 -; read -r verb _ <&3; echo $verb")
    said = site.guest.run(text, user=True).splitlines()
    assert said[:2] == ["cancel", "1"]
    assert "the command may have been carried out, or not" in said[2]
    assert said[3:] == ["1"]


def test_who_went_while_the_connection_was_broken_is_told_of(site: Site) -> None:
    site.fresh()
    gone = f"kill -9 $(cat {DESK}/$id.taken/client); until grep -q 137 /tmp/said; do sleep 0.1; done"
    text = asked(f"{gone}; echo same $id; {BIN}/commands serve $id </dev/null")
    lines = site.guest.run(text, user=True).splitlines()
    assert lines[1:3] == ["parts", lines[0].replace("same", "cancel")]


def test_a_part_that_did_not_come_whole_is_not_kept(site: Site) -> None:
    site.fresh()
    half = f"printf '-%s' ' 2 0\n1' | {BIN}/commands answer $id 1 || echo $?; ls -A {DESK}/$id.taken"
    text = asked(f"{half}; part 1 -; read -r verb _ number <&3; echo $verb $number; part 2 7")
    assert site.guest.run(text, user=True).split() == ["1", "client", "request", "wake", "more", "1", "1", "2", "7"]


def test_a_line_that_comes_in_pieces_is_obeyed_when_it_is_whole_and_an_endless_one_is_left_out(small: Site) -> None:
    small.fresh()
    lines = "printf 'take 1-'; sleep 0.3; printf '2'; sleep 0.3; printf '\ntake 3-4\ntake '; sleep 0.3; echo 5-6"
    long = "echo take $(seq 1000); echo take 7-8; printf 'take 9-9'"
    said = small.guest.run(f"{{ {lines}; {long}; }} | {BIN}/commands serve", user=True).splitlines()
    assert said == ["parts", "gone 1-2", "gone 3-4", "gone 5-6", "gone 7-8"]


def test_what_others_tell_is_passed_on_while_the_wrapper_says_nothing(small: Site) -> None:
    small.fresh()
    small.guest.run("rm -f /tmp/said")
    tell = f"until test -s /tmp/said; do sleep 0.1; done; printf 'new 1-2\nmore 1-2 3\nno 1-2\n' 1<>{DESK}/wake"
    heard = "until grep -q more /tmp/said; do sleep 0.1; done"
    small.guest.run(f"{{ {tell}; {heard}; }} | {BIN}/commands serve >/tmp/said; cat /tmp/said", user=True)
    assert small.guest.run("cat /tmp/said").splitlines() == ["parts", "new 1-2", "more 1-2 3"]


def test_requests_are_told_of_in_the_order_in_which_they_came(small: Site) -> None:
    small.fresh()
    made = f"mkdir -p {DESK}/12-3.new {DESK}/10-7.new {DESK}/.10-8.new {DESK}/11-3.taken {DESK}/11-1.new"
    said = small.guest.run(f"{made}; {BIN}/commands serve 11-3 </dev/null; rm -r {DESK}", user=True)
    assert said.splitlines() == ["parts", "cancel 11-3", "new 10-7", "new 11-1", "new 12-3"]


def test_a_name_that_is_no_requests_leads_nowhere(small: Site) -> None:
    small.fresh()
    text = f"""
        mkdir -p {DESK}/../x.new {DESK}/../x.taken {DESK}/.new; echo $$ >{DESK}/../x.new/client
        : >{DESK}/../x.new/request
        printf 'take ../x\ntake\ntake .\n' | {BIN}/commands serve ../x:again
        printf '0 0 0\n' | {BIN}/commands answer ../x 2>/dev/null || echo $?
        cd {DESK}/..; ls -A -d x.new/* x.taken commands/.new; rm -r x.new x.taken commands
    """
    said = small.guest.run(text, user=True).splitlines()
    assert said[:5] == ["parts", "gone ../x", "gone ", "gone .", "2"]
    assert sorted(said[5:]) == ["commands/.new", "x.new/client", "x.new/request", "x.taken"]


def test_a_pipe_that_is_full_or_that_nobody_reads_holds_up_no_answer(small: Site) -> None:
    small.fresh()
    text = f"""
        place={DESK}/1-2.taken; mkdir -p $place; mkfifo $place/wake; exec 3<>$place/wake
        sleep 10 & echo $! >$place/client
        timeout 1 dd if=/dev/zero of=$place/wake bs=4096 2>/dev/null
        printf '0 1 0\nx' | timeout 5 {BIN}/commands answer 1-2; echo $?; cat $place/answer; echo
        kill $!; wait; exec 3>&-
        printf -- '- 1 0\nx' | timeout 5 {BIN}/commands answer 1-2 1; echo $?; ls -A {DESK}
    """
    assert small.guest.run(text, user=True).splitlines() == ["0", "0 1 0", "x", "0"]


@pytest.fixture
def crowded(small: Site) -> Iterator[Site]:
    """A site whose VM has little room for the job's files, and keeps the exit statuses of `commands answer`."""
    small.fresh()
    program = (
        "#!/bin/sh\n"
        f'[ "$1" = answer ] || exec {BIN}/vjob-tools commands "$@"\n'
        f'{BIN}/vjob-tools commands "$@"; status=$?; echo $status >>/tmp/statuses; exit $status\n'
    )
    place = shlex.quote(f"{BIN}/commands")
    small.guest.run(
        f"mv {place} {BIN}/ours && printf %s {shlex.quote(program)} >{place} && chmod 755 {place} && "
        f": >/tmp/statuses && chmod 666 /tmp/statuses && "
        f"mount -t tmpfs -o size=1m,nr_inodes=60,mode=700,uid={guestbox.UID} small {JOB}/."
    )
    yield small
    small.guest.run(f"umount -l {JOB}/. && mv {BIN}/ours {BIN}/commands")


def statuses(site: Site) -> list[str]:
    return site.guest.run("cat /tmp/statuses").split()


def test_an_answer_comes_when_the_vm_has_room_for_it_again_over_the_same_connection(crowded: Site) -> None:
    go = crowded.directory / "go"
    go.unlink(missing_ok=True)
    crowded.client("squeue", f"until test -e {go}; do sleep 0.1; done; seq 100000; exit 3")
    crowded.script("#!/bin/sh\nsqueue >/tmp/answer; echo $?; md5sum </tmp/answer\n")
    process = crowded.start()
    guestbox.wait_until(lambda: len(crowded.called()) == 1, what="the client is started")
    crowded.guest.run(f"dd if=/dev/zero of={JOB}/fill bs=1k 2>/dev/null || :", user=True)
    go.touch()
    guestbox.wait_until(lambda: "1" in statuses(crowded), what="there is no room")
    crowded.guest.run(f"rm {JOB}/fill")
    assert process.wait(PATIENCE_S) == 0
    whole = b"".join(b"%d\n" % n for n in range(1, 100001))
    assert crowded.out.read_text().split()[:2] == ["3", hashlib.md5(whole).hexdigest()]
    assert statuses(crowded)[-1] == "0"
    assert crowded.engine.names().count("access") == 1
    assert len(crowded.called()) == 1


ASKED = f"place={DESK}/1-2.taken; mkdir -p $place; sleep 30 & echo $! >$place/client"


def test_an_answer_for_which_there_is_no_room_is_read_to_its_end_and_told(crowded: Site) -> None:
    send = "{ printf '0 4000000 0\n'; head -c 4000000 /dev/zero; echo sent $? >&2; } 2>/tmp/sent"
    text = f"{ASKED}; {send} | {BIN}/commands answer 1-2; cat /tmp/sent; ls -A $place; kill $!"
    assert crowded.guest.run(text, user=True).split() == ["sent", "0", "client"]
    assert statuses(crowded) == ["1"]


def test_an_answer_that_cannot_be_given_its_name_is_told(crowded: Site) -> None:
    fill = f"i=0; while touch {JOB}/fill.$i; do i=$((i + 1)); done 2>/dev/null; rm {JOB}/fill.0"  # one inode is left
    answer = f"printf '0 1 0\nx' | {BIN}/commands answer 1-2; ls -A $place"
    text = f"{ASKED}; {fill}; {answer}; rm {JOB}/fill.*; {answer}; kill $!"
    assert crowded.guest.run(text, user=True).split() == ["client", "answer", "client"]
    assert statuses(crowded) == ["1", "0"]


def test_an_answer_for_which_there_is_no_room_is_dropped_when_nobody_asks_any_more(crowded: Site) -> None:
    text = f"{ASKED}; kill $!; wait; head -c 4000000 /dev/zero | {BIN}/commands answer 1-2; ls -A {DESK}"
    assert crowded.guest.run(text, user=True) == ""
    assert statuses(crowded) == ["0"]


def slow(site: Site) -> None:
    """A client that takes until the file `go` is there."""
    (site.directory / "go").unlink(missing_ok=True)
    site.client("sbatch", f"until test -e {site.directory}/go; do sleep 0.1; done; echo Submitted")


def test_more_than_some_at_once_wait_for_their_turn_and_all_are_answered(small: Site) -> None:
    small.fresh()
    slow(small)
    small.script(
        "#!/bin/sh\nfor i in $(seq 1 20); do sbatch --wrap=$i >/tmp/o.$i & done; wait; cat /tmp/o.* | sort | uniq -c\n"
    )
    process = small.start()
    guestbox.wait_until(lambda: len(small.called()) == 16)
    guestbox.wait_until(lambda: small.guest.run(f"ls {DESK}").count(".new") == 4)
    time.sleep(0.5)
    assert len(small.called()) == 16
    (small.directory / "go").touch()
    assert process.wait(PATIENCE_S) == 0
    assert small.out.read_text().split() == ["20", "Submitted"]
    assert sorted(small.called()) == sorted(f"<sbatch><--wrap={i}>" for i in range(1, 21))


def test_who_does_not_wait_any_more_ends_the_client(small: Site) -> None:
    small.client("squeue", "exec sleep 1000")
    assert small.run(f"#!/bin/sh\ntimeout 2 squeue -i 1; echo $?\nsinfo\n{TIDY}\n") == 0
    assert small.out.read_text().startswith("143\n")
    assert small.guest.run(f"ls -A {DESK}").split() == ["wake"]


def test_what_a_client_prints_again_and_again_comes_line_by_line(small: Site) -> None:
    stay = small.directory / "stay"  # Slurm would end the pipe's other processes with the job; nobody does here
    stay.touch()
    # sed, too, fills buffers for a pipe
    small.client("squeue", f"{{ echo one; while test -e {stay}; do sleep 0.1; done; }} | sed s/one/first/")
    seen = "until grep first /tmp/seen; do sleep 0.1; done"
    code = small.run(f"#!/bin/sh\nsqueue -i 1 >/tmp/seen &\n{seen}; kill $!; wait\n")
    stay.unlink()
    assert (code, small.out.read_text()) == (0, "first\n")


def test_a_request_of_which_the_wrapper_died_is_not_carried_out_again(site: Site) -> None:
    site.fresh()
    slow(site)
    site.script("#!/bin/sh\nsbatch --wrap a; echo $?\n")
    first = site.start()
    guestbox.wait_until(lambda: len(site.called()) == 1, what="the client is started")
    first.kill()
    first.wait()
    (site.directory / "go").touch()
    assert site.start().wait(PATIENCE_S) == 0
    assert site.out.read_text() == "1\n"
    assert "the command may have been carried out, or not" in site.err.read_text()
    assert site.called() == ["<sbatch><--wrap><a>"]


def test_a_connection_that_breaks_costs_neither_the_answer_nor_a_second_start(site: Site) -> None:
    site.fresh()
    slow(site)
    site.script("#!/bin/sh\nsbatch --wrap a; echo $?\n")
    process = site.start()
    guestbox.wait_until(lambda: len(site.called()) == 1, what="the client is started")
    site.guest.signal_servers(guestbox.signal.SIGKILL)
    time.sleep(1)
    (site.directory / "go").touch()
    assert process.wait(PATIENCE_S) == 0
    assert site.out.read_text() == "Submitted\n0\n"
    assert site.called() == ["<sbatch><--wrap><a>"]


def test_what_is_asked_for_while_nobody_is_attached_waits(small: Site) -> None:
    small.fresh()
    small.client("squeue", "echo answered")
    small.script("#!/bin/sh\nuntil test -e /tmp/now; do sleep 0.1; done; squeue\n")
    small.guest.run("rm -f /tmp/now")
    first = small.start()
    guestbox.wait_until(lambda: small.guest.run(f"ls {DESK} 2>/dev/null || :").strip() == "wake")
    first.kill()
    first.wait()
    small.guest.run("touch /tmp/now")
    guestbox.wait_until(lambda: ".new" in small.guest.run(f"ls {DESK}"), what="the request is there")
    assert small.called() == []
    assert small.start().wait(PATIENCE_S) == 0
    assert small.out.read_text() == "answered\n"
    assert small.called() == ["<squeue>"]


def test_switched_off_at_the_front_it_says_so(small: Site) -> None:
    small.set_commands("false")
    try:
        assert small.run("#!/bin/sh\nsqueue\n") == 1
    finally:
        small.set_commands("true")
    assert "switched off at this site" in small.err.read_text()
    assert small.called() == []


def test_a_vm_without_these_tools_runs_its_script_as_ever(small: Site) -> None:
    small.guest.run(f"mv {BIN}/commands {BIN}/gone")
    try:
        small.fresh()
        small.guest.run(f"rm -f {BIN}/commands")
        small.script("#!/bin/sh\necho ran\n")
        assert small.start().wait(PATIENCE_S) == 0
    finally:
        small.guest.run(f"mv {BIN}/gone {BIN}/commands")
    assert small.out.read_text() == "ran\n"


def test_another_user_of_the_vm_cannot_ask_in_the_jobs_name(small: Site) -> None:
    assert small.guest.run(f"{BIN}/squeue 2>&1 || echo $?").splitlines()[-1] == "1"


def test_what_was_taken_but_did_not_reach_the_wrapper_is_told_again_and_what_nobody_knows_is_lost(site: Site) -> None:
    site.fresh()
    serve = f"{BIN}/commands serve"
    script = f"""
        ({BIN}/squeue >/tmp/said 2>&1; echo $? >>/tmp/said) &
        until test -e {DESK}/*.new/client; do sleep 0.1; done
        id=$(basename {DESK}/*.new .new)
        echo "take $id" | {serve} | grep -a -o "^request $id"
        echo "take $id" | {serve} $id | grep -a -c "$id"
        echo "take $id" | {serve} $id:again | grep -a -o "^new $id\\|^request $id"
        echo same:$id
        {serve} </dev/null >/dev/null; wait; cat /tmp/said
    """
    said = site.guest.run(script, user=True).splitlines()
    identifier = said[4].removeprefix("same:")
    assert said[:4] == [f"request {identifier}", "1", f"new {identifier}", f"request {identifier}"], "gone is one line"
    assert "the command may have been carried out, or not" in said[5]
    assert said[6:] == ["1"]
    assert site.guest.run(f"ls -A {DESK}").split() == ["wake"]


def test_a_signal_that_a_job_sends_to_its_own_steps_reaches_the_tasks_of_srun_and_not_the_script(site: Site) -> None:
    shadow = site.directory / "shadow"
    run = 'while [ $# -gt 2 ]; do shift; done; SLURM_PROCID=0 SLURM_STEP_ID=0 exec "$@"'
    site.client("srun", f"echo $$ >{shadow}; {run}")
    site.client("scancel", f"kill -USR1 $(cat {shadow})")
    step = "srun -n 1 sh -c 'trap \"echo got; exit 5\" USR1; echo ready >>out; while :; do sleep 0.05; done'"
    script = (
        "#!/bin/sh\ntrap 'echo the script' USR1; cd /tmp; : >out\n"
        f"{step} & until [ -s out ]; do sleep 0.1; done\n"
        "sleep 1; scancel -s USR1 12; wait $!; echo code $?\n"
    )
    site.fresh()
    shadow.write_text("")
    shadow.chmod(0o666)
    try:
        assert site.run(script) == 0
    finally:
        (site.directory / "bin" / "srun").unlink()
    assert site.out.read_text() == "got\ncode 5\n"
    srun, scancel = site.called()
    assert "<--jobid=12><--overlap>" in srun
    assert "<--job-name=sh>" in srun
    assert scancel == "<scancel><-s><USR1><12>"
