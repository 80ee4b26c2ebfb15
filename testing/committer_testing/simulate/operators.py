"""Operators beside running jobs: they recover, roll back, abort, clean up and commit; and faults of drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import committer
from committer.api.cleanup import clean_and_report
from committer.errors import CommitterError, JobDecidedError, JobNotFoundError, JobRolledBackError, JobUndecidedError
from committer_testing.simulate.job_run import JobRun
from committer_testing.simulate.process import Process
from committer_testing.simulate.run import Run
from committer_testing.simulate.scenario import OLD, Event, EventKind

_LOOKS_EACH_S: Final = 0.01

Act = Callable[[Run, JobRun, Event], Awaitable[None]]


async def happen(run: Run, job: JobRun, event: Event) -> None:
    """Waits for the moment, then does it."""
    if event.in_commit:
        await job.commit_begins.wait()
    await asyncio.sleep(event.at_s)
    run.result.events.append(event.number)
    run.note("EVENT", str(event))
    act = _ACTS[event.kind]
    try:
        await act(run, job, event)
    except CommitterError as error:
        run.judge(f"op{event.number}", event.job_id, error, any_setup=True)


def _operator(run: Run, event: Event, *, any_job: bool = False) -> Process:
    process = Process(f"op{event.number}", run, job_id=None if any_job else run.id_of(event.job_id))
    process.freezes_at, process.freezes_s = event.freezes_at, event.for_s
    return process


async def recover(run: Run, job: JobRun, event: Event) -> None:
    """An operator finishes the job."""
    await recover_as(run, job, _operator(run, event))


async def recover_as(run: Run, job: JobRun, process: Process, *, rollback: bool = False) -> None:
    """A process finishes the job, or takes it back, and says what came of it."""
    job_id = job.plan.job_id
    try:
        report = await committer.recover(
            run.world.destination,
            job.plan.id,
            rollback=rollback,
            config=run.vouched(job.plan),
            storage_options={"store": process},
        )
    except JobRolledBackError as error:
        run.judge(process.name, job_id, error, any_setup=True)
        run.claim(process.name, job_id, "untouched", any_setup=True)
    except (JobUndecidedError, JobNotFoundError, JobDecidedError) as error:
        run.judge(process.name, job_id, error, any_setup=True)
    else:
        run.claim(process.name, job_id, "committed" if report.success else "untouched", any_setup=True)


async def _roll_back(run: Run, job: JobRun, event: Event) -> None:
    await recover_as(run, job, _operator(run, event), rollback=True)


async def _abort(run: Run, job: JobRun, event: Event) -> None:
    async with job.attach(_operator(run, event)) as attached:
        await attached.abort()


async def _clean_up(run: Run, job: JobRun, event: Event) -> None:
    """By name, a kept outcome too: as a stream does with a batch that is never repeated."""
    run.forgotten.update(run.setups_of(event.job_id))
    options = {"store": _operator(run, event)}
    config = run.vouched(job.plan)
    await clean_and_report(
        run.world.destination, job_id=job.plan.id, forgets=True, config=config, storage_options=options
    )


async def _clean_up_old(run: Run, job: JobRun, event: Event) -> None:
    options = {"store": _operator(run, event, any_job=True)}
    config = run.vouched(*run.scenario.jobs)
    await committer.cleanup(run.world.destination, older_than=event.for_s, config=config, storage_options=options)


async def _commit_too(run: Run, job: JobRun, event: Event) -> None:
    """A driver that was started anew commits, if it knows all winners."""
    if not job.is_heard:
        return
    process = _operator(run, event)
    job_id = job.plan.job_id
    async with job.attach_as_set_up(process) as attached:
        job.begin_commit()
        report = await attached.commit(job.named(), tasks=job.told_tasks())
        run.claim(process.name, job_id, "committed" if report.success else "untouched")


async def _commit_others(run: Run, job: JobRun, event: Event) -> None:
    """A driver that was started anew commits, and chooses other winners, as far as it heard of several."""
    if not job.is_heard:
        return
    process = _operator(run, event)
    job_id = job.plan.job_id
    async with job.attach_as_set_up(process) as attached:
        winners = job.other_winners()
        job.begin_commit()
        report = await attached.commit(winners, tasks=job.told_tasks())
        run.claim(process.name, job_id, "committed" if report.success else "untouched")


async def _crash(run: Run, job: JobRun, event: Event) -> None:
    if job.process is not None:
        job.process.crashed = True


async def _cancel(run: Run, job: JobRun, event: Event) -> None:
    if job.driver is not None:
        job.driver.cancel()


async def _freeze(run: Run, job: JobRun, event: Event) -> None:
    if job.process is not None:
        job.process.frozen_until = asyncio.get_running_loop().time() + event.for_s


async def _partition(run: Run, job: JobRun, event: Event) -> None:
    if job.process is not None:
        job.process.partitioned_until = asyncio.get_running_loop().time() + event.for_s


async def _squatter(run: Run, job: JobRun, event: Event) -> None:
    """Another user puts a file where the job is about to put one of its own."""
    name = job.plan.names(0, 0)[0]
    if name not in run.checker.must_stand and name not in run.world.visible():
        run.checker.adopt(name, f"squatter {event.number}\n".encode())


async def _stranger(run: Run, job: JobRun, event: Event) -> None:
    """Another user, who knows nothing of committers, puts a file there."""
    run.checker.adopt(f"day=0/stranger-{event.number}.csv", f"stranger {event.number}\n".encode())


async def _rewrite(run: Run, job: JobRun, event: Event) -> None:
    """Another user writes an old file anew that the job is decided to take away: it is his from then on."""
    loop, watch = asyncio.get_running_loop(), run.checker.jobs[event.job_id]
    until = loop.time() + event.for_s
    while not watch.decided and loop.time() < until:  # noqa: ASYNC110 (nothing tells: the channel is looked at)
        await asyncio.sleep(_LOOKS_EACH_S)
    standing = (watch.superseded | watch.leaving) & {*OLD} & run.world.visible().keys()
    if watch.decided and standing:
        name = sorted(standing)[event.number % len(standing)]
        run.checker.adopt(name, f"rewritten {event.number}\n".encode())


_ACTS: dict[EventKind, Act] = {
    "recover": recover,
    "roll_back": _roll_back,
    "abort": _abort,
    "cleanup": _clean_up,
    "cleanup_old": _clean_up_old,
    "commit_too": _commit_too,
    "commit_others": _commit_others,
    "crash": _crash,
    "cancel": _cancel,
    "freeze": _freeze,
    "partition": _partition,
    "stranger": _stranger,
    "squatter": _squatter,
    "rewrite": _rewrite,
}
