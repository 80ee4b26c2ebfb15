"""``committer doctor --spark``: whether a JVM of Spark's, and Python as that tells it, reach one place."""

from __future__ import annotations

import importlib

from committer.cli.doctor import shown
from committer.cli.exits import Exit
from committer.cli.output import Answer, line
from committer.cli.session import Common
from committer.errors import ConfigurationError, UnsupportedError
from committer.paths import StorePath


def examine_with_spark(uri: str, common: Common) -> Answer:
    """Examines a destination by a Spark session of its own; exit code 1 when a write would be refused. Blocks.

    Raises:
        ConfigurationError: Options are given that a session of Spark's does not know.
        UnsupportedError: PySpark is not installed.
    """
    if common.storage or common.option:
        raise ConfigurationError(
            "--storage and --option reach no session of Spark's",
            operation="doctor",
            next_step="set spark.hadoop.committer.storage.NAME, or the option's key after spark.hadoop., in"
            " spark-defaults.conf",
        )
    try:
        importlib.import_module("pyspark")
        examining = importlib.import_module("committer.spark.examining")
        places = importlib.import_module("committer.spark.default_file_system")
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"{error.name} is not installed for this Python",
            operation="doctor",
            next_step="pip install 'lake-committer[spark]'",
        ) from error
    # As the session takes it; a relative path is of this machine.
    resolved = places.at_default(uri, places.default_of_environment()) if uri.startswith("/") else uri
    destination = StorePath.of(resolved)
    checks = examining.examine(destination)
    failed = any(check.verdict == "failed" for check in checks)
    data: dict[str, object] = {"destination": str(destination), "ok": not failed, "checks": checks}
    parts = [line(f"Spark's own writers at {destination}", "bold"), line(""), *shown(checks)]
    return Answer(data, parts, Exit.FAILED if failed else Exit.OK)
