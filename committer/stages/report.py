"""SaveReport: the summary report, on success and on failure, on whatever store it was asked for."""

from __future__ import annotations

from typing import Final

from committer.errors import CommitterError, RecordError, StoreNotFoundError
from committer.events import names
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.limits import LIMITS
from committer.records.success import SuccessData, decode_success, encode_success
from committer.stages.base import Stage, StageContext
from committer.stores.base import Store
from committer.stores.helpers import exists

_log = job_logger("committer.committers")

# Ours among the diagnostics: a report's name says which job, not where.
DESTINATION: Final = "committer.destination"


class SaveReport(Stage[SuccessData, None]):
    """Writes `summary-<job id>.json`. A report that cannot be written is logged: it never changes a job's end.

    Args:
        context: The job.
        store: The report directory's store, which need not be the job's.
        directory: The report directory; made when missing.
        only_if_absent: Leave a report that is there alone: an abort must not hide why a commit failed.

    Preconditions: none.
    Postconditions: the report is there, or the log says why not.
    Cost: 2 calls; 3 with `only_if_absent`, or for a failure (which never replaces a success).
    Hadoop: ``ManifestCommitter.maybeSaveSummary``.
    """

    name = "job_stage_save_report"

    def __init__(
        self, context: StageContext, *, store: Store, directory: StorePath, only_if_absent: bool = False
    ) -> None:
        super().__init__(context)
        self._store = store
        self._directory = directory
        self._only_if_absent = only_if_absent

    async def execute(self, value: SuccessData) -> None:
        """Makes the directory, writes the report."""
        path = self.context.layout.summary(self._directory)
        try:
            if self._only_if_absent and await exists(self._store, path):
                return
            if not value.success and await self._says_success(path):
                # Another driver ended the job well since, and this one's failure is not the job's; or a job of this id
                # at another destination did, of which nothing else may speak any more.
                return
            await self._store.make_directory(self._directory, parents=True)
            with self.context.statistics.timed(names.TASK_STAGE_SAVE_SUMMARY_FILE):
                await self._store.put(path, encode_success(value))
        except CommitterError as error:
            _log.warning("could not save the summary report of job %s: %s", self.context.layout.job_id, error)

    async def _says_success(self, path: StorePath) -> bool:
        try:
            data = await self._store.read(path, limit=LIMITS["success"])
            return decode_success(data, source=str(path)).success
        except (StoreNotFoundError, RecordError):
            return False


def is_report_of(context: StageContext, found: SuccessData) -> bool:
    """Whether a report of that name is of this job, as far as it says: not of one with its id somewhere else."""
    told = found.diagnostics.get(DESTINATION)
    return told is None or told == context.spec.destination
