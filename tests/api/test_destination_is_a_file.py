"""A destination that is itself an object: readers that look at the name find that, and none of the job's files."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobNotFoundError, JobStateError, StoreNotADirectoryError, StoreUnavailableError
from committer.stores.local import LocalStore, kernel_rename
from committer.stores.memory import MemoryStore
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from tests.neighbours.meeting import Table, interrupted
from tests.sweeps import Share

OVERWRITE = CommitterConfig(conflict_mode="replace", superseded_scope="destination")
FLAT = ["gcs", "s3", "azure-flat"]


def table_with_file(profile: str) -> Table:
    table = Table(profile)
    table.space.write("/table", b"old")
    return table


def old_stands(table: Table) -> bool:
    return table.space.files().get("/table") == b"old"


@pytest.mark.parametrize("profile", [*FLAT, "adls", "local", "hdfs"])
@pytest.mark.parametrize(
    "config",
    [
        CommitterConfig(),
        CommitterConfig(existing_target="replace"),
        CommitterConfig(conflict_mode="replace"),
        CommitterConfig(conflict_mode="replace", superseded_scope="partitions"),
        CommitterConfig(conflict_mode="replace", superseded_scope="destination", superseded_directories=("a=1",)),
        CommitterConfig(conflict_mode="fail", superseded_scope="destination"),
    ],
)
async def test_a_job_is_refused_where_its_destination_is_a_file(profile: str, config: CommitterConfig) -> None:
    table = table_with_file(profile)
    store = FaultyStore(table.space.store())
    with pytest.raises(StoreNotADirectoryError, match=f"a file exists at {table.dest}, where a directory") as caught:
        await committer.open_job(table.dest, config=config, storage_options={"store": store})
    assert caught.value.outcome == "unchanged"
    assert ("overwrite the whole destination, which replaces the file" in caught.value.next_step) is (profile in FLAT)
    assert f"move the file away: hadoop fs -mv {table.dest} {table.dest}.old" in caught.value.next_step
    assert table.space.files() == {"/table": b"old"}
    assert not store.count("put")


# -- An overwrite of the whole destination ------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["adls", "local", "hdfs"])
@pytest.mark.parametrize("below", ["", "/a/b"])
async def test_an_overwrite_is_refused_where_directories_are_real(profile: str, below: str) -> None:
    table = table_with_file(profile)
    # No job replaces a file above its destination, on any store.
    why = "" if below else ".*in one step"
    with pytest.raises(StoreNotADirectoryError, match=f"a file exists at {table.dest}, where{why}"):
        await committer.open_job(table.dest + below, config=OVERWRITE, storage_options=table.options)
    assert table.space.files() == {"/table": b"old"}


async def test_its_advice_works_on_a_disk(tmp_path: Path) -> None:
    place = tmp_path / "it's a file"
    place.write_bytes(b"old")
    with pytest.raises(StoreNotADirectoryError) as caught:
        await committer.open_job(place)
    subprocess.run(shlex.split(caught.value.next_step.partition("move the file away: ")[2]), check=True)
    async with committer.open_job(place, config=OVERWRITE) as job, job.task_attempt(0) as task:
        async with task.open("part-0") as file:
            await file.write(b"new")
    assert sorted(path.name for path in place.iterdir()) == ["_SUCCESS", "part-0"]
    assert (tmp_path / "it's a file.old").read_bytes() == b"old"


@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("profile", FLAT)
async def test_an_overwrite_replaces_an_object_of_the_destinations_name(profile: str, delivery: str) -> None:
    table = table_with_file(profile)
    table.write("old", b"old")
    party = await table.job("j", {"part-0": b"new", "a=1/part-1": b"new"}, OVERWRITE, delivery)
    assert (await party.driver.plan(party.messages)).replaced == ["/table", "old"]

    async def before(call: Call) -> None:
        assert old_stands(table) or {"part-0", "a=1/part-1"} <= table.files().keys()

    party.store.before_call = before
    await party.commit()
    assert party.error is None
    assert table.files() == {"part-0": b"new", "a=1/part-1": b"new"}
    assert "/table" not in table.space.files()
    assert table.temporary() == set()


@pytest.mark.parametrize("profile", FLAT)
async def test_an_abort_leaves_the_object(profile: str) -> None:
    table = table_with_file(profile)
    party = await table.job("j", {"part-0": b"new"}, OVERWRITE)
    await party.driver.abort()
    assert table.space.files() == {"/table": b"old"}


@pytest.mark.parametrize("profile", FLAT)
async def test_an_object_put_there_since_the_decision_stays(profile: str) -> None:
    table = table_with_file(profile)
    party = await table.job("j", {"part-0": b"new"}, OVERWRITE)

    async def before(call: Call) -> None:
        if call.path.name == "decision" and call.operation == "put":
            table.space.write("/table", b"another writer's")

    party.store.before_call = before
    await party.commit()
    assert table.files() == {"part-0": b"new"}
    assert table.space.files()["/table"] == b"another writer's"


@pytest.mark.parametrize("profile", FLAT)
@pytest.mark.parametrize("rollback", [False, True])
@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
async def test_a_driver_that_dies_at_any_call(profile: str, kind: FaultKind, rollback: bool, share: Share) -> None:
    """A recoverer finds the job; the old object or the new file stands all the time."""
    whole = await table_with_file(profile).job("j", {"part-0": b"new"}, OVERWRITE)
    await whole.commit()
    for call in share.of(range(1, whole.calls + 1)):
        table = table_with_file(profile)
        party = await table.job("j", {"part-0": b"new"}, OVERWRITE)
        party.store.faults = [Fault(kind=kind, call=call)]
        with suppress(SimulatedCrash):
            await party.commit()
        assert old_stands(table) or table.files() == {"part-0": b"new"}, call
        options, taken_back = table.options, False
        if rollback:
            with suppress(JobStateError, JobNotFoundError):
                report = await committer.recover(table.dest, "j", rollback=True, force=True, storage_options=options)
                taken_back = not report.success
        if not taken_back:
            assert (await committer.recover(table.dest, "j", force=True, storage_options=options)).success, call
        assert table.temporary() == set(), call
        left = {name: data for name, data in table.space.files().items() if not name.endswith("/_SUCCESS")}
        assert left == ({"/table": b"old"} if taken_back else {"/table/part-0": b"new"}), call


@pytest.mark.parametrize("profile", FLAT)
async def test_two_overwrites_at_once(profile: str, share: Share) -> None:
    table = table_with_file(profile)
    for call in share.of(range(1, 40)):
        table = table_with_file(profile)
        first = await table.job("first", {"first": b"new"}, OVERWRITE)
        second = await table.job("second", {"second": b"new"}, OVERWRITE)
        await interrupted(first, call, second.commit)
        if first.busy:
            await first.commit()
        if second.busy:
            await second.commit()
        assert (first.error, second.error) == (None, None), call
        assert len(table.files()) == 1, call
        assert "/table" not in table.space.files(), call


@pytest.mark.parametrize("profile", FLAT)
async def test_what_looks_for_a_file_there_makes_a_setup_wait_no_longer(profile: str) -> None:
    """The setup makes that call at the same time as its first."""
    table = Table(profile)
    store = FaultyStore(table.space.store())
    under_way: list[set[str]] = []

    async def before(call: Call) -> None:
        under_way.append({one.operation for one in store.calls if not one.result})

    store.before_call = before
    async with committer.open_job(table.dest, storage_options={"store": store}) as job:
        await job.abort()
    assert {"make_directory", "status"} in under_way
    assert sum(call.operation == "status" and call.path == table.space.path("table") for call in store.calls) == 1


@pytest.mark.parametrize("profile", FLAT)
async def test_a_bucket_is_a_destination_without_a_look(profile: str) -> None:
    space = MemoryStore.space(f"bucket-{profile}", profile)
    store = FaultyStore(space.store())
    async with committer.open_job(space.path(""), storage_options={"store": store}) as job:
        await job.abort()
    assert not [call for call in store.calls if call.operation == "status" and not call.path.name]


@pytest.mark.parametrize("profile", FLAT)
async def test_a_policy_for_what_lies_below_the_destination_is_enough(profile: str) -> None:
    """AWS grants `bucket/table/*` without `bucket/table`."""
    table = Table(profile)
    path = table.space.path("table")
    store = FaultyStore(
        table.space.store(), [Fault(kind="forbidden", operation="status", path=lambda asked: asked == path, times=None)]
    )
    async with committer.open_job(table.dest, storage_options={"store": store}) as job:
        async with job.task_attempt(0) as task, task.open("part-0") as file:
            await file.write(b"x")
    assert table.files() == {"part-0": b"x"}


# -- On a disk: the file goes into a directory of its name ----------------------------------------------------------------


def data_of(place: Path) -> dict[str, bytes]:
    """Reads the place as a reader of data does: the file, or the files of a directory."""
    if place.is_file():
        return {"": place.read_bytes()}
    found = (path for path in place.rglob("*") if path.is_file() and "_temporary" not in path.parts)
    return {str(path.relative_to(place)): path.read_bytes() for path in found if path.name != "_SUCCESS"}


async def overwrite(place: Path, store: FaultyStore, config: CommitterConfig = OVERWRITE) -> None:
    async with committer.open_job(place, job_id="j", config=config, storage_options={"store": store}) as job:
        async with job.task_attempt(0) as task, task.open("part-0") as file:
            await file.write(b"new")


@pytest.mark.allow_blocking("the test looks at the disk before each call")
@pytest.mark.parametrize("durability", ["none", "fsync"])
@pytest.mark.parametrize("name", ["table.csv", "_table", ".table"])
async def test_overwrite_of_a_file_on_a_disk(tmp_path: Path, name: str, durability: Literal["none", "fsync"]) -> None:
    """A reader of the place finds the old data, or the new, before every call."""
    place, seen = tmp_path / name, list[bytes]()
    place.write_bytes(b"old")

    async def look(_call: Call) -> None:
        seen.append(b"+".join(sorted(set(data_of(place).values()))))

    store = FaultyStore(LocalStore())
    store.before_call = look
    await overwrite(place, store, msgspec.structs.replace(OVERWRITE, durability=durability))
    assert data_of(place) == {"part-0": b"new"}
    assert set(seen) <= {b"old", b"new", b"new+old"}
    assert [path.name for path in tmp_path.iterdir()] == [name]


async def test_an_aborted_overwrite_leaves_the_old_file_in_a_directory_of_its_name(tmp_path: Path) -> None:
    place = tmp_path / "table.csv"
    place.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        async with committer.open_job(place, config=OVERWRITE):
            raise ZeroDivisionError
    assert data_of(place) == {"table.csv": b"old"}


@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
async def test_a_driver_that_dies_at_the_exchange(tmp_path: Path, kind: FaultKind) -> None:
    place = tmp_path / "table.csv"
    place.write_bytes(b"old")
    with pytest.raises(SimulatedCrash):
        await overwrite(place, FaultyStore(LocalStore(), [Fault(kind=kind, operation="enclose_file")]))
    assert list(data_of(place).values()) == [b"old"]
    await overwrite(place, FaultyStore(LocalStore()))
    assert data_of(place) == {"part-0": b"new"}


async def test_of_two_overwrites_of_a_file_at_once_each_finds_the_old_data(tmp_path: Path) -> None:
    place = tmp_path / "table.csv"
    place.write_bytes(b"old")
    jobs = await asyncio.gather(*(committer.open_job(place, config=OVERWRITE) for _job in range(8)))
    assert data_of(place) == {"table.csv": b"old"}
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]
    for job in jobs:
        await job.abort()
        await job.close()


async def test_a_file_system_that_cannot_exchange_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_names: str) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(kernel_rename, "exchange", refuse)
    place = tmp_path / "table.csv"
    place.write_bytes(b"old")
    with pytest.raises(StoreNotADirectoryError, match="in one step"):
        await committer.open_job(place, config=OVERWRITE)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"table.csv": b"old"}


async def test_a_link_at_the_destination_is_not_exchanged(tmp_path: Path) -> None:
    place, file = tmp_path / "table.csv", tmp_path / "file"
    file.write_bytes(b"old")
    place.symlink_to(file)
    with pytest.raises(StoreNotADirectoryError):
        await committer.open_job(place, config=OVERWRITE)
    assert place.is_symlink()
    assert file.read_bytes() == b"old"


@pytest.mark.parametrize("left", ["directory", "file"])
async def test_a_driver_killed_at_the_exchange(tmp_path: Path, left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that was not exchanged yet is removed by the next job; a second name of the old file stays."""
    place, exchange = tmp_path / "table.csv", kernel_rename.exchange
    place.write_bytes(b"old")

    def die(*names: str) -> None:
        if left == "file":
            exchange(*names)
        raise SystemError

    monkeypatch.setattr(kernel_rename, "exchange", die)
    with pytest.raises(SystemError):
        await overwrite(place, FaultyStore(LocalStore()))
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 2
    await overwrite(place, FaultyStore(LocalStore()))
    assert data_of(place) == {"part-0": b"new"}
    beside = [path.read_bytes() for path in tmp_path.iterdir() if path != place]
    assert beside == ([b"old"] if left == "file" else [])


@pytest.mark.allow_blocking("the test locks the file")
async def test_a_file_that_another_process_locked(tmp_path: Path) -> None:
    place = tmp_path / "table.csv"
    place.write_bytes(b"old")
    with place.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        with pytest.raises(StoreUnavailableError, match="another process holds a lock on the file") as caught:
            await committer.open_job(place, config=OVERWRITE)
    assert "lsof" in caught.value.next_step
    assert place.read_bytes() == b"old"
