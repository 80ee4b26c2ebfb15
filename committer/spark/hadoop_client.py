"""Asks the JVM of a classic session about a destination, with its own file systems and rights."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, Final

from committer.errors import InvalidPathError
from committer.file_names import working_directory_in
from committer.paths import Destination, StorePath
from committer.spark.options import path_option
from committer.spark.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
