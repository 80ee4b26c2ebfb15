"""A driver is killed while it commits to a real NameNode, and another process finishes its job."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pytest

import committer
from committer.errors import JobUndecidedError
from committer.paths import StorePath
from tests.hdfs.channel import JavaChannel
from tests.hdfs.cluster import Cluster
from tests.hdfs.relay import Relay, relay_to
from tests.processes import emulated_driver
from tests.processes.harness import TIMEOUT_S, environment

FILES = 100
MOMENTS = 20
# Of a commit: a look and a rename for each file, and what comes before and after.
CALLS = 2 * FILES + 80


async def kill_after(relay: Relay, uri: str, calls: int) -> None:
    """Starts a driver and kills it once its commit has made so many calls, or has ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(emulated_driver.__file__)),
        uri,
        "J",
        str(FILES),
        stdout=asyncio.subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        try:
            assert await process.stdout.readline() == b"ready\n"
            last = len(relay.calls) + calls
            while len(relay.calls) < last and not process.stdout.at_eof():
                await asyncio.sleep(0)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def finish(uri: str) -> committer.JobReport:
    try:
        return await committer.recover(uri, "J")
    except JobUndecidedError:
        async with committer.attach_job(uri, job_id="J") as job:
            return await job.commit(tasks=FILES // emulated_driver.FILES_A_TASK)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("moment", range(MOMENTS))
async def test_killed_then_recovered(cluster: Cluster, directory: StorePath, moment: int) -> None:
    async with relay_to(cluster.authority) as relay:
        uri = StorePath("hdfs", relay.authority, directory.path).uri
        await kill_after(relay, uri, random.Random(moment).randrange(1, CALLS))
        report = await finish(uri)
    assert (report.success, report.files_committed) == (True, FILES)
    table = JavaChannel(cluster, directory)
    found = await table.files()
    assert b'"jobId" : "J"' in found.pop("_SUCCESS")
    assert found == {emulated_driver.name(number): emulated_driver.content(number) for number in range(FILES)}
    assert not any(name.startswith("_temporary") for name in await table.directories())
