"""Report mail: the summary of yesterday, mailed to operators."""

from __future__ import annotations

import smtplib
import socket
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from rmsplugin.engine.schedule.programs import Programs
from rmsplugin.errors import OperationFailedError

#: A year with a million jobs takes a minute.
_REPORT_S = 1800.0
_MAIL_S = 60.0


def mail_report(programs: Programs, server: str, sender: str, recipients: Sequence[str], timezone: str) -> str:
    """Have the report of yesterday made, and mail it. Returns what was done.

    Args:
        programs: runs the command.
        server: HOST or HOST:PORT, which takes mail by SMTP from this host.
        sender: address that it comes from; empty: rmsplugin at this host.
        recipients: addresses.
        timezone: name of the time zone of yesterday; empty: that of the host.

    Raises:
        OperationFailedError: it was not made, or not taken by the server.
    """
    words = ("--since", "yesterday", "--until", "today", "--email-format")
    text = programs.run("report", *words, timeout_s=_REPORT_S, timezone=timezone)
    message = EmailMessage()
    message["Subject"] = "rmsplugin: summary of yesterday"
    message["From"] = sender or f"rmsplugin@{socket.getfqdn()}"
    message["To"] = ", ".join(recipients)
    message["Date"] = formatdate(localtime=True)
    message["Message-ID"] = make_msgid("rmsplugin")
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text)
    host, port = server_address(server)
    try:
        with smtplib.SMTP(host, port, timeout=_MAIL_S) as connection:
            refused = connection.send_message(message)
    except (OSError, smtplib.SMTPException) as error:
        raise OperationFailedError(f"the mail server {server} did not take the report: {error}") from None
    if refused:
        raise OperationFailedError(f"the mail server {server} did not take the report for {', '.join(sorted(refused))}")
    return f"mailed to {', '.join(recipients)}"


def server_address(text: str) -> tuple[str, int]:
    """Host and port of HOST, HOST:PORT or [ADDRESS]:PORT."""
    host, colon, port = text.rpartition(":")
    return (host.strip("[]"), int(port)) if colon and not text.endswith("]") else (text.strip("[]"), 25)
