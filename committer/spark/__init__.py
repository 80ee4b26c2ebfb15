"""PySpark binding: a Python data source named ``committer``, and `write`, which returns the report of the commit.

    df.write.format("committer").option("partitionBy", "month,day").mode("append").save("file:///data/flights")

    report = committer.spark.write(df, "file:///data/flights", partition_by=["month", "day"], mode="error")

A user's own writers run in Spark's tasks through `foreach_partition`, or `task_attempt` in a plain
``foreachPartition``. Spark finds the data source through the top-level module ``pyspark_committer``, without
registration. Drivers and executors need this distribution with its extra ``spark``, and Java 17 or later.
Importing this package imports neither PySpark nor pyarrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from committer.advice import page
from committer.errors import UnsupportedError

if TYPE_CHECKING:
    from committer.spark.datasource import CommitterDataSource
    from committer.spark.for_each_batch import foreach_batch
    from committer.spark.own_writers import foreach_partition, task_attempt
    from committer.spark.protocol_jar import jar_path
    from committer.spark.protocol_session import configure, last_report
    from committer.spark.writing import write

__all__ = [
    "CommitterDataSource",
    "configure",
    "foreach_batch",
    "foreach_partition",
    "jar_path",
    "last_report",
    "task_attempt",
    "write",
]

_MODULES = {
    "CommitterDataSource": "datasource",
    "configure": "protocol_session",
    "foreach_batch": "for_each_batch",
    "foreach_partition": "own_writers",
    "jar_path": "protocol_jar",
    "last_report": "protocol_session",
    "task_attempt": "own_writers",
    "write": "writing",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found: object = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"pyspark", "pyarrow"}:
            raise
        raise missing_package(error.name or "pyspark") from error
    return found


def missing_package(name: str) -> UnsupportedError:
    """Returns the error for a missing package of the extra ``spark``, or a module that an older PySpark lacks."""
    if name.startswith("pyspark."):
        return without_data_sources()
    return UnsupportedError(
        f"the Spark binding needs {name.partition('.')[0]}, which is not installed for this Python",
        operation="import committer.spark",
        next_step="pip install 'lake-committer[spark]', on the driver and on every executor",
    )


def without_data_sources(operation: str = "import committer.spark") -> UnsupportedError:
    """Returns the error for PySpark 3.5, whose data sources cannot be written in Python."""
    from pyspark import __version__

    return UnsupportedError(
        f'format("committer") and what uses it need PySpark 4.0 or later, and this is {__version__}',
        operation=operation,
        next_step="make the session with committer.spark.configure(SparkSession.builder): df.write.parquet, other file"
        " formats, tables and committer.spark.write then commit by Spark's own writers. Through Spark"
        f" Connect df.write does, on a server that has the commit protocol's jar ({page('spark.md#spark-connect')})",
    )
