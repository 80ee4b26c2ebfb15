"""Telling a second write of a micro-batch, which has no name of its own, from a repetition of the first.

Both ask for a job of the same id, which committed. Spark repeats a batch in a new run of its query only: a batch that
fails ends the run. So within one run another write is none of Spark's repetitions; it is one of the user's function, or
a second write that would be lost in silence.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from committer.errors import ConfigurationError
from committer.spark.sessions import is_connect

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
