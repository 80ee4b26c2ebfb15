"""Twin of Hadoop's TestStagingPartitionedTaskCommit and TestStagingPartitionedJobCommit: conflict modes of the committer
`partitioned` are of each partition that a job writes to, and what goes to the destination's own directory is added.

Where this engine differs on purpose: `fail` refuses the job before its decision, not the task whose commit finds the
partition; a file of the same name is refused, not overwritten, without `existing_target="replace"`. How tasks write, and
what they leave, is in `test_staging.py`.
"""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.errors import TargetExistsError
from committer.testing.faults import Fault, SimulatedCrash
from tests.places import MemoryPlace, StagingPlace
from tests.waiting_uploads import pending

OLD = {"p=1/old": b"old", "p=1/q=1/old": b"old", "p=2/old": b"old", "top": b"old", "_meta/x": b"old"}
NEW = {"p=1/new": b"new", "p=3/new": b"new", "new-top": b"new"}


@pytest.fixture(params=["listing", "message"])
def place(request: pytest.FixtureRequest) -> MemoryPlace:
    made = StagingPlace("partitioned", delivery=request.param)
    for name, data in OLD.items():
        made.write(name, data)
    return made


async def write(place: MemoryPlace, files: dict[str, bytes], **choices: object) -> committer.JobReport:
    """A job of a task for each file."""
    async with place.open_job(config=CommitterConfig(**choices)) as job:  # type: ignore[arg-type]
        messages = [await place.run_task(job, number, {name: files[name]}) for number, name in enumerate(files)]
        return await job.commit(messages, tasks=len(files))


async def test_append_leaves_what_is_there(place: MemoryPlace) -> None:
    report = await write(place, NEW)
    assert (report.committer, report.files_committed) == ("partitioned", 3)
    assert place.files() == {**OLD, **NEW}


async def test_replace_takes_the_partitions_that_are_written_to_and_no_others(place: MemoryPlace) -> None:
    await write(place, NEW, conflict_mode="replace")
    assert place.files() == {"p=2/old": b"old", "top": b"old", "_meta/x": b"old", **NEW}
    assert (pending(place), place.temporary()) == ([], set())


async def test_replace_adds_to_the_destinations_own_directory(place: MemoryPlace) -> None:
    await write(place, {"new-top": b"new"}, conflict_mode="replace")
    assert place.files() == {**OLD, "new-top": b"new"}


async def test_replace_refuses_a_name_that_stands_in_the_destinations_own_directory(place: MemoryPlace) -> None:
    with pytest.raises(TargetExistsError, match="a file exists at top"):
        await write(place, {"top": b"new", "p=1/new": b"new"}, conflict_mode="replace")
    assert (place.files(), pending(place)) == (OLD, [])
    await write(place, {"top": b"new"}, conflict_mode="replace", existing_target="replace")
    assert place.files() == {**OLD, "top": b"new"}


async def test_replace_takes_a_file_of_the_same_name_in_a_partition(place: MemoryPlace) -> None:
    await write(place, {"p=2/old": b"new"}, conflict_mode="replace")
    assert place.files() == {**OLD, "p=2/old": b"new"}


async def test_fail_names_each_partition_that_holds_files(place: MemoryPlace) -> None:
    job = await place.open_job(config=CommitterConfig(conflict_mode="fail"))
    messages = [
        await place.run_task(job, number, {name: b"new"})
        for number, name in enumerate(["p=1/new", "p=2/new", "p=3/new"])
    ]
    assert (await job.plan(messages)).conflicts == ["p=1 already holds files", "p=2 already holds files"]
    with pytest.raises(TargetExistsError, match="p=1 already holds files"):
        await job.commit(messages)
    assert place.files() == OLD
    await job.abort()
    await job.close()
    assert (pending(place), place.temporary()) == ([], set())


async def test_fail_lets_new_partitions_and_the_destinations_own_directory_pass(place: MemoryPlace) -> None:
    new = {"p=3/new": b"new", "p=4/q=1/new": b"new", "new-top": b"new"}
    await write(place, new, conflict_mode="fail")
    assert place.files() == {**OLD, **new}


async def test_replace_keeps_old_files_until_the_outcome(place: MemoryPlace) -> None:
    """Hadoop deletes them before it completes the first upload."""
    place.faults(Fault(kind="crash_after", operation="complete_upload"))
    with pytest.raises(SimulatedCrash):
        async with place.open_job(job_id="j", config=CommitterConfig(conflict_mode="replace")) as job:
            messages = [await place.run_task(job, 0, {"p=1/new": b"new"})]
            await job.commit(messages)
    assert place.files() == {**OLD, "p=1/new": b"new"}
    options = {"store": place.space.store()}
    assert (await committer.recover(place.dest, "j", storage_options=options)).success
    assert place.files() == {"p=1/new": b"new", "p=2/old": b"old", "top": b"old", "_meta/x": b"old"}
    assert (pending(place), place.temporary()) == ([], set())


async def test_named_directories_are_replaced_and_no_others(place: MemoryPlace) -> None:
    await write(place, {"p=1/new": b"new"}, conflict_mode="replace", superseded_directories=("p=2",))
    assert place.files() == {name: data for name, data in OLD.items() if name != "p=2/old"} | {"p=1/new": b"new"}


@pytest.mark.parametrize(
    ("name", "scope", "left"),
    [
        ("partitioned", "destination", {"_meta/x"}),
        ("directory", "directories", {"p=2/old", "top", "_meta/x"}),
        ("directory", "partitions", {"p=2/old", "top", "_meta/x"}),
    ],
)
async def test_what_callers_say_of_old_files_counts(name: str, scope: str, left: set[str], place: MemoryPlace) -> None:
    """Spark's save modes say it: an overwrite of single partitions must not take the whole destination."""
    config = CommitterConfig(conflict_mode="replace", superseded_scope=scope)  # type: ignore[arg-type]
    async with place.open_job(committer=name, config=config) as job:
        message = await place.run_task(job, 0, {"p=1/new": b"new"})
        await job.commit([message])
    assert place.files().keys() == {"p=1/new", *left}


async def test_partitions_can_be_asked_of_other_committers_too() -> None:
    other = MemoryPlace("local")
    for name, data in OLD.items():
        other.write(name, data)
    await write(other, NEW, conflict_mode="replace", superseded_scope="partitions")
    assert other.files() == {"p=2/old": b"old", "top": b"old", "_meta/x": b"old", **NEW}
