"""What the JVM of a classic session says of a destination: by its own file system, and with its own rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from committer.file_names import working_directory_in
from committer.paths import StorePath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_OF_S3: Final = frozenset({"s3", "s3a"})


def missing_client(df: DataFrame, scheme: str) -> str:
    """Why the JVM of a session cannot write for this package to URIs of a scheme; empty where it can."""
    from py4j.protocol import Py4JJavaError

    try:
        found = _jvm(df).org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, _configuration(df)).getName()
    except Py4JJavaError as error:
        return f"this session's JVM has no client for {scheme}://: {error.java_exception.getMessage()}"
    if scheme in _OF_S3 and found != _S3A:
        return f"this session's JVM goes to {scheme}:// by {found}, and not by S3A"
    return ""


def is_used(df: DataFrame, destination: StorePath) -> bool:
    """Whether anything is at a destination but directories of jobs: one listing."""
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
