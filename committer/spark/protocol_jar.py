"""Finds the jar of the commit protocol: the package's own, or one that is built and cached."""

from __future__ import annotations

import os
from pathlib import Path

from committer.errors import UnsupportedError
from committer.spark.jvm import building


def jar_path() -> str:
    """Returns the absolute path of the jar by which Spark's own writers commit: for ``spark.jars``, or ``--jars``.

    A wheel built with a JDK contains the jar, for one feature release of Spark (as 4.3). Otherwise the first call
    builds it, which takes some seconds, into ``lake-committer`` in the user's cache directory (``XDG_CACHE_HOME``,
    else ``~/.cache``), named by the digest of its sources and the version of Spark.

    Raises:
        UnsupportedError: The jar has to be built, and there is no JDK of Java 17 or later, or no Spark.
    """
    release = building.release()
    brought = building.release_of(building.PACKAGED) == release
    compiled_for = building.compiled_for(building.PACKAGED) if brought else ""
    try:
        running = building.spark_version(building.spark_jars())
    except building.CannotBuildError as error:
        if brought:
            return str(building.PACKAGED)
        raise _no_jar(error) from error
    if brought and building.serves(compiled_for, running):
        return str(building.PACKAGED)
    try:
        kept = _kept(running, release)
        if building.release_of(kept) != release:
            building.build(kept)
    except (building.CannotBuildError, OSError) as error:
        raise _no_jar(error, f" for Spark {running}, only for {compiled_for}," if brought else "") from error
    return str(kept)


def _no_jar(error: Exception, which: str = "") -> UnsupportedError:
    return UnsupportedError(
        f"the jar of the commit protocol did not come with this package{which} and cannot be built: {error}",
        operation="jar_path",
        next_step="install a JDK of Java 17 or later (javac) beside PySpark, or a wheel that was built where both are"
        " (for this version of Spark); committer.spark.write and the data source need no jar",
    )


def _kept(spark: str, release: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.path.abspath(cache), "lake-committer", f"committer-spark_{spark}-{release}.jar")
