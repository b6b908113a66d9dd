"""Parsers of what guests, users and nodes wrote, given mutations of it: the value, or the error that each promises."""

from __future__ import annotations

import io
import json
import random
import tarfile
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from rmsplugin.adapters.guests.used import Used
from rmsplugin.adapters.nodes.answers import read_answer as agents_answer
from rmsplugin.adapters.platform.base import KernelImage, VMSpec
from rmsplugin.adapters.platform.libvirt.domain_xml import Machine, domain_xml, with_paths_of
from rmsplugin.adapters.platform.libvirt.on_node.formats import STATE_MAGIC
from rmsplugin.adapters.platform.libvirt.on_node.saved_state import _HEAD, _VERSION, head_as
from rmsplugin.adapters.platform.node_base import Identity
from rmsplugin.adapters.rms import slurm_records, slurm_text
from rmsplugin.errors import CorruptStateError, OperationFailedError, RefusedError, UnavailableError
from rmsplugin.model.hostlist import HostList
from rmsplugin.model.vjob import Geometry
from rmsplugin.model.vm_names import parse_vm_name
from rmsplugin.workload.swf import FaultyLineError, parse_line
from rmsplugin.wrapper.carry_out.asked import read as asked
from rmsplugin.wrapper.session.access import Access
from rmsplugin.wrapper.session.guest_state import parse_state
from rmsplugin.wrapper.session.steps import Steps
from rmsplugin.wrapper.signals import Fate, parse_fate

ROUNDS = 1500
_PIECES = [
    *(
        b"\0",
        b"\n",
        b"\r\n",
        b"=",
        b",",
        b"|",
        b"[",
        b"]",
        b"-",
        b"%",
        b" ",
        b"\t",
        b"\x1f",
        b"\xff",
        b"<",
        b"&a;",
        b'"',
    ),
    *("\u2028".encode(), "\u00b2".encode(), "\u0663".encode(), b"0", b"1", b"-1", b"4294967295", b"9" * 25, b"1e309"),
    *(b"NaN", b"null", b"{}", b"[]"),
]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A few changes: bytes and pieces that mean something somewhere, repetitions, ends cut off."""
    for _ in range(chance.randint(0, 5)):
        at, size = chance.randint(0, len(data)), chance.randint(0, 12)
        match chance.randint(0, 4):
            case 0:
                data = data[:at] + bytes([chance.randint(0, 255)]) + data[at + 1 :]
            case 1:
                data = data[:at] + chance.choice(_PIECES) + data[at + chance.randint(0, 3) :]
            case 2:
                data = data[:at] + data[at + size :]
            case 3:
                data = data[:at] + data[at : at + size] * 2 + data[at + size :]
            case 4:
                data = data[:at]
    return data


def text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    """Of a parser of texts."""
    return lambda data: parse(data.decode(errors="replace"))


def _request() -> bytes:
    made = io.BytesIO()
    parts = {
        "words": b"squeue\0-u\0alice\0",
        "cwd": b"/home/alice",
        "umask": b"0022",
        "environment": b"PATH=/bin\0A=b\0",
    }
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()[:4096]


class _Channel:
    """An agent's connection that says this."""

    def __init__(self, data: bytes) -> None:
        self._chunks = [data[i : i + 37] for i in range(0, len(data), 37)]

    def settimeout(self, seconds: float) -> None:
        pass

    def recv(self, size: int) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""

    def recv_stderr(self, size: int) -> bytes:
        return b""


def _agent(data: bytes) -> object:
    patience = SimpleNamespace(remaining_s=1.0)
    answer = agents_answer(_Channel(data), patience, "it", lambda progress: None)  # type: ignore[arg-type]
    assert isinstance(answer, dict)
    return answer


def _steps(data: bytes) -> object:
    steps = Steps("", "12", lambda: Fate.RUNNING, lambda step, number: None)
    return [steps.take(line) for line in data.split(b"\n")]


def _access(data: bytes) -> object:
    try:
        answer = json.loads(data)
    except ValueError:
        return None
    return Access.parse(answer) if isinstance(answer, dict) else None


SPEC = VMSpec(
    name="vjob12-1",
    uuid="00000000-0000-4000-8000-000000000001",
    cpus=2,
    memory_mib=512,
    mac="52:54:00:00:00:01",
    bridge="br0",
    image=KernelImage("/images/vmlinuz", "/images/initrd.img", "quiet"),
    config_path="/vm/vjob12-1.config",
    console_log="/vm/vjob12-1.console",
)
XML = domain_xml(SPEC, Machine("qemu", "pc-q35-8.0"))
IDENTITY = Identity("vjob13-0", 13, 0, SPEC.uuid, SPEC.mac)
TOKEN = "T0ken"
#: What Slurm prints of a job; fields that are not here are numbers, or not known.
ROW = {
    **dict.fromkeys(slurm_text.JOB_FIELDS, "0"),
    **{"display_id": "12_1", "job_id": "12", "array_id": "12", "task": "1", "word": "PENDING", "memory": "512M"},
    **{"end": "N/A", "limit": "1:00:00", "nodes": "n[1-3]", "required_nodes": "", "licenses": "(null)"},
}


def _head() -> bytes:
    data = XML.encode().ljust(len(XML) + 200, b"\0")
    return _HEAD.pack(STATE_MAGIC, _VERSION, len(data), 1, 0, 0, b"") + data


def _jobs(data: bytes) -> object:
    """A job's name is its user's and may hold anything; the rest of a row is Slurm's."""
    name = data.decode(errors="replace")
    [row] = slurm_text.job_rows("\x1f".join([*list(ROW.values())[:-1], name, TOKEN]) + "\n", TOKEN, "gate", 1700000000)
    assert row.job.name == name
    return row


Parser = Callable[[bytes], object]
#: By name: the parser, good input, and the errors that it promises.
PARSERS: dict[str, tuple[Parser, bytes, tuple[type[Exception], ...]]] = {
    "requests of clients": (lambda data: asked(io.BytesIO(data)), _request(), (RefusedError,)),
    "what a guest used": (text(Used.parse), b"usage_usec=1\nuser_usec=2\nmemory_bytes=3\n", (OperationFailedError,)),
    "what a guest knows of its script": (parse_state, b"started\nkept out 5\nout 7 12\n", (OperationFailedError,)),
    "steps of a guest": (_steps, b"hub\nbegan 0 3 name\nended 0 exit 2\nbegan 1 1 x\nended 1 signal 9\nnow\n", ()),
    "answers of a node's agent": (_agent, b'{"bytes_done": 5}\n{"size": 7, "name": "x"}\n', (OperationFailedError,)),
    "the engine's answer to a wrapper": (
        _access,
        json.dumps({"state": "running", "user": "a", "private_key": "k", "returns": 1,
                    "vms": [{"name": "vjob12-0", "address": "10.0.0.1", "host_key": "ssh-ed25519 A"}]}).encode(),
        (UnavailableError,),
    ),
    "what Slurm does to a job": (
        text(lambda line: parse_fate(line, 1)), b"JobId=12 JobName=x JobState=RUNNING Reason=None Restarts=2", (),
    ),
    "geometries": (
        text(Geometry.parse),
        b"vms=2,cpus=1,memory=128,ntasks=2,cpus_per_task=1,image=default,features=a&b,nodes=n[1-2];n4,x_new=1",
        (ValueError,),
    ),
    "host lists": (text(lambda line: list(HostList(line))), b"n[1-3,07],gpu1,m[1-2]x[3-4]", (ValueError,)),
    "names of VMs": (text(parse_vm_name), b"vjob12-1", ()),
    "lines of traces": (parse_line, b"1 0 5 100 4 -1 -1 4 200 -1 1 3 -1 -1 1 -1 -1 -1", (FaultyLineError,)),
    "XML of saved states": (text(lambda xml: with_paths_of(xml, SPEC)), XML.encode(), (ValueError,)),
    "heads of saved states": (lambda data: head_as(io.BytesIO(data), IDENTITY), _head(), (CorruptStateError,)),
    "names of jobs": (_jobs, "a \u2028name\n12|x\x1fy".encode(), ()),
    "licences": (text(lambda line: slurm_text.without_gate(line, "gate")), b"gate:1,matlab:4@site", ()),
    "ended jobs": (text(lambda rows: slurm_text.ended_jobs(rows, {12})), b"12|COMPLETED\n13|CANCELLED by 1\n", ()),
    "times": (text(slurm_records.epoch), b"1700000000", ()),
    "configurations": (text(slurm_records.configuration), b"A = b\nLicenses = gate:1\n", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_gives_a_value_or_the_error_that_it_promises(name: str) -> None:
    parse, good, promised = PARSERS[name]
    parse(good)
    chance = random.Random(name)
    for _ in range(ROUNDS):
        data = mutated(good, chance)
        try:
            parse(data)
        except promised:
            pass
        except Exception as error:
            raise AssertionError(f"{name}: {data!r} gives {error!r}") from error
