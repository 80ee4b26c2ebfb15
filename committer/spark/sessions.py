"""Spark sessions: their kind, their Python interpreters, and the JVM that a driver starts.

Functions run in the interpreter that ``PYSPARK_PYTHON`` named when the driver started, else in ``python3`` of each
machine's PATH; so does a registered data source. A data source that Spark found by itself runs in
``PYSPARK_DRIVER_PYTHON`` if set, in tasks too, even if that is no interpreter (``jupyter``) or another machine's
path.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from committer.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NOT_FOUND: Final = re.compile(
    # The last line of a traceback; Spark's error where it checks for Arrow in advance.
    r"^(?:ModuleNotFoundError: No module named '(?P<module>[^']+)'|.*\[PACKAGE_NOT_INSTALLED\] (?P<package>\w+) )",
    re.MULTILINE,
)
# Java's message, from the machine of a task or from the driver's.
_NO_INTERPRETER: Final = re.compile(r'Cannot run program "(?P<python>[^"\n]+)"')
# This distribution, and what it and its extra `spark` install. Any other missing module belongs to the caller's
# function.
_OURS: Final = frozenset(
    {"committer", "pyspark_committer", "aiohttp", "aiolimiter", "anyio", "msgspec", "pyarrow", "pandas"}
)
_COMMIT_ACTION: Final = "commit"
"""Prefix of the parameter ``action`` in Spark's error of a data source's `commit`."""


def is_connect(of_spark: DataFrame | SparkSession) -> bool:
    """Reports whether a DataFrame or session is a Spark Connect client's, which has no SparkContext and no JVM."""
    return type(of_spark).__module__.startswith("pyspark.sql.connect.")


def is_stopped(df: DataFrame) -> bool:
    """Reports whether a DataFrame's session was stopped; False if unknown. No Spark job."""
    session = df.sparkSession
    if is_connect(df):
        return bool(getattr(session, "is_stopped", False))
    java = session.sparkContext._jsc
    if java is None:
        return True
    try:
        return bool(java.sc().isStopped())
    except Exception:  # a platform may forbid it
        return False


def case_sensitive(df: DataFrame) -> str:
    """Returns the session's value for the option ``caseSensitive``, because the writer cannot read the session."""
    return df.sparkSession.conf.get("spark.sql.caseSensitive", "false") or "false"


@contextmanager
def described(df: DataFrame, path: str, group: str) -> Iterator[None]:
    """Describes the Spark jobs of a write to `path`, unless the user described them; not with Spark Connect."""
    names = {"spark.job.description": f"committer.spark.write to {path}", "spark.jobGroup.id": group}
    given: dict[str, str] = {}
    try:
        if not is_connect(df):
            context = df.sparkSession.sparkContext
            given = {key: value for key, value in names.items() if context.getLocalProperty(key) is None}
            for key, value in given.items():
                context.setLocalProperty(key, value)
    except Exception:  # a platform may forbid it
        given = {}
    try:
        yield
    finally:
        for key in given:
            df.sparkSession.sparkContext.setLocalProperty(key, None)  # type: ignore[arg-type]


def missing_in_worker(error: BaseException) -> UnsupportedError | None:
    """Returns the error if Spark's Python workers lack an interpreter or one of our modules; else None.

    The module is missing before any code of this library runs, so Spark's traceback is the only source. Nothing
    was published: a job commit comes after all tasks.
    """
    text = str(error)
    interpreter = _NO_INTERPRETER.search(text)
    if interpreter is not None and not _in_commit(error):
        return UnsupportedError(
            f"Spark cannot start the Python interpreter {interpreter['python']}",
            operation="run a Spark task",
            next_step="let PYSPARK_PYTHON name, before the driver starts, an interpreter that has the same path on"
            " every machine, and `pip install 'lake-committer[spark]'`",
        )
    names = [match["module"] or match["package"].lower() for match in _NOT_FOUND.finditer(text)]
    if not names or names[-1].partition(".")[0] not in _OURS or _in_commit(error):
        return None
    return UnsupportedError(
        f"Spark's Python workers cannot import {names[-1]}: their interpreter is not the one of this process, or lacks"
        " what this one has",
        operation="run a Spark task",
        next_step="pip install 'lake-committer[spark]' on every executor, for the interpreter that PYSPARK_PYTHON named"
        " when the driver started (python3 of the PATH if none did), or let it name one that has it",
    )


def _in_commit(error: BaseException) -> bool:
    """Reports whether this is Spark's error of a data source's `commit`, whose outcome is unknown."""
    ask = getattr(error, "getMessageParameters", None)
    parameters = ask() if ask is not None else None
    return str((parameters or {}).get("action", "")).startswith(_COMMIT_ACTION)


JARS: Final = "spark.jars"

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_SHELL: Final = "pyspark-shell"
_PROPERTY: Final = re.compile(r"\s*([^\s=:#]+)(?:\s*[=:]\s*|\s+)(.*)")


def running_gateway() -> Any:
    """Returns the connection to a running JVM, started by spark-submit or an earlier session; else None."""
    from pyspark import SparkContext

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()
    return SparkContext._gateway


def with_jar(given: str | None, own: str) -> str:
    """Returns ``spark.jars`` for a builder: the user's jars (`given`, else the defaults) and our own.

    A builder's ``spark.jars`` replaces that of ``spark-defaults.conf``, and ``--jars`` in PYSPARK_SUBMIT_ARGS
    replaces the builder's. So a ``--jars`` there gets the jar too.
    """
    arguments = shlex.split(os.environ.get(_ARGUMENTS, ""))
    submitted = _submitted(arguments, "--jars", JARS)
    if submitted is not None:
        jars = _joined([submitted, given or ""], own)
        shell = [_SHELL] if arguments[-1:] == [_SHELL] else []
        rest = arguments[: len(arguments) - len(shell)]
        # The last --jars wins.
        os.environ[_ARGUMENTS] = shlex.join([*rest, "--jars", jars, *shell])
        return jars
    return _joined([given or default_of(JARS)], own)


def _joined(lists: Iterable[str], own: str) -> str:
    jars = [jar.strip() for text in lists for jar in text.split(",") if jar.strip()]
    # The user may name another copy of our jar.
    return ",".join([*(jar for jar in jars if os.path.basename(jar) != os.path.basename(own)), own])


def _submitted(arguments: list[str], option: str, setting: str) -> str | None:
    """Returns a setting from spark-submit's arguments: the option before ``--conf``, the last of each."""
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
    """Returns the master in PYSPARK_SUBMIT_ARGS, else in ``spark-defaults.conf``; else empty."""
    arguments = shlex.split(os.environ.get(_ARGUMENTS, ""))
    return _submitted(arguments, "--master", "spark.master") or default_of("spark.master")


def default_of(key: str) -> str:
    """Returns a setting in ``spark-defaults.conf``; empty if the setting or the file is missing."""
    from pyspark.find_spark_home import _find_spark_home

    place = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    try:
        lines = Path(place, "spark-defaults.conf").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    found = [match[2] for match in map(_PROPERTY.match, lines) if match and match[1] == key]
    return found[-1].strip() if found else ""
