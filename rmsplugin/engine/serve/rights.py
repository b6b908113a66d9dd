"""Rights: whom the engine takes for itself, and for an operator."""

from __future__ import annotations

import pwd
from dataclasses import dataclass, replace

from rmsplugin.engine.context.context import Context
from rmsplugin.errors import ForbiddenError


@dataclass(frozen=True, slots=True)
class Rights:
    """What callers may, by the uid that the operating system or munge proved."""

    engine_uids: frozenset[int]  # root, and the account that the engine runs as
    operators: frozenset[str]
    powers: bool = True

    @classmethod
    def of_site(cls, context: Context) -> Rights:
        """As the settings have it."""
        settings = context.settings.engine
        return cls(frozenset({0, pwd.getpwnam(settings.user).pw_uid}), frozenset(settings.operators))

    def without_powers(self) -> Rights:
        """The same, where root, the engine's user and operators may not more than others."""
        return replace(self, powers=False)

    def is_engine(self, uid: int) -> bool:
        """Whether it is root's, or the engine's own."""
        return self.powers and uid in self.engine_uids

    def is_operator(self, uid: int) -> bool:
        """Whether it is an operator's, or the engine's."""
        return (self.powers and user_name(uid) in self.operators) or self.is_engine(uid)

    def require_operator(self, uid: int, what: str) -> None:
        """Raise ForbiddenError unless it is an operator's; ``what`` only they may do."""
        if not self.is_operator(uid):
            raise ForbiddenError(f"only operators may {what}; see engine.operators in the settings")


def user_name(uid: int) -> str:
    """Of that account, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
