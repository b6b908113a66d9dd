"""The network filter of VMs' interfaces: its rules, and the check that each node has it before a VM starts there."""

from __future__ import annotations

import threading
from xml.etree import ElementTree

import libvirt

from rmsplugin.adapters.platform.base import NODE_FILTER, OUR_FILTER
from rmsplugin.adapters.platform.libvirt.nodes import LibvirtNodes
from rmsplugin.errors import OperationFailedError, RmspluginError, UnavailableError

#: libvirt identifies a filter by its name and UUID: with another UUID it would not replace an old filter by a newer
#: one.
_UUID = "6f1c2b7e-5d0a-4c57-9f0b-72d6b0f4a9c1"

#: Out of the VM pass only ARP and IPv4 from its own addresses, and QEMU's message to switches that it has moved. Into
#: it pass only ARP and IPv4. One chain: libvirt's `clean-traffic` makes eight, each by a process of its own.
FILTER_XML = f"""<filter name='{OUR_FILTER}' chain='root'>
  <uuid>{_UUID}</uuid>
  <rule action='accept' direction='out' priority='100'>
    <ip srcmacaddr='$MAC' srcipaddr='$IP'/>
  </rule>
  <rule action='accept' direction='out' priority='200'>
    <arp srcmacaddr='$MAC' arpsrcmacaddr='$MAC' arpsrcipaddr='$IP'/>
  </rule>
  <rule action='accept' direction='out' priority='300'>
    <rarp srcmacaddr='$MAC' dstmacaddr='ff:ff:ff:ff:ff:ff' opcode='Request_Reverse' arpsrcmacaddr='$MAC'
          arpdstmacaddr='$MAC' arpsrcipaddr='0.0.0.0' arpdstipaddr='0.0.0.0'/>
  </rule>
  <rule action='accept' direction='in' priority='400'><mac protocolid='ipv4'/></rule>
  <rule action='accept' direction='in' priority='500'><mac protocolid='arp'/></rule>
  <rule action='drop' direction='inout' priority='900'/>
</filter>
"""


class NetworkFilters:
    """Makes sure that nodes have the filters that VMs name."""

    def __init__(self, nodes: LibvirtNodes) -> None:
        """Take the way to the nodes."""
        self._nodes = nodes
        self._defined: dict[str, str] = {}  # by node, our filter as libvirt writes it there
        self._lock = threading.Lock()

    def require(self, node: str, name: str) -> None:
        """Require the filter on the node; ours is defined there, or corrected. Without effect for "" and NODE_FILTER.

        Raises:
            OperationFailedError: the node lacks the filter, or can have none: no VM that needs it may start there.
            UnavailableError: the node does not answer.
        """
        if name in ("", NODE_FILTER):
            return
        with self._lock:
            known = self._defined.get(node)

        def see(conn: libvirt.virConnect) -> str:
            found = _xml_of(conn, name)
            if name != OUR_FILTER or (found and found == known):
                return found
            return str(conn.nwfilterDefineXML(FILTER_XML).XMLDesc(0))

        try:
            found = self._nodes.query(node, f"looking for the network filter {name}", see)
        except UnavailableError:
            raise
        except RmspluginError as error:
            # Whatever libvirt's error: it must not look like a missing file or VM.
            raise OperationFailedError(
                f"{node} has no network filters, and without {name} (network.filter) no VM starts there: {error}"
            ) from None
        if not found:
            raise OperationFailedError(f"{node} has no network filter {name}, which network.filter names")
        if name == OUR_FILTER:
            with self._lock:
                self._defined[node] = found


def filter_of(xml: str) -> str:
    """The name of the filter in the XML of a VM; "" if it has none."""
    reference = ElementTree.fromstring(xml).find("devices/interface/filterref")
    return "" if reference is None else reference.get("filter", "")


def offered_filters(conn: libvirt.virConnect) -> frozenset[str] | str:
    """The names of a node's filters; a text is the reason why it can have none."""
    try:
        return frozenset(conn.listNWFilters())
    except libvirt.libvirtError as error:
        return " ".join((error.get_error_message() or str(error)).split())


def _xml_of(conn: libvirt.virConnect, name: str) -> str:
    try:
        return str(conn.nwfilterLookupByName(name).XMLDesc(0))
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_NWFILTER:
            return ""
        raise
