"""An id that is set up anew: another driver ends what stands under it, and sets it up for a job of its own."""

from __future__ import annotations

import asyncio

from committer.api.cleanup import clean_and_report
from committer.errors import CommitterError, JobDecidedError
from committer_testing.simulate.job_run import JobRun
from committer_testing.simulate.operators import recover_as
from committer_testing.simulate.process import Process
from committer_testing.simulate.run import Run

_TRIES = 3
_AGAIN_AFTER_S = 0.5


async def set_up_anew(run: Run, earlier: JobRun, job: JobRun) -> None:
    """Waits until the earlier driver begins to commit, ends its job, and drives another one under its id.

    The earlier driver, its task attempts and operators are not asked: they may be asleep. Where the plan ends nothing,
    both drivers set the id up at about the same time.
    """
    plan = job.plan
    try:
        if plan.ends_by == "nothing":
            await asyncio.sleep(plan.starts_s)
            await job.drive_as(f"{plan.job_id}.driver")
            return
        await earlier.commit_begins.wait()
        await asyncio.sleep(plan.starts_s)
        for number in range(_TRIES):
            await _end(run, earlier, job, Process(f"{plan.job_id}.before{number}", run, job_id=plan.id))
            await job.drive_as(f"{plan.job_id}.driver{number or ''}")
            if run.checker.jobs[plan.job_id].setups:
                return
            await asyncio.sleep(_AGAIN_AFTER_S)
    finally:
        job.commit_begins.set()


async def _end(run: Run, earlier: JobRun, job: JobRun, process: Process) -> None:
    try:
        if job.plan.ends_by == "abort":
            async with earlier.attach(process) as attached:
                await attached.abort()
        elif job.plan.ends_by == "roll_back":
            await recover_as(run, earlier, process, rollback=True)
        await _forget(run, earlier, process)
    except JobDecidedError as error:
        run.judge(process.name, earlier.plan.job_id, error, any_setup=True)
        await _finish(run, earlier, process)
    except CommitterError as error:
        run.judge(process.name, earlier.plan.job_id, error, any_setup=True)


async def _finish(run: Run, earlier: JobRun, process: Process) -> None:
    try:
        await recover_as(run, earlier, process)
        await _forget(run, earlier, process)
    except CommitterError as error:
        run.judge(process.name, earlier.plan.job_id, error, any_setup=True)


async def _forget(run: Run, earlier: JobRun, process: Process) -> None:
    """Cleans it up with the outcome that it may keep, which would keep its id."""
    run.forgotten.add(earlier.plan.job_id)
    config = run.vouched(earlier.plan)
    await clean_and_report(
        run.world.destination, job_id=earlier.plan.id, forgets=True, config=config, storage_options={"store": process}
    )
