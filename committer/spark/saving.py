"""Saving through the data source, also where Spark does not find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from committer.spark.datasource import CommitterDataSource
from committer.spark.sessions import missing_in_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriter, SparkSession


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
