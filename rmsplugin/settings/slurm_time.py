"""Time limits as users of Slurm write them."""

from __future__ import annotations

import re

_SLURM_TIME = re.compile(
    r"(?:(?P<days>\d{1,4})-(?P<h>\d{1,2})(?::(?P<m>\d{1,2})(?::(?P<s>\d{1,2}))?)?"
    r"|(?P<minutes>\d{1,6})|(?P<min>\d{1,6}):(?P<sec>\d{1,2})|(?P<hours>\d{1,4}):(?P<mins>\d{1,2}):(?P<secs>\d{1,2}))"
)


def slurm_time_s(text: str) -> int:
    """Read a time limit as Slurm's commands take it: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    Raises:
        ValueError: the text is no time limit.
    """
    match = _SLURM_TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time limit of Slurm's: say minutes, HH:MM:SS or DAYS-HH:MM:SS")
    part = {name: int(value or 0) for name, value in match.groupdict().items()}
    hours = part["days"] * 24 + part["h"] + part["hours"]
    minutes = part["m"] + part["minutes"] + part["min"] + part["mins"]
    return hours * 3600 + minutes * 60 + part["s"] + part["sec"] + part["secs"]
