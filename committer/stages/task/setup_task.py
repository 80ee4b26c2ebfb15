"""The stage that creates the directory of one run of a task attempt."""

from __future__ import annotations

from committer.errors import JobNotFoundError, StoreNotFoundError
from committer.events import names
from committer.paths import StorePath
from committer.stages.base import Stage
from committer.stages.state.job_liveness import check_job_is_live, make_tasks
from committer.stages.task_output import AttemptIdentity


class SetupTask(Stage[AttemptIdentity, StorePath]):
    """The stage that creates the task attempt directory.

    Preconditions: the job exists and is not decided.
    Postconditions: an empty directory that no other run of the attempt shares. Its parents are never created: a
    task of a cleaned-up job must fail, not bring the job's directory back. Nothing is synced: a power loss
    before the task commits costs the attempt anyway, and task commit syncs the directory's name.
    Failure modes: `JobNotFoundError`, `JobDecidedError`.
    Cost: 2 calls.
    Hadoop: ``SetupTaskStage``, which does not check the job.
    """

    name = statistic = names.TASK_STAGE_SETUP

    async def execute(self, value: AttemptIdentity) -> StorePath:
        """Checks the job and creates the directory."""
        layout, store = self.context.layout, self.context.store
        await check_job_is_live(self.context, operation=self.name)
        directory = layout.task_attempt_directory(value.task, value.attempt, value.nonce)
        await make_tasks(self.context)
        try:
            await store.make_directory(directory, parents=False)
        except StoreNotFoundError as error:
            # The job may have been decided and sealed meanwhile.
            await check_job_is_live(self.context, operation=self.name)
            raise JobNotFoundError(
                f"job {layout.job_id} was cleaned up while a task attempt started",
                operation=self.name,
                path=layout.tasks,
                next_step="stop this task: its job is over",
            ) from error
        return directory
