"""Refusals of calls that cannot be right: what failed is named, nothing is made, and what to do is said."""

from __future__ import annotations

import array
import asyncio
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig, JobSpec, TaskCommit, sync
from committer.errors import (
    CommitterError,
    ConfigurationError,
    InvalidPathError,
    JobDecidedError,
    JobNotFoundError,
    RecordError,
    StoreLinkError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    TaskError,
    UnsupportedError,
)
from committer.options.references import resolved
from committer.paths import StorePath
from committer.testing.faults import Fault
from tests.job_paths import has_in_job
from tests.places import DiskPlace, MemoryPlace, Place, write_file


async def test_a_dangling_link_on_the_way_is_named(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "gone")
    for dest in (link, link / "table", link / "a" / "b"):
        with pytest.raises(StoreNotFoundError) as caught:
            await committer.open_job(dest)
        assert f"{link} is a link to {tmp_path / 'gone'}, which does not exist" in caught.value.message
        assert (caught.value.outcome, caught.value.next_step != "") == ("unchanged", True)
        assert os.listdir(tmp_path) == ["link"]
    (tmp_path / "gone").mkdir()
    job = await committer.open_job(link / "table")
    await job.abort()
    await job.close()


@pytest.mark.parametrize("dest", ["/", "file:///", "/tmp/..", "file:/"])
async def test_the_root_of_a_disk_is_no_destination(dest: str) -> None:
    before = set(os.listdir("/"))
    with pytest.raises(InvalidPathError, match="root of a disk") as caught:
        await committer.open_job(dest)
    assert "directory below it" in caught.value.next_step
    assert set(os.listdir("/")) == before


@pytest.mark.parametrize("profile", ["s3", "adls", "local"])
async def test_the_root_of_a_bucket_is_a_destination(profile: str) -> None:
    dest = f"memory://root-{profile}/"
    options = {"profile": profile}
    async with committer.open_job(dest, job_id="job-1", storage_options=options) as job:
        async with job.task_attempt(task=0) as task, task.open("p=1/a") as file:
            await file.write(b"x")
        report = await job.commit()
    assert report.files_committed == 1
    assert (await committer.validate(dest, storage_options=options)).ok


def _calls(here: Path) -> dict[str, Callable[[], Any]]:
    table = str(here / "table")
    return {
        "existing_target": lambda: committer.CommitterConfig(existing_target="some"),  # type: ignore[arg-type]
        "io_concurrency": lambda: committer.CommitterConfig(io_concurrency=0),
        "delivery": lambda: committer.open_job(table, delivery="pigeon"),  # type: ignore[arg-type]
        "job id": lambda: committer.open_job(table, job_id="a/b"),
        "task": lambda: committer.open_task(committer.JobSpec(destination=f"file:{table}", job_id="job"), task=-1),
        "attach_job": lambda: committer.attach_job(table),
        "cleanup": lambda: committer.cleanup(table),
        "load_record": lambda: committer.load_record(table),
        "load_record of a directory": lambda: committer.load_record(str(here)),
        "list_uploads": lambda: committer.list_uploads(str(here)),
        "abort_uploads": lambda: committer.abort_uploads(str(here)),
        "storage option": lambda: committer.open_job(table, storage_options={"colour": "red"}),
    }


@pytest.mark.parametrize("which", _calls(Path()))
async def test_each_refusal_says_what_to_do(tmp_path: Path, which: str) -> None:
    with pytest.raises(CommitterError) as caught:
        await _calls(tmp_path)[which]()
    assert caught.value.next_step
    assert caught.value.next_step not in caught.value.message
    assert caught.value.outcome == "unchanged"
    assert os.listdir(tmp_path) == []


OPERATIONS: dict[str, Callable[[Path], Any]] = {
    "recover": lambda dest: committer.recover(dest, "job"),
    "attach_job": lambda dest: committer.attach_job(dest, job_id="job"),
    "cleanup": lambda dest: committer.cleanup(dest, job_id="job"),
    "list_jobs": lambda dest: committer.list_jobs(dest),
}


@pytest.mark.parametrize("kind", ["missing", "file"])
@pytest.mark.parametrize("call", ["recover", "attach_job", "cleanup"])
async def test_a_destination_that_is_none_is_told(tmp_path: Path, kind: str, call: str) -> None:
    dest = tmp_path / "table"
    if kind == "file":
        dest.write_text("x")
    with pytest.raises(JobNotFoundError) as caught:
        await OPERATIONS[call](dest)
    said = {"missing": "the destination does not exist", "file": "a file exists there"}[kind]
    assert said in caught.value.message
    assert caught.value.next_step.startswith("correct the path")


async def test_a_setup_below_a_file_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("x")
    for dest in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CommitterError):
            await committer.open_job(dest)
    assert caplog.text == ""


async def test_commit_and_abort_in_one_gather(place: Place) -> None:
    """Neither is called without await: one of them wins, and the other one says so."""
    for first in ("commit", "abort"):
        job = await place.open_job(job_id=f"job-{first}")
        await place.run_task(job, 0, {first: b"x"})
        calls = {"commit": job.commit, "abort": job.abort}
        order = [calls.pop(first)(), next(iter(calls.values()))()]
        found = await asyncio.gather(*order, return_exceptions=True)  # type: ignore[arg-type]
        errors = [one for one in found if isinstance(one, BaseException)]
        assert all(isinstance(error, JobDecidedError | JobNotFoundError) for error in errors)
        assert not any("without await" in str(error) for error in errors)
        assert (first in place.files()) != bool(job._aborted)
        await job.close()


async def test_a_failure_that_will_stay_has_a_way_out(place: Place) -> None:
    """Another user's file, or a refused right: recover never ends the job, and a rollback does."""
    job = await place.open_job(job_id="job-1")
    message = await place.run_task(job, 0, {"a": b"a", "b": b"b"})
    place.faults(
        Fault(kind="forbidden", operation=place.publishes_by, path=lambda path: path.path.endswith("/b"), times=None)
    )
    with pytest.raises(CommitterError) as caught:
        await job.commit([message])
    assert caught.value.outcome == "partial"
    assert "rollback=True" in caught.value.next_step
    assert "committer.recover(" in caught.value.next_step
    options = {"store": place.store.inner}
    force = "force=True" in caught.value.next_step
    report = await committer.recover(place.dest, "job-1", rollback=True, force=force, storage_options=options)
    assert not report.success
    assert place.files() == {}


@pytest.mark.parametrize("place", ["", "_temporary", "_temporary/job", "_temporary/job/00", "_temporary/job/setup"])
@pytest.mark.parametrize("call", OPERATIONS)
async def test_a_dangling_link_is_named_and_what_to_do(tmp_path: Path, place: str, call: str) -> None:
    dest = tmp_path / "table"
    link = dest / place if place else dest
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("/nowhere")
    if call == "list_jobs" and place.startswith("_temporary/"):
        [info] = await committer.list_jobs(dest)
        assert (info.job_id, info.state) == ("job", "unknown")
        said = info.problem
    else:
        with pytest.raises(CommitterError) as caught:
            await OPERATIONS[call](dest)
        assert caught.value.outcome == "unchanged"
        said = f"{caught.value.message}; {caught.value.next_step}"
    own = f"{place} is a link, where a job has its own directories"
    assert (own if place else "is a link to /nowhere, which does not exist") in said
    assert "remove the link" in said
    assert link.is_symlink()


@pytest.mark.parametrize("call", ["recover", "attach_job"])
async def test_a_file_in_the_place_of_a_directory_is_named(tmp_path: Path, call: str) -> None:
    (tmp_path / "_temporary").write_text("x")
    with pytest.raises(JobNotFoundError) as caught:
        await OPERATIONS[call](tmp_path)
    assert f"a file exists at file:{tmp_path}/_temporary, where a directory must be" in caught.value.message
    assert "remove the file" in caught.value.next_step


async def test_no_jobs_are_listed_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "_temporary").write_text("x")
    for looking in (committer.list_jobs(tmp_path), committer.cleanup(tmp_path, older_than=0)):
        with pytest.raises(StoreNotADirectoryError, match="_temporary") as caught:
            await looking
        assert "remove the file" in caught.value.next_step


async def test_a_setup_that_met_a_link_can_be_run_again_without_it(tmp_path: Path) -> None:
    """The advice, followed: nothing was made, so the id is free."""
    (tmp_path / "_temporary").symlink_to("/nowhere")
    with pytest.raises(StoreLinkError) as caught:
        await committer.open_job(tmp_path, job_id="job")
    assert "remove the link by hand" in caught.value.next_step
    (tmp_path / "_temporary").unlink()
    job = await committer.open_job(tmp_path, job_id="job")
    await job.abort()
    await job.close()


# -- arguments that cannot be honoured: the error says what to give instead, and that works -----------------------------


def write_part(job: sync.Job, number: int = 0) -> TaskCommit:
    with job.task_attempt(task=number) as task, task.open(f"part-{number}") as file:
        file.write(b"x")
    return task.task_commit


REFUSED: dict[str, tuple[Callable[[Path], object], type[CommitterError], str, str]] = {
    "a reserved name": (
        lambda at: sync.open_job(at, job_id="j").task_attempt(task=0).open("a/_temporary/b"),
        InvalidPathError,
        "which commits own",
        "give another name: _SUCCESS",
    ),
    "no record": (
        lambda at: sync.load_record(at / "a.csv"),
        RecordError,
        "not a record, or a damaged one",
        "if it is one, `committer jobs DESTINATION` says",
    ),
    "no message": (
        lambda at: TaskCommit.decode(b"1,2"),
        RecordError,
        "not a task commit message",
        "task.task_commit.encode()",
    ),
    "a message that is no text": (
        lambda at: TaskCommit.decode(5),  # type: ignore[arg-type]
        RecordError,
        "not a task commit message: .*not a int",
        "encode() returned",
    ),
    "a spec that is no text": (
        lambda at: JobSpec.decode(None),  # type: ignore[arg-type]
        RecordError,
        "not a job spec: .*not a NoneType",
        "encode() returned",
    ),
    "a value of Hadoop's": (
        lambda at: CommitterConfig.from_hadoop({"fs.s3a.multipart.size": "many"}),
        ConfigurationError,
        "the option fs.s3a.multipart.size cannot be 'many'",
        "give another value, or leave fs.s3a.multipart.size out",
    ),
    "no mapping": (
        lambda at: CommitterConfig.from_hadoop("a=1"),  # type: ignore[arg-type]
        ConfigurationError,
        "from_hadoop takes a mapping of option keys",
        "from_hadoop({'",
    ),
    "a mapping without names": (
        lambda at: CommitterConfig.from_hadoop({1: "2"}),  # type: ignore[dict-item]
        ConfigurationError,
        "from_hadoop takes a mapping of option keys",
        "from_hadoop({'",
    ),
    "a committer by its module": (
        lambda at: sync.open_job(at, committer=committer),  # type: ignore[arg-type]
        UnsupportedError,
        "a committer is asked for by its name, not by a module",
        "'manifest'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_told_what_to_give(tmp_path: Path, what: str) -> None:
    (tmp_path / "a.csv").write_bytes(b"1,2\n")
    call, kind, message, step = REFUSED[what]
    with pytest.raises(kind, match=message) as caught:
        call(tmp_path)
    assert step in caught.value.next_step


WRONG_COMMITS: dict[str, tuple[Callable[[list[TaskCommit]], dict[str, Any]], str, str]] = {
    "encoded messages": (
        lambda messages: {"task_commits": [message.encode() for message in messages]},
        "given encoded, as bytes;",
        "[TaskCommit.decode(message) for message in messages]",
    ),
    "a number": (
        lambda messages: {"task_commits": 1},
        "task_commits is a list of messages, not a int",
        "task_commits=[message, ...]",
    ),
    "one message": (lambda messages: {"task_commits": messages[0]}, "one task commit message", "[message"),
    "a number of workers": (
        lambda messages: {"task_commits": messages, "publish_with": 4},
        "publish_with is a pool of workers, not a int",
        "ExecutorPool",
    ),
}


@pytest.mark.parametrize("what", WRONG_COMMITS)
def test_a_commit_is_told_what_to_be_given_before_the_decision(tmp_path: Path, what: str) -> None:
    wrong, message, step = WRONG_COMMITS[what]
    with sync.open_job(tmp_path, job_id="j", delivery="message") as job:
        messages = [write_part(job, number) for number in range(2)]
        with pytest.raises((ConfigurationError, RecordError), match=message) as caught:
            job.commit(**wrong(messages))
        assert "part-0" not in str(caught.value), "what a message holds may be long"
        assert step in caught.value.next_step
        assert not has_in_job(tmp_path, "j", "decision")
        assert job.commit(task_commits=messages).files_committed == 2


async def test_a_write_to_a_closed_file_is_told_to_come_before(tmp_path: Path) -> None:
    async with committer.open_job(tmp_path) as job, job.task_attempt(task=0) as task:
        async with task.open("a") as file:
            await file.write(b"x")
        async with task.open_blocking("b") as blocking:
            pass
        with pytest.raises(TaskError, match="the file a is closed") as caught:
            await file.write(b"more")
        assert "before it is closed" in caught.value.next_step
        with pytest.raises(TaskError, match="the file b is closed"):
            blocking.write(b"more")


async def test_a_file_that_is_written_cannot_be_read(tmp_path: Path) -> None:
    async with committer.open_job(tmp_path) as job, job.task_attempt(task=0) as task:
        async with task.open_blocking("a") as file:
            assert not file.readable()
            with pytest.raises(io.UnsupportedOperation, match="the file a is only written"):
                file.read()


@pytest.mark.parametrize("call", [sync.recover, sync.attach_job, sync.cleanup], ids=["recover", "attach", "cleanup"])
def test_an_id_that_is_none_is_told_where_ids_are_shown(tmp_path: Path, call: Callable[..., object]) -> None:
    """Only `open_job` draws one."""
    with pytest.raises(ConfigurationError, match="a job id is") as caught:
        call(tmp_path, job_id="a/b")
    assert "list_jobs" in caught.value.next_step
    assert caught.value.operation != "open_job"


@pytest.mark.parametrize("given", ["false", "", 1, None])
def test_a_text_is_no_word_for_taking_data_back_or_away(tmp_path: Path, given: Any) -> None:
    """As an environment variable has it; any text counts as true in Python."""
    sync.open_job(tmp_path, job_id="j").close()
    calls: list[Callable[[], object]] = [
        lambda: sync.recover(tmp_path, "j", rollback=given),
        lambda: sync.recover(tmp_path, "j", force=given),
        lambda: sync.cleanup(tmp_path, job_id="j", force=given),
        lambda: sync.abort_uploads(tmp_path, force=given),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match="must be True or False") as caught:
            call()
        assert caught.value.outcome == "unchanged"
    assert [job.state for job in sync.list_jobs(tmp_path)] == ["open"]


# -- listeners -----------------------------------------------------------------------------------------------------


async def _listen(event: object) -> None: ...


class _Listener:
    async def __call__(self, event: object) -> None: ...


@pytest.mark.parametrize("listener", [_listen, _Listener()], ids=["function", "object"])
@pytest.mark.parametrize("way", ["progress", "listeners", "listen"])
def test_an_async_listener_is_refused(tmp_path: Path, listener: Any, way: str) -> None:
    given: dict[str, Any] = {"progress": {"progress": listener}, "listeners": {"listeners": [listener]}}.get(way, {})
    with pytest.raises(ConfigurationError, match="is an async function, which would never be run") as caught:
        with sync.open_job(tmp_path / "t", **given) as job:
            job.listen(listener)
    assert "create_task" in caught.value.next_step
    assert not list(tmp_path.rglob("_SUCCESS"))


async def test_a_plain_listener_may_start_a_task_as_advised(tmp_path: Path) -> None:
    heard: list[object] = []
    tasks: set[asyncio.Task[None]] = set()

    async def tell(event: object) -> None:
        heard.append(event)

    def listener(event: object) -> None:
        tasks.add(asyncio.get_running_loop().create_task(tell(event)))

    async with committer.open_job(tmp_path, listeners=[listener]):
        pass
    await asyncio.gather(*tasks)
    assert heard


# -- places --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["~/table", Path("~/table")], ids=["text", "path"])
def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with sync.open_job(given) as job:
        write_part(job)
    assert (tmp_path / "table" / "part-0").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("given", "end"), [("./~/a", "/~/a"), ("a/~/b", "/a/~/b"), ("file:///~/a", "/~/a"), ("s3://b/~/a", "/~/a")]
)
def test_a_tilde_elsewhere_is_a_name(given: str, end: str) -> None:
    assert StorePath.of(given).path.endswith(end)


def test_an_environment_variable_is_told_to_be_set_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="NAME_NOT_SET, which is not set") as caught:
        resolved("env:NAME_NOT_SET", "account_key")
    assert "before the session's JVM starts" in caught.value.next_step
    monkeypatch.setenv("NAME_NOT_SET", "value")
    assert resolved("env:NAME_NOT_SET", "account_key") == "value"


# -- arguments of the wrong type: a sentence that says what is wanted, and nothing done ---------------------------------


NUMBERS = array.array("i", range(400_000))  # longer than what a writer gathers, in bytes and not in items


@pytest.mark.parametrize("make_place", [DiskPlace, lambda _: MemoryPlace("local")], ids=["disk", "memory"])
@pytest.mark.parametrize("data", [NUMBERS, memoryview(NUMBERS)], ids=["array", "view"])
@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
async def test_an_array_of_numbers_is_written_byte_for_byte(
    tmp_path: Path, make_place: Callable[[Path], Place], data: Any, blocking: bool
) -> None:
    place = make_place(tmp_path)
    async with committer.open_job(place.dest, storage_options=place.options) as job:
        async with job.task_attempt(task=0) as task:
            if blocking:
                async with task.open_blocking("part-0") as raw:
                    for _ in range(3):
                        assert await asyncio.to_thread(raw.write, data) == 1_600_000
            else:
                async with task.open("part-0") as file:
                    for _ in range(3):
                        assert await file.write(data) == 1_600_000
        report = await job.commit()
    assert report.bytes_committed == 4_800_000
    assert place.read("part-0") == NUMBERS.tobytes() * 3


@pytest.mark.parametrize("data", ["a,b\n", None, 5, [b"x"]], ids=repr)
def test_what_is_no_bytes_is_refused_with_a_sentence(tmp_path: Path, data: Any) -> None:
    async def with_await() -> None:
        async with committer.open_job(tmp_path / "a") as job, job.task_attempt(task=0) as task:
            await write_file(task, "part-0", data)

    def in_a_thread() -> None:
        with sync.open_job(tmp_path / "b") as job, job.task_attempt(task=0) as task:
            with task.open_blocking("part-0") as file:
                file.write(data)

    for write in (lambda: asyncio.run(with_await()), in_a_thread):
        with pytest.raises(TypeError, match=f"takes bytes, not a {type(data).__name__}") as raised:
            write()
        assert ("encode" in str(raised.value)) == isinstance(data, str)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", [5, None, b"x", Path("x")], ids=repr)
async def test_a_file_name_is_a_str(tmp_path: Path, name: Any) -> None:
    async with committer.open_job(tmp_path) as job, job.task_attempt(task=0) as task:
        for method in (task.open, task.open_blocking):
            with pytest.raises(InvalidPathError, match=f"is a str, not a {type(name).__name__}") as raised:
                method(name)
            assert "relative to the destination" in raised.value.next_step


@pytest.mark.parametrize(
    ("name", "fault"),
    [("", "is empty"), ("/a", "is absolute"), ("a/", "ends with a slash"), ("../a", r"\.\."), ("a//b", "empty one")],
)
async def test_a_refused_file_name_is_told_what_is_wrong_with_it(tmp_path: Path, name: str, fault: str) -> None:
    async with committer.open_job(tmp_path) as job, job.task_attempt(task=0) as task:
        with pytest.raises(InvalidPathError, match=fault) as raised:
            task.open(name)
        assert raised.value.next_step


def _refusals(here: Path) -> dict[str, Callable[[], Any]]:
    wrong: Any = 5
    return {
        "destination": lambda: sync.open_job(wrong),
        "destination None": lambda: sync.list_jobs(None),  # type: ignore[arg-type]
        "scheme alone": lambda: sync.open_job("s3://"),
        "host": lambda: sync.list_jobs("file://localhost/data"),
        "job id": lambda: sync.open_job(here, job_id=wrong),
        "job id of recover": lambda: sync.recover(here, None),  # type: ignore[arg-type]
        "storage options": lambda: sync.open_job(here, storage_options="env:KEY"),  # type: ignore[arg-type]
        "storage options' keys": lambda: sync.open_job(here, storage_options={1: 2}),  # type: ignore[dict-item]
        "progress": lambda: sync.open_job(here, progress="yes"),  # type: ignore[arg-type]
        "listeners": lambda: sync.open_job(here, listeners=print),  # type: ignore[arg-type]
        "a listener": lambda: sync.open_job(here, listeners=[wrong]),
        "age": lambda: sync.cleanup(here, older_than="7d"),  # type: ignore[arg-type]
        "spec": lambda: sync.open_task(str(here), task=0),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("which", sorted(_refusals(Path())))
def test_a_wrong_argument_is_refused_before_anything_is_made(tmp_path: Path, which: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        _refusals(tmp_path)[which]()
    assert raised.value.outcome == "unchanged"
    assert raised.value.next_step or which.startswith("job id")
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_destination(tmp_path: Path) -> None:
    file = tmp_path / "part-0.csv"
    file.write_bytes(b"x")
    for call in (sync.list_jobs, lambda path: sync.cleanup(path, older_than=0)):
        with pytest.raises(StoreNotADirectoryError, match="a file exists there") as raised:
            call(file)
        assert raised.value.next_step == "correct the path"
    assert file.read_bytes() == b"x"


async def test_what_a_notebook_shows_of_files_and_of_what_was_not_awaited(tmp_path: Path) -> None:
    opening = committer.open_job(tmp_path)
    assert repr(opening) == "<open_job(...): not opened yet: await it, or enter it with `async with`>"
    async with opening as job, job.task_attempt(task=0) as task:
        async with task.open("a") as file:
            await file.write(b"12")
            assert repr(file) == "<TaskFile 'a': being written, bytes written: 2>"
        assert repr(file) == "<TaskFile 'a': closed, bytes written: 2>"
        async with task.open_blocking("b") as raw:
            raw.write(b"1")
            assert repr(raw) == "<BlockingTaskFile 'b': being written, bytes written: 1>"


@pytest.mark.parametrize(
    "call", [committer.open_job, committer.list_jobs, committer.validate], ids=lambda f: f.__name__
)
async def test_a_file_path_with_two_slashes_says_that_three_begin_it(
    tmp_path: Path, call: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidPathError, match=r"names a machine, data,") as caught:
        await call("file://data/flights")
    assert caught.value.next_step.endswith(" file:///data/flights")
    assert caplog.records == []
