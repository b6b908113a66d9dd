"""Operations: suspend, resume and migrate a vjob through the engine, and watch how that goes."""

from __future__ import annotations

import argparse
import json
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rmsplugin.cli import arguments as options
from rmsplugin.cli.connection import connect, read_settings
from rmsplugin.cli.table import printable, short_bytes
from rmsplugin.errors import OperationFailedError, UnavailableError

if TYPE_CHECKING:
    from rich.progress import Progress

    from rmsplugin.client import EngineClient

#: Longest wait of one request when nobody watches.
_WAIT_S = 20.0
#: The same when somebody does.
_WATCHED_WAIT_S = 0.5
#: An engine that is restarted while it works goes on with the operation; so long it is waited for.
_PATIENCE_S = 60.0


def add_commands(commands: options.Commands) -> None:
    """Add suspend, resume and migrate to the command line."""
    suspend = options.add_command(
        commands,
        "suspend",
        "save the VMs of a running vjob to files and free what they take",
        _run,
        """
        For the vjob's user and for operators. The Slurm job is SUSPENDED meanwhile.

        examples:
          rmsplugin suspend 12
          rmsplugin suspend --no-wait 12
        """,
    )
    resume = options.add_command(
        commands,
        "resume",
        "restore the VMs of a sleeping vjob, here or on another node",
        _run,
        """
        For the vjob's user and for operators. Without --to the engine chooses the nodes, and prefers those
        that hold the saved states.

        examples:
          rmsplugin resume 12
          rmsplugin resume 12 --to n2
        """,
    )
    migrate = options.add_command(
        commands,
        "migrate",
        "move the VMs of a running vjob to other nodes while they run",
        _run,
        """
        For operators. Without --to the engine chooses the nodes.

        examples:
          rmsplugin migrate 12 --to n2
          rmsplugin migrate 12 --vm 0 --to n3
        """,
    )
    for command in (suspend, resume, migrate):
        command.add_argument("job", metavar="JOBID", type=options.job_id, help="job id, or ARRAYID_INDEX")
    for command in (resume, migrate):
        command.add_argument("--to", metavar="NODE", type=options.node_name, help="the node to use")
    migrate.add_argument("--vm", metavar="VM", type=options.vm, help="only this VM: its name, or its number from 0 on")
    for command in (suspend, resume, migrate):
        command.add_argument("--no-wait", action="store_true", help="do not wait for the end")
        command.add_argument("--json", action="store_true", help="print the operation as JSON when it has ended")


def _run(arguments: argparse.Namespace) -> int:
    client = connect(read_settings(arguments.config))
    body = {}
    if to := getattr(arguments, "to", None):
        body["to"] = to
    if vm := getattr(arguments, "vm", None):
        body["vm"] = vm_name(client, arguments.job, vm)
    started = time.monotonic()
    number = client.request("POST", f"/v1/jobs/{arguments.job}/{arguments.command}", body)["operation"]
    if arguments.no_wait:
        print(json.dumps({"operation": number}) if arguments.json else f"operation {number}")
        return 0
    operation = watch(client, number, f"{arguments.command} {arguments.job}")
    if arguments.json:
        print(json.dumps(operation, indent=1))
    if operation.get("state") == "failed":
        raise OperationFailedError(printable(str(operation.get("error") or "failed, without a reason")))
    if not arguments.json:
        moved = operation.get("bytes_done") or 0
        amount = f", {short_bytes(moved)}B" if moved else ""
        print(f"{arguments.command} {arguments.job}: done in {time.monotonic() - started:.1f} s{amount}")
    return 0


def vm_name(client: EngineClient, job: str, vm: str) -> str:
    """The name of a VM of the vjob, given its number or its name.

    Raises:
        OperationFailedError: the vjob has no such VM.
    """
    if not vm.isdecimal():
        return vm
    names = [
        str(row["name"])
        for row in client.request("GET", "/v1/vms").get("vms", [])
        if row.get("vjob") == job and str(row["name"]).endswith(f"-{int(vm)}")
    ]
    if not names:
        raise OperationFailedError(f"vjob {job} has no VM number {vm} now; `rmsplugin vms` lists them")
    return names[0]


def watch(client: EngineClient, number: int, title: str) -> dict[str, Any]:
    """Wait for the end of an operation."""
    with _Display(title) as display:
        wait_s = _WATCHED_WAIT_S if display.shown else _WAIT_S
        silent_since: float | None = None
        while True:
            try:
                operation = client.request("GET", f"/v1/operations/{number}?wait={wait_s:g}", timeout_s=wait_s + 10)
            except UnavailableError as error:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > _PATIENCE_S:
                    raise UnavailableError(
                        f"{error}; operation {number} goes on when the engine is back: see `rmsplugin events`"
                    ) from None
                time.sleep(1)
                continue
            except KeyboardInterrupt:
                print(
                    f"operation {number} goes on in the engine; `rmsplugin vjobs` shows how far it is", file=sys.stderr
                )
                raise
            silent_since = None
            if operation.get("state") != "running":
                return operation
            display.update(int(operation.get("bytes_done") or 0), int(operation.get("bytes_total") or 0))


class _Display:
    """Progress on a terminal; nothing in a pipe."""

    def __init__(self, title: str) -> None:
        self.shown = sys.stderr.isatty()
        self._progress: Progress | None = None
        self._title = title

    def __enter__(self) -> Self:
        if self.shown:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(binary_units=True),
                TimeElapsedColumn(),
            )
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
            self._task = self._progress.add_task(self._title, total=None)
        return self

    def update(self, done: int, total: int) -> None:
        """Show how many bytes have moved; a total of 0 is one that is not known yet."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total or None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
