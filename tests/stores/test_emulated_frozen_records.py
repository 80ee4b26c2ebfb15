"""A refused commit on an emulated Azure Data Lake Storage, whose file that keeps the name of the frozen records is put twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace

import aiohttp
import pytest

import committer
from committer.errors import TaskMissingError
from committer.stores.adls import AdlsStore
from tests.stores.emulated_lake import AdlsLake, serve_lake


@pytest.fixture
async def lake() -> AsyncIterator[AdlsLake]:
    async with serve_lake("adls") as lake:
        assert isinstance(lake, AdlsLake)
        yield lake


class PutAgain:
    """Serves the put of a file that is made apart a second time, right before the request that moves that file.

    The move asks for the etag that the client saw, and meets a conflict.
    """

    def __init__(self, lake: AdlsLake, times: int) -> None:
        self._lake = lake
        self._job = lake.root / "table/_temporary/j"
        self._store = AdlsStore.open_for(lake.root, lake.options)
        self._left = times
        self.moved: list[str] = []

    async def before(
        self,
        _session: aiohttp.ClientSession,
        _context: SimpleNamespace,
        request: aiohttp.TraceRequestStartParams,
    ) -> None:
        if request.method != "PUT" or not request.url.path.endswith("/manifests-frozen"):
            return
        for name, data in (await self._lake.files(self._job)).items():
            if name.startswith("taken-"):
                self.moved.append(name)
                if self._left:
                    self._left -= 1
                    await self._store.put(self._job / name, data)

    async def close(self) -> None:
        await self._store.close()


@pytest.mark.parametrize("times", [1, 2, 4])
async def test_a_put_that_is_served_again_before_the_move(lake: AdlsLake, times: int) -> None:
    """The next try makes a file of another name, so that no request freezes the records late."""
    dest, again = lake.root / "table", PutAgain(lake, times)
    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(again.before)
    async with aiohttp.ClientSession(trace_configs=[trace]) as session:
        options = {**lake.options, "http_session": session}
        async with committer.open_job(dest.uri, job_id="j", storage_options=options) as job:
            await write(job, 0)
            with pytest.raises(TaskMissingError) as caught:
                await job.commit(tasks=2)
            assert caught.value.outcome == "unchanged"
            assert len(again.moved) == len(set(again.moved)) == times + 1
            standing = await lake.files(dest / "_temporary/j")
            assert [name for name in standing if name.endswith("/manifests-frozen")], standing
            assert not [name for name in standing if name.startswith("taken-")]
            await write(job, 1)
            assert (await job.commit(tasks=2)).files_committed == 2
    await again.close()
    assert set(await lake.files(dest)) == {"_SUCCESS", "a/part-0", "a/part-1"}


async def write(job: committer.Job, number: int) -> None:
    async with job.task_attempt(task=number, attempt=0) as task, task.open(f"a/part-{number}") as file:
        await file.write(b"x")
