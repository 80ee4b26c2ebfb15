"""Limits the trust in a stored configuration: only a caller may name places outside the destination (G10)."""

from __future__ import annotations

from typing import Final

import msgspec

from committer.advice import call
from committer.errors import ConfigurationError, InvalidPathError
from committer.file_names import root_of
from committer.layout import JobLayout
from committer.options.config import CommitterConfig
from committer.stages.base import StageContext

OF_CALLER: Final = frozenset(
    {
        "absolute_roots",
        "azure_io_rate",
        "busy_timeout",
        "diagnostics_manifest_directory",
        "file_list_directory",
        "file_list_format",
        "io_rate",
        "pending_set_directory",
        "pending_set_user",
        "staging_directories",
        "summary_report_directory",
    }
)
"""Fields that a later call for a job may give; the other fields of its configuration are fixed by its setup."""


def trusted_config(stored: CommitterConfig, given: CommitterConfig | None) -> CommitterConfig:
    """Returns a stored configuration with the fields `OF_CALLER` of the caller's configuration."""
    given = given or CommitterConfig(file_list_format=stored.file_list_format)
    paced_by = stored if (given.io_rate, given.azure_io_rate) == (None, None) else given
    return msgspec.structs.replace(
        stored,
        io_rate=paced_by.io_rate,
        azure_io_rate=paced_by.azure_io_rate,
        busy_timeout=stored.busy_timeout if given.busy_timeout is None else given.busy_timeout,
        absolute_roots=given.absolute_roots,
        staging_directories=given.staging_directories,
        # A caller who names one place for many jobs does not mean those that keep records at the destination.
        pending_set_directory=given.pending_set_directory if stored.pending_set_directory else "",
        pending_set_user=given.pending_set_user,
        summary_report_directory=given.summary_report_directory,
        diagnostics_manifest_directory=given.diagnostics_manifest_directory,
        file_list_directory=given.file_list_directory,
        file_list_format=given.file_list_format,
    )


def refuse_roots_not_given(
    layout: JobLayout, stored: CommitterConfig, *, rollback: bool = False, force: bool = False
) -> None:
    """Refuses a job that publishes below roots which the caller did not give (G10)."""
    missing = [root for root in stored.absolute_roots if not _is_given(layout, root)]
    if missing:
        recover = call(
            "recover",
            str(layout.destination),
            layout.job_id,
            rollback=rollback,
            force=force,
            config={"absolute_roots": list(stored.absolute_roots)},
        )
        raise ConfigurationError(
            f"job {layout.job_id} publishes files outside its destination, and a caller that goes on with it must "
            f"say that it may write below {', '.join(missing)}",
            operation="commit_job",
            path=layout.decision,
            next_step=f"if that is right, call {recover}; nothing was changed",
        )


def refuse_records_out_of_sight(context: StageContext) -> None:
    """Refuses task records in a place that the caller did not name (G10), instead of an empty listing; no call."""
    layout, told = context.layout, context.spec.records_at
    if not told or layout.keeps_elsewhere:
        return
    raise ConfigurationError(
        f"the tasks of job {layout.job_id} commit to {told}, as its setup record says; but a record may not say where "
        "else than at the destination a driver looks",
        operation="commit_job",
        path=layout.setup,
        next_step="if that is right, give what exists there before USER/JOB_ID as pending_set_directory in the config "
        "of this call, and the user as pending_set_user if it is not yours; nothing was changed",
    )


def _is_given(layout: JobLayout, root: str) -> bool:
    try:
        return root_of(f"{layout.absolute(root)}/", layout.roots) is not None
    except InvalidPathError:
        return False
