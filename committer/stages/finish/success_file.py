"""The stage that writes `_SUCCESS` after all files are in place, and the content of the marker."""

from __future__ import annotations

import functools
import getpass
import platform
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime

from committer.errors import (
    JobStateError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
)
from committer.events import names
from committer.layout import SUCCESS
from committer.options.table import S3A_UUID, WRITE_JOB_UUID
from committer.paths import StorePath, by_hand
from committer.records.job_state import SETUP
from committer.records.pending_set import java_date
from committer.records.statistics import IOStatistics
from committer.records.success import SuccessData, encode_success, hadoop_date
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import looking_again
from committer.stages.publish.publish import Published
from committer.stages.state.job_liveness import has_setup, may_vanish
from committer.stages.state.success_content import (
    DECIDED_BY,
    DIRECTORIES_CREATED,
    WAS_EMPTY,
    is_same_decision,
    marker_at,
)
from committer.stores.abilities import CONDITIONAL_REPLACE
from committer.stores.helpers import status_or_none

# Source of a job id that no key of Hadoop's gave.
_OWN_ID = "lake-committer"

# Without a wait, forty jobs that ended at once on SeaweedFS lost ten conditional puts in a row.
_ROUNDS = 30
_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 2.0


class SaveSuccess(Stage[SuccessData, None]):
    """The stage that replaces `_SUCCESS`, whichever job wrote it, as long as this job's records exist.

    With real directories a driver writes a temporary file in the job's directory and renames it: once another driver
    has removed that directory, the rename fails. Elsewhere the store replaces exactly the marker that the driver read
    before it read the job's records; `was_absent` says that it found none after the outcome was created.

    Preconditions: outcome `committed` exists: every file of every committed task is in place (G9).
    Postconditions: `_SUCCESS` names this job, or a job that ended later; or another driver ended this job.
    Cost: 2 calls on local disks and HDFS, 3 on ADLS; elsewhere 2 if there was no marker, else 4.
    Hadoop: ``SaveSuccessFileStage``.
    """

    name = names.COMMITTER_COMMIT_JOB
    statistic = names.JOB_STAGE_SAVE_SUCCESS_MARKER

    def __init__(self, context: StageContext, *, was_absent: bool = False) -> None:
        super().__init__(context)
        self._was_absent = was_absent

    async def execute(self, value: SuccessData) -> None:
        """Writes the marker; a directory of that name is a definite refusal."""
        write = self._rename if self.context.store.capabilities.directories else self._put
        try:
            for tried in range(_ROUNDS):
                try:
                    return await write(value)
                except (StoreExistsError, StorePreconditionError, StoreOutcomeUnknownError):
                    if tried + 1 == _ROUNDS:
                        raise
                    runtime = self.context.runtime
                    await runtime.sleep(runtime.random() * min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0**tried))
        except StoreIsADirectoryError as error:
            success = self.context.layout.success
            raise JobStateError(
                f"a directory exists at {success}: the job is committed, but its marker cannot be written",
                operation=self.name,
                path=success,
                outcome="committed",
                next_step=f"remove {by_hand(success)} by hand",
            ) from error

    async def _rename(self, value: SuccessData) -> None:
        context, store, success = self.context, self.context.store, self.context.layout.success
        temporary = context.layout.work / f"{SUCCESS}-{context.driver}.tmp"
        try:
            written = await store.put(temporary, encode_success(value), durable=context.durable)
            if may_vanish(context) and not await has_setup(self.context):
                return
            await looking_again(lambda: store.rename_file(temporary, success, replace=True, identity=written.identity))
        except (StoreNotFoundError, StoreNotADirectoryError):
            # Another driver removed the job's directory, or the response to an earlier rename was lost.
            return

    async def _put(self, value: SuccessData) -> None:
        store, success = self.context.store, self.context.layout.success
        seen = None if self._was_absent else await status_or_none(store, success)
        self._was_absent = False
        if seen is not None and is_same_decision(await marker_at(self.context, success), value):
            return
        if not await has_setup(self.context):
            return
        able = CONDITIONAL_REPLACE.of(store)
        if seen is not None and able is not None:
            await able.replace_file(success, encode_success(value), seen=seen)
            return
        if seen is not None:
            await store.delete_file(success)
        await store.put(success, encode_success(value), exclusive=True)


def success_data(
    context: StageContext,
    *,
    success: bool,
    published: Published | None,
    stage: str,
    error: BaseException | None = None,
    was_empty: bool = False,
    directories: int = 0,
    decided_by: str = "",
    more: Mapping[str, str] | None = None,
    committed_at: str = "",
) -> SuccessData:
    """Builds the content of `_SUCCESS` and of the summary report, in the form of Hadoop's committer of that name."""
    # It has the time of the outcome, if known, whichever driver writes it, which tells two markers apart.
    # S3A's form differs from the manifest committer's: files as bare absolute paths, the date as Java prints
    # it, and its filesystem's counts among the metrics.
    now = _moment(committed_at) or context.runtime.now()
    like_s3a = context.forms.like_s3a
    statistics = context.statistics.snapshot()
    diagnostics = {"stage": stage, "committer.engine": "lake-committer"}
    hidden = context.config.driver_hidden
    user = "" if "user" in hidden else _user()
    if user:
        diagnostics["principal"] = user
    diagnostics.update(more or {})
    if published is not None:
        set_totals(statistics, published)
        if like_s3a:
            statistics.counters[names.COMMITTER_COMMITS_COMPLETED] = published.files
    if was_empty:
        diagnostics[WAS_EMPTY] = "true"
    if directories:
        diagnostics[DIRECTORIES_CREATED] = str(directories)
    if decided_by:
        diagnostics[DECIDED_BY] = decided_by
    if context.layout.setup_name:
        diagnostics[SETUP] = context.layout.setup_name
    if error is not None:
        diagnostics["exception"] = f"{type(error).__name__}: {error}"
        diagnostics["stacktrace"] = "".join(traceback.format_exception(error))
    filenames = published.filenames if published is not None else []
    if like_s3a:
        filenames = [StorePath.from_uri(uri).path for uri in filenames]
    return SuccessData(
        success=success,
        timestamp=int(now.timestamp() * 1000),
        date=java_date(now) if like_s3a else hadoop_date(now),
        hostname="" if "host" in hidden else platform.node(),
        committer=context.forms.hadoop_name or context.spec.committer,
        jobId=context.layout.job_id,
        description=f"Job committer {context.layout.job_id}" if like_s3a else None,
        jobIdSource=_job_id_source(context, like_s3a=like_s3a),
        metrics={name: value for name, value in statistics.counters.items() if value} if like_s3a else {},
        diagnostics=diagnostics,
        filenames=filenames,
        lengths=published.lengths if published is not None else None,
        iostatistics=statistics,
    )


@functools.cache
def _user() -> str:
    """Returns this process's user; empty if the system has no name for it, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def _job_id_source(context: StageContext, *, like_s3a: bool) -> str:
    """Returns the source of the job's id: the key of Hadoop's that gave it, if any."""
    if context.layout.job_id.startswith("job_"):
        return "JobID"
    if context.spec.hadoop:
        return S3A_UUID if like_s3a else WRITE_JOB_UUID
    return _OWN_ID


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def set_totals(statistics: IOStatistics, published: Published) -> None:
    """Sets the total of committed files and bytes, whichever driver published them, as Hadoop does."""
    statistics.counters[names.COMMITTER_FILES_COMMITTED] = published.files
    statistics.counters[names.COMMITTER_BYTES_COMMITTED] = published.size
