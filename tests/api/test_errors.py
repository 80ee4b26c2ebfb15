"""Errors: what they say, how several become one, that they cross processes, and that nothing tells a secret (G12)."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import committer
from committer import CommitterConfig, JobSpec, errors
from committer.errors import (
    CommitterError,
    DestinationBusyError,
    MultipleError,
    PreflightError,
    RecordError,
    StoreError,
    StorePermissionError,
    StoreThrottledError,
)
from committer.testing.faults import Fault
from tests.places import MemoryPlace, Place

KINDS = [
    kind for _name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, CommitterError)
]  # fmt: skip


def made(kind: type[CommitterError]) -> CommitterError:
    more: dict[str, object] = {}
    if kind is DestinationBusyError:
        more["owners"] = ["other"]
    if issubclass(kind, PreflightError):
        more["conflicts"] = ["one", "two"]
    if issubclass(kind, RecordError):
        more["field"] = "files[0].d"
    if kind is StoreThrottledError:
        more["retry_after_s"] = 1.5
    return kind(
        "it failed", operation="commit_job", path="file:/x", outcome="partial", next_step="do this",
        causes=[ValueError("inner"), StoreError("other")], **more,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_cross_processes(kind: type[CommitterError]) -> None:
    error = made(kind)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert str(again) == str(error)
        state, found = dict(vars(error)), dict(vars(again))
        assert [repr(cause) for cause in found.pop("causes")] == [repr(cause) for cause in state.pop("causes")]
        assert found == state


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_say_what_where_and_what_next(kind: type[CommitterError]) -> None:
    text = str(made(kind))
    for part in ("it failed", "commit_job", "file:/x", "partial", "do this"):
        assert part in text
    assert made(kind).causes
    assert kind.default_outcome in ("unchanged", "partial", "committed", "unknown")


async def test_store_errors_say_which_store_and_path(place: Place) -> None:
    place.faults(Fault(kind="forbidden", operation="make_directory"))
    with pytest.raises(StorePermissionError) as caught:
        await place.open_job()
    assert caught.value.operation == "make_directory"
    assert caught.value.path.startswith(place.layout("x").destination.scheme)


async def test_parallel_failures_make_one_error(place: Place) -> None:
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {f"part-{number:02}": b"x" for number in range(20)})
    place.faults(Fault(kind="forbidden", operation="rename_file", path="part-0", times=None))
    with pytest.raises(MultipleError) as caught:
        await job.commit()
    error = caught.value
    assert len(error.causes) >= 2
    assert all(isinstance(cause, StorePermissionError) for cause in error.causes)
    assert str(len(error.causes)) in error.message
    assert (error.operation, error.outcome) == ("job_stage_rename_files", "partial")
    assert "recover" in error.next_step
    assert error.path
    again = pickle.loads(pickle.dumps(error))
    assert len(again.causes) == len(error.causes)
    place.store.faults.clear()
    await job.commit()
    assert len(place.files()) == 20


async def test_after_the_first_error_no_new_rename_starts(memory: MemoryPlace) -> None:
    job = await memory.open_job(config=CommitterConfig(io_concurrency=2))
    await memory.run_task(job, 0, {f"part-{number:03}": b"x" for number in range(100)})
    memory.store.calls.clear()
    memory.faults(Fault(kind="forbidden", operation="rename_file", path="part-005"))
    with pytest.raises(CommitterError):
        await job.commit()
    renames = [call for call in memory.store.calls if call.operation == "rename_file" and "/tasks/" in str(call.path)]
    assert len(renames) < 12
    assert not [call for call in renames if call.result in ("", "running")]


# -- secrets -----------------------------------------------------------------------------------------------------

SECRET = "s3cr3t-K3y+/=="


async def test_no_secret_in_what_is_written_or_said(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Storage options never reach a spec, a record, a report, a log or an error."""
    caplog.set_level(0)
    said: list[str] = []
    for option in ("account_key", "sas_token", "secret_access_key", "token"):
        with pytest.raises(CommitterError) as caught:
            await committer.open_job("memory://secrets/t", storage_options={option: SECRET})
        said.append(str(caught.value) + repr(caught.value))
    options = {**place.options, "http_session": SECRET}
    job = await committer.open_job(place.dest, job_id="job-1", storage_options=options)
    async with job.task_attempt(0) as task, task.open("part-0") as file:
        await file.write(b"x")
    said += [repr(job), repr(job.spec), repr(task), repr(task.task_commit), job.spec.encode().decode()]
    said.append(pickle.dumps(job.spec).decode("latin-1"))
    written = dict(place.all_files())
    report = await job.commit()
    written.update(place.all_files())
    said += [repr(report), caplog.text, repr(place.store.inner), pickle.dumps(task.task_commit).decode("latin-1")]
    assert not [text for text in said if SECRET in text]
    assert not [name for name, data in written.items() if SECRET.encode() in data]


@pytest.mark.parametrize(
    "uri", [f"abfss://user:{SECRET}@account/dir", f"s3://KEY:{SECRET}@bucket/x", f"memory://a:{SECRET}@b/c"]
)
async def test_uri_with_a_password_is_refused_without_repeating_it(uri: str) -> None:
    for call in (
        lambda: committer.open_job(uri),
        lambda: committer.attach_job(uri, job_id="j"),
        lambda: committer.recover(uri, "j"),
        lambda: committer.list_jobs(uri),
        lambda: committer.load_record(uri),
        lambda: JobSpec.for_hadoop(uri, "j"),
    ):
        with pytest.raises(CommitterError) as caught:
            result = call()
            await result  # type: ignore[misc]
        assert SECRET not in str(caught.value)
        assert SECRET not in repr(caught.value)


# -- specs -------------------------------------------------------------------------------------------------------


def test_specs_cross_processes() -> None:
    config = CommitterConfig.from_hadoop({"mapreduce.manifest.committer.io.threads": "7"})
    spec = JobSpec(destination="file:/a%20b", job_id="job-1", delivery="message", config=config)
    for again in (pickle.loads(pickle.dumps(spec)), JobSpec.decode(spec.encode()), copy.deepcopy(spec)):
        assert again == spec
        assert again.config.io_concurrency == 7
        assert again.layout.destination.path == "/a b"
    assert "from_hadoop" not in repr(pickle.loads(pickle.dumps(spec)))
    assert pickle.loads(pickle.dumps(spec)).config.explain() == config.explain()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b"null", b'{"destination":"file:/x"}', b'{"destination":"file:/x","job_id":"../x"}',
        b'{"destination":"relative","job_id":"j"}', b'{"destination":"file:/x","job_id":"j","delivery":"pigeon"}',
        b'{"destination":"file:/x","job_id":"j","config":{"io_concurrency":0}}',
        b'{"destination":"file:/x","job_id":"j","job_attempt":-1}',
    ],
)  # fmt: skip
def test_bytes_that_are_no_spec(data: bytes) -> None:
    with pytest.raises(RecordError):
        JobSpec.decode(data)
