"""A section of the settings: every key with its default, its bounds and its description, unknown keys refused."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=86400 * 7)]


class Section(BaseModel):
    """A section of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
