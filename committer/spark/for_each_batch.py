"""`foreach_batch`: writes each micro-batch of a stream exactly once.

Both ask for a job of the same id, which committed. Spark repeats a batch in a new run of its query only: a batch that
fails ends the run. So within one run another write is none of Spark's repetitions; it is one of the user's function, or
a second write that would be lost in silence.

df.writeStream.foreachBatch(foreach_batch("file:///data/events", partition_by=["day"])).start()
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeVar

import msgspec

from committer.advice import to_blocking_callers
from committer.errors import ConfigurationError
from committer.logs import job_logger
from committer.paths import Destination
from committer.spark.arguments import check_frame, column_names, option_texts
from committer.spark.carried_errors import error_behind
from committer.spark.hadoop_client import resolved_path
from committer.spark.micro_batches import batch_job_id, forget_batch, options_of_batches, was_committed
from committer.spark.options import is_absolute, parse_options, path_option
from committer.spark.protocol_session import choices_of_process
from committer.spark.session_settings import add_from_session, telling
from committer.spark.sessions import case_sensitive, is_connect
from committer.spark.spark_task import QUERY_ID
from committer.spark.writing import save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# Spark runs a query's jobs in a group that is called like its run (`StreamExecution.runStream`).
_GROUP: Final = "spark.jobGroup.id"
# A query writes its batches one after the other, so of each sink the last one is enough; there is no bound on queries.
_MOST: Final = 1000


class _Write(NamedTuple):
    run: str
    data: int
    settings: object


_last: dict[tuple[str, str], _Write] = {}


def run_of(df: DataFrame) -> str | None:
    """Which run of a query this thread runs a batch of; None where that cannot be told, as with Spark Connect."""
    group = None if is_connect(df) else df.sparkSession.sparkContext.getLocalProperty(_GROUP)
    try:
        return str(uuid.UUID(group)) if group else None
    except ValueError:
        # A user's function may name a group of its own.
        return None


def check_repetition(run: str | None, path: str, job_id: str, df: DataFrame, settings: object) -> None:
    """Notes a write of a batch that is committed; refuses one that is another than the last of this run.

    Args:
        run: What `run_of` told.
        path: The destination.
        job_id: The job that the batch is.
        df: Its rows: what Spark takes for the same plan are the same.
        settings: How they are written.

    Raises:
        ConfigurationError: Other rows, or the same in another way, were written under this id in this run: these are
            not written.
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
    while len(_last) >= _MOST:
        del _last[next(iter(_last))]
    _last[path, job_id] = this


P = ParamSpec("P")
T = TypeVar("T")

_LOG = job_logger("committer.spark")


def _called_first(make: Callable[P, T]) -> Callable[P, T]:
    """Says so where Spark was given the function that makes the one to give it, and calls it with a batch."""

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
    """A function for ``writeStream.foreachBatch`` that writes every batch exactly once.

    It may be called from a function of one's own, with the batch's DataFrame or one made from it, and the number. What
    it raises then are errors of this library, or Spark's own.

    Args:
        uri: The destination: a URI, or a path that the session's JVM resolves, as for Spark's own writers.
        format: What the files are, as for the data source.
        partition_by: Names of partition columns, outermost first.
        mode: ``append`` or ``overwrite``, as for a batch write.
        compression: The codec, as the data source's option; the format's default when None.
        query: What tells this query from all others, and stays the same when it is started again; None takes Spark's
            own id. Spark Connect does not tell that id to the function, so there it must be given.
        sink: A name for this write, where one query writes several times into the same destination. Without it the
            second write of a batch would be taken for a repetition of the first, and is refused.
        options: Further options of the data source, by name. The choices of the commit that these do not make are
            those that `configure` was given, else those of a classic session's keys ``spark.hadoop.*``, which also say
            how to reach the store, but for secrets.

    Raises:
        ConfigurationError: An option cannot be honoured.
    """
    settings = _settings(uri, format, compression, partition_by, options)
    path = settings["path"]
    # The session resolves a relative path, and is first known in a batch: until then "/" stands in for its directory.
    options_of_batches(parse_options({**settings, "path": path if is_absolute(path) else f"/{path}"}))
    return _BatchSink(settings, _mode(mode), _name(query), sink)


def _settings(
    uri: Destination,
    format: str,
    compression: str | None,
    partition_by: str | Iterable[str] | None,
    options: Mapping[str, object] | None,
) -> dict[str, str]:
    """The options of the data source."""
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
    """What `foreach_batch` returns: may be pickled, as Spark Connect does."""

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
            written = (settings, self._mode)
            if asyncio.run(was_committed(options, job_id)):
                check_repetition(run_of(df), options.path, job_id, df, written)
                _LOG.info("batch %d of query %s is committed already, as job %s", batch_id, query, job_id)
            else:
                self._save(df, settings, job_id)
                check_repetition(run_of(df), options.path, job_id, df, written)
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
    """The id of the query that this thread runs a batch of."""
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
