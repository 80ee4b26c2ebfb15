"""Jobs whose drivers died and that another program then touched: what an error says of them must lead to their end."""

from __future__ import annotations

import re
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.layout import WORK
from committer.stores.local import LocalStore
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from tests.job_paths import in_job

NEW = {"a": b"0", "b": b"1", "c": b"2"}
OLD = b"an old file"

Mend = Callable[[Path, str], None]


@dataclass(frozen=True)
class Spoiled:
    """A state of a table, and what its user does who reads the error that a command ends with.

    Attributes:
        spoil: Brings a table into it.
        rollback: Whether the job is to be rolled back.
        mend: Does what the advice says first; None where there is nothing that could be done.
        way: Which of the calls, or commands, of the advice is followed then.
        files: What exists at the destination in the end.
    """

    spoil: Callable[[Path], Awaitable[None]]
    rollback: bool
    mend: Mend | None
    way: int
    files: dict[str, bytes]


async def die(table: Path, crash: Fault, **choices: object) -> None:
    """A job, one file a task, whose driver dies while it commits."""
    store = FaultyStore(LocalStore(threads=1))
    config = CommitterConfig(io_concurrency=1, **choices)  # type: ignore[arg-type]
    job = await committer.open_job(table, job_id="j", config=config, storage_options={"store": store})
    for number, (name, data) in enumerate(NEW.items()):
        async with job.task_attempt(task=number) as task, task.open(name) as file:
            await file.write(data)
    store.faults.append(crash)
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=len(NEW))


async def half_published(table: Path) -> None:
    """The first of three files is published."""
    await die(table, Fault(kind="crash_before", operation="rename_file", path="/b"))


def place_in_job(table: Path, name: str) -> Path:
    job = in_job(table, "j")
    return job / ("00" if name == "tasks" else WORK) / name


async def _sources_gone(table: Path) -> None:
    await half_published(table)
    shutil.rmtree(place_in_job(table, "tasks"))


async def _source_gone(table: Path) -> None:
    await half_published(table)
    [source] = place_in_job(table, "tasks").rglob("b")
    source.unlink()


async def _replaced(table: Path) -> None:
    await half_published(table)
    (table / "a").unlink()
    (table / "a").write_bytes(b"another's")


def _copies(table: Path) -> Path:
    """The side file with copies of the records."""
    return next(in_job(table, "j").glob("plan-00000-*"))


async def _records_gone(table: Path) -> None:
    await half_published(table)
    _copies(table).unlink()


async def _records_moved(table: Path) -> None:
    await half_published(table)
    copies = _copies(table)
    (table.parent / "moved").mkdir()
    copies.rename(table.parent / "moved" / copies.name)


def _put_records_back(table: Path, _advice: str) -> None:
    [copies] = (table.parent / "moved").iterdir()
    copies.rename(in_job(table, "j", copies.name))


async def _record_changed(table: Path) -> None:
    await half_published(table)
    copies = _copies(table)
    copies.write_bytes(copies.read_bytes().replace(b"{", b" {"))


async def _aside_taken(table: Path) -> None:
    table.mkdir()
    (table / "old").write_bytes(OLD)
    await die(
        table,
        Fault(kind="crash_before", operation="rename_file", path="/a"),
        conflict_mode="replace",
        superseded_scope="destination",
    )
    place_in_job(table, "superseded").joinpath("00000000").write_bytes(b"in the way")


def _remove_by_hand(table: Path, advice: str) -> None:
    [named] = re.findall(r"remove (\S+) by hand", advice)
    path = Path(named)
    assert path.is_relative_to(table)
    shutil.rmtree(path) if path.is_dir() else path.unlink()


async def _old_place_taken(table: Path) -> None:
    table.mkdir()
    (table / "old").write_bytes(OLD)
    await die(
        table,
        Fault(kind="crash_before", operation="put", path="/outcome"),
        conflict_mode="replace",
        superseded_scope="destination",
    )
    (table / "old").write_bytes(b"another's")


def _move_away(table: Path, advice: str) -> None:
    assert "move away what exists there now" in advice
    (table / "old").unlink()


def _delete_old(_table: Path, advice: str) -> None:
    [directory] = re.findall(r"delete it in ([^\s;]+)", advice)
    for kept in Path(directory).iterdir():
        kept.unlink()


async def _marker_taken(table: Path) -> None:
    await die(table, Fault(kind="crash_before", operation="put", path="_SUCCESS"))
    (table / "_SUCCESS").mkdir()
    (table / "_SUCCESS" / "x").write_bytes(b"x")


_ONE = {"a": b"0"}

SPOILED = {
    "sources gone": Spoiled(_sources_gone, rollback=False, mend=None, way=-1, files=_ONE),
    "sources gone, rollback": Spoiled(_sources_gone, rollback=True, mend=None, way=-1, files=_ONE),
    "one source gone": Spoiled(_source_gone, rollback=False, mend=None, way=-1, files={}),
    "published file replaced": Spoiled(_replaced, rollback=False, mend=None, way=-1, files={"a": b"another's"}),
    "records gone": Spoiled(_records_gone, rollback=False, mend=None, way=-1, files=_ONE),
    "records gone, rollback": Spoiled(_records_gone, rollback=True, mend=None, way=-1, files=_ONE),
    "records moved": Spoiled(_records_moved, rollback=False, mend=_put_records_back, way=0, files=NEW),
    "records moved, rollback": Spoiled(_records_moved, rollback=True, mend=_put_records_back, way=1, files={}),
    "record changed": Spoiled(_record_changed, rollback=False, mend=None, way=-1, files=_ONE),
    "place aside taken": Spoiled(_aside_taken, rollback=False, mend=_remove_by_hand, way=0, files=NEW),
    "old place taken": Spoiled(_old_place_taken, rollback=True, mend=_move_away, way=0, files={"old": OLD}),
    "old file unwanted": Spoiled(_old_place_taken, rollback=True, mend=_delete_old, way=0, files={"old": b"another's"}),
    "place of _SUCCESS taken": Spoiled(_marker_taken, rollback=False, mend=_remove_by_hand, way=0, files=NEW),
}


def visible(table: Path) -> dict[str, bytes]:
    """What a reader of the table sees."""
    return {path.name: path.read_bytes() for path in table.iterdir() if path.is_file() and path.name[0] not in "_."}
