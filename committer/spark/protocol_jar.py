"""Finds the jar of the commit protocol: the package's own, or one that is built and cached. One serves every Spark."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from committer.errors import ConfigurationError, UnsupportedError
from committer.logs import job_logger
from committer.spark.jvm import building

OLDEST: Final = (3, 5)
NEWEST: Final = (4, 3)
"""First and last feature release of Spark that the jar was tried on."""

_SCALA: Final = ("2.12", "2.13")
_CORE: Final = re.compile(r"spark-core_([\d.]+)-(.+)\.jar")
_LOG: Final = job_logger("committer.spark")


def jar_path(*, spark_version: str | None = None, scala_version: str | None = None) -> str:
    """Returns the absolute path of the jar by which Spark's own writers commit: for ``spark.jars``, or ``--jars``.

    One jar serves Spark 3.5 to 4.3, with Scala 2.12 and 2.13; a newer Spark gets it too, with a warning. A wheel
    contains it. In a source checkout the first call builds it, in seconds, into ``lake-committer`` in the user's
    cache directory (``XDG_CACHE_HOME``, else ``~/.cache``), named by the digest of its sources.

    Args:
        spark_version: The cluster's version of Spark, as ``3.5.1``; this machine's when None.
        scala_version: The cluster's version of Scala, as ``2.12``; this machine's when None.

    Raises:
        UnsupportedError: The jar does not serve these versions. Or it has to be built, and there is no JDK.
        ConfigurationError: `spark_version` is no version.
    """
    scala, spark = versions_here() if spark_version is None else ("", spark_version)
    check_spark(spark, scala_version or scala, operation="jar_path")
    release = building.release()
    if building.release_of(building.PACKAGED) == release:
        return str(building.PACKAGED)
    try:
        kept = _kept(release)
        if building.release_of(kept) != release:
            building.build(kept)
    except (building.CannotBuildError, OSError) as error:
        raise UnsupportedError(
            f"the jar of the commit protocol did not come with this package and cannot be built: {error}",
            operation="jar_path",
            next_step="install a wheel, which contains it, or a JDK (javac); committer.spark.write and the data source"
            " need no jar",
        ) from error
    return str(kept)


def check_spark(spark: str, scala: str = "", *, operation: str) -> None:
    """Refuses versions that the jar does not serve, and warns once of a newer Spark; an empty text is unknown."""
    if scala and not scala.startswith(_SCALA):
        raise UnsupportedError(
            f"there is no jar of the commit protocol for Scala {scala}",
            operation=operation,
            next_step=f"use a Spark that was built with Scala {' or '.join(_SCALA)}",
        )
    if not spark:
        return
    feature = feature_of(spark, operation)
    if feature < OLDEST:
        raise UnsupportedError(
            f"there is no jar of the commit protocol for Spark {spark}",
            operation=operation,
            next_step=f"use Spark {_text(OLDEST)} or later",
        )
    if feature > NEWEST:
        _warn_of_newer(spark)


def feature_of(spark: str, operation: str) -> tuple[int, int]:
    """Returns the feature release of a version of Spark, as (4, 3)."""
    numbers = re.match(r"(\d+)\.(\d+)", spark)
    if numbers is None:
        raise ConfigurationError(
            f"{spark!r} is no version of Spark", operation=operation, next_step="give one such as 3.5.1"
        )
    return int(numbers[1]), int(numbers[2])


def untried(spark: str) -> str:
    """Returns the warning for a Spark that is newer than the releases that the jar was tried on; empty for others."""
    if feature_of(spark, "jar_path") <= NEWEST:
        return ""
    return f"the jar of the commit protocol was tried on Spark {_text(OLDEST)} to {_text(NEWEST)}, and this is {spark}"


@lru_cache(maxsize=64)
def _warn_of_newer(spark: str) -> None:
    _LOG.warning("%s: run `committer doctor --spark` before you rely on it", untried(spark))


def _text(feature: tuple[int, int]) -> str:
    return ".".join(map(str, feature))


def versions_here() -> tuple[str, str]:
    """Returns the versions of Scala and Spark of this machine; empty texts if there is no Spark."""
    jars = building.spark_jars()
    core = None if jars is None else _CORE.fullmatch(next(jars.glob("spark-core_*.jar")).name)
    return ("", "") if core is None else (core[1], core[2])


def _kept(release: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.path.abspath(cache), "lake-committer", f"committer-spark-{release}.jar")
