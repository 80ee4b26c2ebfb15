"""Whole jobs on a real NameNode: each ends as it must, whatever happens to answers, drivers and the NameNode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, StoreOutcomeUnknownError, StoreUnavailableError
from committer.paths import StorePath
from committer.stores.hdfs import HdfsStore
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from tests.hdfs.channel import JavaChannel
from tests.hdfs.cluster import Cluster
from tests.hdfs.relay import Cut, relay_to
from tests.hdfs.small_job import FILES, write_tasks

OLD = {"year=2000/old.csv": b"old", "year=1999/old.csv": b"old"}
# What changes something, by its name on the wire.
CALLS = ("rename2", "mkdirs", "create", "delete", "complete")
# What counts an attempt's directory is asked again.
ASKED = "getContentSummary"


async def visible(table: JavaChannel) -> dict[str, bytes]:
    return {name: data for name, data in (await table.files()).items() if not name.startswith("_")}


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_a_job(directory: StorePath, table: JavaChannel, delivery: Any) -> None:
    async with committer.open_job(directory.uri, delivery=delivery) as job:
        await write_tasks(job)
        assert await visible(table) == {}
        report = await job.commit(tasks=3)
    assert (report.success, report.files_committed, report.renames_recovered) == (True, len(FILES), 0)
    assert await table.files() == {**FILES, "_SUCCESS": (await table.files())["_SUCCESS"]}
    assert await table.directories() == {"year=2000", "year=2001", "year=2002"}
    assert (await committer.validate(directory.uri)).ok


@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("stray", ["", "before the seal", "after the seal"])
async def test_whole_directories(directory: StorePath, table: JavaChannel, delivery: Any, stray: str) -> None:
    """Each task's year goes by one rename, which no file comes along with that its task writes by path since."""
    await table.write("year=1999/old.csv", b"old")
    store = FaultyStore(HdfsStore.open_for(directory, {}))
    config = CommitterConfig(promote_directories=True)
    turn = asyncio.Lock()
    strays: list[str] = []
    async with committer.open_job(
        directory.uri, delivery=delivery, config=config, storage_options={"store": store}
    ) as job:
        messages = await write_tasks(job)
        written = sorted({call.path.parent.path for call in store.calls if "part-" in call.path.name})

        async def before(call: Any) -> None:
            sealing = call.operation == "rename_directory" and call.destination.name == "tasks-sealed"
            listing = call.operation == "list" and "tasks-sealed" in call.path.path
            async with turn:
                if not strays and ((stray == "before the seal" and sealing) or (stray == "after the seal" and listing)):
                    for path in written:
                        strays.append(f"{path.removeprefix(directory.path)[1:]}/stray")
                        await table.write(strays[-1], b"stray")

        store.before_call = before
        report = await job.commit(messages if delivery == "message" else None, tasks=3)
    assert len(strays) == (3 if stray else 0)
    assert (report.success, report.files_committed) == (True, len(FILES))
    assert await visible(table) == {"year=1999/old.csv": b"old", **FILES}
    assert await table.directories() == {"year=1999", "year=2000", "year=2001", "year=2002"}
    renamed = {
        call.destination.name
        for call in store.calls
        if call.operation == "rename_directory" and "_temporary" not in call.destination.path
    }
    assert renamed == (set() if stray == "before the seal" else {"year=2000", "year=2001", "year=2002"})


async def test_whole_directories_taken_back(directory: StorePath, table: JavaChannel) -> None:
    """Its driver dies with the directories in place; what was there before is all that stays."""
    await table.write("year=1999/old.csv", b"old")
    store = FaultyStore(HdfsStore.open_for(directory, {}))
    config = CommitterConfig(promote_directories=True)
    job = await committer.open_job(directory.uri, job_id="J", config=config, storage_options={"store": store})
    messages = await write_tasks(job)
    store.faults.append(Fault(kind="crash_before", operation="put", path="outcome"))
    with pytest.raises(SimulatedCrash):
        await job.commit(messages, tasks=3)
    assert await visible(table) == {"year=1999/old.csv": b"old", **FILES}
    report = await committer.recover(directory.uri, "J", rollback=True)
    assert not report.success
    assert await visible(table) == {"year=1999/old.csv": b"old"}
    assert await table.directories() == {"year=1999"}
    await store.inner.close()


@pytest.mark.parametrize("name", ["file-v1", "file-v2"])
async def test_a_job_of_a_file_committer(directory: StorePath, table: JavaChannel, name: str) -> None:
    """Each task commits twice; the job's directories go, those that jobs share too."""
    async with committer.open_job(directory.uri, committer=name) as job:
        await write_tasks(job)
        async with job.task_attempt(task=0, attempt=1) as task:
            for file_name, data in FILES.items():
                if file_name.startswith("year=2000/"):
                    async with task.open(file_name) as file:
                        await file.write(data)
        assert (await job.plan(tasks=3)).conflicts == []
        report = await job.commit(tasks=3)
    assert report.files_committed == len(FILES)
    assert await visible(table) == FILES
    assert await table.directories() == {"year=2000", "year=2001", "year=2002"}
    assert (await committer.validate(directory.uri)).ok


async def test_an_overwrite(directory: StorePath, table: JavaChannel) -> None:
    for name, data in OLD.items():
        await table.write(name, data)
    config = CommitterConfig(conflict_mode="replace", superseded_scope="destination")
    async with committer.open_job(directory.uri, config=config) as job:
        await write_tasks(job)
    assert await visible(table) == FILES


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("method", ["rename2", "delete", "mkdirs"])
async def test_a_cut_connection_leaves_the_outcome_unknown(
    cluster: Cluster, directory: StorePath, table: JavaChannel, method: str, cut: Cut
) -> None:
    """Sent or not looks alike; what is only read is asked again by the client, or may be asked again."""
    await table.write("source", b"x")
    async with relay_to(cluster.authority) as relay:
        root = StorePath("hdfs", relay.authority, directory.path)
        store = HdfsStore.open_for(root, {})
        identity = (await store.status(root / "source")).identity
        relay.lose(method, cut)
        calls = {
            "rename2": lambda: store.rename_file(root / "source", root / "target", identity=identity),
            "delete": lambda: store.delete_file(root / "source"),
            "mkdirs": lambda: store.make_directory(root / "made", parents=False),
        }
        with pytest.raises(StoreOutcomeUnknownError):
            await calls[method]()
        assert relay.cuts == 1
        standing = set(await table.files()) | await table.directories()
        done = {"rename2": {"target"}, "delete": set(), "mkdirs": {"source", "made"}}[method]
        assert standing == (done if cut == "after" else {"source"})


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("method", [*CALLS, ASKED])
async def test_a_job_whose_calls_lose_their_answers(
    cluster: Cluster, directory: StorePath, table: JavaChannel, method: str, cut: Cut
) -> None:
    """One connection is cut in the middle: the job ends right, or says how it ends, and a recovery does so."""
    async with relay_to(cluster.authority) as relay:
        dest = StorePath("hdfs", relay.authority, directory.path).uri
        hit = 0
        for skip in (0, 5, 31):
            name = f"J{skip}"
            try:
                async with committer.open_job(f"{dest}/{name}", job_id=name) as job:
                    messages = await write_tasks(job)
                    relay.lose(method, cut, skip=skip)
                    report = await job.commit(messages, tasks=3)
            except CommitterError as error:
                assert error.next_step, error
                relay.times = 0
                report = await committer.recover(f"{dest}/{name}", name, force=True)
            relay.times = 0
            hit += relay.cuts
            assert (report.success, report.files_committed) == (True, len(FILES)), (skip, report)
            found = {
                path.removeprefix(f"{name}/")
                for path in await table.files()
                if path.startswith(f"{name}/") and "_temporary" not in path
            }
            assert found == {*FILES, "_SUCCESS"}, skip
        assert hit


async def test_safe_mode_within_a_commit_is_waited_for(
    cluster: Cluster, directory: StorePath, table: JavaChannel
) -> None:
    """The NameNode refuses all changes for a while, as after its start: the commit goes on when it does no more."""
    store = FaultyStore(HdfsStore.open_for(directory, {}))
    refused = 0

    async def before(call: Any) -> None:
        nonlocal refused
        if call.operation == "rename_file" and "/tasks/" in str(call.path):
            refused += 1
            if refused == 1:
                await asyncio.to_thread(cluster.safe_mode, "ENTER")
            if refused == len(FILES) + 3:
                await asyncio.to_thread(cluster.safe_mode, "LEAVE")

    try:
        async with committer.open_job(directory.uri, storage_options={"store": store}) as job:
            await write_tasks(job)
            store.before_call = before
            report = await job.commit(tasks=3)
    finally:
        await asyncio.to_thread(cluster.safe_mode, "LEAVE")
    assert (report.success, report.files_committed) == (True, len(FILES))
    assert refused > len(FILES)
    assert await visible(table) == FILES


async def test_nothing_listens() -> None:
    store = HdfsStore.open_for(StorePath.of("hdfs://127.0.0.1:9/x"), {})
    with pytest.raises(StoreUnavailableError, match="no NameNode can be reached"):
        await store.status(StorePath.of("hdfs://127.0.0.1:9/x"))
