"""What the Spark drivers of these tests share: their sessions, and how they are told what to do.

A driver is a script of its own, whose functions Spark ships by value. It reads a scenario a line from stdin, and answers
a line on stdout (`tests.spark.cluster.Driver`). Nothing here is called in an executor, which has the library and not
its tests.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

_METRICS: Final = ("number of written files", "written output", "number of dynamic part")

ON_THIS_MACHINE: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

ON_A_CLUSTER: Final[Mapping[str, str]] = {
    **ON_THIS_MACHINE,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.cores.max": "4",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
    # How long Spark leaves a loser's Python process alone before it kills it.
    "spark.python.task.killTimeout": "30s",
}


def speculating(master: str) -> dict[str, str]:
    """Copies of slow tasks, where there is a cluster to run them."""
    return {
        "spark.speculation": str("spark://" in master).lower(),
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.2",
    }


def event_log() -> dict[str, str]:
    """Every event, as a history server would show it, in a directory `events` of this one."""
    events = Path.cwd() / "events"
    events.mkdir(exist_ok=True)
    return {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}


def builder(master: str, name: str, settings: Mapping[str, str]) -> SparkSession.Builder:
    """A session to be."""
    building = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        building = building.config(key, value)
    return building


def started(building: SparkSession.Builder, level: str = "ERROR") -> SparkSession:
    """The session, which logs from a level on; SPARK_LOG_LEVEL says another."""
    session = building.getOrCreate()
    session.sparkContext.setLogLevel(os.environ.get("SPARK_LOG_LEVEL", level))
    return session


def metrics_of_latest(spark: SparkSession) -> dict[str, str]:
    """Returns Spark's metrics of the latest write: files, bytes and partitions. Rows are those of every node of the plan."""
    store = spark._jsparkSession.sharedState().statusStore()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    executions = [store.executionsList().apply(number) for number in range(store.executionsList().size())]
    latest = max(executions, key=lambda one: one.executionId())
    values = store.executionMetrics(latest.executionId())
    metrics = [latest.metrics().apply(number) for number in range(latest.metrics().size())]
    return {
        one.name(): values.apply(one.accumulatorId())
        for one in metrics
        if one.name() in _METRICS and values.contains(one.accumulatorId())
    }


def serve(spark: SparkSession, scenarios: Iterable[Callable[..., Any]]) -> None:
    """Runs scenarios by their names until stdin ends, one a line, and tells what each returned or how it failed."""
    by_name = {scenario.__name__: scenario for scenario in scenarios}
    print(json.dumps({"told": "ready"}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"told": by_name[command.pop("scenario")](spark, **command)}
        except Exception:
            answer = {"failed": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
    spark.stop()
