"""Overwrites a table by Spark's own writers, and kills its own driver at one moment. Run by test_protocol_failures.py."""

from __future__ import annotations

import os
import signal
import sys

from pyspark.sql import SparkSession

from committer.events import JobEvent
from committer.spark import configure
from committer.spark.examining import configure_environment

STAGES = {
    "before the decision": "job_stage_load_manifests",
    "in the middle": "job_stage_rename_files",
    "after the outcome": "job_stage_end_job",
}


def main(when: str, table: str) -> None:
    configure_environment()
    pids: list[int] = []

    def listen(event: JobEvent) -> None:
        if event.kind in {"advanced", "stage_completed"} and event.stage == STAGES[when]:
            for pid in (*pids, os.getpid()):
                os.kill(pid, signal.SIGKILL)

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    )
    spark = configure(builder, progress=listen).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    pids.append(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    frame = spark.range(100, 130, 1, 2).selectExpr("id", "id % 3 p")
    frame.write.partitionBy("p").mode("overwrite").parquet(table)
    raise SystemExit("the write ended, and should have been killed")


if __name__ == "__main__":
    main(*sys.argv[1:])
