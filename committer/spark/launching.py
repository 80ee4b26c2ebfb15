"""The JVM that a PySpark driver is about to start, or has: how it gets one more jar, and the user's own all the same.

``spark.jars`` of a session's builder takes the place of what ``spark-defaults.conf`` says, and is itself replaced by
``--jars`` of PYSPARK_SUBMIT_ARGS. So the user's are looked for in both.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

JARS: Final = "spark.jars"

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_SHELL: Final = "pyspark-shell"
_PROPERTY: Final = re.compile(r"\s*([^\s=:#]+)(?:\s*[=:]\s*|\s+)(.*)")


def running_gateway() -> Any:
    """The connection with the JVM of this process, if there is one: spark-submit started it, or an earlier session."""
    from pyspark import SparkContext

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()
    return SparkContext._gateway


def with_jar(given: str | None, own: str) -> str:
    """What ``spark.jars`` of a builder has to be before the JVM starts: the user's jars and one more.

    Where PYSPARK_SUBMIT_ARGS gives ``--jars``, which a builder's setting cannot add to, it is given the jar too.

    Args:
        given: What the builder says already.
        own: The jar.
    """
    arguments = shlex.split(os.environ.get(_ARGUMENTS, ""))
    submitted = _submitted(arguments, "--jars", JARS)
    if submitted is not None:
        jars = _joined([submitted, given or ""], own)
        shell = [_SHELL] if arguments[-1:] == [_SHELL] else []
        rest = arguments[: len(arguments) - len(shell)]
        # The last one counts.
        os.environ[_ARGUMENTS] = shlex.join([*rest, "--jars", jars, *shell])
        return jars
    return _joined([given or default_of(JARS)], own)


def _joined(lists: Iterable[str], own: str) -> str:
    jars = [jar.strip() for text in lists for jar in text.split(",") if jar.strip()]
    # The user may name another copy of it.
    return ",".join([*(jar for jar in jars if os.path.basename(jar) != os.path.basename(own)), own])


def _submitted(arguments: list[str], option: str, setting: str) -> str | None:
    """What the arguments of spark-submit say: the option of a setting before ``--conf``, the last one of each."""
    own = conf = None
    for position, argument in enumerate(arguments):
        key, equals, inline = argument.partition("=")
        value = inline if equals else "".join(arguments[position + 1 : position + 2])
        if key == option:
            own = value
        elif key in ("--conf", "-c") and value.startswith(f"{setting}="):
            conf = value.partition("=")[2]
    return conf if own is None else own


def master_named() -> str:
    """The master that PYSPARK_SUBMIT_ARGS, else ``spark-defaults.conf``, names; empty where neither does."""
    arguments = shlex.split(os.environ.get(_ARGUMENTS, ""))
    return _submitted(arguments, "--master", "spark.master") or default_of("spark.master")


def default_of(key: str) -> str:
    """What ``spark-defaults.conf`` says of a setting; empty where that, or the file, is not there."""
    from pyspark.find_spark_home import _find_spark_home

    place = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    try:
        lines = Path(place, "spark-defaults.conf").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    found = [match[2] for match in map(_PROPERTY.match, lines) if match and match[1] == key]
    return found[-1].strip() if found else ""
