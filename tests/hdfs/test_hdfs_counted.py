"""A publish counts an attempt's directory in place of a look at each file, and looks where the count is another."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import pytest

import committer
from committer.errors import OutcomeUnknownError
from committer.paths import StorePath
from tests.hdfs.channel import JavaChannel
from tests.hdfs.cluster import Cluster
from tests.hdfs.relay import relay_to
from tests.hdfs.small_job import FILES, write_tasks

Looks: TypeAlias = Callable[[Callable[[committer.Job], Awaitable[None]]], Coroutine[Any, Any, Counter[str]]]

# The file of the job that a test does something to.
NAME = "year=2001/part-00003.csv"


@pytest.fixture
def committed(cluster: Cluster, directory: StorePath) -> Looks:
    """Commits a job after something happened to it; the calls of the commit."""

    numbers = itertools.count()

    async def commit(before: Callable[[committer.Job], Awaitable[None]]) -> Counter[str]:
        async with relay_to(cluster.authority) as relay:
            name = f"J{next(numbers)}"
            uri = (StorePath("hdfs", relay.authority, directory.path) / name).uri
            async with committer.open_job(uri, job_id=name) as job:
                await write_tasks(job)
                await before(job)
                begun = len(relay.calls)
                report = await job.commit(tasks=3)
                assert report.files_committed == len(FILES)
                return Counter(relay.calls[begun:])

    return commit


async def source_of(table: JavaChannel) -> str:
    (source,) = [name for name in await table.files() if "_temporary" in name and name.endswith(NAME)]
    return source


async def nothing(_job: committer.Job) -> None:
    return


@pytest.mark.parametrize("extra", ["a file", "a directory"])
async def test_files_are_looked_at_only_where_an_attempt_holds_more(
    committed: Looks, cluster: Cluster, table: JavaChannel, extra: str
) -> None:
    async def come(_job: committer.Job) -> None:
        source = await source_of(table)
        if extra == "a file":
            await table.write(f"{source}.extra", b"extra")
        else:
            path = cluster.path(f"{table.root.path}/{source}.extra")
            await asyncio.to_thread(lambda: cluster.hdfs.mkdirs(path))

    calls = await committed(nothing)
    disturbed = await committed(come)
    expected = {f"{job}/{name}": data for job in ("J0", "J1") for name, data in FILES.items()}
    assert {name: data for name, data in (await table.files()).items() if not name.endswith("_SUCCESS")} == expected
    assert calls["getContentSummary"] == disturbed["getContentSummary"] == 3
    assert calls["rename2"] == disturbed["rename2"]
    looks = disturbed["getFileInfo"] - calls["getFileInfo"]
    assert looks == sum(name.startswith("year=2001/") for name in FILES)


@pytest.mark.parametrize("holds", [0, 1])
async def test_a_directory_in_a_files_place_is_not_published(
    committed: Looks, cluster: Cluster, table: JavaChannel, holds: int
) -> None:
    """One that holds a file makes as many files as before, and one directory more."""
    source = ""

    async def swap(_job: committer.Job) -> None:
        nonlocal source
        source = await source_of(table)
        path = cluster.path(f"{table.root.path}/{source}")
        await asyncio.to_thread(lambda: (cluster.hdfs.delete(path, False), cluster.hdfs.mkdirs(path)))
        if holds:
            await table.write(f"{source}/inner", FILES[NAME])

    with pytest.raises(OutcomeUnknownError):
        await committed(swap)
    standing = await table.directories()
    assert source in standing
    assert f"J0/{NAME}" not in standing
    assert f"J0/{NAME}" not in await table.files()
