"""Rights: the callers that count as the engine itself, and those that count as operators."""

from __future__ import annotations

import pwd
from dataclasses import dataclass, replace

from rmsplugin.errors import ForbiddenError
from rmsplugin.settings.engine import Engine


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of callers, by the uid that the operating system or munge proved."""

    engine_uids: frozenset[int]  # root, and the account that the engine runs as
    operators: frozenset[str]
    powers: bool = True

    @classmethod
    def of_site(cls, settings: Engine) -> Rights:
        """The rights by the site's settings."""
        return cls(frozenset({0, pwd.getpwnam(settings.user).pw_uid}), frozenset(settings.operators))

    def without_powers(self) -> Rights:
        """The same rights without powers of root, the engine's user and operators."""
        return replace(self, powers=False)

    def is_engine(self, uid: int) -> bool:
        """Whether the uid is root's, or the engine's own."""
        return self.powers and uid in self.engine_uids

    def is_operator(self, uid: int) -> bool:
        """Whether the uid is an operator's, or the engine's."""
        return (self.powers and user_name(uid) in self.operators) or self.is_engine(uid)

    def require_operator(self, uid: int, what: str) -> None:
        """Raise ForbiddenError unless the uid is an operator's; ``what``: the act that only operators may do."""
        if not self.is_operator(uid):
            raise ForbiddenError(f"only operators may {what}; see engine.operators in the settings")


def user_name(uid: int) -> str:
    """The name of the account with this uid, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
