"""What guests get of the host that the engine runs on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmsplugin.adapters.guests.site_files import read_site_files
from rmsplugin.settings.guests import Guest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    zone = tmp_path / "usr/share/zoneinfo/Europe/Prague"
    zone.parent.mkdir(parents=True)
    zone.write_bytes(b"TZif2\xff")
    (tmp_path / "etc/default").mkdir(parents=True)
    return tmp_path


def test_the_time_zone_is_known_by_name_and_content(root: Path) -> None:
    (root / "etc/localtime").symlink_to("/usr/share/zoneinfo/Europe/Prague")
    site = read_site_files(Guest(), root)
    assert (site.timezone, site.localtime) == ("Europe/Prague", b"TZif2\xff")


def test_a_time_zone_that_was_copied_has_no_name(root: Path) -> None:
    (root / "etc/localtime").write_bytes(b"TZif3")
    site = read_site_files(Guest(), root)
    assert (site.timezone, site.localtime) == ("", b"TZif3")


def test_the_time_zone_of_the_settings_comes_first(root: Path) -> None:
    (root / "etc/localtime").write_bytes(b"TZif3")
    assert read_site_files(Guest(timezone="Europe/Prague"), root).localtime == b"TZif2\xff"


def test_name_servers_that_only_the_host_can_reach_are_left_out(root: Path) -> None:
    (root / "etc/resolv.conf").write_text("# x\nnameserver 127.0.0.53\noptions edns0\nsearch a.example\n")
    assert read_site_files(Guest(), root).resolv_conf == ""
    real = root / "run/systemd/resolve/resolv.conf"
    real.parent.mkdir(parents=True)
    real.write_text("# y\nnameserver 10.0.0.53\nnameserver fe80::1%eth0\nsearch a.example\n")
    assert read_site_files(Guest(), root).resolv_conf == "nameserver 10.0.0.53\nsearch a.example\n"
    assert read_site_files(Guest(resolv_conf="image"), root).resolv_conf == ""


def test_hosts_are_those_that_mean_the_same_elsewhere(root: Path) -> None:
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 ip6-localhost\n10.0.0.1  head  head.a.example # x\nbad\n")
    assert read_site_files(Guest(), root).hosts == "10.0.0.1 head head.a.example\n"
    other = root / "other"
    other.write_text("10.0.0.2 licences\n")
    assert read_site_files(Guest(hosts=str(other)), root).hosts == "10.0.0.2 licences\n"


def test_the_language_of_logins(root: Path) -> None:
    (root / "etc/locale.conf").write_text("LANG=cs_CZ.UTF-8\n")
    assert read_site_files(Guest(), root).locale == "cs_CZ.UTF-8"
    (root / "etc/default/locale").write_text('#LANG=x\nLANG="en_US.UTF-8"\n')
    assert read_site_files(Guest(), root).locale == "en_US.UTF-8"
    assert read_site_files(Guest(locale="C.UTF-8"), root).locale == "C.UTF-8"


def test_a_host_without_any_of_these_leaves_all_to_the_image(tmp_path: Path) -> None:
    site = read_site_files(Guest(), tmp_path)
    assert (site.timezone, site.localtime, site.locale, site.resolv_conf, site.hosts) == ("", b"", "", "", "")
