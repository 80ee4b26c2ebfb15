"""Lets Spark find the data source ``committer`` by itself.

Spark's Python data source discovery imports every top-level module named ``pyspark_*`` and registers its
``DefaultSource``. The data source itself is `committer.spark.CommitterDataSource`.
"""

from committer.spark import CommitterDataSource as DefaultSource

__all__ = ["DefaultSource"]
