"""Jobs of the magic committer on a server that speaks S3, looked at by the vendor's client."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobUndecidedError, PreflightError, RecordError, TargetExistsError
from committer.paths import StorePath
from tests.engine.uploads import peak_of_a_stream
from tests.processes.harness import TIMEOUT_S, environment
from tests.s3 import magic_driver
from tests.s3.bucket import BucketChannel, options_for
from tests.s3.servers import Server

FILES = 40
MOMENTS = 20
TRAPS = ["a b=1/p q.csv", "100%/p.csv", "a+b/c+d", "é/ü-Ω.csv", "t=12:30:00/p", "x=%20/%2F", "'q'&<>/p", "day=1/empty"]


@pytest.fixture
def channel(server: Server, root: StorePath) -> BucketChannel:
    return BucketChannel(server.client, root)


@pytest.fixture
def options(server: Server) -> dict[str, object]:
    return options_for(server)


async def commit(root: StorePath, options: dict[str, object], files: dict[str, bytes], **more: Any) -> Any:
    """Commits a job of one task."""
    async with committer.open_job(root, storage_options=options, **more) as job:
        async with job.task_attempt(0) as task:
            for name, data in files.items():
                async with task.open(name) as file:
                    await file.write(data)
        return await job.commit(tasks=1)


async def test_workers_that_give_nothing_back_need_no_other_code_here(
    root: StorePath, channel: BucketChannel, options: dict[str, object]
) -> None:
    async with committer.open_job(root, storage_options=options) as job:
        for number in range(3):
            async with committer.open_task(job.spec, task=number, storage_options=options) as task:
                async with task.open(f"day={number % 2}/part-{number}") as file:
                    await file.write(b"%d" % number)
        report = await job.commit()
    assert (report.success, report.files_committed, report.bytes_committed) == (True, 3, 3)
    found = await channel.files()
    found.pop("_SUCCESS")
    assert found == {f"day={number % 2}/part-{number}": b"%d" % number for number in range(3)}
    assert await channel.uploads() == []


async def test_a_job_with_names_that_are_traps(
    root: StorePath, channel: BucketChannel, options: dict[str, object]
) -> None:
    files = {name: name.encode() for name in TRAPS}
    files["day=1/empty"] = b""
    report = await commit(root, options, files)
    assert (report.committer, report.files_committed) == ("magic", len(TRAPS))
    found = await channel.files()
    marker = json.loads(found.pop("_SUCCESS"))
    assert (marker["committer"], len(marker["filenames"])) == ("magic", len(TRAPS))
    assert found == files
    assert await channel.uploads() == []
    validation = await committer.validate(root, storage_options=options)
    assert validation.ok


async def test_nothing_is_seen_before_the_commit_and_losers_are_ended(
    root: StorePath, channel: BucketChannel, options: dict[str, object]
) -> None:
    async with committer.open_job(root, delivery="message", storage_options=options) as job:
        messages = []
        for attempt in range(2):
            async with committer.open_task(job.spec, task=0, attempt=attempt, storage_options=options) as task:
                async with task.open("x") as file:
                    await file.write(b"attempt %d" % attempt)
            messages.append(task.task_commit)
        assert {name for name in await channel.files() if not name.startswith("_temporary")} == set()
        assert [name for name, _id in await channel.uploads()] == ["x", "x"]
        await job.commit([messages[1]], tasks=1)
    found = await channel.files()
    del found["_SUCCESS"]
    assert found == {"x": b"attempt 1"}
    assert await channel.uploads() == []


async def test_a_stream_of_several_parts(root: StorePath, channel: BucketChannel, options: dict[str, object]) -> None:
    data = random.Random(1).randbytes((12 << 20) + 3)
    config = CommitterConfig(multipart_size=1 << 20, multipart_in_flight=2)
    async with committer.open_job(root, config=config, storage_options=options) as job, job.task_attempt(0) as task:
        async with task.open("big") as file:
            for start in range(0, len(data), 700_001):
                await file.write(data[start : start + 700_001])
    assert (await channel.files())["big"] == data
    # S3 takes no part under 5 MiB but the last.
    assert (await channel.head("big"))["ETag"].strip('"').endswith("-3")


async def test_a_long_stream_takes_the_memory_of_two_parts_and_those_under_way(
    root: StorePath, options: dict[str, object]
) -> None:
    part = 5 << 20
    config = CommitterConfig(multipart_size=part, multipart_in_flight=3)
    chunk = bytes(1 << 20)
    async with committer.open_job(root, config=config, storage_options=options) as job, job.task_attempt(0) as task:
        async with task.open("first") as file:
            await file.write(chunk)
        peak = await peak_of_a_stream(task, chunk, 80)
    assert 3 * part < peak < (2 + 3) * part


async def test_a_blocking_file(root: StorePath, channel: BucketChannel, options: dict[str, object]) -> None:
    async with committer.open_job(root, storage_options=options) as job, job.task_attempt(0) as task:
        file = task.open_blocking("x")

        def write() -> None:
            with file:
                for _ in range(3):
                    file.write(bytes(1 << 20))

        await asyncio.to_thread(write)
    assert (await channel.files())["x"] == bytes(3 << 20)


async def test_a_target_that_appears_takes_the_job_back(
    root: StorePath, channel: BucketChannel, options: dict[str, object]
) -> None:
    from committer.stores.s3 import S3Store
    from committer.testing.faults import Call, FaultyStore

    await commit(root, options, {"old": b"old"}, job_id="earlier")
    before = await channel.files()
    store = FaultyStore(S3Store.open_for(root, options))

    async def another_program(call: Call) -> None:
        if call.operation == "complete_upload" and call.path.name == "b":
            await channel.write("b", b"another job's")

    store.before_call = another_program
    with pytest.raises(TargetExistsError) as caught:
        await commit(root, {"store": store}, dict.fromkeys("abc", b"new"), config=CommitterConfig(io_concurrency=1))
    await store.close()
    assert caught.value.outcome == "unchanged"
    assert await channel.files() == {**before, "b": b"another job's"}
    assert await channel.uploads() == []


async def test_a_rollback_by_the_other_scheme_changes_nothing(
    root: StorePath, channel: BucketChannel, options: dict[str, object]
) -> None:
    """Records hold the whole URI of a file, so they are out of reach by another name of the bucket."""
    from committer.stores.s3 import S3Store
    from committer.testing.faults import Fault, FaultyStore, SimulatedCrash

    store = FaultyStore(S3Store.open_for(root, options), [Fault(kind="crash_after", operation="complete_upload")])
    with pytest.raises(SimulatedCrash):
        await commit(root, {"store": store}, dict.fromkeys("ab", b"new"), job_id="j")
    await store.inner.close()
    before = await channel.files()
    other = StorePath("s3a", root.authority, root.path)
    with pytest.raises(RecordError) as caught:
        await committer.recover(other, "j", rollback=True, storage_options=options)
    assert "s3: in place of s3a:" in caught.value.next_step
    assert await channel.files() == before
    assert (await committer.recover(root, "j", storage_options=options)).files_committed == 2


@pytest.mark.parametrize("mode", ["same names", "directories"])
async def test_replacing(mode: str, root: StorePath, channel: BucketChannel, options: dict[str, object]) -> None:
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
    assert await channel.uploads() == []


async def test_a_server_that_keeps_no_file_beside_a_directory_of_its_name_takes_the_job_back(
    root: StorePath, channel: BucketChannel, options: dict[str, object]
) -> None:
    """S3 does; SeaweedFS has directories underneath, and refuses to complete the upload."""
    await channel.write("x/old", b"old")
    with pytest.raises(TargetExistsError) as caught:
        await commit(root, options, {"x": b"new", "y": b"new"}, config=CommitterConfig(existing_target="replace"))
    assert caught.value.outcome == "unchanged"
    assert (await channel.files(), await channel.uploads()) == ({"x/old": b"old"}, [])


async def test_an_aborted_job_leaves_nothing(
    root: StorePath, channel: BucketChannel, options: dict[str, object]
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with committer.open_job(root, storage_options=options) as job:
            async with job.task_attempt(0) as task, task.open("x") as file:
                await file.write(b"x")
            raise ZeroDivisionError
    assert await channel.files() == {}
    assert await channel.uploads() == []


# -- drivers that die ------------------------------------------------------------------------------------------------


async def killed(root: StorePath, server: Server, call: int, *more: str) -> bool:
    """Whether a driver died before a call of its commit."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(magic_driver.__file__)),
        root.uri,
        server.url,
        "J",
        str(FILES),
        str(call),
        *more,
        env=environment(),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(TIMEOUT_S):
        _out, said = await process.communicate()
    assert process.returncode in (0, -9), said.decode()
    return process.returncode == -9


async def finish(root: StorePath, options: dict[str, object]) -> committer.JobReport:
    try:
        return await committer.recover(root, "J", storage_options=options)
    except JobUndecidedError:
        async with committer.attach_job(root, job_id="J", storage_options=options) as job:
            tasks = FILES // magic_driver.FILES_A_TASK
            return await job.commit([await job.recover_task(task, 0) for task in range(tasks)], tasks=tasks)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("moment", range(MOMENTS))
async def test_killed_then_recovered(
    moment: int, root: StorePath, server: Server, channel: BucketChannel, options: dict[str, object]
) -> None:
    replaces = moment % 3 == 0
    if replaces:
        await commit(root, options, {"p=0/old": b"old", "other/kept": b"kept"}, job_id="earlier")
    call = random.Random(moment).randrange(1, FILES + 45)
    assert await killed(root, server, call, *(["--replace"] if replaces else []))
    report = await finish(root, options)
    assert (report.success, report.files_committed) == (True, FILES)
    found = await channel.files()
    assert json.loads(found.pop("_SUCCESS"))["jobId"] == "J"
    new = {magic_driver.name(number): magic_driver.content(number) for number in range(FILES)}
    assert found == {**new, **({"other/kept": b"kept"} if replaces else {})}
    assert await channel.uploads() == []


@pytest.mark.parametrize("moment", range(3))
async def test_killed_then_taken_back(
    moment: int, root: StorePath, server: Server, channel: BucketChannel, options: dict[str, object]
) -> None:
    await commit(root, options, {"p=0/old": b"old"}, job_id="earlier")
    before = await channel.files()
    assert await killed(root, server, 20 + 12 * moment)
    report = await committer.recover(root, "J", rollback=True, storage_options=options)
    assert not report.success
    assert await channel.files() == before
    assert await channel.uploads() == []


async def test_an_old_file_that_no_record_may_name_is_refused_before_the_decision(
    moto_server: Server, root: StorePath
) -> None:
    """A recoverer that had to finish the job, or take it back, would refuse a decision that names it."""
    channel, options = BucketChannel(moto_server.client, root), options_for(moto_server)
    await channel.write("a=1/..", b"old")
    with pytest.raises(PreflightError, match=r"a=1/\.\. cannot be moved aside") as caught:
        await commit(root, options, {"a=1/new": b"new"}, config=CommitterConfig(conflict_mode="replace"))
    assert caught.value.outcome == "unchanged"
    assert await channel.files() == {"a=1/..": b"old"}
    assert await channel.uploads() == []
