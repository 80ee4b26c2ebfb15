"""`committer.spark.write` by one of Spark's own writers, where the session commits through this package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, cast, get_args

from committer.committers.opened_store import open_store
from committer.committers.registry import DEFAULT_COMMITTER, default_committer
from committer.committers.results import JobReport
from committer.config import CommitterConfig
from committer.errors import CommitterError, ConfigurationError, TargetExistsError
from committer.flow.portal import wait_for
from committer.paths import StorePath
from committer.spark.destination import look_at_destination
from committer.spark.hadoop_client import is_used, missing_client
from committer.spark.modes import SaveMode, commit_config, target_exists
from committer.spark.option_keys import refuse_secret
from committer.spark.options import WriteOptions, is_sparks
from committer.spark.protocol_jobs import unsuited
from committer.spark.protocol_session import PROTOCOL_KEY, is_committing
from committer.spark.running_writes import CALL, RunningWrite, running
from committer.spark.sessions import case_sensitive, described, described_as

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

Writer: TypeAlias = Literal["auto", "spark", "python"]

_STORAGE: Final = "storage."
_FORMATS: Final = {"parquet", "orc", "csv", "json", "text", "xml", "avro"}
_CODECS: Final = {("parquet", "brotli"), ("csv", "zstd"), ("json", "zstd")}
"""What PySpark cannot compress as it is installed."""


class SparksWrite(NamedTuple):
    """A call of `write`, understood.

    Attributes:
        df: What to write.
        format: The format, by Spark's name.
        mode: What becomes of data at the destination.
        settings: The options for Spark's writer.
        options: What is this library's.
    """

    df: DataFrame
    format: str
    mode: SaveMode
    settings: Mapping[str, str]
    options: WriteOptions


def writer_named(text: str) -> Writer:
    """Reads the argument ``writer``.

    Raises:
        ConfigurationError: There is no such writer.
    """
    if text not in get_args(Writer):
        raise ConfigurationError(
            f"writer cannot be {text!r}", operation="write", next_step=f"use one of {', '.join(get_args(Writer))}"
        )
    return cast("Writer", text)


def absent(df: DataFrame) -> str:
    """Why Spark's own writers do not commit through this process; empty where they do."""
    if is_committing(df.sparkSession):
        return ""
    return f"the session was not made by committer.spark.configure, or {PROTOCOL_KEY} names another class"


def unsuitable(df: DataFrame, given: Mapping[str, str], path: str, *, job_id: str | None) -> str:
    """Why a write cannot be served by Spark's own writers, told before its options are read; empty where it can.

    Args:
        df: What to write.
        given: The settings that the call makes, the session's apart.
        path: The destination.
        job_id: The job's id, if the call gives one.
    """
    folded = {key.lower(): value for key, value in given.items()}
    missing = missing_client(df, StorePath.of(path).scheme)
    if missing:
        return missing
    if folded["format"].lower() not in _FORMATS:
        return f"{folded['format']} is none of Spark's formats of files"
    if folded["casesensitive"] != case_sensitive(df):
        return "Spark's own writers go by spark.sql.caseSensitive"
    if job_id is not None:
        return "Spark draws the ids of its jobs, and job_id is given"
    if folded.get("committer", DEFAULT_COMMITTER) != DEFAULT_COMMITTER:
        return f"Spark's own writers have the committer {DEFAULT_COMMITTER} only"
    if any(key.startswith(_STORAGE) for key in folded):
        return "storage options reach Python only, and Spark's own writers go by the session's spark.hadoop.fs.*"
    if (folded["format"].lower(), folded.get("compression", "").lower()) in _CODECS:
        return f"PySpark has no codec {folded['compression']} for {folded['format']}"
    return ""


def unsuitable_choices(config: CommitterConfig) -> str:
    """Likewise, of the commit's choices."""
    fields = unsuited(config)
    if not fields:
        return ""
    what = " and ".join(fields)
    return f"files that Spark writes cannot be given {what}, which the call, the session or configure chose"


def of_spark(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that Spark's own writers are given.

    Raises:
        ConfigurationError: One looks like a secret.
    """
    found = {key: value for key, value in settings.items() if is_sparks(key)}
    for key in found:
        refuse_secret(key)
    return found


def write_by_spark(write: SparksWrite) -> JobReport:
    """Writes, and returns the report without the time of the call.

    Args:
        write: The call.

    Raises:
        TargetExistsError: The mode is ``error`` and the destination holds data.
        CommitterError: The job could not be set up or committed.
        pyspark.errors.PySparkException: What else failed in Spark.
    """
    options = write.options
    destination = StorePath.of(options.path)
    used = _is_used(write, destination)
    if used and write.mode == "ignore":
        return JobReport(success=True, job_id="", committer=wait_for(partial(_committer_at, destination), "write"))
    if used and write.mode == "error":
        raise target_exists(options.path)
    config = commit_config(
        options.config,
        write.mode,
        partition_by=options.partition_by,
        overwrite_mode=options.overwrite_mode,
        used=used,
    )
    with running(config) as call:
        try:
            with described(write.df, described_as(options.path), f"committer-{call.name}"):
                _writer(write, call).save(str(destination))
        except BaseException as error:
            raised = call.error
            if write.mode == "ignore" and isinstance(raised, TargetExistsError):
                # Another job wrote since it was looked at.
                committer = wait_for(partial(_committer_at, destination), "write")
                return JobReport(success=True, job_id="", committer=committer)
            _note_running(raised or error, call, options)
            if raised is None:
                raise
            raise raised from error
    if call.report is None:
        raise CommitterError(
            f"Spark wrote to {options.path}, and not through committer.spark.configure",
            operation="write",
            path=options.path,
            outcome="unknown",
            next_step=f"look at the data, and at {PROTOCOL_KEY}, which something changed while this ran",
        )
    return call.report


def _is_used(write: SparksWrite, destination: StorePath) -> bool:
    if destination.scheme == "file":
        return wait_for(partial(look_at_destination, write.options, write.mode), "write").used
    # Python learns of the rights that Hadoop's configuration gives when Java asks it to set the job up.
    return is_used(write.df, destination)


async def _committer_at(destination: StorePath) -> str:
    """The committer that suits a store; no call."""
    store = await open_store(destination)
    try:
        return default_committer(store.capabilities)
    finally:
        await store.close()


def _writer(write: SparksWrite, call: RunningWrite) -> DataFrameWriter:
    # Spark's mode says what its plan shows; what is replaced, the call's choices say.
    mode = "overwrite" if write.mode == "overwrite" else "append"
    writer = write.df.write.format(write.format).mode(mode).options(**write.settings).option(CALL, call.name)
    if not write.options.partition_by:
        return writer
    dynamic = call.config.superseded_scope == "directories" and mode == "overwrite"
    overwrite = "dynamic" if dynamic else "static"
    return writer.option("partitionOverwriteMode", overwrite).partitionBy(*write.options.partition_by)


def _note_running(error: BaseException, call: RunningWrite, options: WriteOptions) -> None:
    if call.job_id and (not isinstance(error, CommitterError) or error.outcome != "unchanged"):
        error.add_note(
            f"this was job {call.job_id} at {options.path}; if its commit had begun it may go on and succeed:"
            f" {options.recover_call(call.job_id)} tells"
        )
