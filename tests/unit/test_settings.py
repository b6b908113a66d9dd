"""The settings file: every fault is refused with the line it is on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rmsplugin.errors import SettingsError
from rmsplugin.settings import DEFAULT_PATH, Settings, find_line, load, settings_path
from rmsplugin.settings.guests import ContainerImage, KernelImage, Mount, Qcow2Image
from rmsplugin.settings.rules import PlacementRule, Traits, license_names
from rmsplugin.settings.slurm_time import slurm_time_s

VALID = """\
[engine]
cycle_s = 5
[slurm]
partitions = ["vjob"]
[partition.vjob]
hosts = "vmhosts"
[hosts.vmhosts]
rooms = "elastic"
room_time_limit = "2-12"
[nodes]
memory_overhead_mib = 32
[decision]
policy = "easy"
patience_s = 0
[planning]
limit_s = 5
[network]
pool = "10.0.0.10 - 10.0.0.20"
prefix_length = 24
[[guest.mounts]]
source = "10.0.0.1:/home"
target = "/home"
[image.default]
kind = "kernel"
kernel = "/k"
initrd = "/i"
[image.debian]
kind = "qcow2"
base = "/d.qcow2"
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "rmsplugin.toml"
    path.write_text(text)
    return path


def test_a_valid_file_is_read(tmp_path: Path) -> None:
    settings = load(written(tmp_path, VALID))
    assert settings.engine.cycle_s == 5
    assert settings.engine.user == "slurm"
    assert settings.slurm.partitions == ("vjob",)
    assert settings.hosts_partitions == ("vmhosts",)
    assert (settings.hosts_of("vmhosts").rooms, settings.hosts_of("vmhosts").room_time_limit_s) == ("elastic", 216000)
    assert settings.hosts_of("others").rooms == "hold"
    assert [str(bound) for bound in settings.network.pool_bounds] == ["10.0.0.10", "10.0.0.20"]
    assert settings.guest.mounts[0].type == "nfs"
    assert isinstance(settings.image["default"], KernelImage)
    assert isinstance(settings.image["debian"], Qcow2Image)


@pytest.mark.parametrize(
    ("options", "mounted"),
    [
        (None, "vers=4.2,nosuid,nodev"),
        ("vers=3,nolock", "vers=3,nolock,nosuid,nodev"),
        ("nodev,vers=4.1", "nodev,vers=4.1,nosuid"),
        ("suid,vers=4.1", "suid,vers=4.1,nodev"),
        ("suid,dev", "suid,dev"),
    ],
)
def test_a_mount_takes_locks_to_the_server_and_no_devices_or_rights_from_it(options: str | None, mounted: str) -> None:
    given = {"source": "10.0.0.1:/home", "target": "/home"} | ({"options": options} if options else {})
    assert Mount.model_validate(given).safe_options() == mounted


def test_settings_do_not_change_once_read(tmp_path: Path) -> None:
    settings = load(written(tmp_path, VALID))
    with pytest.raises(ValueError, match="frozen"):
        settings.engine.user = "root"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("old", "new", "key", "words"),
    [
        ("cycle_s = 5", "cycles = 5", "engine.cycles", "unknown key"),
        ("cycle_s = 5", "cycle_s = 0", "engine.cycle_s", "greater than 0"),
        ("cycle_s = 5", 'cycle_s = "often"', "engine.cycle_s", "valid number"),
        ("cycle_s = 5", "workers = 1.5", "engine.workers", "integer"),
        ("[nodes]", "[node]", "node", "unknown key"),
        ('partitions = ["vjob"]', "partitions = []", "slurm.partitions", "at least 1"),
        ('partitions = ["vjob"]', 'partitions = ["vjob"]\nadapter = "rest"', "slurm.adapter", "'cli'"),
        ('[partition.vjob]\nhosts = "vmhosts"', "", "settings", "vjob has no VM hosts: add a section [partition.vjob]"),
        ("[hosts.vmhosts]", "[hosts.vmhost]", "settings", "is the `hosts` of no [partition.NAME]"),
        ('"2-12"', '"soon"', "hosts.vmhosts.room_time_limit", "no time limit of Slurm's"),
        ('"2-12"', '"9"', "hosts.vmhosts.room_time_limit", "at least 10 minutes"),
        ("memory_overhead_mib = 32", "memory_overhead_mib = -1", "nodes.memory_overhead_mib", "greater than or equal"),
        ("memory_overhead_mib = 32", "stor = 1", "nodes.stor", "unknown key"),
        ("memory_overhead_mib = 32", 'fence = ["fence_ipmilan", "{node}"]', "nodes.fence", "absolute path"),
        ("memory_overhead_mib = 32", 'fence = ["/bin/fence", "--action=off"]', "nodes.fence", "must name the node"),
        ("memory_overhead_mib = 32", 'fence = "/bin/fence {node}"', "nodes.fence", "valid tuple"),
        ('"10.0.0.10 - 10.0.0.20"', '"10.0.0.20-10.0.0.10"', "network.pool", "FIRST not above LAST"),
        ('"10.0.0.10 - 10.0.0.20"', '"10.0.0.10"', "network.pool", "two IPv4 addresses"),
        ('"10.0.0.10 - 10.0.0.20"', '"here-there"', "network.pool", "two IPv4 addresses"),
        ("prefix_length = 24", "prefix_length = 33", "network.prefix_length", "less than or equal to 32"),
        ("prefix_length = 24", 'prefix_length = 24\nbridge = "a b"', "network.bridge", "pattern"),
        ("prefix_length = 24", 'prefix_length = 24\nmac_prefix = "52:54"', "network.mac_prefix", "pattern"),
        ('"easy"', '"by lot"', "decision.policy", "'by lot' is no name of a policy: there are fcfs, easy"),
        ('"easy"', '"os:system("', "decision.policy", "is no name of a policy"),
        ("patience_s = 0", "patience_s = -1", "decision.patience_s", "greater than or equal to 0"),
        ("patience_s = 0", "patience_s = nan", "decision.patience_s", "less than or equal to 604800"),
        ("patience_s = 0", "max_delay = -0.1", "decision.max_delay", "greater than or equal to 0"),
        ("patience_s = 0", "max_delay_s = nan", "decision.max_delay_s", "less than or equal to"),
        ("patience_s = 0", "user_share = 0", "decision.user_share", "greater than 0"),
        ("patience_s = 0", "user_share = 1.1", "decision.user_share", "less than or equal to 1"),
        ("patience_s = 0", "user_share_s = -1", "decision.user_share_s", "greater than or equal to 0"),
        ("patience_s = 0", 'slurm_priority = "always"', "decision.slurm_priority", "'ties', 'weight' or 'order'"),
        ("patience_s = 0", "horizon_s = 0", "decision.horizon_s", "greater than 0"),
        ("patience_s = 0", "demand_window_s = 0", "decision.demand_window_s", "greater than 0"),
        ("limit_s = 5", "limit_s = 0.1", "planning.limit_s", "greater than or equal to 1"),
        ("limit_s = 5", "memory_limit_mib = 100", "planning.memory_limit_mib", "greater than or equal to 512"),
        ("limit_s = 5", 'objective = "speed"', "planning.objective", "'cost', 'nodes' or 'energy'"),
        ('target = "/home"', 'target = "/my home"', "guest.mounts.0.target", "pattern"),
        ('target = "/home"', 'target = "/home"\nwhere = 1', "guest.mounts.0.where", "unknown key"),
        ('kernel = "/k"', 'kernel = "/k"\nbase = "/b"', "image.default.base", "unknown key"),
        ("[image.debian]", '[image."a/b"]', "image.a/b", "pattern"),
    ],
)
def test_each_fault_is_refused_with_file_line_and_key(tmp_path: Path, old: str, new: str, key: str, words: str) -> None:
    assert VALID.count(old) == 1
    text = VALID.replace(old, new)
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(path)
    lines = str(caught.value).splitlines()
    wanted = text[: text.index(new) + len(new)].count("\n") + 1
    matching = [line for line in lines if words in line]
    assert matching, lines
    assert matching[0].startswith(f"{path}:{wanted}: {key}"), lines


@pytest.mark.parametrize(
    ("removed", "key", "section"),
    [
        ('partitions = ["vjob"]\n', "slurm.partitions", "[slurm]"),
        ("prefix_length = 24\n", "network.prefix_length", "[network]"),
        ('source = "10.0.0.1:/home"\n', "guest.mounts.0.source", "[[guest.mounts]]"),
        ('initrd = "/i"\n', "image.default.initrd", "[image.default]"),
        ('base = "/d.qcow2"\n', "image.debian.base", "[image.debian]"),
    ],
)
def test_a_missing_key_is_refused_with_the_line_of_its_section(
    tmp_path: Path, removed: str, key: str, section: str
) -> None:
    text = VALID.replace(removed, "")
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(path)
    line = text.splitlines().index(section) + 1
    assert str(caught.value) == f"{path}:{line}: {key}: is required"


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    text = VALID.replace("cycle_s = 5", "cycle_s = -1").replace("prefix_length = 24", "prefix_length = 99")
    with pytest.raises(SettingsError) as caught:
        load(written(tmp_path, text))
    assert len(str(caught.value).splitlines()) == 2


def test_an_unknown_kind_of_image_is_refused_with_the_line_of_its_section(tmp_path: Path) -> None:
    text = VALID.replace('kind = "qcow2"', 'kind = "vmdk"')
    line = text.splitlines().index("[image.debian]") + 1
    with pytest.raises(SettingsError, match=rf":{line}: image\.debian: .*'vmdk'.*'kernel', 'qcow2'"):
        load(written(tmp_path, text))


def test_an_image_named_default_is_needed(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"add a section \[image\.default\]"):
        load(written(tmp_path, VALID.replace("[image.default]", "[image.other]")))


def test_what_is_no_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "[engine]\ncycle_s = = 5\n")
    with pytest.raises(SettingsError, match=r"rmsplugin\.toml: .*line 2"):
        load(path)


def test_a_number_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f"[network]\nprefix_length = {'9' * 5000}\n")
    with pytest.raises(SettingsError, match=r"settings\.toml: Exceeds the limit"):
        load(path)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rmsplugin.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="not UTF-8"):
        load(path)


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(SettingsError, match="/dev/zero: longer than any settings"):
        load(Path("/dev/zero"))


@pytest.mark.parametrize("make", [lambda path: None, os.mkdir])
def test_what_cannot_be_read_is_refused_with_what_to_do(tmp_path: Path, make: object) -> None:
    path = tmp_path / "rmsplugin.toml"
    assert callable(make)
    make(path)
    with pytest.raises(SettingsError, match="name another file with --config"):
        load(path)


def test_which_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RMSPLUGIN_CONFIG", raising=False)
    assert settings_path() == Path(DEFAULT_PATH)
    monkeypatch.setenv("RMSPLUGIN_CONFIG", "/from/environment")
    assert settings_path() == Path("/from/environment")
    assert settings_path("/from/argument") == Path("/from/argument")


def test_find_line_knows_arrays_of_tables_dotted_and_quoted_keys() -> None:
    text = '[a]\nb.c = 1\n"d" = 2\n[[e.f]]\nx = 1\n[[e.f]]\nx = 2\n'
    assert find_line(text, ["a", "b", "c"]) == 2
    assert find_line(text, ["a", "d"]) == 3
    assert find_line(text, ["e", "f", 1, "x"]) == 7
    assert find_line(text, ["e", "f", 0]) == 4
    assert find_line(text, ["nothing"]) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("90:30", 5430), ("1:02:03", 3723), ("1-0", 86400), ("1-02:03", 93780), ("1-02:03:04", 93784)],
)
def test_time_limits_are_read_as_slurm_reads_them(text: str, seconds: int) -> None:
    assert slurm_time_s(text) == seconds


def test_a_section_of_a_partition_that_is_no_vjob_partition_is_refused_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, VALID.replace("[hosts.vmhosts]", '[partition.other]\nhosts = "x"\n[hosts.vmhosts]'))
    with pytest.raises(SettingsError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:7: settings: [partition.other] is none of slurm.partitions")


def test_a_host_in_two_groups_is_refused_with_its_line(tmp_path: Path) -> None:
    groups = '[group.left]\nhosts = "n[1-3]"\n[group.right]\nhosts = "n[3-4]"\n'
    path = written(tmp_path, groups + VALID)
    with pytest.raises(SettingsError) as caught:
        load(path)
    assert str(caught.value) == f"{path}:3: settings: [group.right] names n3, which is in [group.left]"


@pytest.mark.parametrize("hosts", ["n[3-1]", "", "n 1"])
def test_hosts_of_a_group_that_are_no_host_list_are_refused(tmp_path: Path, hosts: str) -> None:
    with pytest.raises(SettingsError, match=r":2: group\.left\.hosts: "):
        load(written(tmp_path, f'[group.left]\nhosts = "{hosts}"\n' + VALID))


def test_groups_have_the_hosts_of_their_lists(tmp_path: Path) -> None:
    found = load(written(tmp_path, '[group.left]\nhosts = "n[1-2],m1"\n' + VALID)).group
    assert found["left"].names == ("n1", "n2", "m1")


def test_the_engine_fences_nothing_unless_it_is_told_how(tmp_path: Path) -> None:
    assert load(written(tmp_path, VALID)).nodes.fence_after_s == 0
    with pytest.raises(SettingsError, match="fence_status and fence_after_s need fence"):
        load(written(tmp_path, VALID.replace("memory_overhead_mib = 32", "fence_after_s = 60")))


@pytest.mark.parametrize(
    ("written_so", "place", "why"),
    [
        ('[schedule]\ntimezone = "Europe/Nowhere"', "schedule.timezone", "'Europe/Nowhere' is no time zone"),
        (
            '[[schedule.quiet]]\nbegins = "0 25 * * *"\nends = "0 6 * * *"',
            "schedule.quiet.0.begins",
            "no cron expression",
        ),
        ('[[schedule.quiet]]\nends = "0 6 * * *"\nbegins = "0 22 * *"', "schedule.quiet.0.begins", "write five fields"),
    ],
)
def test_a_time_of_day_that_is_none_is_refused_where_it_stands(
    tmp_path: Path, written_so: str, place: str, why: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load(written(tmp_path, f"{VALID}{written_so}\n"))
    line = next(
        number
        for number, text in enumerate(f"{VALID}{written_so}".splitlines(), start=1)
        if text.startswith(f"{place.rpartition('.')[2]} =")
    )
    assert str(refused.value).startswith(f"{tmp_path}/rmsplugin.toml:{line}: {place}: ")
    assert why in str(refused.value)


def test_a_window_that_never_ends_is_refused(tmp_path: Path) -> None:
    text = f'{VALID}[[schedule.quiet]]\nbegins = "0 6 * * *"\nends = "0 6 * * *"\n'
    with pytest.raises(SettingsError, match="would never end"):
        load(written(tmp_path, text))


CLUSTER = '[cluster]\ncoordination = "zookeeper"\nservers = ["c1:2181", "[fd00::1]:2181", "10.0.0.3:2181"]\n'


def test_an_ensemble_has_servers_and_defaults(tmp_path: Path) -> None:
    cluster = load(written(tmp_path, VALID + CLUSTER)).cluster
    assert (cluster.coordination, len(cluster.servers), cluster.session_s, cluster.path) == (
        "zookeeper",
        3,
        4.0,
        "/rmsplugin",
    )
    assert load(written(tmp_path, VALID)).cluster.coordination == "local"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('coordination = "zookeeper"', "needs servers"),
        ('coordination = "etcd"', "Input should be 'local' or 'zookeeper'"),
        ('servers = ["c1:2181"]', 'servers: without effect unless coordination = "zookeeper"'),
        ('path = "/a"\nsession_s = 5', "path, session_s: without effect"),
        ('coordination = "zookeeper"\nservers = ["c1"]', "'c1' is no server of ZooKeeper: write HOST:PORT"),
        ('coordination = "zookeeper"\nservers = ["c1:99999"]', "is no server of ZooKeeper"),
        ('coordination = "zookeeper"\nservers = ["c1:2181/x"]', "is no server of ZooKeeper"),
        ('coordination = "zookeeper"\nservers = ["c1:2181"]\npath = "/"', "is no path of a ZooKeeper node"),
        ('coordination = "zookeeper"\nservers = ["c1:2181"]\nsession_s = 1', "greater than or equal to 2"),
        ('migration_domains = [["a", "b"]]', "migration_domains: without effect unless"),
        (
            'coordination = "zookeeper"\nservers = ["c1:2181"]\nmigration_domains = [["a", "a"]]',
            "['a', 'a'] is no migration domain: name two groups, or more",
        ),
    ],
)
def test_a_cluster_that_cannot_be_or_does_nothing_is_refused_with_its_line(
    tmp_path: Path, lines: str, said: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load(written(tmp_path, f"{VALID}[cluster]\n{lines}\n"))
    assert said in str(refused.value)
    assert int(str(refused.value).partition(".toml:")[2].partition(":")[0]) > VALID.count("\n")


def test_a_migration_domain_names_groups_that_there_are(tmp_path: Path) -> None:
    domains = f'{CLUSTER}migration_domains = [["left", "right"]]\n'
    with pytest.raises(SettingsError, match=r"cluster\.migration_domains names group left, which is neither"):
        load(written(tmp_path, VALID + domains))
    groups = '[group.left]\nhosts = "n1"\n[group.right]\nhosts = "n2"\n'
    assert load(written(tmp_path, VALID + domains + groups)).cluster.migration_domains == (("left", "right"),)


def test_settings_are_the_same_where_another_process_reads_them(tmp_path: Path) -> None:
    for text in ("", CLUSTER):
        settings = load(written(tmp_path, VALID + text))
        assert Settings.model_validate(settings.model_dump(mode="json")) == settings


CAPPED = """
[power]
cap_w = 1000
[[power.classes]]
idle_w = 100
busy_w = 200
off_w = 5
transition_w = 85
off_s = 30
on_s = 120
"""
COUNTED = '[rule.few]\nkind = "capacity"\nmost = 2\n'
SHARING = """
[cluster]
coordination = "zookeeper"
servers = ["c1:2181"]
shared_dir = "/shared"
"""


def of_all(tmp_path: Path, text: str = VALID + SHARING) -> Settings:
    path = tmp_path / "rmsplugin.toml"
    path.write_text(text)
    return load(path)


def test_the_engine_of_a_group_has_places_of_its_own(tmp_path: Path) -> None:
    settings = of_all(tmp_path)
    left, right = settings.of_group("left"), settings.of_group("right")
    assert (settings.territory, left.territory) == ("", "left")
    assert str(left.engine.state_dir) == "/var/lib/rmsplugin/groups/left"
    assert left.engine.socket == settings.engine.socket.parent / "groups" / "left.sock"
    assert left.cluster.path == "/rmsplugin/groups/left"
    for place in ("state_dir", "socket"):
        assert len({getattr(each.engine, place) for each in (settings, left, right)}) == 3
    assert left.model_copy(update={"engine": settings.engine, "cluster": settings.cluster}).model_dump() == (
        settings.model_dump()
    ), "all else is the site's"


def test_the_engine_of_a_group_listens_to_the_manager_only(tmp_path: Path) -> None:
    listening = VALID.replace("[engine]", '[engine]\nlisten = "10.0.0.1:6830"\nurl = "http://10.0.0.1:6830"')
    settings = of_all(tmp_path, listening + SHARING)
    assert settings.of_group("left").engine.listen == ""
    assert settings.of_group("left").listens_at == settings.listens_at == "10.0.0.1:6830"


@pytest.mark.parametrize("name", ["all", ".", "..", "a/b", "", "x" * 65])
def test_a_name_that_is_no_groups_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="cannot be the name of a group with an engine"):
        of_all(tmp_path).of_group(name)


def test_a_group_has_a_part_of_a_shared_store_of_its_own(tmp_path: Path) -> None:
    settings = of_all(tmp_path, VALID.replace("[nodes]", '[nodes]\nshared_store = "/states"') + SHARING)
    assert settings.of_group("left").nodes.states == "/states/groups/left"
    assert settings.nodes.states == "/states"
    assert of_all(tmp_path).of_group("left").nodes.shared_store is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (VALID, 'needs cluster.coordination = "zookeeper" and cluster.shared_dir'),
        (VALID + SHARING.replace('shared_dir = "/shared"', ""), "and cluster.shared_dir"),
        (VALID.replace("[nodes]", "[nodes]\nvm_dir_shared = true") + SHARING, "directories of the nodes' own"),
        (VALID + SHARING + CAPPED, "power.cap_w is a bound for the whole site"),
        (VALID + SHARING + COUNTED, r"^\[rule.few\]: capacity counts VMs of several groups .*: name nodes of"),
        (VALID + SHARING + COUNTED + 'nodes = "n[1-3]"', "with a rule for each group, or have one engine"),
        (
            f'{VALID}{SHARING}[group.left]\nhosts = "n[1-2]"\n{COUNTED}nodes = "n[1-3]"',
            "name nodes of one group only",
        ),
        (VALID + SHARING + '[rule.r]\nkind = "online"\nmost = 1\n', r"^\[rule.r\]: online counts VMs of"),
        (VALID + SHARING + '[rule.r]\nkind = "gather"\nper = "user"\n', r'^\[rule.r\]: .*: say per = "vjob", or'),
    ],
)
def test_a_site_whose_groups_cannot_have_engines_is_told_why(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        of_all(tmp_path, text).of_group("left")


@pytest.mark.parametrize(
    "rule",
    [
        'kind = "capacity"\nmost = 1\nnodes = "n[1-2]"',
        'kind = "capacity"\nmost = 1\nper = "vjob"',
        'kind = "capacity"\nmost = 1\nnodes = "n[2-3]"\nper = "vjob"',
        'kind = "online"\nmost = 1\nnodes = "n3"',
        'kind = "gather"\nper = "vjob"',
        'kind = "spread"',
        'kind = "split"\nper = "user"',
        'kind = "reserve"\nnodes = "n[1-3]"\ncpus = 1',
    ],
)
def test_engines_of_groups_keep_rules_about_their_own_nodes(tmp_path: Path, rule: str) -> None:
    groups = '[group.left]\nhosts = "n[1-2]"\n[group.right]\nhosts = "n[3-4]"\n'
    settings = of_all(tmp_path, f"{VALID}{SHARING}{groups}[rule.r]\n{rule}\n")
    assert settings.of_group("left").rule == settings.rule


def test_nodes_are_emptied_only_where_they_are_switched_off(tmp_path: Path) -> None:
    text = VALID.replace("limit_s = 5", 'objective = "energy"')
    assert text != VALID
    with pytest.raises(SettingsError, match=r"power\.switch = true"):
        load(written(tmp_path, text))
    assert load(written(tmp_path, text + "[power]\nswitch = true\n")).planning.objective == "energy"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ('kind = "near"', "rule.db.kind: Input should be 'spread', "),
        ('kind = "fence"\nnames = ["db"]', "rule.db: fence needs nodes: add it"),
        ('kind = "fence"\nnodes = ""', "rule.db: fence needs at least one node in nodes"),
        ('kind = "fence"\nnodes = "n[3-"', "rule.db.nodes: "),
        ('kind = "spread"\nmost = 1', "rule.db: spread has no key most: remove it; it may have per, accounts, "),
        ('kind = "root"\ndiscrete = true', "rule.db: root has no key discrete: remove it; it may have accounts, "),
        ('kind = "split"\nper = "all"', 'rule.db: split needs per = "user", "account", "partition" or "vjob": '),
        ('kind = "capacity"', "rule.db: capacity needs most: add it"),
        (
            'kind = "online"\nmost = 1\nusers = ["ann"]',
            "rule.db: online has no key users: remove it; it may have most, ",
        ),
        ('kind = "reserve"\nnodes = "n1"', "rule.db: reserve needs cpus, memory_mib or both"),
        ('kind = "spread"\nusers = [""]', "rule.db.users.0: "),
        ('kind = "spread"\nnode = "n1"', "rule.db.node: unknown key"),
    ],
)
def test_a_placement_rule_that_cannot_be_is_refused_with_its_line(tmp_path: Path, keys: str, told: str) -> None:
    path = written(tmp_path, f"{VALID}[rule.db]\n{keys}\n")
    with pytest.raises(SettingsError) as caught:
        load(path)
    first = len(VALID.splitlines()) + 1
    line = int(str(caught.value).split(":")[1])
    assert first <= line <= first + 2
    assert str(caught.value).startswith(f"{path}:{line}: {told}")


def test_a_rule_that_selects_a_partition_without_vjobs_is_refused(tmp_path: Path) -> None:
    text = '[rule.db]\nkind = "spread"\npartitions = ["debug"]\n' + VALID
    with pytest.raises(SettingsError, match=r"toml:1: settings: \[rule.db\] selects partition debug, which is none of"):
        load(written(tmp_path, text))


@pytest.mark.parametrize(
    ("keys", "selects"),
    [
        ({}, True),
        ({"accounts": ["chem", "bio"]}, True),
        ({"accounts": ["bio"]}, False),
        ({"users": ["ann"]}, True),
        ({"users": ["bob"], "accounts": ["chem"]}, False),
        ({"names": ["db-?"]}, True),
        ({"names": ["DB*"]}, False),
        ({"partitions": ["vjob"]}, True),
        ({"partitions": ["other"]}, False),
        ({"licenses": ["matlab", "x"]}, True),
        ({"licenses": ["mat"]}, False),
    ],
)
def test_a_rule_selects_those_that_each_of_its_lists_has(keys: dict[str, list[str]], selects: bool) -> None:
    rule = PlacementRule.model_validate({"kind": "spread", **keys})
    traits = Traits("db-1", "ann", "chem", "vjob", license_names("matlab:2,ansys@server:1"))
    assert rule.selects(traits) is selects


def test_names_of_licences_are_read_in_all_forms() -> None:
    assert license_names("a:2,b@srv:3|c*4; d=1") == {"a", "b", "c", "d"}
    assert license_names("") == frozenset()


PODMAN: dict[str, Any] = {
    "slurm": {"partitions": ["vjob"]},
    "partition": {"vjob": {"hosts": "vmhosts"}},
    "hypervisor": {"platform": "podman"},
    "network": {"pool": "10.0.0.1-10.0.0.9", "prefix_length": 24},
    "image": {"default": {"kind": "container", "reference": "localhost/rmsplugin-guest:0123456789abcdef"}},
}


def test_containers_have_images_that_are_named_and_start_from_no_template() -> None:
    found = Settings.model_validate(PODMAN)
    image = found.image["default"]
    assert isinstance(image, ContainerImage)
    assert (image.reference, image.waits) == ("localhost/rmsplugin-guest:0123456789abcdef", False)
    assert not found.native


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hypervisor": {"platform": "podman", "uri": "qemu+tls://{node}/system"}}, r"hypervisor\.uri is for libvirt"),
        ({"hypervisor": {"platform": "podman", "migrate_tls": True}}, r"hypervisor\.migrate_tls is for libvirt"),
        ({"start": {"template_mib": 5}}, r"\[start\] is about templates of VMs"),
        ({"image": {"default": {"kind": "qcow2", "base": "/a"}}}, 'needs kind = "container"'),
        ({"hypervisor": {"platform": "libvirt"}}, 'needs kind = "kernel" or "qcow2"'),
        ({"guest": {"shm_size": "50%"}}, r"guest\.shm_size"),
        ({"guest": {"tmp_size": "1g"}}, r"guest\.tmp_size"),
        ({"network": {**PODMAN["network"], "filter": "rmsplugin-guest"}}, r"network\.filter .* filter of libvirt"),
        (
            {"partition": {"vjob": {"hosts": "vmhosts", "memory": "observed"}}},
            r'\[partition\.vjob\] memory = "observed"',
        ),
        ({"image": {"default": {"kind": "container", "reference": "guest"}}}, "reference"),
        ({"image": {"default": {"kind": "container", "reference": "--rm:1"}}}, "reference"),
        ({"image": {"default": {"kind": "container", "reference": "a:1", "waits": True}}}, "waits"),
        ({"hypervisor": 3}, "should be a valid dictionary"),
    ],
)
def test_what_containers_do_not_have_is_refused_by_name(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Settings.model_validate({**PODMAN, **changes})


NATIVE: dict[str, Any] = {
    "slurm": {"partitions": ["batch", "urgent"]},
    "hypervisor": {"platform": "native"},
    "partition": {"urgent": {"hosts": "batch"}},
}


def test_native_jobs_need_no_network_images_and_hosts() -> None:
    found = Settings.model_validate(NATIVE)
    assert found.native and found.cpu_in_plan and found.memory_overhead_mib == 0
    assert {name: each.hosts for name, each in found.partition.items()} == {"batch": "batch", "urgent": "batch"}
    assert found.durations.pause_s == 2.0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"network": {"pool": "10.0.0.1-10.0.0.2", "prefix_length": 24}}, r"\[network\] says something of VMs"),
        ({"image": {"default": {"kind": "kernel"}}}, r"\[image\] says something of VMs"),
        ({"nodes": {"store": "/x"}}, r"\[nodes\] says something of VMs"),
        ({"rule": {"a": {"kind": "ban"}}}, r"\[rule\] says something of VMs"),
        ({"partition": {"batch": {"hosts": "vmhosts"}}}, r"\[partition.batch\] hosts is 'vmhosts'"),
        ({"partition": {"batch": {"hosts": "batch", "memory": "observed"}}}, 'memory = "observed"'),
        ({"partition": {"batch": {"hosts": "batch", "cpu_overbooking": 2}}}, "cpu_overbooking"),
        ({"partition": {"batch": {"hosts": "batch", "checkpoint_interval_s": 60}}}, "checkpoint_interval_s"),
        ({"power": {"switch": True}}, r"power\.switch"),
        ({"partition": 3}, "should be a valid dictionary"),
        ({"slurm": 3}, "should be a valid dictionary"),
    ],
)
def test_what_native_jobs_do_not_have_is_refused_by_name(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Settings.model_validate({**NATIVE, **changes})
