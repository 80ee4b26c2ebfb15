"""Spark sessions: their kind, their Python interpreters, the JVM that a driver starts, and its file systems.

Functions run in the interpreter that ``PYSPARK_PYTHON`` named when the driver started, else in ``python3`` of each
machine's PATH; so does a registered data source. A data source that Spark found by itself runs in
``PYSPARK_DRIVER_PYTHON`` if set, in tasks too, even if that is no interpreter (``jupyter``) or another machine's
path.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from committer.errors import InvalidPathError, UnsupportedError
from committer.file_names import working_directory_in
from committer.options.hadoop import read_properties
from committer.options.table import DEFAULT_FS
from committer.options.values import SPARK_HADOOP
from committer.paths import Destination, StorePath
from committer.spark.options import path_option

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
    given: list[str] = []
    with suppress(Exception):  # a platform may forbid it
        if not is_connect(df):
            context = df.sparkSession.sparkContext
            for key, value in names.items():
                if context.getLocalProperty(key) is None:
                    context.setLocalProperty(key, value)
                    given.append(key)
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


@contextmanager
def telling_what_workers_miss() -> Iterator[None]:
    """Raises the error of `missing_in_worker`, if there is one, for an error of Spark in the block."""
    try:
        yield
    except Exception as error:
        missing = missing_in_worker(error)
        if missing is None:
            raise
        raise missing from error


def _in_commit(error: BaseException) -> bool:
    """Reports whether this is Spark's error of a data source's `commit`, whose outcome is unknown."""
    ask = getattr(error, "getMessageParameters", None)
    parameters = ask() if ask is not None else None
    return str((parameters or {}).get("action", "")).startswith(_COMMIT_ACTION)


JARS: Final = "spark.jars"

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_SHELL: Final = "pyspark-shell"
_DEFAULTS: Final = "spark-defaults.conf"
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
    return _property_in(Path(place, _DEFAULTS), key)


def _property_in(file: Path, *keys: str) -> str:
    """Returns the last value of any of the keys in a file of Spark's settings; empty if there is none."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    found = [match[2] for match in map(_PROPERTY.match, lines) if match and match[1] in keys]
    return found[-1].strip() if found else ""


_LOCAL: Final = "file:///"
_DRIVERS: Final = {b"org.apache.spark.deploy.SparkSubmit", b"org.apache.spark.deploy.yarn.ApplicationMaster"}
# The second is Hadoop's older name.
_DEFAULT_FS: Final = (DEFAULT_FS, "fs.default.name")
_SETTINGS_OF_DEFAULT_FS: Final = tuple(f"{SPARK_HADOOP}{key}" for key in _DEFAULT_FS)


def at_default(path: str, file_system: str) -> str:
    """Resolves an absolute path without scheme against a file system; unchanged if that is the local disk."""
    return path if file_system.startswith("file:") else f"{file_system.rstrip('/')}{path}"


def default_of_environment() -> str:
    """Finds Hadoop's default file system (`fs.defaultFS`) in a process beside the driver's JVM; else the local disk.

    The process inherits the JVM's environment, which names the configuration directories, and on Linux it can read
    the JVM's command line, which holds the settings of ``--conf`` and of the session's builder.
    """
    home = os.environ.get("SPARK_HOME", "")
    spark = os.environ.get("SPARK_CONF_DIR") or (str(Path(home, "conf")) if home else "")
    hadoop = os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR", "")
    arguments = _command_line()
    for text in reversed(arguments):
        key, _, value = text.partition("=")
        if key in _SETTINGS_OF_DEFAULT_FS:
            return value
    given = [Path(path) for flag, path in itertools.pairwise(arguments) if flag == "--properties-file"]
    for file in given or ([Path(spark, _DEFAULTS)] if spark else []):
        found = _property_in(file, *_SETTINGS_OF_DEFAULT_FS)
        if found:
            return found
    for directory in filter(None, (spark, hadoop)):
        properties = read_properties(Path(directory, "core-site.xml"))
        found = next(filter(None, map(properties.get, _DEFAULT_FS)), "")
        if found:
            return found
    return _LOCAL


def _command_line() -> list[str]:
    """Reads the command line of the driver JVM that started this process; empty if that is not possible."""
    process = os.getppid()
    try:
        while process > 1:
            place = Path("/proc", str(process))
            arguments = place.joinpath("cmdline").read_bytes().split(b"\0")
            if not _DRIVERS.isdisjoint(arguments):
                return [os.fsdecode(argument) for argument in arguments]
            # proc(5): the program's name, in parentheses, may itself contain parentheses and blanks.
            process = int(place.joinpath("stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return []


# -- file systems of the session's JVM --------------------------------------------------------------------------------

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:")

_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_OF_S3: Final = frozenset({"s3", "s3a"})


def resolved_path(df: DataFrame, uri: Destination) -> str:
    """Resolves a destination as Spark's own writers do.

    The session's JVM resolves a path without scheme by ``fs.defaultFS`` and its working directory. A server of
    Spark Connect names the resolved path in its error about a missing file: one request, no Spark job.
    """
    text = path_option(uri)
    if not text or _SCHEME.match(text):
        return text
    if is_connect(df):
        found = _told_by_server(df, text)
    else:
        hadoop, configuration = _jvm(df).org.apache.hadoop.fs, _configuration(df)
        path = hadoop.Path(text)
        # Only a relative path needs the client of the file system: the JVM may lack its jar.
        top = hadoop.Path("/") if path.isAbsolute() else path.getFileSystem(configuration).getWorkingDirectory()
        found = str(path.makeQualified(hadoop.FileSystem.getDefaultUri(configuration), top).toString())
    if not found.startswith("file:"):
        return found
    return text if text.startswith("/") else found.removeprefix("file:")


def _told_by_server(df: DataFrame, text: str) -> str:
    absent = f"committer-{uuid.uuid4()}"
    cause: Exception | None = None
    try:
        df.sparkSession.read.format("text").load(f"{text.rstrip('/')}/{absent}").schema  # noqa: B018 - asks the server
    except Exception as error:
        found = re.search(rf"\[PATH_NOT_FOUND\].*?: (\S.*?)/{absent}", str(error), re.DOTALL)
        if found is not None:
            return found[1]
        cause = error
    why = f": {type(cause).__name__}" if cause is not None else ""
    raise InvalidPathError(
        f"the server of Spark Connect did not report to which file system {text} belongs{why}",
        operation="write",
        path=text,
        next_step=f"give the URI: file://{text} for the server's own disk, hdfs://HOST:PORT{text} for a cluster",
        causes=[cause] if cause is not None else (),
    ) from cause


def default_file_system(session: SparkSession) -> str:
    """Returns the URI of the default file system (`fs.defaultFS`) of a classic session's JVM."""
    hadoop = session._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    configuration = session._jsparkSession.sessionState().newHadoopConf()
    return str(hadoop.FileSystem.getDefaultUri(configuration).toString())


def missing_client(df: DataFrame, scheme: str) -> str:
    """Returns why the session's JVM cannot write to a scheme; empty if it can."""
    from py4j.protocol import Py4JJavaError

    try:
        found = _jvm(df).org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, _configuration(df)).getName()
    except Py4JJavaError as error:
        return f"this session's JVM has no client for {scheme}://: {error.java_exception.getMessage()}"
    if scheme in _OF_S3 and found != _S3A:
        return f"this session's JVM goes to {scheme}:// by {found}, and not by S3A"
    return ""


def is_used(df: DataFrame, destination: StorePath) -> bool:
    """Reports whether a destination holds anything but directories of jobs: one listing."""
    from py4j.protocol import Py4JJavaError

    path = _jvm(df).org.apache.hadoop.fs.Path(str(destination))
    try:
        children = path.getFileSystem(_configuration(df)).listStatus(path)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == "java.io.FileNotFoundException":
            return False
        raise
    return any(not working_directory_in(child.getPath().getName()) for child in children)


def _jvm(df: DataFrame) -> Any:
    return df.sparkSession.sparkContext._jvm


def _configuration(df: DataFrame) -> Any:
    return df.sparkSession._jsparkSession.sessionState().newHadoopConf()
