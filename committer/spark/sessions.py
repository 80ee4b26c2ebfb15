"""Spark sessions: their kind, their Python interpreters, and the JVM that a driver starts.

A module that is missing there is missed before any code of this library runs, which could carry an error as data: Spark
shows a traceback that ends in ``ModuleNotFoundError``, or cannot find the data source. What goes through `write`,
`foreach_partition` and `foreach_batch` is told as what it is.

Two interpreters take part. Functions run the one that ``PYSPARK_PYTHON`` named when the driver started, else the
``python3`` of each machine's PATH. A data source that Spark found by itself runs ``PYSPARK_DRIVER_PYTHON``, where that
is set, in its tasks too; it may well be no interpreter (``jupyter``) or the path of another machine. One that was
registered runs what functions run.

``spark.jars`` of a session's builder takes the place of what ``spark-defaults.conf`` says, and is itself replaced by
``--jars`` of PYSPARK_SUBMIT_ARGS. So the user's are looked for in both.
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
    from pyspark.sql import DataFrame


_NOT_FOUND: Final = re.compile(
    # The last line of a traceback; what Spark raises where it looks for Arrow before it is needed.
    r"^(?:ModuleNotFoundError: No module named '(?P<module>[^']+)'|.*\[PACKAGE_NOT_INSTALLED\] (?P<package>\w+) )",
    re.MULTILINE,
)
# Java's words, of the machine that runs a task or of the driver's.
_NO_INTERPRETER: Final = re.compile(r'Cannot run program "(?P<python>[^"\n]+)"')
# This distribution, and what it and its extra `spark` bring along. A module that the caller's own function misses is
# for Spark's traceback to show.
_OURS: Final = frozenset(
    {"committer", "pyspark_committer", "aiohttp", "aiolimiter", "anyio", "msgspec", "pyarrow", "pandas"}
)
_COMMIT_ACTION: Final = "commit"
"""How Spark's error of a data source's `commit` begins its parameter ``action``."""


def is_connect(df: DataFrame) -> bool:
    """Whether a DataFrame is one of a Spark Connect client, which has neither a SparkContext nor a Java process.

    Told by its class alone: its attributes are not there to be asked.
    """
    return type(df).__module__.startswith("pyspark.sql.connect.")


def is_stopped(df: DataFrame) -> bool:
    """Whether the session of a DataFrame was stopped; False where that cannot be asked. No Spark job."""
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
    """What the option ``caseSensitive`` of a write is by a DataFrame's session, whose setting the writer cannot see."""
    return df.sparkSession.conf.get("spark.sql.caseSensitive", "false") or "false"


def described_as(path: str) -> str:
    """What Spark shows beside the jobs of a write."""
    return f"committer.spark.write to {path}"


@contextmanager
def described(df: DataFrame, description: str, group: str) -> Iterator[None]:
    """Names the jobs of Spark's that the block starts, and their group, for Spark's UI and ``cancelJobGroup``.

    What the user named stays. Spark Connect has neither.
    """
    names = {"spark.job.description": description, "spark.jobGroup.id": group}
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
    """The error behind one of Spark's that says that its Python workers, or a module of theirs, are not to be had.

    None for any other.

    Nothing was published by then: what tasks wrote, a job commit would have had to follow.
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
    """Whether this is Spark's error of a data source's `commit`, after which nothing is certain."""
    ask = getattr(error, "getMessageParameters", None)
    parameters = ask() if ask is not None else None
    return str((parameters or {}).get("action", "")).startswith(_COMMIT_ACTION)


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
