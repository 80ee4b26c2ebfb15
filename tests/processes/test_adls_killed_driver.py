"""A driver is killed while it commits to an emulated account, and an operator finishes its job."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import committer
from committer.errors import JobUndecidedError
from committer.testing.emulators.adls import AdlsEmulator, serve
from tests.processes import adls_driver
from tests.processes.harness import TIMEOUT_S, environment
from tests.stores.adls_account import ROOT, AccountChannel, put_files

FILES = 200
MOMENTS = 20

pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture
async def emulator() -> AsyncIterator[AdlsEmulator]:
    async with serve() as emulator:
        put_files(emulator)
        yield emulator


async def kill_after(emulator: AdlsEmulator, requests: int, *arguments: str) -> None:
    """Starts a driver and kills it once its commit has made so many requests, or has ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(adls_driver.__file__)),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env={**environment(), "ADLS_KEY": emulator.settings.key},
    )
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        try:
            assert await process.stdout.readline() == b"ready\n"
            last = len(emulator.conduct.log) + requests
            while len(emulator.conduct.log) < last and not process.stdout.at_eof():
                await asyncio.sleep(0)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def finish(uri: str, job_id: str, options: dict[str, object]) -> committer.JobReport:
    try:
        return await committer.recover(uri, job_id, storage_options=options)
    except JobUndecidedError:
        async with committer.attach_job(uri, job_id=job_id, storage_options=options) as job:
            return await job.commit(tasks=FILES // adls_driver.FILES_A_TASK)


@pytest.mark.parametrize("moment", range(MOMENTS))
async def test_killed_then_recovered(emulator: AdlsEmulator, moment: int) -> None:
    destination = ROOT / "table"
    # Some forty requests come before the first rename of a file, and some twenty after the last.
    requests = random.Random(moment).randrange(1, FILES + 60)
    await kill_after(emulator, requests, destination.uri, emulator.dfs_url, "J", str(FILES))
    options: dict[str, object] = {"endpoint": emulator.dfs_url, "account_key": emulator.settings.key}
    report = await finish(destination.uri, "J", options)
    assert (report.success, report.files_committed) == (True, FILES)
    found = await AccountChannel(emulator, destination).files()
    assert b'"jobId" : "J"' in found.pop("_SUCCESS")
    assert found == {adls_driver.name(number): adls_driver.content(number) for number in range(FILES)}
    assert not any(name.startswith("_temporary") for name in await AccountChannel(emulator, destination).directories())
    sources = [entry.source for entry in emulator.conduct.log if entry.operation == "rename" and entry.status == 201]
    assert len(sources) == len(set(sources)), "a file was renamed twice"
