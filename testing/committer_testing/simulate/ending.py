"""End of a run: when all faults are over, fresh processes end what is left, and everything must be in order."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import committer
from committer.api.cleanup import clean_and_report
from committer.committers.failures import definite_refusal
from committer.errors import (
    CommitterError,
    DestinationBusyError,
    DestinationNotFoundError,
    JobDecidedError,
    JobNotFoundError,
    JobRolledBackError,
    JobUndecidedError,
    OutcomeKeptError,
    OutcomeUnknownError,
    PreflightError,
)
from committer.paths import StorePath
from committer_testing.simulate.job_run import JobRun
from committer_testing.simulate.process import Process
from committer_testing.simulate.run import Run
from committer_testing.simulate.scenario import ENGINE

_ROUNDS = 3


async def end_all(run: Run, jobs: Mapping[str, JobRun]) -> None:
    """Ends every job, sweeps up what came later, and checks the destination."""
    if any(job.plan.committer not in ENGINE for job in jobs.values()):
        run.checker.settle(left_over=True)
        return
    left = list(dict.fromkeys(job.plan.id for job in jobs.values()))
    unknown: set[str] = set()
    for number in range(_ROUNDS):
        for there in list(left):
            process = Process(f"{there}.end{number}", run, job_id=there)
            job = _standing(run, jobs, there)
            if await _end(run, job, process, unknown):
                left.remove(there)
            elif number == _ROUNDS - 2 and await _abort(run, job, process):
                # Two dead jobs may be in each other's way; aborting one of them is what the error tells to do.
                left.remove(there)
    for there in left:
        run.find("G7", f"{there} cannot be ended: see the last calls")
    if unknown:
        run.checker.check_nothing_lost()
    if unknown:
        # What is left of a job whose records were removed by name no driver can end.
        return
    for job_id in jobs.keys() - run.forgotten:
        run.checker.check_kept(job_id)
    await _sweep(run, jobs)
    run.checker.settle()


def _standing(run: Run, jobs: Mapping[str, JobRun], there: str) -> JobRun:
    """Of the jobs of an id the one that exists there, else the last one that was set up."""
    of_id = [job for job in jobs.values() if job.plan.id == there]
    watches = {job.plan.job_id: run.checker.jobs[job.plan.job_id] for job in of_id}
    standing = [job for job in of_id if watches[job.plan.job_id].stands()]
    set_up = [job for job in of_id if watches[job.plan.job_id].setups]
    return (standing or set_up or of_id)[-1]


async def _end(run: Run, job: JobRun, process: Process, unknown: set[str]) -> bool:
    """Has a fresh process end one job; False when another job must be ended first."""
    job_id = job.plan.job_id
    destination, options = run.world.destination, {"store": process}
    try:
        report = await committer.recover(
            destination, job.plan.id, config=run.vouched(job.plan), storage_options=options
        )
    except JobUndecidedError:
        return await _end_undecided(run, job, process)
    except JobDecidedError:
        config = run.vouched(job.plan)
        # An earlier run of the id may keep its outcome, which only its stream removes.
        with suppress(OutcomeKeptError):
            await committer.cleanup(destination, job_id=job.plan.id, config=config, storage_options=options)
    except (JobNotFoundError, JobRolledBackError) as error:
        run.judge(process.name, job_id, error, any_setup=True)
    except (DestinationBusyError, PreflightError) as error:
        run.judge(process.name, job_id, error, any_setup=True)
        if _made_way(run, job, process, error):
            return await _end(run, job, process, unknown)
        return await _abort(run, job, process) if isinstance(error, PreflightError) else False
    except CommitterError as error:
        run.judge(process.name, job_id, error, any_setup=True)
        if _is_honest(run, error):
            unknown.add(job_id)
            return True
        if run.checker.take_what_is_kept(job_id) or _made_way(run, job, process, error):
            return await _end(run, job, process, unknown)
        return await _abort(run, job, process)
    else:
        run.claim(process.name, job_id, "committed" if report.success else "untouched", any_setup=True)
    return True


async def _end_undecided(run: Run, job: JobRun, process: Process) -> bool:
    watch = run.checker.jobs[job.plan.job_id]
    # An operator does not commit what he knows was aborted: a request that came late made its setup record once more.
    over = watch.decided or watch.aborted
    if run.scenario.calm and job.is_heard and not over:
        try:
            async with job.attach(process) as attached:
                job.begin_commit()
                await attached.commit(job.named(), tasks=job.told_tasks())
            run.claim(process.name, job.plan.job_id, "committed")
            return True
        except DestinationBusyError:
            return False
        except CommitterError as error:
            run.judge(process.name, job.plan.job_id, error, any_setup=True)
    return await _abort(run, job, process)


async def _abort(run: Run, job: JobRun, process: Process) -> bool:
    job_id = job.plan.job_id
    try:
        async with job.attach(process) as attached:
            await attached.abort()
    except JobNotFoundError:
        return True
    except CommitterError as error:
        run.judge(process.name, job_id, error, any_setup=True)
        return False
    return True


def _made_way(run: Run, job: JobRun, process: Process, error: CommitterError) -> bool:
    """Removes the file of a stranger where an error rightly tells to; then the job must end like any other.

    Rightly: the job may replace files that existed when it was decided, and its store cannot keep those, so that it
    cannot be rolled back when another file came since. Any other job must get out of a stranger's way by itself.
    """
    refusal, watch = definite_refusal(error), run.checker.jobs[job.plan.job_id]
    keeps_old = run.world.store().capabilities.hard_links
    if refusal is None or not refusal.path or keeps_old or not watch.running or error.outcome != "partial":
        return False
    path = StorePath.of(refusal.path)
    if not path.path.startswith(f"{run.world.destination.path}/"):
        return False
    name = path.relative_to(run.world.destination)
    if not (watch.targets - {name} and run.checker.make_way(name)):
        return False
    run.note(process.name, f"removes {name}, as it was told")
    return True


def _is_honest(run: Run, error: CommitterError) -> bool:
    """Whether a store that proves nothing may answer so."""
    capabilities = run.world.store().capabilities
    if capabilities.identity and capabilities.identity_through_rename:
        return False
    causes = [error, *(cause for cause in error.causes if isinstance(cause, CommitterError))]
    return error.outcome == "unknown" and any(isinstance(cause, OutcomeUnknownError) for cause in causes)


async def _sweep(run: Run, jobs: Mapping[str, JobRun]) -> None:
    """What late task attempts left must be found, and removed, by the next cleanup."""
    destination = run.world.destination
    for _round in range(2):
        options = {"store": Process(f"sweep{_round}", run)}
        try:
            listed = await committer.list_jobs(destination, storage_options=options)
        except DestinationNotFoundError:
            # No job came so far as to make it.
            return
        for job in listed:
            if job.job_id.isdecimal():
                # The directory of an application attempt, with what a task left that was late.
                continue
            if all(one.plan.id != job.job_id for one in jobs.values()):
                run.find("G11", f"list_jobs knows {job.job_id}, which no driver set up")
                continue
            standing = _standing(run, jobs, job.job_id)
            try:
                config = run.vouched(standing.plan)
                await clean_and_report(
                    destination, job_id=job.job_id, forgets=True, config=config, storage_options=options
                )
            except CommitterError as error:
                run.judge(f"sweep{_round}", standing.plan.job_id, error, any_setup=True)
                await _end(run, standing, Process(f"late{_round}", run), set())
