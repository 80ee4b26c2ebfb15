"""Writes each micro-batch of a stream exactly once: ``df.writeStream.foreachBatch(foreach_batch(uri)).start()``."""

from __future__ import annotations

import asyncio
import importlib.util
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeVar

import msgspec

from committer.advice import to_blocking_callers
from committer.errors import ConfigurationError
from committer.logs import job_logger
from committer.paths import Destination
from committer.spark import without_data_sources
from committer.spark.arguments import check_frame, column_names, option_texts
from committer.spark.carried_errors import error_behind
from committer.spark.micro_batches import batch_job_id, forget_batch, options_of_batches, was_committed
from committer.spark.options import is_absolute, parse_options, path_option
from committer.spark.protocol_session import choices_of_process
from committer.spark.session_settings import add_from_session, telling
from committer.spark.sessions import case_sensitive, is_connect, resolved_path
from committer.spark.spark_task import QUERY_ID
from committer.spark.writing import save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# Spark's job group of a query has the name of its run (`StreamExecution.runStream`).
_GROUP: Final = "spark.jobGroup.id"
# A query writes its batches in order, so the latest writes are enough; the number of queries has no bound.
_MOST: Final = 1000


class _Write(NamedTuple):
    run: str
    data: int
    settings: object


_last: dict[tuple[str, str], _Write] = {}


def run_of(df: DataFrame) -> str | None:
    """Returns the id of the query's run whose batch this thread runs; None if unknown, as with Spark Connect."""
    group = None if is_connect(df) else df.sparkSession.sparkContext.getLocalProperty(_GROUP)
    try:
        return str(uuid.UUID(group)) if group else None
    except ValueError:
        # A user's function may set a group of its own.
        return None


def check_repetition(run: str | None, path: str, job_id: str, df: DataFrame, settings: object) -> None:
    """Remembers the write of a committed batch; refuses a different write of the same job id in the same run.

    Spark repeats a batch only in a new run of its query, because a failed batch ends the run. So a different write
    in one run is a second write of the user's function, which would be lost silently. Rows are compared by Spark's
    plan hash.
    """
    if run is None:
        return
    this = _Write(run, df.semanticHash(), settings)
    before = _last.get((path, job_id))
    if before is not None and before.run == run and before != this:
        raise ConfigurationError(
            "this batch is written to this destination a second time, with other rows or other options, and nothing"
            " tells the two writes apart: the first is committed, this one is not written",
            operation="foreach_batch",
            path=path,
            next_step='give the second write a name, foreach_batch(..., sink="..."), and leave the first as it is; the'
            " query, started again, repeats this batch, finds the first committed and writes the second",
        )
    _last[path, job_id] = this
    # Another query's thread may remember a write meanwhile, or forget the same one.
    for oldest in list(_last)[:-_MOST]:
        _last.pop(oldest, None)


P = ParamSpec("P")
T = TypeVar("T")

_LOG = job_logger("committer.spark")


def _called_first(make: Callable[P, T]) -> Callable[P, T]:
    """Reports a `foreach_batch` that was itself passed to Spark, which then calls it with a batch."""

    @wraps(make)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if len(args) > 1:
            raise ConfigurationError(
                "foreach_batch takes the destination alone by position: it makes the function that Spark calls with "
                "each batch",
                operation="foreach_batch",
                next_step='call it: .foreachBatch(foreach_batch("file:///data/events")); all else goes by name',
            )
        return make(*args, **kwargs)

    return call


@_called_first
def foreach_batch(
    uri: Destination,
    *,
    format: str = "parquet",
    partition_by: str | Iterable[str] | None = (),
    mode: str = "append",
    compression: str | None = None,
    query: str | None = None,
    sink: str = "",
    options: Mapping[str, object] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Returns a function for ``writeStream.foreachBatch`` that writes every batch exactly once.

    The function may also be called from one's own, with the batch's DataFrame, or one derived from it, and the
    batch's number. It raises errors of this library, or Spark's own.

    Args:
        uri: The destination: a URI, or a path that the session's JVM resolves, as for Spark's own writers.
        format: The format of the files, as for the data source.
        partition_by: Names of partition columns, outermost first.
        mode: ``append`` or ``overwrite``, as for a batch write.
        compression: The codec; the format's default when None.
        query: A unique name of the query that stays the same after a restart; None takes Spark's own id. Required
            with Spark Connect, which does not pass that id to the function.
        sink: A name for this write, if one query writes several times into one destination. Without it, the second
            write of a batch is refused, because it looks like a repetition of the first.
        options: More options of the data source. A commit option that is not given is taken from `configure`, else
            from a classic session's keys ``spark.hadoop.*``, which also say how to reach the store, except
            secrets.

    Raises:
        ConfigurationError: An option cannot be honoured.
        UnsupportedError: This is PySpark 3.5.
    """
    if importlib.util.find_spec("pyspark.sql.datasource") is None:
        raise without_data_sources("foreach_batch")
    settings = _settings(uri, format, compression, partition_by, options)
    path = settings["path"]
    # A relative path is resolved by the session, which is known only in a batch; "/" stands in for its directory.
    options_of_batches(parse_options({**settings, "path": path if is_absolute(path) else f"/{path}"}))
    return _BatchSink(settings, _mode(mode), _name(query), sink)


def _settings(
    uri: Destination,
    format: str,
    compression: str | None,
    partition_by: str | Iterable[str] | None,
    options: Mapping[str, object] | None,
) -> dict[str, str]:
    settings = option_texts(options, "options", "foreach_batch")
    if compression is not None:
        settings["compression"] = compression
    columns = column_names(partition_by, "foreach_batch")
    if columns:
        settings["partitionBy"] = msgspec.json.encode(columns).decode()
    said = dict.fromkeys(("outcome_kept", "carry_errors", "all_choices"), "true")
    return {**settings, "format": format, "path": path_option(uri), **said}


def _mode(mode: str) -> str:
    chosen = str(mode).strip().lower()
    if chosen not in ("append", "overwrite"):
        raise ConfigurationError(
            f"the mode {mode!r} cannot be used for a stream: batches follow one another into one destination",
            operation="foreach_batch",
            next_step='use "append" or "overwrite"',
        )
    return chosen


def _name(query: object) -> str | None:
    if query is None or (isinstance(query, str) and query):
        return query
    raise ConfigurationError(
        f"query cannot be {query!r}", operation="foreach_batch", next_step="give a name as text, or leave it out"
    )


class _BatchSink:
    """Function returned by `foreach_batch`; picklable, as Spark Connect needs."""

    def __init__(self, written: Mapping[str, str], mode: str, query: str | None, sink: str) -> None:
        self._written = dict(written)
        self._mode = mode
        self._query = query
        self._sink = sink
        self._said = False

    @to_blocking_callers()
    def __call__(self, df: DataFrame, batch_id: int) -> None:
        check_frame(df, "foreach_batch")
        query = self._query or _query_of(df)
        job_id = batch_job_id(query, batch_id, self._sink)
        settings = {**self._written, "path": resolved_path(df, self._written["path"])}
        withheld = add_from_session(df, settings, process=choices_of_process(df.sparkSession))
        if withheld and not self._said:
            self._said = True
            _LOG.warning("%s", withheld)
        options = options_of_batches(parse_options(settings))
        settings["busy_timeout"] = str(options.config.busy_timeout)
        with telling(withheld):
            if asyncio.run(was_committed(options, job_id)):
                _LOG.info("batch %d of query %s is committed already, as job %s", batch_id, query, job_id)
            else:
                self._save(df, settings, job_id)
            check_repetition(run_of(df), options.path, job_id, df, (settings, self._mode))
            asyncio.run(forget_batch(options, query, batch_id - 2, self._sink))

    def _save(self, df: DataFrame, settings: Mapping[str, str], job_id: str) -> None:
        writer = df.write.format("committer").option("caseSensitive", case_sensitive(df)).options(**settings)
        try:
            save(df.sparkSession, writer.option("job_id", job_id).mode(self._mode))
        except Exception as error:
            raised = error_behind(error)
            if raised is None:
                raise
            raise raised from error


def _query_of(df: DataFrame) -> str:
    query = None if is_connect(df) else df.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if not query:
        raise ConfigurationError(
            "which query this batch belongs to cannot be told here: Spark Connect does not say it, nor is it known"
            " outside of a foreachBatch function",
            operation="foreach_batch",
            next_step='name the query with foreach_batch(..., query="..."), a name that no other query has and that'
            " stays when it is started again",
        )
    return query
