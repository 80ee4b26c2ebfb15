"""A bucket that is deleted while a job runs into it: nothing that was there can be recovered, or cleaned up."""

from __future__ import annotations

from typing import Any

import pytest

import committer
from committer.errors import CommitterError
from committer_testing.emulators.gcs import GcsEmulator
from tests.stores.gcs_bucket import ROOT, BucketChannel, emulator_fixture

DEST = ROOT / "table"


emulator = emulator_fixture()


async def run(emulator: GcsEmulator, *, gone_at: str = "") -> None:
    def delete(moment: str) -> None:
        if moment == gone_at:
            emulator.namespace.buckets.clear()

    def deletes_at_the_second(answer: Any) -> Any:
        calls = 0

        def counted(request: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 2:
                delete("publish")
            return answer(request)

        return counted

    options = {"endpoint": emulator.url}
    async with committer.open_job(DEST.uri, job_id="job", storage_options=options) as job:
        delete("task")
        async with job.task_attempt(task=0) as task:
            for name in ("a", "b", "c"):
                async with task.open(name) as file:
                    await file.write(b"1")
            delete("task commit")
        delete("commit")
        emulator.api._handlers["move"] = deletes_at_the_second(emulator.api._handlers["move"])
        await job.commit(tasks=1)


@pytest.mark.parametrize("call", [1, 2])
async def test_an_executor_that_commits_its_task_says_so_too(emulator: GcsEmulator, call: int) -> None:
    """At the look whether its job still exists, and at the save of its record, which go beside each other."""
    options = {"endpoint": emulator.url}
    job = await committer.open_job(DEST.uri, job_id="job", storage_options=options)
    answer, calls = emulator.api.answer, 0

    def counted(request: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            emulator.namespace.buckets.clear()
        return answer(request)

    with pytest.raises(CommitterError, match="there is no such bucket") as caught:
        async with committer.open_task(job.spec, task=0, storage_options=options) as task:
            async with task.open("a") as file:
                await file.write(b"1")
            emulator.api.answer = counted  # type: ignore[method-assign]
    assert "create that, and run the job again" in caught.value.next_step
    await job.close()


@pytest.mark.parametrize("gone_at", ["task", "task commit", "commit", "publish"])
async def test_the_job_is_to_be_run_again(emulator: GcsEmulator, gone_at: str) -> None:
    with pytest.raises(CommitterError, match="there is no such bucket") as caught:
        await run(emulator, gone_at=gone_at)
    assert "create that, and run the job again" in caught.value.next_step
    emulator.make_bucket("data")
    await run(emulator)
    files = await BucketChannel(emulator, DEST).files()
    assert {name for name in files if not name.startswith("_")} == {"a", "b", "c"}
