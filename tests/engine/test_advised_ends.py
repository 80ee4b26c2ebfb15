"""A decided job that cannot be finished: what its error names last ends it, also where nothing can be taken back."""

from __future__ import annotations

from typing import TypeVar

import pytest

import committer
from committer import CommitterConfig
from committer.errors import (
    CommitterError,
    JobStateError,
    OutcomeUnknownError,
    RecordError,
    StoreError,
    TargetExistsError,
    ValidationError,
)
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.engine.places import MemoryPlace
from tests.engine.test_advice import calls_in, follow

FILES = {"p/a": b"new", "q/x": b"new", "r/z": b"new"}


Raised = TypeVar("Raised", bound=BaseException)


async def stopped(
    place: MemoryPlace, error: type[Raised], fault: Fault | None = None, *, old: bool = False, **choices: object
) -> Raised:
    """What the commit of job `j` raises, which has a task for each of three files; `old` stands where the first goes."""
    if old:
        place.write("p/a", b"old")
    config = CommitterConfig(io_concurrency=1, **choices)  # type: ignore[arg-type]
    job = await place.open_job(job_id="j", config=config)
    for number, (name, data) in enumerate(FILES.items()):
        await place.run_task(job, number, {name: data})
    if fault is not None:
        place.faults(fault)
    with pytest.raises(error) as caught:
        await job.commit(tasks=3)
    await job.close()
    return caught.value


async def lose_an_upload(place: MemoryPlace, **choices: object) -> None:
    """A job whose driver died before it published the last of three files, whose upload was aborted then."""
    await stopped(place, SimulatedCrash, Fault(kind="crash_before", operation="complete_upload", path="r/z"), **choices)
    # As a lifecycle rule of the bucket does, or an operator.
    [lost] = [upload for upload in place.space.uploads if upload.path.name == "z"]
    await place.space.store().abort_upload(lost.path, lost.upload_id)


async def test_a_job_that_can_only_go_forward_and_lost_a_file_is_given_up() -> None:
    place = MemoryPlace("s3")
    place.write("q/x", b"old")
    await lose_an_upload(place, existing_target="replace")
    with pytest.raises(OutcomeUnknownError) as caught:
        await committer.recover(place.dest, "j")
    again, give_up = calls_in(caught.value)
    assert "rollback" not in caught.value.next_step
    assert "what it did not publish" in caught.value.next_step
    with pytest.raises(OutcomeUnknownError):
        await follow(again)
    with pytest.raises(JobStateError, match="can only go forward") as refused:
        await committer.recover(place.dest, "j", rollback=True)
    assert calls_in(refused.value) == [again, give_up]
    await follow(give_up)
    assert place.files() == {"p/a": b"new", "q/x": b"new"}
    assert place.temporary() == set()
    # Nothing holds the destination any more.
    async with committer.open_job(place.dest, config=CommitterConfig(existing_target="replace")) as job:
        async with job.task_attempt(task=0) as task, task.open("q/x") as file:
            await file.write(b"next")
    assert place.read("q/x") == b"next"


async def test_a_job_that_lost_an_upload_is_taken_back() -> None:
    place = MemoryPlace("s3")
    await lose_an_upload(place)
    with pytest.raises(OutcomeUnknownError) as caught:
        await committer.recover(place.dest, "j")
    # Each upload that is ended is a fence: no user has to know that the other driver is dead.
    assert "force" not in caught.value.next_step
    await follow(calls_in(caught.value)[-1])
    assert (place.files(), place.temporary()) == ({}, set())


@pytest.mark.parametrize("old", [False, True], ids=["takes back", "gives up"])
async def test_a_completion_whose_answer_stays_lost(old: bool) -> None:
    """As with SeaweedFS, where a directory stands at the name of the file."""
    place, lost = MemoryPlace("s3"), Fault(kind="unanswered", operation="complete_upload", path="r/z", times=None)
    again, end = calls_in(await stopped(place, OutcomeUnknownError, lost, old=old, existing_target="replace"))
    assert again.startswith("await committer.recover(")
    await follow(end)
    assert place.files() == ({"p/a": b"new", "q/x": b"new"} if old else {})
    assert place.temporary() == set()


@pytest.mark.parametrize("old", [False, True], ids=["takes back", "gives up"])
@pytest.mark.parametrize("profile", ["s3", "gcs", "hdfs"])
async def test_a_right_that_is_refused_for_good(profile: str, old: bool) -> None:
    place = MemoryPlace(profile)
    refused = Fault(kind="forbidden", operation=place.publishes_by, path="r/z", times=None)
    error = await stopped(place, CommitterError, refused, old=old, existing_target="replace")
    await follow(calls_in(error)[-1])
    assert place.files() == ({name: data for name, data in FILES.items() if name != "r/z"} if old else {})
    assert place.temporary() == set()


@pytest.mark.parametrize("old", [False, True], ids=["takes back", "gives up"])
@pytest.mark.parametrize("profile", ["s3", "gcs", "hdfs", "local"])
async def test_output_that_another_program_changed_before_it_was_validated(profile: str, old: bool) -> None:
    place = MemoryPlace(profile)

    async def change(call: Call) -> None:
        if call.operation == "status" and call.path.path == "/table/r/z" and "r/z" in place.files():
            place.write("r/z", b"another program's")

    place.store.before_call = change
    error = await stopped(place, ValidationError, old=old, existing_target="replace", validate_output=True)
    *_, last = calls_in(error)
    forward_only = old and profile != "local"
    assert ("rollback=True" in last) is not forward_only
    await follow(last)
    left = {"p/a": b"new", "q/x": b"new"} if forward_only else {"p/a": b"old"} if old else {}
    assert place.files() == {**left, "r/z": b"another program's"}
    assert place.temporary() == set()


@pytest.mark.parametrize("profile", ["s3", "gcs", "local"])
@pytest.mark.parametrize("choice", ["fail", "replace"])
async def test_replacing_is_advised_to_no_job_that_replaces(profile: str, choice: str) -> None:
    """What comes after the decision is not replaced by a job that could not put it back."""
    place = MemoryPlace(profile)

    async def intrude(call: Call) -> None:
        if call.operation == place.publishes_by and call.path.path.endswith("x") and "x" not in place.files():
            place.write("x", b"another program's")

    place.store.before_call = intrude
    with pytest.raises(TargetExistsError) as caught:
        await place.run_job({"x": b"new"}, config=CommitterConfig(existing_target=choice))  # type: ignore[arg-type]
    assert ("existing_target" in caught.value.next_step) == (choice == "fail")
    assert place.files() == {"x": b"another program's"}


@pytest.mark.parametrize(
    ("choices", "helps"),
    [
        ({}, True),
        ({"conflict_mode": "fail"}, False),
        ({"conflict_mode": "replace", "existing_target": "replace"}, False),
    ],
)
async def test_replacing_is_advised_where_it_alone_helps(choices: dict[str, str], helps: bool) -> None:
    place = MemoryPlace("local")
    place.write("a/x", b"old")
    if "existing_target" in choices:
        place.write("_SUCCESS/x", b"in the place of the marker")
    with pytest.raises(TargetExistsError) as caught:
        await place.run_job({"a/x": b"new"}, config=CommitterConfig(**choices))  # type: ignore[arg-type]
    assert caught.value.next_step.startswith("remove what is in the way")
    assert ("existing_target='replace'" in caught.value.next_step) is helps
    again = CommitterConfig(**({**choices, "existing_target": "replace"} if helps else choices))  # type: ignore[arg-type]
    if not helps:
        place.remove("_SUCCESS" if "existing_target" in choices else "a")
    await place.run_job({"a/x": b"new"}, config=again)
    assert place.files() == {"a/x": b"new"}


@pytest.mark.parametrize("damage", [b"{", b'{"files": 3}'])
@pytest.mark.parametrize("profile", ["local", "s3"])
async def test_a_damaged_task_record_says_what_to_run_again(profile: str, damage: bytes) -> None:
    place = MemoryPlace(profile)
    with pytest.raises(RecordError) as caught:
        async with place.open_job(job_id="j") as job:
            await place.run_task(job, 0, {"a": b"a"})
            [record] = [name for name in place.all_files() if name.endswith(place.listed_record)]
            place.write(record, damage)
    assert "run its task again, or the job" in caught.value.next_step
    await place.run_job({"a": b"a"}, job_id="j")
    assert place.files() == {"a": b"a"}


@pytest.mark.parametrize("failing", ["commit", "the block"])
async def test_a_job_that_could_not_even_be_aborted_names_what_removes_it(failing: str) -> None:
    """As on a full disk: nothing can be written, the decision against the job neither."""
    place = MemoryPlace("local")

    async def full(call: Call) -> None:
        if call.operation.startswith(("put", "create")):
            raise StoreError("the disk is full", operation=call.operation, next_step="free space and run it again")

    with pytest.raises(StoreError if failing == "commit" else ZeroDivisionError) as caught:
        async with place.open_job(job_id="j") as job:
            await place.run_task(job, 0, {"a": b"a"})
            place.store.before_call = full
            if failing == "the block":
                raise ZeroDivisionError
    place.store.before_call = None
    assert await place.states() == {"j": "open"}
    if isinstance(caught.value, StoreError):
        assert caught.value.next_step.startswith("free space, then call")
        [clean] = calls_in(caught.value)
    else:
        [note] = caught.value.__notes__
        assert "free space, then call" in note
        clean = note.split("`")[1]
    await follow(clean)
    assert (place.files(), place.temporary()) == ({}, set())
    await place.run_job({"a": b"a"}, job_id="j")
    assert place.files() == {"a": b"a"}
