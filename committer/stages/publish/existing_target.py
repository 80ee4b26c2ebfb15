"""The existing-target rule: what exists where a job publishes a file, and whether the job replaces it."""

from __future__ import annotations

from collections.abc import Sequence

from committer.errors import CommitterError, TargetExistsError
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.decide.commit_state import CommitState, is_forward_only
from committer.stages.identity import is_recorded
from committer.stages.load.planned_files import PlannedFile
from committer.stores.base import FileStatus


class ExistingTargets:
    """The existing-target rule of one job; `forward_only` says whether the job cannot be rolled back."""

    def __init__(self, context: StageContext, state: CommitState, operation: str) -> None:
        self._context = context
        self._replaces = context.config.existing_target == "replace"
        self.forward_only: bool = is_forward_only(context, state)
        self._operation = operation

    def may_replace(self, file: PlannedFile, standing: FileStatus) -> bool:
        """Whether the job replaces an existing file: it must replace, and the decision must have recorded the file."""
        # A rollback could not restore a file that came later, so only a job that cannot roll back replaces one.
        fact = file.stood
        recorded = fact is not None and is_recorded(standing, fact)
        allowed = recorded or (self._replaces and self.forward_only)
        return allowed and (self._replaces or self._context.config.supersedes(file.destination))

    def refusal(
        self,
        file: PlannedFile,
        target: StorePath,
        what: str,
        causes: Sequence[CommitterError] = (),
        *,
        still: bool = True,
    ) -> TargetExistsError:
        """Builds the error of a file whose destination exists; `still` if a call just showed that."""
        stands = "stands" if still else "stands, or stood a moment ago,"
        replace = "" if self._replaces else ", with existing_target='replace' if it may be replaced"
        return TargetExistsError(
            f"{what} {stands} at {target}, where {self._context.layout.job_id} publishes a file",
            conflicts=[f"{what} {stands} at {file.destination}, where a file goes"],
            operation=self._operation,
            path=target,
            # It came after this job's check, so it is most likely another job's output: no reader may lose that.
            next_step="find out whether another job committed it (_SUCCESS may tell); if it is not needed, remove it, "
            f"and run the job again{replace}",
            causes=causes,
        )
