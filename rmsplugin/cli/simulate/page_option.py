"""Page option: the page of --html, for whoever asks for one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmsplugin.cli.simulate.page import PageFile


def page_of(arguments: argparse.Namespace) -> PageFile | None:
    """The page of --html, if one is asked for; nobody else waits for the libraries that make pages.

    Raises:
        RefusedError: it cannot be written there.
        ReportError: what pages need is not installed.
    """
    if arguments.html is None:
        return None
    from rmsplugin.cli.simulate.page import PageFile

    return PageFile(arguments.html)
