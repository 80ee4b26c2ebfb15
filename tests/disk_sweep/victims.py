"""Whom a fault meets: the driver that commits, or one that goes on with what another driver left that died."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import committer
from tests.disk_sweep import life


class Start(NamedTuple):
    """Where the driver before died: in which phase, before which store call, and which of those."""

    phase: str
    call: str
    number: int


OPEN: Final = Start("setup", "put /_temporary/j~X/intent-", 1)
UNDECIDED: Final = Start("intent", "", 1)
# The marker was set aside, and two files are published; where old ones make room for them by a link, fewer.
HALF: Final = Start("decision", "rename_file", 4)
ENDED: Final = Start("outcome", "", 1)


class Victim(NamedTuple):
    """Who meets the fault.

    Attributes:
        start: Where the driver before died; None where there was none.
        verb: What the victim does.
    """

    start: Start | None
    verb: str


VICTIMS: Final[dict[str, Victim]] = {
    "commit": Victim(None, "commit"),
    "recover": Victim(HALF, "recover"),
    "recover undecided": Victim(UNDECIDED, "recover"),
    "recover ended": Victim(ENDED, "recover"),
    "roll back": Victim(HALF, "roll back"),
    "abort": Victim(OPEN, "abort"),
    "abort undecided": Victim(UNDECIDED, "abort"),
    "clean up": Victim(OPEN, "clean up"),
}
# Who goes on with a job that died does the same for most jobs.
FLAVOURS: Final[dict[str, tuple[str, ...]]] = {
    "commit": tuple(life.FLAVOURS),
    "recover": ("append", "target", "replace", "promote"),
    "recover undecided": ("append", "target"),
    "roll back": ("append", "target", "replace", "promote"),
}
# What makes hard links where there are any: the others do on a disk without them what they do on any.
LINKING: Final = ("append", "target", "replace")
OTHERS: Final = ("recover", "roll back", "abort", "clean up", "force", "replace")


async def abort(table: str, options: dict[str, Any]) -> None:
    """Aborts the job, as a driver that joins it."""
    async with committer.attach_job(table, job_id=life.JOB, storage_options=options) as job:
        await job.abort()


def work(what: str, table: str, flavour: str, disk: str) -> Awaitable[Any]:
    """What a driver does to the job; `replace` is a job of its own."""
    options = life.options()
    force = disk == "no flag"
    works: dict[str, Callable[[], Awaitable[Any]]] = {
        "commit": lambda: life.run(table, flavour),
        "recover": lambda: committer.recover(table, life.JOB, storage_options=options),
        "roll back": lambda: committer.recover(table, life.JOB, rollback=True, force=force, storage_options=options),
        "abort": lambda: abort(table, options),
        "clean up": lambda: committer.cleanup(table, older_than=0, storage_options=options),
        "force": lambda: committer.cleanup(table, job_id=life.JOB, force=True, storage_options=options),
        "replace": lambda: life.run_neighbour(table),
    }
    return works[what]()
