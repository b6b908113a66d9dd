"""Guests: the engine's actions inside a VM after it has booted or was restored.

Contract of ``Guests``, for every implementation:

* Calls block, and are bounded in time by ``timeout_s``. They may be called from several threads.
* Every call is idempotent. A guest is addressed by its address and proves itself by its host key; a guest that cannot
  gets nothing.
* A guest that does not answer (yet) raises UnavailableError. One that shows another host key, or refuses the engine's
  key, raises ForbiddenError. One where a command fails raises OperationFailedError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rmsplugin.adapters.guests.config import GuestConfig
from rmsplugin.adapters.guests.used import Used


class Guests(Protocol):
    """The insides of all VMs; see the module's contract."""

    def wait_ready(
        self, address: str, host_key: str, *, timeout_s: float, check: Callable[[], None] = lambda: None
    ) -> None:
        """Return when the guest lets the engine in as root.

        ``check`` is called before each attempt; its errors end the wait. Raises UnavailableError when time is up,
        ForbiddenError.
        """
        ...

    def configure(
        self,
        address: str,
        host_key: str,
        config: GuestConfig,
        *,
        timeout_s: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Make the guest a VM of its vjob: tools, names, account, keys, mounts.

        ``check`` is called now and then; its errors end the wait for the guest. Raises OperationFailedError (with
        the guest's words), TimedOutError, UnavailableError, ForbiddenError.
        """
        ...

    def used(self, address: str, host_key: str, *, timeout_s: float) -> Used | None:
        """The use of the job's processes in the guest; None: the guest does not count. Raises as ``configure``."""
        ...

    def script_ended(self, address: str, host_key: str, *, timeout_s: float) -> bool:
        """Whether the job's script, which runs in this guest, was started and has ended. Raises as ``configure``."""
        ...

    def set_cpus(self, address: str, host_key: str, cpus: int, *, timeout_s: float) -> int:
        """Let the guest's kernel use its first ``cpus`` CPUs, and take the others off line, until it boots again.

        Programs that run on the others go on, on CPUs that are left. More than the guest has means all of them.

        Returns:
            The number of CPUs that it used before.

        Raises:
            ValueError: fewer than one.
            OperationFailedError: its kernel cannot do that; otherwise as ``configure``.
        """
        ...

    def set_clock(self, address: str, host_key: str, *, timeout_s: float) -> None:
        """Set the guest's clock to this host's. Raises as ``configure``."""
        ...
