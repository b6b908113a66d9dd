"""Values: a scene as a manager is told it by an engine, as JSON has it; and the scene that they are."""

from __future__ import annotations

import functools
from typing import Any

from pydantic import TypeAdapter

from rmsplugin.live_page.scene import Scene


def values_of(scene: Scene) -> dict[str, Any]:
    """What tells the scene. Pydantic's way takes an eighth of the time of dataclasses' own."""
    values: dict[str, Any] = _adapter().dump_python(scene)
    return values


def scene_of(values: object) -> Scene:
    """The scene that an engine has told.

    Raises:
        pydantic.ValidationError: it is none of this release.
    """
    return _adapter().validate_python(values)


@functools.cache
def _adapter() -> TypeAdapter[Scene]:
    return TypeAdapter(Scene)
