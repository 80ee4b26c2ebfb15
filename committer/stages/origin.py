"""What differs between a job that this engine set up and one of Hadoop's: what says that it stands, and what its setup
left to others.

Hadoop's job setup makes the directory of the job attempt and no record (``SetupJobStage``); of its magic committer what
task attempts keep beside is all there is.
"""

from __future__ import annotations

from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.job_directory import JobDirectory


def anchor_of(context: StageContext) -> StorePath | None:
    """What stands as long as the job does; None where nothing is sure to.

    The setup record; of a job of Hadoop's a directory, where directories are real.
    """
    layout = context.layout
    if not context.spec.hadoop:
        return layout.setup
    if layout.beside is not None:
        return layout.beside
    return layout.job_attempt_directory if context.store.capabilities.directories else None


def is_told_by_directory(context: StageContext) -> bool:
    """Whether a directory is all that says that the job stands, so that a write into it would bring a job back."""
    return context.spec.hadoop


def is_told_elsewhere(context: StageContext) -> bool:
    """Whether nothing at the destination says that the job stands: Hadoop set it up, and its records are elsewhere."""
    return context.spec.hadoop and context.layout.keeps_elsewhere


def is_set_up(context: StageContext, found: JobDirectory) -> bool:
    """Whether what stands in a job's directory says that the job was set up, and not cleaned up since."""
    if found.set_up or is_told_elsewhere(context):
        return True
    return context.spec.hadoop and context.layout.job_attempt_directory.name in found.children


async def make_tasks(context: StageContext) -> None:
    """Makes the directory of the task attempt directories where job setup did not: one call then.

    Hadoop's job setup leaves it to the first task; the job attempt directory is there.
    """
    if context.spec.hadoop:
        await context.store.make_directory(context.layout.tasks, parents=False)


async def make_superseded(context: StageContext) -> None:
    """Makes the directory that old files are moved to where job setup did not: one call then.

    Every other job's was made at setup. A driver that made it later could do so after a rollback took it away, and
    another driver of the job would move an old file to where no driver looks for it.
    """
    if context.spec.hadoop:
        await context.store.make_directory(context.layout.superseded, parents=False)


def names_not_forced(context: StageContext) -> set[StorePath]:
    """Directories above the task attempts' whose names job setup did not force to the disk, as Hadoop's never does."""
    layout = context.layout
    if not context.spec.hadoop:
        return set()
    above = {layout.job_attempt_directory, layout.job_directory, layout.temporary}
    return above | {layout.destination, layout.destination.parent}
