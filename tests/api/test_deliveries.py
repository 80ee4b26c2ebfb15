"""How the driver learns of task commits: by listing, by message, and by messages that restrict a listing."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

import committer
from committer import CommitterConfig, TaskCommit
from committer.errors import CommitterError, ConfigurationError, RecordError, TaskCommitsRequiredError, TaskMissingError
from committer.records.task_commit import INLINE_LIMIT, MESSAGE_LIMIT
from tests.places import EVERY_COMMITTER, Delivery, Place, place_fixture, write_file

place = place_fixture(*EVERY_COMMITTER)

BOTH = pytest.mark.parametrize("delivery", ["listing", "message"])


async def commit_in_place(job: committer.Job, task: int, files: dict[str, bytes], attempt: int = 0) -> TaskCommit:
    """A task attempt of the driver's own."""
    async with job.task_attempt(task=task, attempt=attempt) as writer:
        for name, data in files.items():
            await write_file(writer, name, data)
    return writer.task_commit


@BOTH
async def test_messages_pick_the_winners(place: Place, delivery: Delivery) -> None:
    async with place.open_job(delivery=delivery) as job:
        chosen = [await place.run_task(job, 0, {"part-0": b"0"}), await place.run_task(job, 2, {"part-2": b"2"})]
        await place.run_task(job, 1, {"part-1": b"1"})
        report = await job.commit(task_commits=iter(chosen), tasks=2)
    assert place.files() == {"part-0": b"0", "part-2": b"2"}
    assert report.files_committed == 2
    assert place.temporary() == set()


@BOTH
async def test_empty_list_means_zero_tasks(place: Place, delivery: Delivery) -> None:
    async with place.open_job(delivery=delivery) as job:
        await place.run_task(job, 0, {"part-0": b"0"})
        report = await job.commit(task_commits=[])
    assert report.files_committed == 0
    assert place.files() == {}
    assert "_SUCCESS" in place.all_files()
    assert place.temporary() == set()


async def workers_then_commit(dest: object, options: Mapping[str, object], **arguments: object) -> committer.JobReport:
    """A driver that knows nothing of its store, and workers that give it nothing back."""
    async with committer.open_job(dest, storage_options=options, **arguments) as job:
        for number in range(3):
            async with committer.open_task(job.spec, task=number, storage_options=options) as task:
                await write_file(task, f"day={number % 2}/part-{number}", b"%d" % number)
        return await job.commit()


async def test_the_error_of_a_message_job_names_each_way_out(place: Place) -> None:
    config = CommitterConfig(existing_target="replace")
    with pytest.raises(TaskCommitsRequiredError) as caught:
        await workers_then_commit(place.dest, place.options, job_id="job-1", delivery="message")
    assert "commit(task_commits=[...])" in caught.value.next_step
    assert "commit(from_attempts=True, tasks=N)" in caught.value.next_step
    assert 'delivery="listing"' in caught.value.next_step
    # As `next_step` says, the one way:
    async with place.attach_job("job-1") as job:
        winners = [await job.recover_task(number, 0) for number in range(3)]
        await (await committer.attach_job(job.spec, storage_options=place.options)).commit(task_commits=winners)
    # Another:
    with pytest.raises(TaskCommitsRequiredError):
        await workers_then_commit(place.dest, place.options, job_id="job-3", delivery="message", config=config)
    async with place.attach_job("job-3") as job:
        await job.commit(from_attempts=True, tasks=3)
    # And the last:
    with pytest.raises(TaskCommitsRequiredError):
        await workers_then_commit(place.dest, place.options, job_id="job-2", delivery="message")
    async with place.attach_job("job-2") as job:
        await job.abort()
    assert (await workers_then_commit(place.dest, place.options, delivery="listing", config=config)).success
    assert await place.states() == {}


async def test_message_job_wants_messages_when_others_committed(place: Place) -> None:
    with pytest.raises(TaskCommitsRequiredError) as caught:
        async with place.open_job(job_id="job-1", delivery="message") as job:
            await commit_in_place(job, 0, {"part-0": b"own"})
            elsewhere = await place.run_task(job, 1, {"part-1": b"elsewhere"})
    assert caught.value.outcome == "unchanged"
    assert "task_commits" in caught.value.next_step
    assert place.files() == {}
    assert await place.states() == {"job-1": "open"}
    async with place.attach_job("job-1") as again:
        own = await again.recover_task(0, 0)
        await again.commit(task_commits=[own, elsewhere])
    assert place.files() == {"part-0": b"own", "part-1": b"elsewhere"}


async def test_message_job_does_not_mind_attempts_that_did_not_commit(place: Place) -> None:
    async with place.open_job(delivery="message") as job:
        await commit_in_place(job, 0, {"part-0": b"x"})
        running = await place.open_task(job.spec, 1)
        await write_file(running, "part-1", b"x")
    assert place.files() == {"part-0": b"x"}


async def test_two_own_attempts_of_a_task_the_last_counts(place: Place) -> None:
    async with place.open_job(delivery="message") as job:
        await commit_in_place(job, 0, {"part-0": b"first", "only-first": b"1"}, attempt=0)
        await commit_in_place(job, 0, {"part-0": b"second"}, attempt=1)
    assert place.files() == {"part-0": b"second"}


@pytest.mark.parametrize("attempt", [0, 1])
async def test_second_run_of_one_task_changes_nothing_for_messages(place: Place, attempt: int) -> None:
    async with place.open_job(delivery="message") as job:
        winner = await place.run_task(job, 0, {"part-0": b"winner"}, attempt=0)
        await place.run_task(job, 0, {"part-0": b"again", "extra": b"again"}, attempt)
        await job.commit(task_commits=[winner], tasks=1)
    assert place.files() == {"part-0": b"winner"}


async def test_listing_job_notices_that_a_named_record_was_replaced(place: Place) -> None:
    async with place.open_job() as job:
        winner = await place.run_task(job, 0, {"part-0": b"winner"}, attempt=0)
        zombie = await place.run_task(job, 0, {"part-0": b"zombie"}, attempt=1)
        with pytest.raises(RecordError) as caught:
            await job.commit(task_commits=[winner], tasks=1)
        assert caught.value.field == "digest"
        assert caught.value.outcome == "unchanged"
        assert place.files() == {}
        # The job stays as it was: it can be committed with the message that is right, and tasks can still commit.
        await place.run_task(job, 1, {"part-1": b"later"})
        await job.commit(task_commits=[zombie])
    assert place.files() == {"part-0": b"zombie"}


@BOTH
@pytest.mark.parametrize("wrong", [None, b"bytes", {"task": 0}])
async def test_what_is_no_message_is_refused(place: Place, delivery: Delivery, wrong: object) -> None:
    async with place.open_job(delivery=delivery) as job:
        message = await place.run_task(job, 0, {"part-0": b"x"})
        with pytest.raises(RecordError, match=r"message (is missing|was given encoded)"):
            await job.commit(task_commits=[message, wrong])  # type: ignore[list-item]
        await job.commit(task_commits=[message])
    assert place.files() == {"part-0": b"x"}


async def test_message_that_names_another_record_is_refused(place: Place) -> None:
    async with place.open_job(delivery="message") as job:
        message = await place.run_task(job, 0, {"part-0": b"x"})
        for change in ({"record": f"{place.dest}/somewhere.json"}, {"nonce": "../../evil"}, {"attempt": 7}):
            with pytest.raises(CommitterError):
                await job.commit(task_commits=[msgspec.structs.replace(message, **change)])
        with pytest.raises(RecordError):
            await job.commit(task_commits=[msgspec.structs.replace(message, inline=None, digest="0" * 64)])
        with pytest.raises(RecordError):
            await job.commit(task_commits=[msgspec.structs.replace(message, inline="{}")])
        assert place.files() == {}
        await job.commit(task_commits=[message])
    assert place.files() == {"part-0": b"x"}


@BOTH
@pytest.mark.parametrize("tasks", [1, 3])
async def test_number_of_tasks_must_agree(place: Place, delivery: Delivery, tasks: int) -> None:
    async with place.open_job(delivery=delivery) as job:
        messages = [await place.run_task(job, task, {f"part-{task}": b"x"}) for task in range(2)]
        named = messages if delivery == "message" else None
        with pytest.raises(TaskMissingError) as caught:
            await job.commit(named, tasks=tasks)
        assert caught.value.outcome == "unchanged"
        assert place.files() == {}
        if tasks == 3:
            messages.append(await place.run_task(job, 2, {"part-2": b"x"}))
            await job.commit(messages if named else None, tasks=3)
        else:
            await job.commit(named, tasks=2)
    assert place.temporary() == set()


@pytest.mark.parametrize("tasks", [-1, True, 1.0, "1"])
async def test_number_of_tasks_must_be_a_number(place: Place, tasks: object) -> None:
    async with place.open_job() as job:
        await place.run_task(job, 0)
        with pytest.raises(ConfigurationError):
            await job.commit(tasks=tasks)  # type: ignore[arg-type]


@BOTH
async def test_small_messages_carry_the_record_and_large_ones_do_not(place: Place, delivery: Delivery) -> None:
    async with place.open_job(delivery=delivery) as job:
        small = await place.run_task(job, 0, {"part-0": b"x"})
        large = await place.run_task(job, 1, {f"d/{number:04}-{'n' * 40}": b"" for number in range(60)})
        assert (small.inline is not None, large.inline) == (True, None)
        assert large.length > INLINE_LIMIT
        for message in (small, large):
            assert len(message.encode()) <= MESSAGE_LIMIT
            assert TaskCommit.decode(message.encode()) == message
            assert pickle.loads(pickle.dumps(message)) == message
        assert (small.files, small.size, large.files, large.size) == (1, 1, 60, 0)
        report = await job.commit(task_commits=[TaskCommit.decode(one.encode()) for one in (large, small)])
    assert report.files_committed == 61


async def test_record_that_escapes_badly_still_fits_a_message(place: Place) -> None:
    async with place.open_job(delivery="message") as job:
        message = await place.run_task(job, 0, {f'"\\{number}"': b"x" for number in range(14)})
        assert len(message.encode()) <= MESSAGE_LIMIT
        await job.commit(task_commits=[TaskCommit.decode(message.encode())])
    assert len(place.files()) == 14


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"null", b"[]", b'{"job_id": 1}', b"\xff", b"not json", b'{"job_id":"j","task":-1}']
)
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(RecordError):
        TaskCommit.decode(data)


def test_message_whose_inline_record_was_changed() -> None:
    message = TaskCommit(
        job_id="j", task=0, attempt=0, nonce="n", record="file:/r", digest="0" * 64, length=2, files=0, size=0,
        inline="{}",
    )  # fmt: skip
    with pytest.raises(RecordError) as caught:
        TaskCommit.decode(message.encode())
    assert caught.value.field == "inline"


async def test_inline_record_is_not_read_again(place: Place) -> None:
    async with place.open_job(delivery="message") as job:
        message = await place.run_task(job, 0, {"part-0": b"x"})
        place.store.calls.clear()
        await job.commit(task_commits=[message])
    assert not [call for call in place.store.calls if call.operation == "read" and "manifest.json" in str(call.path)]


async def test_recover_task_gives_the_message_anew(place: Place) -> None:
    for delivery in ("listing", "message"):
        async with place.open_job(delivery=delivery) as job:
            message = await place.run_task(job, 3, {f"{delivery}/part-0": b"x"}, attempt=2)
            again = await job.recover_task(3, 2)
            assert (again.task, again.attempt, again.record, again.digest, again.files, again.size) == (
                message.task, message.attempt, message.record, message.digest, message.files, message.size,
            )  # fmt: skip
            with pytest.raises(committer.CommitterError, match="did not commit"):
                await job.recover_task(3, 1)
            with pytest.raises(committer.CommitterError, match="did not commit"):
                await job.recover_task(4, 0)
            await job.commit(task_commits=[again])
    assert place.files() == {"listing/part-0": b"x", "message/part-0": b"x"}


async def test_recovered_task_counts_as_the_drivers_own(place: Place) -> None:
    job = await place.open_job(job_id="job-1", delivery="message")
    await commit_in_place(job, 0, {"part-0": b"x"})
    async with place.attach_job("job-1") as after_restart:
        with pytest.raises(TaskCommitsRequiredError):
            await after_restart.commit()
        await after_restart.recover_task(0, 0)
        await after_restart.commit(tasks=1)
    assert place.files() == {"part-0": b"x"}


async def test_jobs_of_both_deliveries_side_by_side(tmp_path: Path, place: Place) -> None:
    async def run(number: int) -> None:
        delivery: Delivery = "listing" if number % 2 else "message"
        await place.run_job({f"job={number}/part-0": b"%d" % number}, {f"job={number}/part-1": b"x"}, delivery=delivery)

    await asyncio.gather(*[run(number) for number in range(6)])
    assert len(place.files()) == 12
    assert place.temporary() == set()
