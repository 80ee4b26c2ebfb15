"""What can be watched while a job runs: events, heartbeat, statistics, audit context; and what must not happen."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError
from committer.events import JobEvent, names
from committer.flow.runtime import use_runtime
from committer.logs import current_audit
from committer.testing.faults import Call, Fault
from committer.testing.virtual_time import VirtualRuntime
from tests.job_paths import is_of_job
from tests.places import MemoryPlace, Place


async def test_events_of_a_commit(place: Place) -> None:
    events: list[JobEvent] = []
    async with place.open_job(job_id="job-1", listeners=[events.append]) as job:
        await place.run_task(job, 0, {f"a=1/part-{number}": b"abc" for number in range(8)})
        await job.commit()
    assert {event.job_id for event in events} == {"job-1"}
    started = [event.stage for event in events if event.kind == "stage_started"]
    completed = [event.stage for event in events if event.kind == "stage_completed"]
    assert sorted(started) == sorted(completed)
    order = [
        "job_stage_setup", "job_stage_declare_intent", "job_stage_load_manifests", "job_stage_preflight",
        "job_stage_decide", "job_stage_create_target_dirs", "job_stage_rename_files",
        "job_stage_optional_validate_output", "job_stage_end_job", "committer_commit_job", "job_stage_cleanup",
    ]  # fmt: skip
    assert [stage for stage in started if stage in order] == order
    renamed = [event for event in events if event.stage == "job_stage_rename_files"][-1]
    assert (renamed.kind, renamed.done, renamed.total, renamed.bytes_done) == ("stage_completed", 8, 8, 24)
    assert all(event.at_s >= 0 for event in events)


async def test_failed_stage_is_told(place: Place) -> None:
    events: list[JobEvent] = []
    job = await place.open_job()
    job.listen(events.append)
    await place.run_task(job, 0, {"same": b"x"})
    await place.run_task(job, 1, {"same": b"x"})
    place.faults(Fault(kind="forbidden", operation="put", path="intent-"))
    with pytest.raises(CommitterError):
        await job.commit()
    failed = [event for event in events if event.kind == "stage_failed"]
    assert [event.stage for event in failed] == ["job_stage_declare_intent"]
    assert "injected" in failed[0].message


@pytest.mark.parametrize("which", ["commit", "recover"])
async def test_heartbeat_although_nothing_completes(memory: MemoryPlace, which: str) -> None:
    runtime = VirtualRuntime()
    events: list[JobEvent] = []
    with use_runtime(runtime):
        job = await memory.open_job(job_id="job-1", listeners=[events.append])
        await memory.run_task(job, 0, {f"part-{number}": b"x" for number in range(4)})
        if which == "recover":
            memory.faults(Fault(kind="forbidden", operation="rename_file", path="part-3"))
            with pytest.raises(CommitterError):
                await job.commit()
            events.clear()

        async def slow(call: Call) -> None:
            if call.operation == "rename_file" and "/tasks/" in str(call.path):
                await runtime.sleep(35)

        memory.store.before_call = slow
        if which == "commit":
            await job.commit()
        else:
            await memory.recover("job-1", listeners=[events.append])
        memory.store.before_call = None
    beats = [event for event in events if event.kind == "heartbeat"]
    assert [event.stage for event in beats] == ["job_stage_rename_files"] * 3
    gaps = [later.at_s - earlier.at_s for earlier, later in zip(beats, beats[1:], strict=False)]
    assert gaps == [10.0, 10.0]


async def test_audit_reaches_every_worker(place: Place) -> None:
    seen: dict[str, Counter[tuple[str, str]]] = {}

    async def note(call: Call) -> None:
        context = current_audit()
        seen.setdefault(context.get("ji", ""), Counter())[(context.get("ta", ""), context.get("st", ""))] += 1

    place.store.before_call = note
    async with place.open_job(job_id="job-1") as job:
        await place.run_task(job, 3, {f"d={number}/part": b"x" for number in range(10)}, attempt=2)
        await job.commit()
    assert current_audit() == {}
    await committer.recover(place.dest, "job-1", storage_options=place.options)
    place.store.before_call = None
    jobs = seen["job-1"]
    stages = Counter({stage: count for (task, stage), count in jobs.items() if not task})
    assert stages["job_stage_setup"] > 3
    assert stages["job_stage_rename_files"] == 10
    assert stages["job_stage_cleanup_last_records"] >= 2
    tasks = Counter({stage: count for (task, stage), count in jobs.items() if task == "attempt_job-1_m_000003_2"})
    assert tasks["task_stage_setup"] >= 2
    assert tasks["task_stage_commit"] >= 2
    assert {task for task, _stage in jobs} == {"", "attempt_job-1_m_000003_2"}


async def test_two_jobs_at_once_keep_their_audit_apart(memory: MemoryPlace) -> None:
    seen: set[tuple[str, bool]] = set()

    async def note(call: Call) -> None:
        if call.operation == "rename_file" and "/tasks/" in str(call.path):
            job_id = current_audit()["ji"]
            seen.add((job_id, is_of_job(call.path.path.removeprefix("/table/"), job_id)))

    memory.store.before_call = note
    await asyncio.gather(
        *[memory.run_job({f"{job_id}/part": b"x"}, job_id=job_id) for job_id in ("one", "two", "three")]
    )
    memory.store.before_call = None
    assert seen == {("one", True), ("two", True), ("three", True)}


async def test_stages_and_flow_start_no_thread(memory: MemoryPlace) -> None:
    # Threads of earlier tests may end meanwhile.
    before = set(threading.enumerate())
    started: set[threading.Thread] = set()

    async def note(_call: Call) -> None:
        started.update(set(threading.enumerate()) - before)

    memory.store.before_call = note
    async with memory.open_job(config=CommitterConfig(validate_output=True, durability="fsync")) as job:
        for task in range(20):
            await memory.run_task(job, task, {f"p={number}/part-{task}": b"x" for number in range(10)})
        await job.commit()
    await memory.recover(job.job_id)
    memory.store.before_call = None
    assert not started | (set(threading.enumerate()) - before)


async def test_no_task_of_the_loop_is_left(place: Place) -> None:
    before = asyncio.all_tasks()
    await place.run_job({f"part-{number}": b"x" for number in range(20)})
    with pytest.raises(ZeroDivisionError):
        async with place.open_job() as job:
            await place.run_task(job, 0, {"x": b""})
            raise ZeroDivisionError
    assert asyncio.all_tasks() == before


async def test_report_counts_one_call_only(place: Place) -> None:
    """A commit that fails and is called again reports the second call's own figures."""
    async with place.open_job() as job:
        await place.run_task(job, 0, {"part-0": b"x"})
        with pytest.raises(CommitterError):
            await job.commit(tasks=2)
        report = await job.commit(tasks=1)
    assert report.statistics.counters[names.COMMITTER_TASKS_COMPLETED] == 1
    assert f"{names.COMMITTER_COMMIT_JOB}.failures" not in report.statistics.counters
