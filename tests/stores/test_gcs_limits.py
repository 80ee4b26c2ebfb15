"""Whole jobs where Google Cloud Storage sets limits: objects that are locked, and names that change once a second."""

from __future__ import annotations

from collections import Counter

import pytest

import committer
from committer import CommitterConfig
from committer.errors import PreflightError, StorePermissionError
from committer_testing.emulators.gcs import GcsEmulator, Settings, serve
from committer_testing.emulators.gcs.objects import timestamp
from tests.stores.gcs_bucket import ROOT, BucketChannel, emulator_fixture, store_on

DEST = ROOT / "table"
REPLACING = CommitterConfig(existing_target="replace")
SUPERSEDING = CommitterConfig(conflict_mode="replace")
LOCKS = ["hold", "event hold", "object", "bucket"]


emulator = emulator_fixture()


async def run(emulator: GcsEmulator, data: bytes, config: CommitterConfig | None = None) -> committer.JobReport:
    async with committer.open_job(DEST.uri, config=config, storage_options={"endpoint": emulator.url}) as job:
        async with job.task_attempt(task=0, attempt=0) as task:
            for name in ("p=1/a", "p=1/b"):
                async with task.open(name) as file:
                    await file.write(data)
        return await job.commit(tasks=1)


async def visible(emulator: GcsEmulator) -> dict[str, bytes]:
    found = await BucketChannel(emulator, DEST).files()
    return {name: data for name, data in found.items() if not name.startswith("_")}


def lock(emulator: GcsEmulator, how: str) -> None:
    bucket = emulator.namespace.buckets["data"]
    held = bucket.objects["test/root/table/p=1/b"]
    match how:
        case "hold":
            held.temporary_hold = True
        case "event hold":
            held.event_hold = True
        case "object":
            held.retention = {"mode": "Locked", "retainUntilTime": timestamp(held.created + 3600)}
        case _:
            bucket.configured["retentionPolicy"] = {"retentionPeriod": "3600"}


@pytest.mark.parametrize("how", LOCKS)
async def test_a_look_says_that_a_file_is_locked(emulator: GcsEmulator, how: str) -> None:
    await run(emulator, b"old")
    store = store_on(emulator)
    path = DEST / "p=1/b"
    assert (await store.status(path)).refuses is None
    lock(emulator, how)
    looked_at = (await store.status(path)).refuses
    listed = {status.path: status.refuses async for status in store.list(path.parent)}[path]
    assert looked_at is not None
    assert looked_at == listed
    assert ("hold" if "hold" in how else "retained until") in looked_at.move
    await store.close()


@pytest.mark.parametrize("config", [REPLACING, SUPERSEDING], ids=["same names", "superseded"])
@pytest.mark.parametrize("how", ["hold", "object"])
async def test_a_job_that_would_replace_a_locked_file_is_refused_before_its_decision(
    emulator: GcsEmulator, how: str, config: CommitterConfig
) -> None:
    await run(emulator, b"old")
    lock(emulator, how)
    before = await visible(emulator)
    emulator.conduct.log.clear()
    with pytest.raises(PreflightError) as caught:
        await run(emulator, b"new", config)
    assert caught.value.outcome == "unchanged"
    assert "p=1/b" in str(caught.value)
    assert ("under a hold" if how == "hold" else "retained until") in str(caught.value)
    assert await visible(emulator) == before
    assert not [
        one for one in emulator.conduct.log if one.operation == "move" and "table/p=" in f"{one.path} {one.source}"
    ]
    # Another job may go on: the refused one holds nothing.
    emulator.namespace.buckets["data"].objects["test/root/table/p=1/b"].temporary_hold = False
    emulator.namespace.buckets["data"].objects["test/root/table/p=1/b"].retention = None
    await run(emulator, b"new", config)
    assert set((await visible(emulator)).values()) == {b"new"}


async def test_a_job_in_a_bucket_with_a_retention_policy_is_refused_at_setup(emulator: GcsEmulator) -> None:
    emulator.namespace.buckets["data"].configured["retentionPolicy"] = {"retentionPeriod": "3600"}
    with pytest.raises(StorePermissionError, match="retained until") as caught:
        await run(emulator, b"1")
    assert "without a retention policy" in caught.value.next_step
    assert await visible(emulator) == {}


async def test_names_that_change_once_a_second_are_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """`_SUCCESS` and the replace lock, which jobs after one another change, and records that are gone soon."""
    async with serve(Settings(object_change_seconds=0.5)) as emulator:
        emulator.make_bucket("data")
        for number in range(2):
            report = await run(emulator, f"{number}".encode(), SUPERSEDING)
            assert (report.success, report.files_committed) == (True, 2)
            assert set((await visible(emulator)).values()) == {f"{number}".encode()}
        refused = Counter((one.operation, one.path) for one in emulator.conduct.log if one.status == 429)
        # Each is asked for again after a second, and not all the time.
        assert refused
        assert max(refused.values()) <= 2
        assert {one.code for one in emulator.conduct.log if one.status == 429} == {"rateLimitExceeded"}
    # It is the name that must wait, and nothing else of the bucket.
    assert not [line for line in caplog.messages if "asked to slow down" in line]
