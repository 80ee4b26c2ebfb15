"""Which task attempts committed, by what stands in `attempts`: for a driver that has no messages."""

from __future__ import annotations

from dataclasses import dataclass

from committer.errors import StoreNotFoundError, TaskCommitsRequiredError, TaskMissingError
from committer.layout import MANIFEST_SUFFIX, JobLayout
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.record_refs import MOST_NAMED


@dataclass(frozen=True, slots=True, order=True)
class CommittedAttempt:
    """One run of a task attempt that committed, by the name of its record.

    Attributes:
        task: The task's number.
        attempt: The attempt's number.
        nonce: What tells two runs of one attempt apart.
    """

    task: int
    attempt: int
    nonce: str

    def record(self, layout: JobLayout) -> StorePath:
        """Where its record is."""
        return layout.attempt_record(self.task, self.attempt, self.nonce)


async def one_attempt_a_task(context: StageContext, tasks: int) -> list[CommittedAttempt]:
    """The committed attempt of each of the job's tasks, where there is exactly one of each: two listings.

    A task that began, and whose number is too high, says that the caller counted too few, by the records that stand.

    Args:
        context: The job, with delivery by message.
        tasks: How many tasks it has: they are numbered from 0.

    Raises:
        TaskCommitsRequiredError: Of a task several attempts committed, so that only the engine that ran them knows
            which one wins; or a record is none of this job's attempts.
        TaskMissingError: Of a task no attempt committed, or tasks committed, or began, that the job does not have.
    """
    found: dict[int, list[CommittedAttempt]] = {}
    strange: list[str] = []
    for name in await _record_names(context):
        run = context.layout.parse_attempt_record(name)
        if run is None:
            strange.append(name)
        else:
            one = CommittedAttempt(*run)
            found.setdefault(one.task, []).append(one)
    several = {task: sorted(runs) for task, runs in sorted(found.items()) if len(runs) > 1}
    if several or strange:
        sentences = [f"task {task} committed as {_attempts(runs)}" for task, runs in several.items()]
        sentences += [f"{name} is no record of an attempt of this job" for name in sorted(strange)]
        raise TaskCommitsRequiredError(
            f"the committed attempts of job {context.layout.job_id} do not say which of them win: {_some(sentences)}",
            operation="commit_job",
            path=context.layout.attempts,
            next_step="`await job.abort_task(task, attempt)` removes an attempt that is not to win; or give "
            "commit(task_commits=[...]) the message of the winner of each task; the job stays open until then",
        )
    own = found.keys() & set(range(tasks))
    problems = [f"task {task} has no committed attempt" for task in range(tasks) if task not in found]
    problems += [
        f"task {task} committed, and the job has tasks 0 to {tasks - 1}" for task in sorted(found) if task >= tasks
    ]
    problems += [
        f"task {task} began, and the job has tasks 0 to {tasks - 1}"
        for task in sorted(await _begun(context) - found.keys())
        if task >= tasks
    ]
    if problems:
        raise TaskMissingError(
            f"job {context.layout.job_id} has {tasks} tasks, of which {len(own)} committed: {_some(problems)}",
            operation="commit_job",
            path=context.layout.attempts,
            next_step="run the missing tasks again with open_task(job.spec, task=...), or give the right number of "
            "tasks; else abort the job. Nothing was published",
        )
    return [found[task][0] for task in range(tasks)]


async def _begun(context: StageContext) -> set[int]:
    """The tasks of which an attempt has a directory: it was not aborted."""
    layout = context.layout
    try:
        names = [child.path.name async for child in context.store.list(layout.tasks) if child.is_directory]
    except StoreNotFoundError:
        return set()
    runs = (layout.parse_attempt_record(f"{name}{MANIFEST_SUFFIX}") for name in names)
    return {run[0] for run in runs if run is not None}


async def _record_names(context: StageContext) -> list[str]:
    try:
        children = [child.path.name async for child in context.store.list(context.layout.attempts)]
    except StoreNotFoundError:
        return []
    return [name for name in children if name.endswith(MANIFEST_SUFFIX)]


def _attempts(runs: list[CommittedAttempt]) -> str:
    return " and ".join(f"attempt {run.attempt} (run {run.nonce})" for run in runs)


def _some(sentences: list[str]) -> str:
    more = len(sentences) - MOST_NAMED
    return "; ".join(sentences[:MOST_NAMED]) + (f"; and {more:,} more" if more > 0 else "")
