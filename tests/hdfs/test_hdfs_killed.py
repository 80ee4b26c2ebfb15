"""A driver is killed while it commits to a real NameNode, another process finishes its job, and the checker watches."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobStateError, JobUndecidedError
from committer.paths import StorePath
from committer_testing.simulate.checker import Checker
from committer_testing.simulate.ledger import Attempt, Ledger
from tests.hdfs.cluster import Cluster
from tests.hdfs.relay import Relay, relay_to
from tests.hdfs.world import NameNodeWorld
from tests.processes import emulated_driver
from tests.processes.harness import TIMEOUT_S, environment

FILES = 100
TASKS = FILES // emulated_driver.FILES_A_TASK
MOMENTS = 20
# Of a commit: a rename for each file, and what comes before and after.
CALLS = FILES + 120
# The checker looks before each of so many calls, and before each file is created: `_SUCCESS` is, once the outcome exists.
LOOKS_EVERY = 16


def ledger(*, promote: bool = False) -> Ledger:
    """What the driver's tasks wrote, each of which committed before the driver was killed."""
    noted = Ledger(TASKS, CommitterConfig(promote_directories=promote or None))
    for task in range(TASKS):
        numbers = range(task * emulated_driver.FILES_A_TASK, (task + 1) * emulated_driver.FILES_A_TASK)
        files = {emulated_driver.name(one, promote=promote): emulated_driver.content(one) for one in numbers}
        noted.note(Attempt(task, 0, files, state="committed"))
    return noted


def watch(relay: Relay, checker: Checker, broken: list[Exception]) -> None:
    """Has the checker look before calls arrive, while their connection waits."""
    turn = asyncio.Lock()

    async def before(method: str) -> None:
        if method == "create" or len(relay.calls) % LOOKS_EVERY == 0:
            try:
                async with turn:
                    await asyncio.to_thread(checker.step)
            except Exception as error:
                broken.append(error)

    relay.before = before


async def kill_after(relay: Relay, uri: str, calls: int, watched: Callable[[], None], *words: str) -> None:
    """Starts a driver, and kills it once its commit has made so many calls, or has ended; `watched` before its commit.

    `words` are what it is told beside.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(emulated_driver.__file__)),
        uri,
        "J",
        str(FILES),
        *words,
        stdout=asyncio.subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        try:
            assert await process.stdout.readline() == b"ready\n"
            watched()
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
            return await job.commit(tasks=TASKS)


@pytest.mark.parametrize("moment", range(MOMENTS))
async def test_killed_then_recovered(cluster: Cluster, directory: StorePath, moment: int) -> None:
    world = NameNodeWorld(cluster, directory)
    checker = await asyncio.to_thread(Checker, world, {"J": ledger()})
    async with relay_to(cluster.authority) as relay:
        uri = StorePath("hdfs", relay.authority, world.destination.path).uri
        broken: list[Exception] = []
        calls = random.Random(moment).randrange(1, CALLS)
        await kill_after(relay, uri, calls, lambda: watch(relay, checker, broken))
        report = await finish(uri)
    assert not broken, broken[0]
    assert (report.success, report.files_committed) == (True, FILES)
    await asyncio.to_thread(checker.end, "committed", neat=True)
    assert checker.steps > 1
    assert b'"jobId" : "J"' in await asyncio.to_thread(lambda: world.visible()["_SUCCESS"])


@pytest.mark.parametrize("end", ["recover", "roll back"])
@pytest.mark.parametrize("moment", range(MOMENTS))
async def test_killed_while_it_renames_directories(
    cluster: Cluster, directory: StorePath, moment: int, end: str
) -> None:
    """Its tasks are sealed by one rename; then each task's directory is listed, and goes by another."""
    world = NameNodeWorld(cluster, directory)
    checker = await asyncio.to_thread(Checker, world, {"J": ledger(promote=True)})
    async with relay_to(cluster.authority) as relay:
        uri = StorePath("hdfs", relay.authority, world.destination.path).uri
        broken: list[Exception] = []
        # Some sixty calls in all; the first rename is that of the records.
        calls = random.Random(moment).randrange(20, 90)
        await kill_after(relay, uri, calls, lambda: watch(relay, checker, broken), emulated_driver.PROMOTE)
        report = None
        if end == "roll back":
            with suppress(JobStateError):
                report = await committer.recover(uri, "J", rollback=True)
        report = report or await finish(uri)
    assert not broken, broken[0]
    if not report.success:
        await asyncio.to_thread(checker.end, "untouched", neat=True)
        assert await asyncio.to_thread(world.visible) == {}
        return
    assert report.files_committed == FILES
    await asyncio.to_thread(checker.end, "committed", neat=True)
