"""Frames that a guest sends and is sent on a bridge, in a network of its own: prints which came through.

``python -m security.guest_frames TAP MAC ADDRESS``, on whose standard input is a shell's script that makes the rules.
Its bridge has two ports: TAP, whose other end is the guest, and one whose other end is a neighbour.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

GUEST, NEIGHBOUR = "guest", "neighbour"
EVERYTHING = 3  # ETH_P_ALL
MARK_BYTES = 50  # of the text by which a frame is known
PATIENCE_S = 20
OTHER_MAC, OTHER_ADDRESS = "52:54:00:00:ba:d0", "10.77.1.250"
NEIGHBOURS_MAC, NEIGHBOURS_ADDRESS = "52:54:00:00:00:99", "10.77.1.1"
ALL_MACS, NO_MAC, NO_ADDRESS = "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "0.0.0.0"

BRIDGE = """
ip link add bridge type bridge
ip link add {tap} type veth peer name guest
ip link add port type veth peer name neighbour
ip link set {tap} master bridge
ip link set port master bridge
for each in bridge {tap} guest port neighbour; do ip link set $each up; done
"""


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def ether(destination: str, source: str, kind: int, payload: bytes) -> bytes:
    return mac(destination) + mac(source) + struct.pack("!H", kind) + payload


def tagged(frame: bytes, kind: int = 0x8100) -> bytes:
    """The frame in VLAN 5."""
    return frame[:12] + struct.pack("!HH", kind, 5) + frame[12:]


def ip(source: str, destination: str) -> bytes:
    """The head of a datagram of an experimental protocol; bridges drop one whose length or checksum is wrong."""
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    words = struct.pack("!BBHHHBB", 0x45, 0, 20 + MARK_BYTES, 1, 0, 64, 253)
    total = sum(struct.unpack("!9H", words + addresses))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return words + struct.pack("!H", total ^ 0xFFFF) + addresses


def ipv6() -> bytes:
    """The head of one from a link-local address to another, with no header behind it."""
    return struct.pack("!IHBB", 0x60000000, MARK_BYTES, 59, 64) + 2 * bytes.fromhex("fe80000000000000505400fffe000001")


def arp(operation: int, source_mac: str, source: str, target_mac: str, target: str, *, hardware: int = 1) -> bytes:
    ends = (mac(source_mac), socket.inet_aton(source), mac(target_mac), socket.inet_aton(target))
    return struct.pack("!HHBBH", hardware, 0x0800, 6, 4, operation) + b"".join(ends)


def from_guest(own: str, address: str) -> Iterator[tuple[str, bytes]]:
    """Frames by what they are."""
    to, there = NEIGHBOURS_MAC, NEIGHBOURS_ADDRESS
    whole = ether(to, own, 0x0800, ip(address, there))
    yield "IPv4", whole
    yield "IPv4 from another address", ether(to, own, 0x0800, ip(OTHER_ADDRESS, there))
    yield "IPv4 from no address", ether(ALL_MACS, own, 0x0800, ip(NO_ADDRESS, "255.255.255.255"))
    yield "IPv4 from another MAC", ether(to, OTHER_MAC, 0x0800, ip(address, there))
    yield "IPv4 in a VLAN", tagged(whole)
    yield "IPv4 in a service VLAN", tagged(whole, 0x88A8)
    yield "IPv4 from another address in a VLAN", tagged(ether(to, own, 0x0800, ip(OTHER_ADDRESS, there)))
    yield "IPv4 in PPPoE", ether(to, own, 0x8864, struct.pack("!BBHHH", 0x11, 0, 1, 62, 0x21) + ip(address, there))
    yield "ARP request", ether(ALL_MACS, own, 0x0806, arp(1, own, address, NO_MAC, there))
    yield "ARP reply", ether(to, own, 0x0806, arp(2, own, address, to, there))
    yield "ARP request for another address", ether(ALL_MACS, own, 0x0806, arp(1, own, OTHER_ADDRESS, NO_MAC, there))
    yield "ARP reply for another address", ether(to, own, 0x0806, arp(2, own, OTHER_ADDRESS, to, there))
    yield "ARP that names another MAC", ether(to, own, 0x0806, arp(2, OTHER_MAC, address, to, there))
    yield "ARP from another MAC", ether(to, OTHER_MAC, 0x0806, arp(2, own, address, to, there))
    yield "ARP in a VLAN", tagged(ether(to, own, 0x0806, arp(2, own, OTHER_ADDRESS, to, there)))
    yield "RARP of a VM that moved", ether(ALL_MACS, own, 0x8035, arp(3, own, NO_ADDRESS, own, NO_ADDRESS))
    yield "RARP from another MAC", ether(ALL_MACS, OTHER_MAC, 0x8035, arp(3, own, NO_ADDRESS, own, NO_ADDRESS))
    yield "RARP that names another MAC", ether(ALL_MACS, own, 0x8035, arp(3, OTHER_MAC, NO_ADDRESS, own, NO_ADDRESS))
    yield "RARP for another MAC", ether(ALL_MACS, own, 0x8035, arp(3, own, NO_ADDRESS, OTHER_MAC, NO_ADDRESS))
    yield "RARP with an address", ether(ALL_MACS, own, 0x8035, arp(3, own, address, own, NO_ADDRESS))
    yield "RARP for an address", ether(ALL_MACS, own, 0x8035, arp(3, own, NO_ADDRESS, own, address))
    yield "RARP reply", ether(ALL_MACS, own, 0x8035, arp(4, own, NO_ADDRESS, own, NO_ADDRESS))
    yield "RARP to one", ether(to, own, 0x8035, arp(3, own, NO_ADDRESS, own, NO_ADDRESS))
    yield "IPv6", ether(to, own, 0x86DD, ipv6())
    yield "a kind of frame that nobody knows", ether(to, own, 0x88B5, bytes(40))
    yield "LLC", ether(to, own, 60, b"\x42\x42\x03" + bytes(40))


def to_guest(own: str, address: str) -> Iterator[tuple[str, bytes]]:
    """The same of what the neighbour sends."""
    here, source = NEIGHBOURS_MAC, NEIGHBOURS_ADDRESS
    whole = ether(own, here, 0x0800, ip(source, address))
    yield "to it: IPv4", whole
    yield "to it: IPv4 in a VLAN", tagged(whole)
    yield "to it: ARP", ether(ALL_MACS, here, 0x0806, arp(1, here, source, NO_MAC, address))
    yield "to it: RARP", ether(ALL_MACS, here, 0x8035, arp(3, here, NO_ADDRESS, here, NO_ADDRESS))
    yield "to it: IPv6", ether(own, here, 0x86DD, ipv6())
    yield "to it: a kind of frame that nobody knows", ether(own, here, 0x88B5, bytes(40))


def opened(interface: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING))
    opened.bind((interface, EVERYTHING))
    opened.settimeout(0.2)
    return opened


def passed(frames: list[tuple[str, bytes]], last: bytes, sender: socket.socket, receiver: socket.socket) -> list[str]:
    """Which of the frames arrive; ``last`` does, and is sent behind them until it has."""
    for name, frame in frames:
        sender.send(frame + f"<{name}>".encode().ljust(MARK_BYTES, b"."))
    deadline, found = time.monotonic() + PATIENCE_S, set()
    while time.monotonic() < deadline:
        sender.send(last + b"<last>".ljust(MARK_BYTES, b"."))
        try:
            while b"<last>" not in (seen := receiver.recv(2048)):
                found |= {name for name, _ in frames if f"<{name}>".encode() in seen}
        except TimeoutError:
            continue
        return [name for name, _ in frames if name in found]
    raise SystemExit("nothing passes")


def main() -> None:
    tap, own, address = sys.argv[1:]
    subprocess.run(["sh", "-ec", BRIDGE.format(tap=tap)], check=True)
    guest, neighbour = opened(GUEST), opened(NEIGHBOUR)
    outwards, inwards = list(from_guest(own, address)), list(to_guest(own, address))
    last = ether(NEIGHBOURS_MAC, own, 0x0800, ip(address, NEIGHBOURS_ADDRESS))
    back = ether(own, NEIGHBOURS_MAC, 0x0800, ip(NEIGHBOURS_ADDRESS, address))
    passed([], last, guest, neighbour)  # the bridge begins to pass
    passed([], back, neighbour, guest)
    subprocess.run(["sh", "-ec", sys.stdin.read()], check=True, stdin=subprocess.DEVNULL)
    print(json.dumps(passed(outwards, last, guest, neighbour) + passed(inwards, back, neighbour, guest)))


if __name__ == "__main__":
    main()
