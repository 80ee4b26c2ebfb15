"""A driver is killed while it commits to an emulated cloud store, and another process finishes its job."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import committer
from committer.errors import JobStateError, JobUndecidedError
from committer.paths import StorePath
from committer.testing.conformance import Channel
from committer_testing.emulators import adls, gcs
from committer_testing.emulators.faults import Conduct
from tests.processes import emulated_driver
from tests.processes.harness import TIMEOUT_S, environment
from tests.stores import adls_account, gcs_bucket

FILES = 200
MOMENTS = 20

pytestmark = pytest.mark.xdist_group("processes")


@dataclass
class Served:
    """An emulated store.

    Attributes:
        destination: Where the job goes.
        conduct: What the server was asked for.
        options: How to reach it; secrets are references.
        environment: What they refer to.
        channel: Its files, past the store.
        moved: Operation and status of a rename that was done.
    """

    destination: StorePath
    conduct: Conduct
    options: dict[str, str]
    environment: Mapping[str, str]
    channel: Channel
    moved: tuple[str, int]


@asynccontextmanager
async def on_adls() -> AsyncIterator[Served]:
    async with adls.serve() as emulator:
        adls_account.put_files(emulator)
        destination = adls_account.ROOT / "table"
        options = {"endpoint": emulator.dfs_url, "account_key": "env:ADLS_KEY"}
        secrets = {"ADLS_KEY": emulator.settings.key}
        channel = adls_account.AccountChannel(emulator, destination)
        yield Served(destination, emulator.conduct, options, secrets, channel, ("rename", 201))


@asynccontextmanager
async def on_gcs() -> AsyncIterator[Served]:
    async with gcs.serve(gcs.Settings(bearer_tokens=frozenset({"canary"}))) as emulator:
        emulator.make_bucket("data")
        destination = gcs_bucket.ROOT / "table"
        options = {"endpoint": emulator.url, "token": "env:GCS_TOKEN"}
        channel = gcs_bucket.BucketChannel(emulator, destination)
        yield Served(destination, emulator.conduct, options, {"GCS_TOKEN": "canary"}, channel, ("move", 200))


async def kill_after(served: Served, requests: int, *words: str) -> None:
    """Starts a driver and kills it once its commit has made so many requests, or has ended; `words` it is told beside."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(emulated_driver.__file__)),
        served.destination.uri,
        "J",
        str(FILES),
        *words,
        *(f"{name}={value}" for name, value in served.options.items()),
        stdout=asyncio.subprocess.PIPE,
        env={**environment(), **served.environment},
    )
    assert process.stdout is not None
    log = served.conduct.log
    async with asyncio.timeout(TIMEOUT_S):
        try:
            assert await process.stdout.readline() == b"ready\n"
            last = len(log) + requests
            while len(log) < last and not process.stdout.at_eof():
                await asyncio.sleep(0)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def finish(served: Served) -> committer.JobReport:
    uri = served.destination.uri
    try:
        return await committer.recover(uri, "J", storage_options=served.options)
    except JobUndecidedError:
        async with committer.attach_job(uri, job_id="J", storage_options=served.options) as job:
            return await job.commit(tasks=FILES // emulated_driver.FILES_A_TASK)


@pytest.mark.parametrize("serving", [on_adls, on_gcs])
@pytest.mark.parametrize("moment", range(MOMENTS))
async def test_killed_then_recovered(
    serving: Callable[[], AbstractAsyncContextManager[Served]], moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        # Some forty requests come before the first rename of a file, and some twenty after the last; on Google Cloud
        # Storage a rename is two.
        calls = 2 if served.moved[0] == "move" else 1
        await kill_after(served, random.Random(moment).randrange(1, calls * FILES + 60))
        report = await finish(served)
        assert (report.success, report.files_committed) == (True, FILES)
        found = await served.channel.files()
        assert b'"jobId" : "J"' in found.pop("_SUCCESS")
        assert found == {emulated_driver.name(number): emulated_driver.content(number) for number in range(FILES)}
        assert not any(name.startswith("_temporary") for name in await served.channel.directories())
        done = [entry for entry in served.conduct.log if (entry.operation, entry.status) == served.moved]
        sources = [entry.source for entry in done]
        assert len(sources) == len(set(sources)), "a file was renamed twice"


@pytest.mark.parametrize("end", ["recover", "roll back"])
@pytest.mark.parametrize("moment", range(MOMENTS))
async def test_killed_while_it_renames_directories(moment: int, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task's directories go by one rename, after the directory of its attempt was sealed by another."""
    async with on_adls() as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        # Some forty requests come before the first seal; for each of four tasks a seal, listings and a rename follow.
        await kill_after(served, random.Random(moment).randrange(30, 110), emulated_driver.PROMOTE)
        numbers = range(FILES)
        all_files = {emulated_driver.name(one, promote=True): emulated_driver.content(one) for one in numbers}
        log = served.conduct.log
        promoted = {entry.path for entry in log if entry.operation == "rename" and "_temporary" not in entry.path}
        if end == "roll back":
            uri, options = served.destination.uri, served.options
            try:
                rolled = await committer.recover(uri, "J", rollback=True, storage_options=options)
            except JobStateError:
                # It had an outcome: only forward from there.
                rolled = await committer.recover(uri, "J", storage_options=options)
            found = await served.channel.files()
            if not rolled.success:
                assert found == {}
                assert await served.channel.directories() == set()
                return
        else:
            assert (await finish(served)).files_committed == FILES
            found = await served.channel.files()
        assert b'"jobId" : "J"' in found.pop("_SUCCESS")
        assert found == all_files
        assert not any(name.startswith("_temporary") for name in await served.channel.directories())
        assert all(name.rpartition("/")[2].startswith(("t=", "part-", "_SUCCESS")) for name in promoted)
