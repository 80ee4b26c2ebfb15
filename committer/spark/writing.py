"""`write`: writes a DataFrame into a destination and returns the report.

By Spark's own writer (`committer.spark.writing`) where the session commits through this package; else through the data
source, so that Spark names the winners and the commit runs beside Spark's driver: where the
store can be reached also when the caller is a Spark Connect client, and to its end also when the caller is interrupted.
The price is that the report has to be fetched (`committer.spark.fetching`), through Connect by a Spark job of one task.
"""

from __future__ import annotations

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
)
from committer.flow.portal import wait_for
from committer.logs import job_logger
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.paths import Destination, StorePath
from committer.spark.arguments import check_frame, column_names, option_texts
from committer.spark.carried_errors import error_behind
from committer.spark.datasource import CommitterDataSource
from committer.spark.destination import look_at_destination
from committer.spark.fetching import fetched_report, ignored_report
from committer.spark.hadoop_client import is_used, missing_client, resolved_path
from committer.spark.modes import SaveMode, commit_config, save_mode, target_exists
from committer.spark.options import WriteOptions, is_sparks, parse_options, refuse_secret
from committer.spark.protocol_jobs import CALL, RunningWrite, running, unsuited
from committer.spark.protocol_session import PROTOCOL_KEY, choices_of_process, is_committing
from committer.spark.session_settings import add_from_session, as_option, changed
from committer.spark.sessions import case_sensitive, described, described_as, missing_in_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession


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


def save(session: SparkSession, writer: DataFrameWriter) -> None:
    """Saves through the data source; registers it where Spark did not find it.

    Args:
        session: The session of what is written.
        writer: With format, mode and options, ``path`` among them.

    Raises:
        UnsupportedError: The data source, or something that it needs, is missing in Spark's Python processes.
        pyspark.errors.PySparkException: What else failed in Spark.
    """
    # Spark looks for data sources written in Python in the active session of the calling thread alone, and only a few
    # calls make a session that: in another thread than the first, or after Ctrl-C, there may be none.
    session.createDataFrame([], "nothing int")
    try:
        try:
            writer.save()
        except Exception as error:
            if "[DATA_SOURCE_NOT_FOUND]" not in str(error):
                raise
            session.dataSource.register(CommitterDataSource)
            writer.save()
    except Exception as error:
        missing = missing_in_worker(error)
        if missing is None:
            raise
        raise missing from error


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
    """Writes a DataFrame and returns how its commit ended. In classic sessions and through Spark Connect.

    Nothing at the destination is touched before all tasks are done; then the new files appear, and what an overwrite
    replaces goes after them (G13). Interrupted (Ctrl-C, ``interruptAll``), it raises at once while a commit that began
    goes on: ``committer.sync.recover(uri, job_id)`` then tells its end; the error's notes name the job.

    Args:
        df: What to write.
        uri: The destination: a URI, or a path that the session's JVM resolves, as for Spark's own writers.
        format: The format of the files.
        partition_by: Names of partition columns, outermost first.
        mode: ``error`` (refuses a destination that holds anything, checked again at commit), ``ignore`` (then writes
            nothing), ``append`` or ``overwrite``.
        compression: The codec, as the data source's option; the format's default when None.
        partition_overwrite_mode: ``static`` replaces everything there but names that start with ``_`` or ``.``
            (without ``=``), ``dynamic`` the partitions that are written. None takes the session's
            ``spark.sql.sources.partitionOverwriteMode`` if it was set. Needed to overwrite with partitions what holds
            data.
        options: More options of the data source, ``maxRecordsPerFile`` for example.
        committer: The committer's name; the store's default when None.
        config: The commit's choices. Those that neither this nor `options` makes are made in a classic session by its
            keys ``spark.hadoop.*``, or by what `configure` was given in place of them; a `CommitterConfig` makes all.
            Such keys likewise make `storage_options`, but for secrets.
        storage_options: How to reach the store; of secrets references: ``env:NAME`` or ``file:PATH``.
        job_id: The job's id; a UUID when None.
        writer: ``python`` writes in Spark's Python workers; ``spark`` by Spark's own writer, whose options, formats and
            types then count, in a session of `committer.spark.configure`. ``auto`` takes Spark's where it can be, and
            logs at INFO why it is not.

    Returns:
        The report. Where Python wrote, its statistics hold ``committer_rows_written``; `duration_s` is the time of this
        call. Where mode ``ignore`` wrote nothing, `job_id` is empty.

    Raises:
        ConfigurationError: An argument cannot be honoured. Nothing was done.
        TargetExistsError: The mode is ``error`` and the destination holds data.
        UnsupportedError: Spark's Python processes lack this package, or what it needs.
        CommitterError: What failed on Spark's side and was raised by this library there, of the class it had there.
            Where the outcome is ``committed``, only the report is missing.
        pyspark.errors.PySparkException: What else failed in Spark. Nothing is visible at the destination unless the
            error says otherwise.
    """
    started = time.monotonic()
    check_frame(df, "write")
    named = writer_named(writer)
    chosen = save_mode(mode)
    settings = _settings(
        options,
        path=resolved_path(df, uri),
        format=format,
        # As a list, because a name may hold a comma.
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
        **_config_options(config),
        **_storage_keys(storage_options),
    )
    given = dict(settings)
    withheld = add_from_session(df, settings, config, choices_of_process(df.sparkSession))
    by_spark = None if named == "python" else _by_spark(df, chosen, given, settings, job_id=job_id, named=named)
    if by_spark is not None:
        report = write_by_spark(by_spark)
        return msgspec.structs.replace(report, duration_s=time.monotonic() - started)
    parsed = parse_options(settings)
    if withheld:
        _LOG.warning("%s", withheld)
    report = _report_of(_Write(df, chosen, settings, parsed, settings["job_id"], withheld))
    return msgspec.structs.replace(report, duration_s=time.monotonic() - started)


class _Write(NamedTuple):
    """One call of `write`, understood.

    Attributes:
        df: What to write.
        mode: What becomes of data at the destination.
        settings: The options of the data source, as text.
        options: The same, parsed.
        job_id: The job's id.
        withheld: How to give the secrets that the session holds; empty where they are not missed.
    """

    df: DataFrame
    mode: SaveMode
    settings: Mapping[str, str]
    options: WriteOptions
    job_id: str
    withheld: str


def _by_spark(
    df: DataFrame,
    mode: SaveMode,
    given: Mapping[str, str],
    settings: Mapping[str, str],
    *,
    job_id: str | None,
    named: str,
) -> SparksWrite | None:
    """The call as Spark's own writers take it; None where Python writes, for a reason that is logged."""
    path = parse_options({"path": given["path"]}).path
    ours = {key: value for key, value in settings.items() if not is_sparks(key) and key != "format"}
    reason = absent(df)
    level = logging.DEBUG if reason else logging.INFO
    reason = reason or unsuitable(df, given, path, job_id=job_id)
    options = None if reason else parse_options(ours)
    if options is not None:
        reason = unsuitable_choices(options.config)
    if options is not None and not reason:
        return SparksWrite(df, given["format"].lower(), mode, of_spark(given), options)
    if named == "spark":
        raise ConfigurationError(
            f"Spark's own writer cannot be used here: {reason}",
            operation="write",
            path=path,
            next_step='give writer="python", or do what makes Spark\'s possible',
        )
    _LOG.log(level, "%s is written by Python: %s", path, reason)
    return None


def _report_of(write: _Write) -> JobReport:
    """Writes, and returns the report without the time of the call."""
    session = write.df.sparkSession
    # Looked at first, so that Spark computes nothing for a write that is to be ignored.
    ignored = ignored_report(session, write.options) if write.mode == "ignore" else None
    if ignored is not None:
        return ignored
    _save(write)
    report = fetched_report(write.df, write.options, write.job_id)
    if report is not None:
        return report
    if write.mode == "ignore":  # another job wrote since it was looked at
        nothing = JobReport(success=True, job_id="", committer=write.options.committer or DEFAULT_COMMITTER)
        return ignored_report(session, write.options) or nothing
    raise JobNotFoundError(
        f"job {write.job_id} is committed, but its report is gone: another program removed _temporary and wrote "
        "_SUCCESS anew",
        operation="write",
        path=write.options.path,
        outcome="committed",
        next_step="do not write again: the data is in place",
    )


def _save(write: _Write) -> None:
    """Lets Spark write and commit; what failed there is raised as what it was."""
    mode = "overwrite" if write.mode == "overwrite" else "append"
    try:
        with described(write.df, described_as(write.options.path), write.job_id):
            save(write.df.sparkSession, write.df.write.format("committer").options(**write.settings).mode(mode))
    except BaseException as error:
        raised = error_behind(error)
        if write.withheld and isinstance(raised, StorePermissionError):
            raised.next_step = f"{write.withheld}; {raised.next_step}"
        _note(raised or error, write.options, write.job_id)
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
    # compression is an option too; given as one, the argument is not. What an option says of case wins.
    taken = {name.lower() for name in own if name != "compression" or name in settings} - {"casesensitive"}
    for key, value in option_texts(more, "options", "write").items():
        if key.lower() in taken:
            raise ConfigurationError(
                f"{key} is given twice, or is an argument of write, not an option",
                operation="save",
                next_step="give it once, as the argument of write",
            )
        settings[key] = value
    return settings


def _storage_keys(storage_options: Mapping[str, object] | None) -> dict[str, str]:
    return {f"storage.{key}": value for key, value in option_texts(storage_options, "storage_options", "write").items()}


def _config_options(config: ConfigLike | None) -> dict[str, str]:
    choices = config_of(config)
    return {} if choices is None else {key: as_option(value) for key, value in changed(choices).items()}


def _overwrite_mode(df: DataFrame, mode: SaveMode, chosen: str | None) -> str | None:
    if chosen is not None or mode != "overwrite":
        return chosen
    # Asked with both defaults: only a value that was set is told alike. Spark's own default, static, chooses
    # nothing here: a user who knows nothing of this option must not lose partitions by it.
    answers = {df.sparkSession.conf.get(_OVERWRITE_MODE, default) for default in ("static", "dynamic")}
    return answers.pop() if len(answers) == 1 else None
