"""Jobs of `stocator` on an emulated bucket of Google Cloud Storage, seen past the store."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

import committer
from committer.errors import CommitterError
from committer.paths import StorePath
from committer.spec import Delivery
from committer.stores.base import Store
from committer.stores.gcs import GcsStore
from committer.testing.conformance import Channel
from committer.testing.faults import FaultyStore, SimulatedCrash
from tests.stores.gcs_bucket import ROOT, BucketChannel, bucket_fixtures

emulator, store, channel = bucket_fixtures()

ATTEMPT = re.compile(r"-attempt_[^/]*?_m_\d+_\d+-[0-9a-f]+")
FILES = {"a b=1/p q.csv": b"one", "100%/p.csv": b"", "é/ü-Ω.csv": b"x" * 300_000}


async def _killed(job: committer.Job, store: Store) -> None:
    dying = FaultyStore(store)
    with pytest.raises(SimulatedCrash):
        async with committer.open_task(job.spec, task=0, attempt=7, storage_options={"store": dying}) as task:
            async with task.open("a b=1/p q.csv") as file:
                await file.write(b"lost")
            dying.crashed = True
            raise SimulatedCrash


async def check_winners(
    root: StorePath, store: Store, channel: Channel, files: Mapping[str, bytes], delivery: Delivery
) -> None:
    """The winners are named, each as its task wrote it, and what a killed attempt left is gone."""
    options = {"store": store}
    async with committer.open_job(root, committer="stocator", delivery=delivery, storage_options=options) as job:
        await _killed(job, store)
        async with job.task_attempt(0) as task:
            for name, data in files.items():
                async with task.open(name) as file:
                    await file.write(data)
        report = await job.commit([task.task_commit] if delivery == "message" else None, tasks=1)
    assert (report.committer, report.files_committed) == ("stocator", len(files))
    winners = await committer.list_winners(root, storage_options=options)
    found = dict(await channel.files())
    del found["_SUCCESS"]
    assert {StorePath.from_uri(file.path).relative_to(root) for file in winners.files} == found.keys()
    assert {ATTEMPT.sub("", name): data for name, data in found.items()} == files


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_winners_are_named_and_losers_go(store: GcsStore, channel: BucketChannel, delivery: Delivery) -> None:
    await check_winners(ROOT, store, channel, FILES, delivery)


@pytest.mark.parametrize("end", ["abort", "roll back"])
async def test_a_job_that_is_not_wanted_leaves_nothing(store: GcsStore, channel: BucketChannel, end: str) -> None:
    await channel.write("old", b"old")
    options = {"store": store}
    job = await committer.open_job(ROOT, job_id="j", committer="stocator", storage_options=options)
    await _killed(job, store)
    async with job.task_attempt(0) as task, task.open("part-0") as file:
        await file.write(b"x")
    if end == "abort":
        await job.abort()
    else:
        driver = FaultyStore(store)

        async def die(call: object) -> None:
            driver.crashed = driver.crashed or any(
                one.operation == "put" and one.path.name == "decision" and one.result == "ok" for one in driver.calls
            )

        driver.before_call = die
        with pytest.raises((SimulatedCrash, CommitterError)):
            async with committer.attach_job(job.spec, storage_options={"store": driver}) as attached:
                await attached.commit(tasks=1)
        await committer.recover(ROOT, "j", rollback=True, force=True, storage_options=options)
    await job.close()
    assert await channel.files() == {"old": b"old"}
