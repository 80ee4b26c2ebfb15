"""Jobs of the committer block-list on Azurite, looked at by the vendor's client."""

from __future__ import annotations

import json
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.errors import OutcomeUnknownError, PreflightError, TargetExistsError
from committer.paths import StorePath
from committer.stores.azure_blob import AzureBlobStore
from committer.testing.faults import Call, FaultyStore
from tests.azure_blob.container import ContainerChannel, write_task

TRAPS = ["a b=1/p q.csv", "100%/p.csv", "a+b/c+d", "é/ü-Ω.csv", "t=12:30:00/p", "x=%20/%2F", "'q'&<>/p"]


async def commit(root: StorePath, options: dict[str, object], files: dict[str, bytes], **more: Any) -> Any:
    """Commits a job of one task."""
    async with committer.open_job(root, storage_options=options, **more) as job:
        await write_task(job, files)
        return await job.commit(tasks=1)


async def test_a_job_with_names_that_are_traps(
    root: StorePath, channel: ContainerChannel, options: dict[str, object]
) -> None:
    files = {name: name.encode() for name in TRAPS} | {"day=1/empty": b""}
    report = await commit(root, options, files)
    assert (report.committer, report.files_committed) == ("block-list", len(files))
    found = await channel.files()
    marker = json.loads(found.pop("_SUCCESS"))
    assert len(marker["filenames"]) == len(files)
    assert found == files
    assert await channel.waiting() == {}
    assert (await committer.validate(root, storage_options=options)).ok


async def test_nothing_is_seen_before_the_commit_and_the_winner_of_two_attempts_has_its_own_blocks(
    root: StorePath, channel: ContainerChannel, options: dict[str, object]
) -> None:
    """All attempts of a task send to one name; the list of the winner names its blocks and drops the other's."""
    config = CommitterConfig(multipart_size=1000)
    async with committer.open_job(root, delivery="message", config=config, storage_options=options) as job:
        tasks = [await committer.open_task(job.spec, task=0, attempt=n, storage_options=options) for n in range(2)]
        async with tasks[0].open("x") as first, tasks[1].open("x") as second:
            for block in range(3):
                for number, writer in enumerate((first, second)):
                    await writer.write(b"%d%d" % (number, block) * 500)
        messages = [await task.commit() for task in tasks]
        assert {name for name in await channel.files() if not name.startswith("_temporary")} == set()
        assert await channel.waiting() == {"x": 6}
        await job.commit([messages[1]], tasks=1)
    found = await channel.files()
    del found["_SUCCESS"]
    assert found == {"x": b"".join(b"1%d" % block * 500 for block in range(3))}
    assert (await channel.properties("x")).metadata["committerattempt"].startswith(f"{job.job_id}/0/1/")
    assert await channel.waiting() == {}


async def test_a_target_that_appears_takes_the_job_back(
    root: StorePath, channel: ContainerChannel, options: dict[str, object]
) -> None:
    await commit(root, options, {"old": b"old"}, job_id="earlier")
    before = await channel.files()
    store = FaultyStore(AzureBlobStore.open_for(root, options))

    async def another_program(call: Call) -> None:
        if call.operation == "put_block_list" and call.path.name == "b":
            await channel.write("b", b"another job's")

    store.before_call = another_program
    with pytest.raises(TargetExistsError) as caught:
        await commit(root, {"store": store}, dict.fromkeys("abc", b"new"), config=CommitterConfig(io_concurrency=1))
    await store.close()
    assert caught.value.outcome == "unchanged"
    assert await channel.files() == {**before, "b": b"another job's"}


@pytest.mark.parametrize("mode", ["same names", "directories"])
async def test_replacing(mode: str, root: StorePath, channel: ContainerChannel, options: dict[str, object]) -> None:
    await commit(root, options, {"a=1/old": b"1", "a=2/old": b"2", "a=1/both": b"3"}, job_id="earlier")
    config = (
        CommitterConfig(existing_target="replace")
        if mode == "same names"
        else CommitterConfig(conflict_mode="replace", validate_output=True)
    )
    await commit(root, options, {"a=1/both": b"new", "a=1/new": b"4"}, config=config, job_id="later")
    found = await channel.files()
    assert json.loads(found.pop("_SUCCESS"))["jobId"] == "later"
    kept = {"a=1/old": b"1"} if mode == "same names" else {}
    assert found == {"a=1/both": b"new", "a=1/new": b"4", "a=2/old": b"2", **kept}


async def test_blocks_that_another_job_dropped_are_missed_before_the_decision(
    root: StorePath, channel: ContainerChannel, options: dict[str, object]
) -> None:
    """A job that replaced other files already could not be rolled back."""
    config = CommitterConfig(existing_target="replace")
    async with committer.open_job(root, config=config, storage_options=options, job_id="later") as job:
        await write_task(job, dict.fromkeys("xy", b"later"))
        await commit(root, options, {"x": b"earlier"}, job_id="earlier")
        with pytest.raises(PreflightError, match="blocks of x are gone"):
            await job.commit(tasks=1)
        await job.abort()
    found = await channel.files()
    del found["_SUCCESS"]
    assert found == {"x": b"earlier"}


async def test_a_file_that_is_gone_with_its_blocks_is_not_known_and_nothing_is_deleted(
    root: StorePath, channel: ContainerChannel, options: dict[str, object]
) -> None:
    store = FaultyStore(AzureBlobStore.open_for(root, options))

    async def another_program(call: Call) -> None:
        if call.operation == "put_block_list" and call.path.name == "b":
            store.before_call = None
            blocks = AzureBlobStore.open_for(root, options)
            await blocks.put_block_list(call.path, [], stamp="other")
            await blocks.close()
            await channel.remove("b")

    store.before_call = another_program
    one = CommitterConfig(io_concurrency=1)
    with pytest.raises(OutcomeUnknownError, match="its blocks are gone"):
        await commit(root, {"store": store}, dict.fromkeys("abc", b"new"), config=one, job_id="j")
    assert "a" in await channel.files()
    report = await committer.recover(root, "j", rollback=True, storage_options=options)
    assert not report.success
    assert await channel.files() == {}
    assert await channel.waiting() == {}
    await store.close()


async def test_an_aborted_job_leaves_no_file_and_blocks_that_nothing_shows(
    root: StorePath, channel: ContainerChannel, options: dict[str, object]
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with committer.open_job(root, storage_options=options) as job:
            await write_task(job, {"x": b"x"})
            raise ZeroDivisionError
    assert await channel.files() == {}
    # The service drops them after a week, or with the next file of that name.
    assert await channel.waiting() == {"x": 1}
    assert (await commit(root, options, {"x": b"again"})).files_committed == 1
    assert await channel.waiting() == {}
