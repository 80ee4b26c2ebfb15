"""What the loggers below `committer` say of a job, and of which job and task attempt."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

import committer
from committer import CommitterConfig
from committer.errors import TargetExistsError
from committer.flow.runtime import use_runtime
from committer.testing.faults import Call, Fault, SimulatedCrash
from committer.testing.virtual_time import VirtualRuntime
from tests.job_paths import in_job
from tests.places import MemoryPlace

FILES = {"a=1/x": b"12", "a=2/y": b"345"}
Said = Callable[[int], list[str]]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    caplog.set_level(logging.DEBUG, logger="committer")
    return lambda level: [record.getMessage() for record in caplog.records if record.levelno == level]


async def test_a_commit_is_told_in_four_lines(
    memory: MemoryPlace, said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    await memory.run_job(FILES, job_id="j1")
    opened, decided, published, ended = said(logging.INFO)
    assert opened.startswith(f"job j1 is open at {memory.dest}: committer manifest, task commits by")
    assert decided == "job j1 is decided by this driver: commit, 2 files in 1 task commits"
    assert published == "job j1: 2 files and 5 bytes are published"
    assert ended.startswith("job j1 is committed: 2 files, 5 bytes in ")
    assert ended.endswith(" files/s")
    last = [record for record in caplog.records if record.levelno == logging.INFO][-1]
    assert (last.files, last.bytes) == (2, 5)  # type: ignore[attr-defined]


async def test_every_record_says_its_job_and_task_records_their_attempt(
    memory: MemoryPlace, said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    await memory.run_job(FILES, job_id="j1")
    assert said(logging.DEBUG)
    jobs = {record.job for record in caplog.records}  # type: ignore[attr-defined]
    assert jobs == {"j1"}
    of_task = [record for record in caplog.records if record.getMessage().startswith("task attempt")]
    assert [record.task for record in of_task] == ["attempt_j1_m_000000_0"]  # type: ignore[attr-defined]
    assert of_task[0].getMessage() == "task attempt attempt_j1_m_000000_0 is committed: 2 files, 5 bytes"
    stages = {record.stage for record in caplog.records if record.getMessage().startswith("stage ")}  # type: ignore[attr-defined]
    assert {"job_stage_setup", "task_stage_commit", "job_stage_load_manifests", "job_stage_cleanup"} <= stages


async def test_an_aborted_job_and_a_recovered_one_are_told(memory: MemoryPlace, said: Said) -> None:
    job = await memory.open_job(job_id="j1")
    await job.abort()
    await job.close()
    assert said(logging.INFO)[-1] == "job j1 is aborted"
    job = await memory.open_job(job_id="j2")
    await memory.run_task(job, 0, FILES)

    async def take_its_place(call: Call) -> None:
        if call.operation == "rename_file" and call.path.name == "x":
            memory.write("a=1/x", b"another's")

    memory.store.before_call = take_its_place
    with pytest.raises(TargetExistsError):
        await job.commit()
    memory.store.before_call = None
    memory.remove("a=1/x")
    assert said(logging.WARNING)[-1].startswith("job j2 is rolled back: ")
    job = await memory.open_job(job_id="j3")
    await memory.run_task(job, 0, FILES)
    memory.store.faults[:] = [Fault(kind="crash_before", operation="rename_file", path="tasks/")]
    with pytest.raises(SimulatedCrash):
        await job.commit()
    await committer.recover(memory.dest, "j3", storage_options={"store": memory.space.store()})
    assert said(logging.INFO)[-1].startswith("job j3 is recovered: it is committed: 2 files, 5 bytes")
    store = {"store": memory.space.store()}
    await (await committer.open_job(memory.dest, job_id="j4", storage_options=store)).close()
    await committer.recover(memory.dest, "j4", rollback=True, storage_options=store)
    assert said(logging.INFO)[-1] == "job j4 is recovered: it is aborted"


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("state", ["open", "decided", "ended", "remains"])
async def test_a_job_that_a_cleanup_removes_is_told(
    memory: MemoryPlace, said: Said, caplog: pytest.LogCaptureFixture, state: str, by_name: bool
) -> None:
    words = "no record said that a job existed there"
    if state == "remains":
        memory.write(in_job(memory, "j1", "plan-00000"), b"x")
    else:
        job = await memory.open_job(job_id="j1", config=CommitterConfig(cleanup_skipped=True))
        await memory.run_task(job, 0, FILES)
        words = "it was open, and is aborted"
        if state == "ended":
            await job.commit()
            words = "it had ended"
        elif state == "decided":
            memory.faults(Fault(kind="crash_before", operation="put", path="/outcome"))
            with pytest.raises(SimulatedCrash):
                await job.commit()
            words = "it was decided, and had no outcome"
        if state != "decided":
            await job.close()
    caplog.clear()
    which = {"job_id": "j1"} if by_name else {"older_than": 0}
    store = {"store": memory.space.store()}
    report = await committer.cleanup(memory.dest, force=state == "decided", storage_options=store, **which)
    assert report.removed == ["j1"]
    assert said(logging.INFO) == [f"job j1 is removed by a cleanup: {words}"]
    assert {record.job for record in caplog.records} == {"j1"}  # type: ignore[attr-defined]
    assert any("job_stage_cleanup" in record.getMessage() for record in caplog.records)


async def test_what_is_left_is_warned_of(memory: MemoryPlace, said: Said, caplog: pytest.LogCaptureFixture) -> None:
    memory.faults(Fault(kind="forbidden", operation="delete_directory", times=None))
    await memory.run_job(FILES, job_id="j1", config=CommitterConfig(cleanup_failures_ignored=True))
    *_parts, warning = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage().startswith("cleanup of job j1 failed and is ignored: ")
    assert warning.job == "j1"  # type: ignore[attr-defined]
    assert memory.temporary()


async def test_a_store_that_throttles_is_warned_of_once_a_cut(memory: MemoryPlace, said: Said) -> None:
    with use_runtime(VirtualRuntime()):
        job = await memory.open_job(job_id="j1")
        await memory.run_task(job, 0, {f"x{number}": b"1" for number in range(64)})
        memory.faults(Fault(kind="throttled", operation="rename_file", times=40))
        await job.commit()
        await job.close()
    warnings = said(logging.WARNING)
    slow = [text for text in warnings if "asked to slow down" in text]
    assert 1 <= len(slow) <= 3
    assert slow[0].startswith(f"{memory.store.endpoint} asked to slow down, 1 times so far: no calls for ")
    again = [text for text in warnings if "were sent again so far" in text]
    assert len(again) == 1
    assert again[0].startswith(f"10 calls to {memory.store.endpoint} were sent again so far; the last failed ")
