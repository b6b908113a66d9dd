"""Access: the way into the VMs of a vjob, as the engine tells it."""

from __future__ import annotations

import binascii

from rmsplugin.errors import UnavailableError

TYPE_CHECKING = False  # see rmsplugin/client.py
if TYPE_CHECKING:
    from typing import Any


class Access:
    """The engine's facts about a running vjob: the way into its VMs."""

    __slots__ = ("address", "host_key", "private_key", "returned", "returns", "user", "vm_names")

    def __init__(self, user: str, vm_names: tuple[str, ...], address: str, host_key: str, private_key: str) -> None:
        """``address`` and ``host_key`` are those of the first VM; the host key is ``ssh-ed25519 AAAA...``."""
        self.user, self.vm_names, self.address = user, vm_names, address
        self.host_key, self.private_key = host_key, private_key
        #: The number of times that the vjob went back to a checkpoint, and the message about the last time for its
        #: user.
        self.returns, self.returned = 0, ""

    @classmethod
    def parse(cls, answer: dict[str, Any]) -> Access | None:
        """Read the engine's answer; None while the VMs are not running.

        Raises:
            UnavailableError: the answer is not of the engine's form.
        """
        if answer.get("state") != "running" or not answer.get("vms"):
            return None
        try:
            vms = answer["vms"]
            access = cls(
                str(answer["user"]),
                tuple(str(vm["name"]) for vm in vms),
                str(vms[0]["address"]),
                str(vms[0]["host_key"]),
                str(answer["private_key"]),
            )
            access.returns, access.returned = int(answer.get("returns", 0)), str(answer.get("returned", ""))
            return access
        except (KeyError, TypeError) as error:
            raise UnavailableError(f"the engine's answer lacks {error}") from None

    def host_key_bytes(self) -> bytes:
        """The host key as it travels.

        Raises:
            UnavailableError: the host key is not of the engine's form.
        """
        try:
            return binascii.a2b_base64(self.host_key.split()[1], strict_mode=True)
        except (IndexError, ValueError):
            raise UnavailableError("the engine's answer has no proper host key") from None
