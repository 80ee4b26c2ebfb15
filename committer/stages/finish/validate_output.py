"""The stage that compares the published files with the decision, before `_SUCCESS` is written."""

from __future__ import annotations

from committer.errors import StoreNotFoundError, ValidationError
from committer.events import names
from committer.records.publish_chunk import PlannedFile
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import CommitState, end_advice, is_forward_only
from committer.stages.identity import may_be_file_of
from committer.stages.publish.publish import Published

_MOST_PROBLEMS = 100


class ValidateOutput(Stage[tuple[CommitState, Published], None]):
    """The stage that compares the published files with the decision.

    Files and bytes must be those of the decision; with `validate_output` each file must exist with its length,
    and be the committed one where the store can prove it. Hadoop looks only after it published `_SUCCESS`, and
    compares no counts.

    Failure modes: `ValidationError` lists up to a hundred problems; the job stays decided, nothing is deleted.
    Cost: none, or one call per file with `validate_output`.
    Hadoop: ``ValidateRenamedFilesStage``.
    """

    name = statistic = names.JOB_STAGE_OPTIONAL_VALIDATE_OUTPUT

    async def execute(self, value: tuple[CommitState, Published]) -> None:
        """Compares counts, then files."""
        state, published = value
        decision = state.decision
        if (published.files, published.size) != (decision.files, decision.size):
            problem = (
                f"{decision.files} files of {decision.size} bytes were decided, "
                f"{published.files} files of {published.size} bytes were published"
            )
            raise await self._problem(state, [problem])
        if self.context.config.validate_output:
            await self._look_at_all(state)

    async def _look_at_all(self, state: CommitState) -> None:
        problems: list[str] = []
        seen = 0

        async def look(file: PlannedFile) -> None:
            nonlocal seen
            problem = await problem_with(self.context, file)
            if problem is None:
                seen += 1
            elif len(problems) < _MOST_PROBLEMS:
                problems.append(problem)
            self.context.progress.advance(bytes=file.size)

        async for batch in state.files.batches():
            await self.run_workers(batch, look)
        if problems or seen != state.decision.files:
            problems = problems or [f"{state.decision.files} files were decided, {seen} were seen"]
            raise await self._problem(state, problems)

    async def _problem(self, state: CommitState, problems: list[str]) -> ValidationError:
        end = await end_advice(self.context, forward_only=is_forward_only(self.context, state))
        return ValidationError(
            f"the output of job {self.context.layout.job_id} is not what was committed: {problems[0]}"
            + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""),
            operation=self.name,
            path=self.context.layout.destination,
            next_step=f"find out who changed it; {self.context.recover_call()} looks again; where it cannot be put "
            f"right, {end}",
        )


async def problem_with(context: StageContext, file: PlannedFile) -> str | None:
    """Returns the fault of a published file, None if valid. One call."""
    try:
        status = await context.store.status(context.layout.target(file.destination))
    except StoreNotFoundError:
        return f"{file.destination} is missing"
    if status.is_directory:
        return f"{file.destination} is a directory"
    if status.size != file.size:
        return f"{file.destination} has {status.size} bytes, {file.size} were committed"
    kept = context.store.capabilities.identity_through_rename
    other = file.upload is not None and not may_be_file_of(status, file)
    if other or (kept and file.identity is not None and status.identity != file.identity):
        return f"{file.destination} is another file of the same length"
    return None
