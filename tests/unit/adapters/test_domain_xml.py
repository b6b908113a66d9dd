"""The domain XML against libvirt's own schema, and against hostile values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lxml import etree

from rmsplugin.adapters.platform.base import DiskImage, KernelImage, VMSpec
from rmsplugin.adapters.platform.libvirt.domain_xml import (
    NAMESPACE,
    PARTITION,
    Machine,
    balloon_gives_back,
    domain_xml,
    epoch_of,
    is_bounded,
    neutral,
    with_partition,
    with_paths_of,
)
from rmsplugin.adapters.platform.libvirt.values import offered_machines, statistics
from rmsplugin.adapters.platform.libvirt.vm_shape import strange
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.model.vm_names import tap_of

#: Comes with Debian's package libvirt0.
SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")

KERNEL = KernelImage("/images/vmlinuz", "/images/initrd.img", "quiet")
DISK = DiskImage("/vm/vjob12-1.qcow2", "/vm/vjob12-1.iso")
SPEC = VMSpec(
    name="vjob12-1",
    uuid="00000000-0000-4000-8000-000000000001",
    cpus=2,
    memory_mib=512,
    mac="52:54:00:00:00:01",
    bridge="br0",
    image=KERNEL,
    config_path="/vm/vjob12-1.config",
    console_log="/vm/vjob12-1.console",
)
TCG, KVM = Machine("qemu", "pc-q35-8.0"), Machine("kvm", "pc-q35-8.0")


def parse(xml: str) -> etree._Element:
    return etree.fromstring(xml.encode())


@pytest.fixture(scope="module")
def schema() -> etree.RelaxNG:
    assert SCHEMA.exists(), "libvirt's schemas are missing (package libvirt0)"
    return etree.RelaxNG(etree.parse(str(SCHEMA)))


@pytest.mark.parametrize("machine", [TCG, KVM, Machine("kvm", "pc-i440fx-8.0", "Skylake-Server")])
@pytest.mark.parametrize("image", [KERNEL, DISK])
@pytest.mark.parametrize("console", ["/vm/console", ""])
def test_is_valid_for_libvirt(
    schema: etree.RelaxNG, image: KernelImage | DiskImage, machine: Machine, console: str
) -> None:
    schema.assertValid(parse(domain_xml(replace(SPEC, image=image, console_log=console), machine)))


def test_schema_would_notice(schema: etree.RelaxNG) -> None:
    domain = parse(domain_xml(SPEC, TCG))
    etree.SubElement(domain, "on_whim").text = "destroy"
    assert not schema.validate(domain)


def test_what_the_vm_is() -> None:
    domain = parse(domain_xml(SPEC, TCG))
    assert domain.get("type") == "qemu"
    assert domain.findtext("name") == "vjob12-1"
    assert (domain.findtext("memory"), domain.findtext("vcpu")) == ("512", "2")
    vjob = domain.find(f"metadata/{{{NAMESPACE}}}vjob")
    assert vjob is not None and dict(vjob.attrib) == {"job": "12", "index": "1"}
    assert domain.findtext("os/cmdline") == "console=ttyS0 panic=-1 no_timer_check quiet"
    assert {domain.findtext(event) for event in ("on_poweroff", "on_reboot", "on_crash")} == {"destroy"}
    # No second way in, and nothing that could not be migrated.
    assert not domain.findall("devices/graphics") and not domain.findall("devices/channel")
    assert domain.find("devices/controller[@type='usb']").get("model") == "none"  # type: ignore[union-attr]
    assert domain.find("devices/interface/rom").get("enabled") == "no"  # type: ignore[union-attr]


def test_new_vms_have_balloons_that_give_back_and_those_of_before_keep_theirs() -> None:
    new = domain_xml(SPEC, TCG)
    assert balloon_gives_back(new)
    old = new.replace(' autodeflate="on"', "")
    assert old != new and not balloon_gives_back(old)
    assert not balloon_gives_back(with_paths_of(old, SPEC)), "the state is that of a balloon without it"
    assert balloon_gives_back(with_paths_of(new, SPEC))


def test_bounded_vms_say_where_they_belong_and_are_put_there(schema: etree.RelaxNG) -> None:
    plain, bounded = domain_xml(SPEC, TCG), domain_xml(replace(SPEC, bounded=True), TCG)
    schema.assertValid(parse(bounded))
    assert (is_bounded(plain), is_bounded(bounded)) == (False, True)
    assert parse(plain).findtext("resource/partition") is None
    assert parse(bounded).findtext("resource/partition") == PARTITION
    elsewhere = with_partition(bounded, None)
    assert parse(elsewhere).find("resource") is None and is_bounded(elsewhere)
    again = with_partition(elsewhere, PARTITION)
    schema.assertValid(parse(again))
    assert parse(again).findtext("resource/partition") == PARTITION


def test_a_restored_vm_is_bounded_as_its_spec_says_whatever_its_state_does() -> None:
    libvirts_choice = with_partition(domain_xml(SPEC, TCG), "/machine")
    now_bounded = with_paths_of(libvirts_choice, replace(SPEC, bounded=True))
    assert parse(now_bounded).findtext("resource/partition") == PARTITION and is_bounded(now_bounded)
    not_any_more = with_paths_of(now_bounded, SPEC)
    assert parse(not_any_more).find("resource") is None and not is_bounded(not_any_more)


def test_memory_as_the_guest_counts_it_is_taken_from_libvirts_record() -> None:
    record = {"balloon.current": 131072, "balloon.usable": 9000, "balloon.major_fault": 12, "balloon.swap_in": 34}
    seen = statistics(record)
    assert (seen.memory_current_kib, seen.memory_usable_kib) == (131072, 9000)
    assert (seen.major_faults, seen.swap_in_kib) == (12, 34)
    silent = statistics({"balloon.current": 131072})
    assert (silent.major_faults, silent.swap_in_kib) == (None, None)


def test_bytes_of_all_interfaces_are_taken_from_libvirts_record() -> None:
    record = {"net.count": 2, "net.0.rx.bytes": 100, "net.0.tx.bytes": 7, "net.1.rx.bytes": 20, "net.1.tx.bytes": 0}
    seen = statistics({**record, "net.0.rx.pkts": 5000, "net.0.name": "vnet0"})
    assert (seen.received_bytes, seen.sent_bytes) == (120, 7)
    without = statistics({"net.count": 0})
    assert (without.received_bytes, without.sent_bytes) == (None, None)


def test_config_goes_by_file_and_never_by_value() -> None:
    entry = parse(domain_xml(SPEC, TCG)).find("sysinfo/entry")
    assert entry is not None
    assert dict(entry.attrib) == {"name": "opt/org.rmsplugin/config", "file": "/vm/vjob12-1.config"}
    assert not entry.text


def test_cpu_model() -> None:
    def cpu(machine: Machine) -> tuple[str | None, str | None]:
        element = parse(domain_xml(SPEC, machine)).find("cpu")
        assert element is not None
        return element.get("mode"), element.findtext("model")

    assert cpu(KVM) == ("host-model", None)
    assert cpu(TCG) == ("custom", "qemu64")
    assert cpu(Machine("kvm", "pc-q35-8.0", "Haswell")) == ("custom", "Haswell")


def test_disk_image() -> None:
    domain = parse(domain_xml(replace(SPEC, image=DISK), TCG))
    disks = {disk.find("target").get("dev"): disk for disk in domain.findall("devices/disk")}  # type: ignore[union-attr]
    assert disks["vda"].find("source").get("file") == DISK.overlay  # type: ignore[union-attr]
    assert disks["vda"].find("driver").get("type") == "qcow2"  # type: ignore[union-attr]
    assert disks["vdb"].find("source").get("file") == DISK.seed  # type: ignore[union-attr]
    assert disks["vdb"].find("readonly") is not None
    assert disks["vda"].find("readonly") is None
    assert domain.find("os/kernel") is None


def test_hostile_values_are_escaped() -> None:
    cmdline = """a="<&>'" </cmdline><kernel>/evil</kernel>"""
    path = "/images/<&'\"> kernel"
    domain = parse(domain_xml(replace(SPEC, image=KernelImage(path, "/images/i", cmdline)), TCG))
    assert domain.findtext("os/cmdline") == f"console=ttyS0 panic=-1 no_timer_check {cmdline}"
    assert [element.text for element in domain.iter("kernel")] == [path]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "vjob12-1</name>"},
        {"name": "../vjob12-1"},
        {"name": "n1"},
        {"name": "vjob12-٣"},
        {"uuid": "x"},
        {"mac": "52:54:00:00:00:01'/>"},
        {"bridge": "br0,script=/evil"},
        {"bridge": ""},
        {"cpus": 0},
        {"memory_mib": 0},
        {"config_path": "relative"},
        {"config_path": "/vm/a,file=/etc/shadow"},
        {"config_path": ""},
        {"console_log": "console"},
        {"image": KernelImage("", "/i")},
        {"image": KernelImage("/k\n", "/i")},
        {"image": KernelImage("/k", "/i", "a\0b")},
        {"image": DiskImage("json:{}", "/s")},
        {"network_filter": "a b"},
        {"network_filter": "x", "address": "10.0.0.0/8"},
    ],
    ids=str,
)
def test_impossible_values_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        domain_xml(replace(SPEC, **changes), TCG)  # type: ignore[arg-type]


def saved_form(spec: VMSpec) -> str:
    """What libvirt keeps with a state: exact machine, addresses."""
    domain = parse(domain_xml(spec, TCG))
    domain.find("os/type").set("machine", "pc-q35-7.2")  # type: ignore[union-attr]
    etree.SubElement(domain.find("devices/interface"), "address", type="pci", bus="0x01")  # type: ignore[arg-type]
    return etree.tostring(domain, encoding="unicode")


@pytest.mark.parametrize("image", [KERNEL, DISK])
def test_restored_elsewhere_it_has_the_paths_of_there_and_the_hardware_of_then(image: KernelImage | DiskImage) -> None:
    saved = saved_form(replace(SPEC, image=image))
    elsewhere: KernelImage | DiskImage
    elsewhere = KernelImage("/b/k", "/b/i") if isinstance(image, KernelImage) else DiskImage("/b/o", "/b/s")
    there = replace(SPEC, image=elsewhere, config_path="/b/c", console_log="/b/l", bridge="br7")
    xml = with_paths_of(saved, there)
    domain = parse(xml)
    for old in ("/images/", "/vm/", "br0", "quiet"):
        assert old not in xml
    assert domain.find("os/type").get("machine") == "pc-q35-7.2"  # type: ignore[union-attr]
    assert domain.find("devices/interface/address") is not None
    assert domain.find("devices/serial/log").get("file") == "/b/l"  # type: ignore[union-attr]


FILTERED = replace(SPEC, network_filter="clean-traffic", address="10.77.1.12")


def filters_of(xml: str) -> list[tuple[str | None, str | None, str | None]]:
    return [
        (one.getparent().get("filter"), one.get("name"), one.get("value"))
        for one in parse(xml).findall("devices/interface/filterref/parameter")
    ]


def test_the_filter_is_told_the_address_of_the_vm(schema: etree.RelaxNG) -> None:
    xml = domain_xml(FILTERED, TCG)
    schema.assertValid(parse(xml))
    assert filters_of(xml) == [("clean-traffic", "IP", "10.77.1.12")]
    assert "filterref" not in domain_xml(SPEC, TCG)


def test_a_restored_vm_has_the_filter_of_today_and_its_own_address() -> None:
    other = replace(FILTERED, network_filter="another", address="10.77.1.13")
    for before in (SPEC, FILTERED, other):
        assert filters_of(with_paths_of(saved_form(before), FILTERED)) == [("clean-traffic", "IP", "10.77.1.12")]
        assert "filterref" not in with_paths_of(saved_form(before), SPEC)


BY_NODE = replace(FILTERED, network_filter="nftables")


def taps_of(xml: str) -> list[str | None]:
    return [one.get("dev") for one in parse(xml).findall("devices/interface/target")]


def test_a_vm_that_its_node_filters_has_an_interface_by_whose_name_it_does_so(schema: etree.RelaxNG) -> None:
    xml = domain_xml(BY_NODE, TCG)
    schema.assertValid(parse(xml))
    assert "filterref" not in xml
    assert taps_of(xml) == [tap_of(SPEC.name)]


def test_a_restored_vm_is_filtered_by_its_node_or_by_libvirt_as_it_is_said_today() -> None:
    sister = saved_form(replace(BY_NODE, name="vjob12-3")).replace("vjob12-3", SPEC.name)
    for before in (saved_form(SPEC), saved_form(FILTERED), saved_form(BY_NODE), sister):
        assert taps_of(with_paths_of(before, BY_NODE)) == [tap_of(SPEC.name)]
        assert "filterref" not in with_paths_of(before, BY_NODE)
        assert taps_of(with_paths_of(before, FILTERED)) == []


def test_templates_do_not_depend_on_filter_and_address() -> None:
    assert domain_xml(neutral(FILTERED), TCG) == domain_xml(neutral(SPEC), TCG)
    assert domain_xml(neutral(BY_NODE), TCG) == domain_xml(neutral(SPEC), TCG)


def test_state_of_another_vm_is_refused() -> None:
    with pytest.raises(ValueError, match="not of vjob12-2"):
        with_paths_of(saved_form(SPEC), replace(SPEC, name="vjob12-2"))
    with pytest.raises(ValueError):
        with_paths_of(saved_form(SPEC), replace(SPEC, uuid=SPEC.uuid[:-1] + "f"))
    with pytest.raises(ValueError):
        with_paths_of(saved_form(SPEC), replace(SPEC, image=DISK))
    with pytest.raises(ValueError):
        with_paths_of("<domain", SPEC)


def test_the_machine_types_that_a_node_offers_are_those_with_a_version() -> None:
    capabilities = """<capabilities><guest><arch name='i686'><machine>pc-q35-1.0</machine></arch></guest>
    <guest><arch name='x86_64'><machine maxCpus='255'>pc-i440fx-7.2</machine>
    <machine canonical='pc-i440fx-7.2' maxCpus='255'>pc</machine><machine canonical='pc-q35-7.2'>q35</machine>
    <machine>pc-q35-7.2</machine><domain type='kvm'><machine>pc-q35-8.0</machine></domain></arch></guest>
    </capabilities>"""
    assert offered_machines(capabilities) == {"pc-i440fx-7.2", "pc-q35-7.2", "pc-q35-8.0"}


def test_the_vm_is_of_the_machine_type_that_was_asked_for() -> None:
    assert parse(domain_xml(SPEC, TCG)).find("os/type").get("machine") == "pc-q35-8.0"  # type: ignore[union-attr]


def test_a_vm_says_the_epoch_of_the_engine_that_created_or_restored_it() -> None:
    first = domain_xml(SPEC, KVM)
    assert "epoch" not in first and epoch_of(first) == FIRST_EPOCH
    second = domain_xml(replace(SPEC, epoch=2), KVM)
    assert epoch_of(second) == 2
    for saved, epoch in ((first, 3), (second, 3), (second, FIRST_EPOCH)):
        assert epoch_of(with_paths_of(saved, replace(SPEC, epoch=epoch))) == epoch
    assert neutral(replace(SPEC, epoch=2)) == neutral(SPEC)
    assert strange(second.replace('epoch="2"', 'epoch="two"')) and not strange(second)
