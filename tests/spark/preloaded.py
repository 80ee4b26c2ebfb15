"""`python -m tests.spark.preloaded`: Spark's daemon of Python workers, with what every worker imports loaded before it forks.

A worker whose task failed is thrown away, and each new one imports for a second or more: a test of a write that fails would
spend most of its time so. Without threads, which no fork takes along: what is loaded here may start none.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import pandas  # noqa: ICN001, F401
import pyarrow.parquet  # noqa: F401
import pyspark.sql.worker.write_into_data_source
import pyspark.worker  # noqa: F401
from pyspark import daemon

import committer.api.cleanup
import committer.spark.datasource  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
