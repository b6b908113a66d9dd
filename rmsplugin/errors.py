"""The errors that cross a boundary of the plugin, each with the sentence that a person reads."""

from __future__ import annotations


class RmspluginError(Exception):
    """Base of all; the message is one line for a person: what, where, what to do.

    Attributes:
        status: the HTTP status of the engine's answer that has this error; 0: it is of no answer.
    """

    status = 0


class SettingsError(RmspluginError):
    """The settings file is wrong; the message names file and line."""


class LedgerError(RmspluginError):
    """The engine's ledger cannot be used as it is; nothing of it was changed."""


class LedgerUnavailableError(RmspluginError):
    """The engine's ledger cannot be read or written at the moment: locked, or no space; nothing of it was changed."""


class QueryError(RmspluginError):
    """The query of the engine's ledger is no query, or does more than read; the message says which."""


class InstanceError(RmspluginError):
    """A configuration in a file is wrong; the message has a line for each fault: file, place, fault."""


class WorkloadError(RmspluginError):
    """A trace of jobs cannot be read, or nothing of it can be simulated; the message says where and why."""


class OwnPolicyError(RmspluginError):
    """A policy of the site cannot be loaded, or errs; the message names it, and says what it did."""


class ReportError(RmspluginError):
    """The report cannot be made: the ledger or accounting knows no such user, job, ...; the message says which."""


class UnavailableError(RmspluginError):
    """A service did not answer in time or refused the connection; trying again later may help."""


class UnreachableError(UnavailableError):
    """No connection came about: the service has not got the request."""


class SilentError(UnreachableError):
    """The service took a connection, and answers nothing: nothing was asked of it. It is slow, or it stands still."""


class KeyRefusedError(UnreachableError):
    """The host is there, and does not let us in with our key."""


class HostKeyError(UnreachableError):
    """The host is there, and its host key is not the one that is known of it, or none is known."""


class NoMungeError(UnavailableError):
    """munged of this host does not answer: nobody else can be asked anything from here that munge has to prove."""


class NoStoreError(UnavailableError):
    """A node's store of saved states does not show its marker: it is not mounted, or was never set up."""


class NodeGoneError(UnavailableError):
    """An operator (or a fencing command) declared the node dead: it gets no requests until it is back."""


class NotFoundError(RmspluginError):
    """The named thing does not exist."""


class RefusedError(RmspluginError):
    """The request is understood and refused; the message says why."""


class ForbiddenError(RefusedError):
    """The caller may not do this."""


class WrongOrderError(RmspluginError):
    """A command orders what cannot be, as its words are; nothing was done."""


class NoSpaceError(RmspluginError):
    """A store has no room for a state file."""


class CorruptStateError(RmspluginError):
    """A saved state differs from the written one; it must never be restored."""


class OperationFailedError(RmspluginError):
    """The hypervisor, the RMS or a guest could not do what it was asked."""


class DeposedError(OperationFailedError):
    """The turn of this engine is over: an engine of a higher epoch acts now, and nodes obey that engine alone."""


class GuestFailedError(OperationFailedError):
    """A VM runs, but its guest does not come up or cannot be configured: the cause may be its node, or its image."""


class LostStateError(OperationFailedError):
    """The state of a VM is truly lost: its vjob has to begin again (I5)."""


class TimedOutError(OperationFailedError):
    """An operation did not end within its bound; its outcome has to be observed."""
