"""Writes a DataFrame to a destination: `committer.spark.write`.

Spark's own writer writes if the session commits through this process (`committer.spark.configure`), else the data
source does. The data source commits beside Spark's driver: the store is reachable there even if the caller is a
Spark Connect client, and the commit completes even if the caller is interrupted. Its report has to be fetched
(`committer.spark.fetching`), through Connect by a Spark job of one task.
"""

from __future__ import annotations

import importlib.util
import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, cast, get_args

import msgspec

from committer.committers.opened_store import open_store
from committer.committers.registry import DEFAULT_COMMITTER, default_committer
from committer.committers.results import JobReport
from committer.errors import (
    CommitterError,
    ConfigurationError,
    JobNotFoundError,
    StorePermissionError,
    TargetExistsError,
    UnsupportedError,
)
from committer.flow.portal import wait_for
from committer.logs import job_logger
from committer.options.config import ConfigLike
from committer.paths import Destination, StorePath
from committer.spark import without_data_sources
from committer.spark.arguments import check_frame, column_names, option_texts, storage_settings
from committer.spark.carried_errors import error_behind
from committer.spark.destination import look_at_destination
from committer.spark.fetching import fetched_report, ignored_report
from committer.spark.job_side import CALL, RunningWrite, running, unsuited
from committer.spark.modes import SaveMode, commit_config, save_mode, target_exists
from committer.spark.options import STORAGE, WriteOptions, is_sparks, parse_options, refuse_secret
from committer.spark.protocol_session import PROTOCOL_KEY, choices_of_process, is_committing
from committer.spark.refusals import bad_write
from committer.spark.session_settings import add_from_session, config_options
from committer.spark.sessions import (
    case_sensitive,
    described,
    is_used,
    missing_client,
    resolved_path,
    telling_what_workers_miss,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession


Writer: TypeAlias = Literal["auto", "spark", "python"]

_FORMATS: Final = {"parquet", "orc", "csv", "json", "text", "xml", "avro"}
_CODECS: Final = {("parquet", "brotli"), ("csv", "zstd"), ("json", "zstd")}
"""Codecs that an installed PySpark lacks."""


class _Write(NamedTuple):
    """Arguments of a `write` call for one writer.

    Attributes:
        settings: Options of the writer.
        options: Options of this library.
        format: The data source ``committer``, or the format of Spark's own writer.
        withheld: How to pass the session's secrets to the data source.
    """

    df: DataFrame
    mode: SaveMode
    settings: Mapping[str, str]
    options: WriteOptions
    format: str = "committer"
    withheld: str = ""


def writer_named(text: str) -> Writer:
    """Checks the argument ``writer``."""
    if text not in get_args(Writer):
        raise ConfigurationError(
            f"writer cannot be {text!r}", operation="write", next_step=f"use one of {', '.join(get_args(Writer))}"
        )
    return cast("Writer", text)


def absent(df: DataFrame) -> str:
    """Returns why Spark's own writers do not commit through this process; empty if they do."""
    if is_committing(df.sparkSession):
        return ""
    return f"the session was not made by committer.spark.configure, or {PROTOCOL_KEY} names another class"


def unsuitable(df: DataFrame, given: Mapping[str, str], path: str, *, job_id: str | None) -> str:
    """Returns why Spark's own writers cannot run a write, before options are parsed; empty if they can.

    `given` holds the settings of the call, without the session's.
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
    if any(key.startswith(STORAGE) for key in folded):
        return "storage options reach Python only, and Spark's own writers go by the session's spark.hadoop.fs.*"
    if (folded["format"].lower(), folded.get("compression", "").lower()) in _CODECS:
        return f"PySpark has no codec {folded['compression']} for {folded['format']}"
    return ""


def of_spark(settings: Mapping[str, str]) -> dict[str, str]:
    """Selects the settings for Spark's own writers."""
    found = {key: value for key, value in settings.items() if is_sparks(key)}
    for key in found:
        refuse_secret(key)
    return found


def _write_by_spark(write: _Write) -> JobReport:
    """Writes with Spark's own writer; the report's `duration_s` is the commit's."""
    options = write.options
    destination = StorePath.of(options.path)
    used = _is_used(write, destination)
    if used and write.mode == "ignore":
        return _ignored(destination)
    if used and write.mode == "error":
        raise target_exists(options.path)
    config = commit_config(
        options.config, write.mode, partition_by=options.partition_by, overwrite_mode=options.overwrite_mode, used=used
    )
    with running(config) as call:
        try:
            with described(write.df, options.path, f"committer-{call.name}"):
                _writer(write, call).save(str(destination))
        except BaseException as error:
            raised = call.error
            if write.mode == "ignore" and isinstance(raised, TargetExistsError):
                # Another job wrote after the first look.
                return _ignored(destination)
            if call.job_id:
                _note(raised or error, options, call.job_id)
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


def _is_used(write: _Write, destination: StorePath) -> bool:
    if destination.scheme == "file":
        return wait_for(partial(look_at_destination, write.options, write.mode), "write").used
    # Python gets the access rights of Hadoop's configuration only when Java calls setup.
    return is_used(write.df, destination)


def _ignored(destination: StorePath) -> JobReport:
    """Returns the report of a write that mode ``ignore`` skips; no store call."""

    async def committer() -> str:
        async with open_store(destination) as store:
            return default_committer(store.capabilities)

    return JobReport(success=True, job_id="", committer=wait_for(committer, "write"))


def _writer(write: _Write, call: RunningWrite) -> DataFrameWriter:
    # Spark's mode determines what its plan shows; the call's config determines what is replaced.
    mode = "overwrite" if write.mode == "overwrite" else "append"
    writer = write.df.write.format(write.format).mode(mode).options(**write.settings).option(CALL, call.name)
    if not write.options.partition_by:
        return writer
    dynamic = call.config.superseded_scope == "directories" and mode == "overwrite"
    overwrite = "dynamic" if dynamic else "static"
    return writer.option("partitionOverwriteMode", overwrite).partitionBy(*write.options.partition_by)


def save(session: SparkSession, writer: DataFrameWriter) -> None:
    """Saves through the data source; registers it if Spark does not find it."""
    if importlib.util.find_spec("pyspark.sql.datasource") is None:
        raise without_data_sources("write")
    from committer.spark.datasource import CommitterDataSource

    # Spark looks up Python data sources only in the active session of the calling thread, and only a few calls
    # activate a session: in a second thread, or after Ctrl-C, there may be none.
    session.createDataFrame([], "nothing int")
    with telling_what_workers_miss():
        try:
            writer.save()
        except Exception as error:
            if "[DATA_SOURCE_NOT_FOUND]" not in str(error):
                raise
            session.dataSource.register(CommitterDataSource)
            writer.save()


_LOG = job_logger("committer.spark")
_OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"


def write(
    df: DataFrame,
    uri: Destination,
    *,
    format: str = "parquet",
    partition_by: str | Iterable[str] | None = (),
    mode: str = "error",
    compression: str | None = None,
    partition_overwrite_mode: str | None = None,
    options: Mapping[str, object] | None = None,
    committer: str | None = None,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, str] | None = None,
    job_id: str | None = None,
    writer: str = "auto",
) -> JobReport:
    """Writes a DataFrame and returns the report of its commit, in classic sessions and through Spark Connect.

    The destination changes only after all tasks are done: new files appear first, then replaced files are deleted
    (G13). When interrupted (Ctrl-C, ``interruptAll``), the call raises at once, while a commit that has begun
    continues: then ``committer.sync.recover(uri, job_id)`` returns its outcome; the error's notes name the job.

    Args:
        df: The DataFrame.
        uri: The destination: a URI, or a path that the session's JVM resolves, as for Spark's own writers.
        format: The format of the files.
        partition_by: Names of partition columns, outermost first.
        mode: ``error`` (refuses a destination that holds anything, checked again at commit), ``ignore`` (writes
            nothing there), ``append`` or ``overwrite``.
        compression: The codec; the format's default when None.
        partition_overwrite_mode: ``static`` replaces everything at the destination except names that start with
            ``_`` or ``.`` (without ``=``), ``dynamic`` the partitions that are written. None takes the session's
            ``spark.sql.sources.partitionOverwriteMode`` if it was set. Required to overwrite existing data with
            partitions.
        options: More options of the data source, ``maxRecordsPerFile`` for example.
        committer: The committer's name; the store's default when None.
        config: Options of the commit; a `CommitterConfig` sets all of them. A field that neither `config` nor
            `options` sets is taken from `configure`, else from a classic session's keys ``spark.hadoop.*``. These
            keys also give `storage_options`, except secrets.
        storage_options: How to reach the store; secrets as references: ``env:NAME`` or ``file:PATH``.
        job_id: The job's id; a UUID when None.
        writer: ``python`` writes in Spark's Python workers. ``spark`` uses Spark's own writer with its options,
            formats and types; it needs a session of `committer.spark.configure`. ``auto`` uses Spark's writer if
            possible, and logs the obstacle at INFO if not.

    Returns:
        The report. `duration_s` is the time of this call. Where Python wrote, the statistics hold
        ``committer_rows_written``. `job_id` is empty where mode ``ignore`` wrote nothing.

    Raises:
        ConfigurationError: An argument cannot be honoured. Nothing was done.
        TargetExistsError: The mode is ``error`` and the destination holds data.
        UnsupportedError: Spark's Python workers lack this package or one that it needs.
        CommitterError: This library failed in a process of Spark's; the class is the one raised there. If the
            outcome is ``committed``, only the report is missing.
        pyspark.errors.PySparkException: Spark failed otherwise. Nothing is visible at the destination unless the
            error says so.
    """
    started = time.monotonic()
    check_frame(df, "write")
    named = writer_named(writer)
    chosen = save_mode(mode)
    settings = _settings(
        options,
        path=resolved_path(df, uri),
        format=format,
        # A list, because a name may hold a comma.
        partitionBy=msgspec.json.encode(column_names(partition_by, "write")).decode(),
        compression=compression,
        caseSensitive=case_sensitive(df),
        existing=chosen,
        partitionOverwriteMode=_overwrite_mode(df, chosen, partition_overwrite_mode),
        committer=committer,
        job_id=job_id or str(uuid.uuid4()),
        keep_report="true",
        carry_errors="true",
        all_choices="true",
        **config_options(config),
        **storage_settings(storage_options, "write"),
    )
    given = dict(settings)
    withheld = add_from_session(df, settings, config, choices_of_process(df.sparkSession))
    by_spark = None if named == "python" else _by_spark(df, chosen, given, settings, job_id=job_id, named=named)
    if by_spark is not None:
        report = _write_by_spark(by_spark)
    else:
        parsed = parse_options(settings)
        if withheld:
            _LOG.warning("%s", withheld)
        report = _report_of(_Write(df, chosen, settings, parsed, withheld=withheld))
    return msgspec.structs.replace(report, duration_s=time.monotonic() - started)


def _by_spark(
    df: DataFrame,
    mode: SaveMode,
    given: Mapping[str, str],
    settings: Mapping[str, str],
    *,
    job_id: str | None,
    named: str,
) -> _Write | None:
    path = parse_options({"path": given["path"]}).path
    ours = {key: value for key, value in settings.items() if not is_sparks(key) and key != "format"}
    reason = absent(df)
    level = logging.DEBUG if reason else logging.INFO
    reason = reason or unsuitable(df, given, path, job_id=job_id)
    if not reason:
        options = parse_options(ours)
        fields = unsuited(options.config)
        if not fields:
            return _Write(df, mode, of_spark(given), options, given["format"].lower())
        what = " and ".join(fields)
        reason = f"files that Spark writes cannot be given {what}, which the call, the session or configure chose"
    if named == "spark":
        raise ConfigurationError(
            f"Spark's own writer cannot be used here: {reason}",
            operation="write",
            path=path,
            next_step='give writer="python", or do what makes Spark\'s possible',
        )
    if importlib.util.find_spec("pyspark.sql.datasource") is None and not absent(df):
        raise UnsupportedError(
            f"Spark's own writer cannot write this: {reason}; and Python can from PySpark 4.0 on only",
            operation="write",
            path=path,
            next_step="leave out what Spark's own writer cannot do, or use PySpark 4.0 or later",
        )
    _LOG.log(level, "%s is written by Python: %s", path, reason)
    return None


def _report_of(write: _Write) -> JobReport:
    """Writes through the data source; the report's `duration_s` is the commit's."""
    session, job_id = write.df.sparkSession, write.settings["job_id"]
    # Checked first, so that Spark computes nothing for a write that is ignored.
    ignored = ignored_report(session, write.options) if write.mode == "ignore" else None
    if ignored is not None:
        return ignored
    _save(write)
    report = fetched_report(write.df, write.options, job_id)
    if report is not None:
        return report
    if write.mode == "ignore":  # another job wrote after the first look
        nothing = JobReport(success=True, job_id="", committer=write.options.committer or DEFAULT_COMMITTER)
        return ignored_report(session, write.options) or nothing
    raise JobNotFoundError(
        f"job {job_id} is committed, but its report is gone: another program removed _temporary and wrote "
        "_SUCCESS anew",
        operation="write",
        path=write.options.path,
        outcome="committed",
        next_step="do not write again: the data is in place",
    )


def _save(write: _Write) -> None:
    """Runs Spark's save; raises this library's error if Spark's error carries one."""
    mode, job_id = "overwrite" if write.mode == "overwrite" else "append", write.settings["job_id"]
    try:
        with described(write.df, write.options.path, job_id):
            save(write.df.sparkSession, write.df.write.format(write.format).options(**write.settings).mode(mode))
    except BaseException as error:
        raised = error_behind(error)
        if write.withheld and isinstance(raised, StorePermissionError):
            raised.next_step = f"{write.withheld}; {raised.next_step}"
        _note(raised or error, write.options, job_id)
        if raised is None:
            raise
        raise raised from error


def _note(error: BaseException, options: WriteOptions, job_id: str) -> None:
    if not isinstance(error, CommitterError) or error.outcome != "unchanged":
        error.add_note(
            f"this was job {job_id} at {options.path}; if its commit had begun it may go on and succeed:"
            f" {options.recover_call(job_id)} tells"
        )


def _settings(more: Mapping[str, object] | None, **own: str | None) -> dict[str, str]:
    settings = {key: value for key, value in own.items() if value is not None}
    # compression is also an option: the argument counts only if given. caseSensitive given as an option wins.
    taken = {name.lower() for name in own if name != "compression" or name in settings} - {"casesensitive"}
    for key, value in option_texts(more, "options", "write").items():
        if key.lower() in taken:
            raise bad_write(
                f"{key} is given twice, or is an argument of write, not an option",
                "give it once, as the argument of write",
            )
        settings[key] = value
    return settings


def _overwrite_mode(df: DataFrame, mode: SaveMode, chosen: str | None) -> str | None:
    if chosen is not None or mode != "overwrite":
        return chosen
    # Asked with two defaults: only a value that was set gives the same answer twice. Spark's own default,
    # static, does not count: a user who does not know the option must not lose partitions by it.
    answers = {df.sparkSession.conf.get(_OVERWRITE_MODE, default) for default in ("static", "dynamic")}
    return answers.pop() if len(answers) == 1 else None
