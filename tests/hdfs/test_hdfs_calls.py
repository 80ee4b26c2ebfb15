"""Calls that are under way when something happens to them: connections break, callers are cancelled, users change."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from committer.errors import (
    ConfigurationError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotFoundError,
    StorePreconditionError,
)
from committer.paths import StorePath
from committer.stores.hdfs import HdfsStore
from tests.hdfs.channel import JavaChannel
from tests.hdfs.cluster import Cluster
from tests.hdfs.relay import relay_to

MANY_CALLS = """
import asyncio, sys
from committer.errors import CommitterError
from committer.paths import StorePath
from committer.stores.hdfs import HdfsStore

async def main():
    path = StorePath.of(sys.argv[1])
    store = HdfsStore.open_for(path, {})
    failed = 0

    async def work(number):
        nonlocal failed
        for turn in range(60):
            try:
                async with asyncio.timeout(0.01 if turn % 5 == 0 else None):
                    await store.make_directory(path / f"{number}-{turn}", parents=False)
            except (CommitterError, TimeoutError):
                failed += 1

    await asyncio.gather(*(work(number) for number in range(32)))
    print("failed" if failed else "none failed")

asyncio.run(main())
"""


async def test_connections_that_break_under_many_calls_hang_nothing(cluster: Cluster, directory: StorePath) -> None:
    """A client whose coroutines an event loop polls hangs there: each of its threads waits for the other's lock."""
    async with relay_to(cluster.authority) as relay:
        path = StorePath("hdfs", relay.authority, directory.path)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MANY_CALLS, path.uri, stdout=subprocess.PIPE, env={**os.environ}
        )

        async def cut() -> None:
            while True:
                relay.lose("mkdirs", "after")
                await asyncio.sleep(0.05)

        cutting = asyncio.create_task(cut())
        try:
            said, _errors = await asyncio.wait_for(process.communicate(), 60)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        finally:
            cutting.cancel()
        assert (process.returncode, said) == (0, b"failed\n")
        assert relay.cuts > 3


async def test_many_renames_in_one_call(directory: StorePath, hdfs_store: HdfsStore, table: JavaChannel) -> None:
    """Each is done or has its error; no directory is renamed in place of a file."""
    renames = [(directory / f"from-{number}", directory / f"to-{number}") for number in range(40)]
    for number, (source, _target) in enumerate(renames):
        if number not in (3, 7):
            await hdfs_store.put(source, b"%d" % number)
    await hdfs_store.make_directory(renames[7][0], parents=False)
    await hdfs_store.put(renames[11][1], b"taken")
    renames[13] = renames[13][0], directory / "missing" / "to"
    errors = await hdfs_store.rename_files(renames)
    assert {index: type(error) for index, error in errors.items()} == {
        3: StoreNotFoundError,
        7: StoreIsADirectoryError,
        11: StoreExistsError,
        13: StoreNotFoundError,
    }
    expected = {f"to-{number}": b"%d" % number for number in range(40) if number not in errors}
    assert await table.files() == {**expected, "from-11": b"11", "from-13": b"13", "to-11": b"taken"}
    assert await table.directories() == {"from-7"}
    assert await hdfs_store.rename_files([]) == {}


async def test_many_renames_of_what_was_seen(directory: StorePath, hdfs_store: HdfsStore, table: JavaChannel) -> None:
    """A file that was written anew since is not renamed."""
    renames = [(directory / f"from-{number}", directory / f"to-{number}") for number in range(8)]
    seen = [(found.identity, found.size) for found in [await hdfs_store.put(source, b"1") for source, _to in renames]]
    await hdfs_store.put(renames[2][0], b"longer")
    seen[5] = "m1", 1
    errors = await hdfs_store.rename_files(renames, seen=seen)
    assert {index: type(error) for index, error in errors.items()} == dict.fromkeys((2, 5), StorePreconditionError)
    assert {name for name in await table.files() if name.startswith("from")} == {"from-2", "from-5"}


async def test_a_batch_that_is_cancelled_has_no_effect_later(directory: StorePath, hdfs_store: HdfsStore) -> None:
    renames = [(directory / f"from-{number}", directory / f"to-{number}") for number in range(300)]
    await asyncio.gather(*(hdfs_store.put(source, b"") for source, _target in renames[:100]))
    running = asyncio.create_task(hdfs_store.rename_files(renames * 3))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    there = {one.path.name async for one in hdfs_store.list(directory)}
    await asyncio.sleep(0.1)
    assert {one.path.name async for one in hdfs_store.list(directory)} == there


async def test_a_directory_is_no_file_whatever_identity_it_has(directory: StorePath, hdfs_store: HdfsStore) -> None:
    await hdfs_store.make_directory(directory / "made", parents=False)
    with pytest.raises(StoreIsADirectoryError):
        await hdfs_store.rename_file(directory / "made", directory / "target", identity="m1")
    assert [one.path.name async for one in hdfs_store.list(directory)] == ["made"]


async def test_a_file_whose_opener_is_cancelled_is_gone(directory: StorePath, hdfs_store: HdfsStore) -> None:
    for delay in (0.0, 0.001, 0.002, 0.004, 0.008):
        opening = asyncio.create_task(hdfs_store.open_writer(directory / "f"))
        await asyncio.sleep(delay)
        if opening.cancel():
            with pytest.raises(asyncio.CancelledError):
                await opening
        else:
            await opening.result().abort()
    assert [one async for one in hdfs_store.list(directory)] == []


async def test_each_user_has_a_client(cluster: Cluster, directory: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks the environment who it is whenever it connects."""
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    await asyncio.to_thread(lambda: cluster.hdfs.setPermission(cluster.path(directory.path), cluster.permission("777")))
    first = HdfsStore.open_for(directory, {"user": "alice"})
    await first.put(directory / "hers", b"")
    monkeypatch.setenv("HADOOP_USER_NAME", "bob")
    with pytest.raises(ConfigurationError, match="HADOOP_USER_NAME"):
        await first.put(directory / "whose", b"")
    second = HdfsStore.open_for(directory, {"user": "bob"})
    await second.put(directory / "his", b"")

    def owners() -> dict[str, str]:
        listed = cluster.hdfs.listStatus(cluster.path(directory.path))
        return {one.getPath().getName(): one.getOwner() for one in listed}

    assert await asyncio.to_thread(owners) == {"hers": "alice", "his": "bob"}


FORKING = """
import asyncio, os, sys, time
from committer.paths import StorePath
from committer.stores.hdfs import HdfsStore

path = StorePath.of(sys.argv[1])
store = HdfsStore.open_for(path, {})
asyncio.run(store.put(path / "f", b"x" * 100_000))

async def go_on(name, times):
    await store.put(path / name, b"")
    return all([await store.read(path / "f", limit=1 << 20) == b"x" * 100_000 for _time in range(times)])

assert asyncio.run(go_on("before", 1))
forked = time.monotonic()
child = os.fork()
if child == 0:
    good = asyncio.run(go_on("child", 5))
    # An answer on one of its parent's connections would be waited for for 15 s (dfs.client.socket-timeout).
    sys.exit(0 if good and time.monotonic() - forked < 14 else 1)
good = asyncio.run(go_on("parent", 50))
print("parent", good, "child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


async def test_a_forked_child_has_a_client_and_connections_of_its_own(
    directory: StorePath, hdfs_store: HdfsStore
) -> None:
    """It inherits those that its parent keeps to the DataNodes."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", FORKING, directory.uri, stdout=subprocess.PIPE)
    said, _errors = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, said) == (0, b"parent True child 0\n")
    assert {one.path.name async for one in hdfs_store.list(directory)} == {"f", "before", "child", "parent"}
