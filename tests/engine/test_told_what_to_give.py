"""Arguments that cannot be honoured: the error says what to give instead, and that works."""

from __future__ import annotations

import asyncio
import io
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
    RecordError,
    TaskError,
    UnsupportedError,
)
from committer.options.references import resolved
from committer.paths import StorePath
from tests.job_paths import has_in_job


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
    "no record": (lambda at: sync.load_record(at / "a.csv"), RecordError, "not a record", "DESTINATION/_SUCCESS"),
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


def test_messages_that_are_still_encoded_are_told_to_be_decoded(tmp_path: Path) -> None:
    with sync.open_job(tmp_path, delivery="message") as job:
        messages: Any = [write_part(job, number).encode() for number in range(2)]
        with pytest.raises(RecordError, match="given encoded, as bytes;") as caught:
            job.commit(task_commits=messages)
        assert "part-0" not in str(caught.value), "what a message holds may be long"
        assert "[TaskCommit.decode(message) for message in messages]" in caught.value.next_step
        assert job.commit(task_commits=[TaskCommit.decode(one) for one in messages]).files_committed == 2


async def test_a_message_asked_for_inside_the_block_is_there_after_it(tmp_path: Path) -> None:
    async with committer.open_job(tmp_path) as job:
        async with job.task_attempt(task=0) as task:
            with pytest.raises(TaskError, match="has no message") as caught:
                _ = task.task_commit
            assert "after the attempt's block" in caught.value.next_step
        assert task.task_commit.task == 0


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


def test_a_pool_that_is_none_is_refused_before_the_job_is_decided(tmp_path: Path) -> None:
    no_pool: Any = 4
    with sync.open_job(tmp_path, job_id="j") as job:
        write_part(job)
        with pytest.raises(ConfigurationError, match="publish_with is a pool of workers, not a int") as caught:
            job.commit(tasks=1, publish_with=no_pool)
        assert "ExecutorPool" in caught.value.next_step
        assert not has_in_job(tmp_path, "j", "decision")
        assert job.commit(tasks=1).files_committed == 1


def test_messages_that_are_no_list_are_told_to_be_one(tmp_path: Path) -> None:
    with sync.open_job(tmp_path, delivery="message") as job:
        message = write_part(job)
        number: Any = 1
        for end in (job.plan, job.commit):
            with pytest.raises(ConfigurationError, match="task_commits is a list of messages, not a int") as caught:
                end(task_commits=number)
        assert "task_commits=[message, ...]" in caught.value.next_step
        assert job.commit(task_commits=[message]).files_committed == 1


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
