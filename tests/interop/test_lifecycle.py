"""MapReduce's lifecycle questions, asked of both committers side by side, and what each answer is worth."""

from __future__ import annotations

from pathlib import Path

import pytest

import committer
from committer.errors import TaskError

from .hadoop import Hadoop, JavaError
from .python_side import FOR_JAVA_DRIVER, commit, run_task, spec_of
from .trees import contents, exists, on_disk


async def test_answers_side_by_side(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.setup_task(0)
    async with committer.attach_job(spec_of(job)) as attached, attached.task_attempt(1) as task:
        table = {
            "needsTaskCommit of an attempt that wrote nothing": (
                await job.needs_task_commit(0),
                task.needs_task_commit,
            ),
            "isCommitJobRepeatable": (await job.is_commit_repeatable(), attached.is_commit_repeatable),
            "isRecoverySupported": (await job.is_recovery_supported(), attached.is_recovery_supported),
        }
    print("\nquestion: Hadoop's manifest committer, this engine")
    for question, (java, python) in table.items():
        print(f"{question}: {java}, {python}")
    assert list(table.values()) == [(True, True), (False, True), (False, True)]


async def test_recover_task(hadoop: Hadoop, tmp_path: Path) -> None:
    """Java recovers no task. Python makes the message of a committed attempt anew, also of one that Java committed."""
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("java.csv"))
    await run_task(spec_of(job), 1, contents("python.csv"), attempt=2)
    await hadoop.write(await job.setup_task(2), contents("uncommitted.csv"))
    with pytest.raises(JavaError, match="recover"):
        await job.recover_task(0)
    async with committer.attach_job(spec_of(job)) as attached:
        messages = [await attached.recover_task(0, 0), await attached.recover_task(1, 2)]
        for task, attempt in ((0, 1), (1, 0), (2, 0)):
            with pytest.raises(TaskError):
                await attached.recover_task(task, attempt)
        # Messages restrict a listing: they are the winners, all of them.
        report = await attached.commit(task_commits=messages, tasks=2)
    assert report.files_committed == 2
    assert (await on_disk(job.destination))[0] == contents("java.csv", "python.csv")


async def test_commit_again(hadoop: Hadoop, tmp_path: Path) -> None:
    """Java's second commit fails, as its manifests are gone; Python's second commit reports the first."""
    java, python = hadoop.job(tmp_path / "java"), hadoop.job(tmp_path / "python")
    for job in (java, python):
        await job.setup()
        await job.run_task(0, contents("a.csv"))
    await java.commit()
    with pytest.raises(JavaError):
        await java.commit()
    async with committer.attach_job(spec_of(python)) as attached:
        first = await attached.commit()
        assert await attached.commit() is first
    assert (await committer.recover(python.destination, python.id)).files_committed == first.files_committed


async def test_abort_task_by_ids(hadoop: Hadoop, tmp_path: Path) -> None:
    """A driver of either kind aborts tasks of the other. Only Python's takes the record away with the files."""
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("java.csv"))
    await run_task(spec_of(job, FOR_JAVA_DRIVER), 1, contents("python.csv"))
    await run_task(spec_of(job, FOR_JAVA_DRIVER), 2, contents("kept.csv"))
    async with committer.attach_job(spec_of(job)) as attached:
        await attached.abort_task(0, 0)
        await attached.abort_task(1, 0)
        # Another attempt of task 2 than the one that committed.
        await attached.abort_task(2, 1)
    assert [await exists(job.manifest(task)) for task in range(3)] == [False, False, True]
    # Java finds a Python attempt's directory no more than it takes its manifest away: nonce and all, it stays.
    await job.abort_task(2, 0)
    report = await commit(job)
    assert report.files_committed == 1
    assert (await on_disk(job.destination))[0] == contents("kept.csv")
