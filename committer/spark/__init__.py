"""PySpark binding: a Python data source named ``committer``.

    df.write.format("committer").option("partitionBy", "month,day").mode("append").save("file:///data/flights")

Spark finds the data source by itself through the top-level module ``pyspark_committer``; nothing has to be registered.
Drivers and executors need this distribution with its extra ``spark``, and Java 17 or later (`committer.spark.java`).
Importing this package imports neither PySpark nor pyarrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from committer.errors import UnsupportedError

if TYPE_CHECKING:
    from committer.spark.datasource import CommitterDataSource
    from committer.spark.streaming import foreach_batch

__all__ = ["CommitterDataSource", "foreach_batch"]

_HOMES = {"CommitterDataSource": "datasource", "foreach_batch": "streaming"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"committer.spark.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"pyspark", "pyarrow"}:
            raise
        raise missing_package(error.name or "pyspark") from error


def missing_package(name: str) -> UnsupportedError:
    """The error that says how to install what the extra ``spark`` brings."""
    return UnsupportedError(
        f"the Spark binding needs {name.partition('.')[0]}, which is not installed for this Python",
        operation="import committer.spark",
        next_step="pip install 'lake-committer[spark]', on the driver and on every executor",
    )
