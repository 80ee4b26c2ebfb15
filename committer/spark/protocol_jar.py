"""The jar of the commit protocol: the one that came with the package, else one that is built here and kept."""

from __future__ import annotations

import os
from pathlib import Path

from committer.errors import UnsupportedError
from committer.spark.jvm import building


def jar_path() -> str:
    """The jar by which Spark's own writers commit through this package: for ``spark.jars``, or ``--jars``.

    A wheel that was built where a JDK is brings it. Elsewhere it is built at the first call, which takes some seconds,
    into ``lake-committer`` in the user's cache directory (``XDG_CACHE_HOME``, else ``~/.cache``), by the digest of its
    sources and the version of Spark.

    Returns:
        An absolute path.

    Raises:
        UnsupportedError: It has to be built, and there is no JDK of Java 17 or later, or no Spark.
    """
    release = building.release()
    if building.release_of(building.PACKAGED) == release:
        return str(building.PACKAGED)
    try:
        kept = _kept(building.spark_version(building.spark_jars()), release)
        if building.release_of(kept) != release:
            building.build(kept)
    except (building.CannotBuildError, OSError) as error:
        raise UnsupportedError(
            f"the jar of the commit protocol did not come with this package, and cannot be built: {error}",
            operation="jar_path",
            next_step="install a JDK of Java 17 or later (javac) beside PySpark, or a wheel that was built where both "
            "are; committer.spark.write and the data source need no jar",
        ) from error
    return str(kept)


def _kept(spark: str, release: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.path.abspath(cache), "lake-committer", f"committer-spark_{spark}-{release}.jar")
