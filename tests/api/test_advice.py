"""What errors advise is done to the letter, in the state that the error came from: every call in backticks is made."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

import committer
from committer import CommitterConfig
from committer.advice import blocking, call
from committer.errors import (
    CommitterError,
    JobStateError,
    OutcomeUnknownError,
    RecordError,
    StoreError,
    TargetExistsError,
    ValidationError,
)
from committer.stores.local import LocalStore
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.places import MemoryPlace

THREE = {"a=1/part-0": b"0", "a=1/part-1": b"1", "part-2": b"2"}


class Table:
    """A destination with a space and a quote in its name, on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def files(self) -> set[str]:
        found = (path.relative_to(self.path).as_posix() for path in self.path.rglob("*") if path.is_file())
        return {name for name in found if not name.startswith("_")}

    async def open(self, **arguments: object) -> committer.Job:
        job = await committer.open_job(self.path, job_id="j", **arguments)
        for number, (name, data) in enumerate(THREE.items()):
            async with committer.open_task(job.spec, task=number) as task, task.open(name) as file:
                await file.write(data)
        return job

    async def die(self, fault: Fault, **arguments: object) -> None:
        """A driver that dies at a call of its commit."""
        job = await self.open(**arguments)
        await job.close()
        store = FaultyStore(LocalStore(), [fault])
        again = await committer.attach_job(
            self.path, job_id="j", storage_options={"store": store}, config=job.spec.config
        )
        with pytest.raises(SimulatedCrash):
            await again.commit(tasks=3)
        await store.inner.close()

    async def states(self) -> dict[str, str]:
        return {job.job_id: job.state for job in await committer.list_jobs(self.path)}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "it's a table")


def calls_in(error: CommitterError) -> list[str]:
    found = re.findall(r"`([^`]*)`", error.next_step)
    assert found, error.next_step
    return found


async def follow(advice: str, **known: object) -> object:
    """Does what stands between backticks, with what a reader knows."""
    # The store with faults was the dead driver's.
    advice = advice.replace(", storage_options={'store': ...}", "")
    scope: dict[str, object] = {"committer": committer, **known}
    name, assigned, expression = advice.partition(" = ")
    source = expression if assigned and name.isidentifier() else advice
    lines = f"async def work():\n    return {source}\n"
    exec(lines, scope)
    return await scope["work"]()  # type: ignore[operator]


def after_the_decision() -> Fault:
    """One file is published, two are not."""
    return Fault(kind="crash_before", operation="rename_file", path="part-1")


async def decided(table: Table) -> None:
    await table.die(after_the_decision(), config={"io_concurrency": 1})


async def kept(table: Table) -> None:
    await (await table.open(config={"outcome_kept": True})).commit(tasks=3)


async def unfinished(table: Table) -> None:
    await table.die(Fault(kind="crash_before", operation="put", path="_SUCCESS"))


async def aborted(table: Table) -> None:
    job = await table.open(config={"cleanup_skipped": True})
    await job.abort()
    await job.close()


async def abort(path: Path, job_id: str) -> None:
    async with committer.attach_job(path, job_id=job_id) as job:
        await job.abort()


async def clean_up(path: Path, job_id: str) -> None:
    await committer.cleanup(path, job_id=job_id)


async def roll_back(path: Path, job_id: str) -> None:
    await committer.recover(path, job_id, rollback=True)


@pytest.mark.parametrize(
    ("prepare", "refused", "way", "files"),
    [
        (decided, abort, 0, set(THREE)),
        (decided, abort, 1, set()),
        (decided, clean_up, 0, set(THREE)),
        (decided, clean_up, 1, set()),
        (decided, clean_up, 2, {"a=1/part-0"}),
        (kept, clean_up, 0, set(THREE)),
        (unfinished, roll_back, 0, set(THREE)),
        (aborted, committer.recover, 0, set()),
    ],
)
async def test_an_end_that_the_state_of_the_job_refuses(
    table: Table,
    prepare: Callable[[Table], Awaitable[None]],
    refused: Callable[[Path, str], Awaitable[object]],
    way: int,
    files: set[str],
) -> None:
    await prepare(table)
    with pytest.raises(CommitterError) as caught:
        await refused(table.path, "j")
    await follow(calls_in(caught.value)[way])
    assert (table.files(), await table.states()) == (files, {})


async def test_a_recovery_of_a_job_that_no_driver_began_to_commit(table: Table) -> None:
    for delivery in ("listing", "message"):
        for way in (1, 2):
            await (await table.open(delivery=delivery)).close()
            with pytest.raises(CommitterError) as caught:
                await committer.recover(table.path, "j")
            attach, *ways = calls_in(caught.value)
            job = await follow(attach)
            await follow(ways[way - 1], job=job, N=3)
            await job.close()
            assert table.files() == (set(THREE) if way == 1 else set())
            assert await table.states() == {}
            for path in table.path.glob("**/part-*"):
                path.unlink()


async def test_a_commit_without_messages(table: Table) -> None:
    await (await table.open(delivery="message")).close()
    async with committer.attach_job(table.path, job_id="j") as job:
        with pytest.raises(CommitterError) as caught:
            await job.commit()
        await follow(calls_in(caught.value)[1], job=job, N=3)
    assert table.files() == set(THREE)


async def test_a_file_that_is_nowhere(table: Table) -> None:
    await table.die(after_the_decision(), config={"io_concurrency": 1})
    [gone] = (table.path / "_temporary").rglob("part-1")
    data = gone.read_bytes()
    aside = table.path.parent / "aside"
    gone.rename(aside)
    with pytest.raises(CommitterError) as caught:
        await committer.recover(table.path, "j")
    assert caught.value.outcome == "unknown"
    aside.rename(gone)
    await follow(calls_in(caught.value)[0])
    assert (table.files(), data) == (set(THREE), b"1")


@pytest.mark.parametrize("way", [0, 1])
async def test_a_neighbour_that_replaces_data(table: Table, way: int) -> None:
    """The owner died while it replaced data; a job that comes then is told how to end it."""
    await table.die(after_the_decision(), config={"conflict_mode": "replace", "io_concurrency": 1})
    other = await committer.open_job(table.path, job_id="other")
    async with other.task_attempt(task=0) as task, task.open("part-9") as file:
        await file.write(b"9")
    with pytest.raises(CommitterError) as caught:
        await other.commit()
    await follow(calls_in(caught.value)[way])
    await other.commit()
    await other.close()
    assert table.files() == {"part-9", *(THREE if way == 0 else ())}


async def test_roots_outside_the_destination_that_were_not_given(table: Table, tmp_path: Path) -> None:
    roots = (f"{tmp_path}/out side",)
    job = await committer.open_job(table.path, job_id="j", config=CommitterConfig(absolute_roots=roots))
    async with job.task_attempt(task=0) as task, task.open_absolute(f"{roots[0]}/part-0") as file:
        await file.write(b"0")
    await job.close()
    store = FaultyStore(LocalStore(), [Fault(kind="crash_before", operation="rename_file", path="out side/part-0")])
    dies = await committer.attach_job(
        table.path, job_id="j", config={"absolute_roots": roots}, storage_options={"store": store}
    )
    with pytest.raises(SimulatedCrash):
        await dies.commit()
    await store.inner.close()
    with pytest.raises(CommitterError) as caught:
        await committer.recover(table.path, "j")
    await follow(calls_in(caught.value)[0])
    assert Path(f"{roots[0]}/part-0").read_bytes() == b"0"


async def test_a_job_that_is_not_there_and_a_destination_without_success(table: Table) -> None:
    table.path.mkdir()
    with pytest.raises(CommitterError) as caught:
        await committer.attach_job(table.path, job_id="j")
    assert await follow(calls_in(caught.value)[0]) == []
    with pytest.raises(CommitterError) as caught:
        await committer.validate(table.path)
    assert await follow(calls_in(caught.value)[0]) == []


# -- the blocking API ------------------------------------------------------------------------------------------------


def test_blocking_callers_are_told_blocking_calls(tmp_path: Path) -> None:
    with pytest.raises(CommitterError) as caught:
        committer.sync.attach_job(tmp_path, job_id="j")
    [listed] = calls_in(caught.value)
    assert listed.startswith("committer.sync.list_jobs(")
    assert eval(listed, {"committer": committer}) == []
    job = committer.sync.open_job(tmp_path, job_id="j")
    with pytest.raises(CommitterError) as caught:
        committer.sync.recover(tmp_path, "j")
    attach, commit_it, abort_it = calls_in(caught.value)
    assert attach.startswith("job = committer.sync.attach_job(")
    again = eval(attach.partition(" = ")[2], {"committer": committer})
    assert (commit_it, eval(abort_it, {"job": again})) == ("job.commit(tasks=N)", None)
    again.close()
    job.close()


def test_a_call_leaves_out_what_is_not_said() -> None:
    assert call("recover", "/a b", "j", rollback=False, config=None) == "`await committer.recover('/a b', 'j')`"
    assert blocking("first `await committer.recover('/t', 'j', force=True)`, then await what comes") == (
        "first `committer.sync.recover('/t', 'j', force=True)`, then await what comes"
    )


async def test_a_rollback_whose_cleaning_fails(table: Table) -> None:
    """Nothing of the job is at the destination any more: a caller that is told `committed` goes on as if it were."""
    await table.die(after_the_decision(), config={"io_concurrency": 1})
    refused = Fault(kind="forbidden", operation="rename_directory", path=lambda path: path.name.startswith("j~"))
    store = FaultyStore(LocalStore(), [refused])
    with pytest.raises(CommitterError) as caught:
        await committer.recover(table.path, "j", rollback=True, storage_options={"store": store})
    await store.inner.close()
    assert caught.value.outcome == "partial"
    assert table.files() == set()
    [advice] = calls_in(caught.value)
    await follow(advice)
    assert table.files() == set()
    assert await table.states() == {}


# -- a decided job that cannot be finished: what its error names last ends it, also where nothing can be rolled back -----


FILES = {"p/a": b"new", "q/x": b"new", "r/z": b"new"}


Raised = TypeVar("Raised", bound=BaseException)


async def stopped(
    place: MemoryPlace, error: type[Raised], fault: Fault | None = None, *, old: bool = False, **choices: object
) -> Raised:
    """Commits job `j`, with a task for each of three files, and returns its error; `old` puts a file at the first target."""
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


@pytest.mark.parametrize("old", [False, True], ids=["rolls back", "gives up"])
async def test_a_completion_whose_answer_stays_lost(old: bool) -> None:
    """As with SeaweedFS, where a directory exists at the name of the file."""
    place, lost = MemoryPlace("s3"), Fault(kind="unanswered", operation="complete_upload", path="r/z", times=None)
    again, end = calls_in(await stopped(place, OutcomeUnknownError, lost, old=old, existing_target="replace"))
    assert again.startswith("await committer.recover(")
    await follow(end)
    assert place.files() == ({"p/a": b"new", "q/x": b"new"} if old else {})
    assert place.temporary() == set()


@pytest.mark.parametrize("old", [False, True], ids=["rolls back", "gives up"])
@pytest.mark.parametrize("profile", ["s3", "gcs", "hdfs"])
async def test_a_right_that_is_refused_for_good(profile: str, old: bool) -> None:
    place = MemoryPlace(profile)
    refused = Fault(kind="forbidden", operation=place.publishes_by, path="r/z", times=None)
    error = await stopped(place, CommitterError, refused, old=old, existing_target="replace")
    await follow(calls_in(error)[-1])
    assert place.files() == ({name: data for name, data in FILES.items() if name != "r/z"} if old else {})
    assert place.temporary() == set()


@pytest.mark.parametrize("old", [False, True], ids=["rolls back", "gives up"])
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
    """A job does not replace a file that appears after its decision and that it could not restore."""
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
