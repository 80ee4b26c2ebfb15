"""Finds Hadoop's default file system in a process beside the driver's JVM.

The process inherits the JVM's environment, which names the configuration directories, and on Linux it can read the
JVM's command line, which holds the settings of ``--conf`` and of the session's builder.
"""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Final

from committer.options.hadoop import read_properties
from committer.options.table import DEFAULT_FS
from committer.options.values import SPARK_HADOOP

_LOCAL: Final = "file:///"
_DRIVERS: Final = {b"org.apache.spark.deploy.SparkSubmit", b"org.apache.spark.deploy.yarn.ApplicationMaster"}
# The second is Hadoop's older name.
_KEYS: Final = (DEFAULT_FS, "fs.default.name")
_SETTING: Final = re.compile(rf"{re.escape(SPARK_HADOOP)}(?:{'|'.join(map(re.escape, _KEYS))})[\s=:]+(\S+)")


def at_default(path: str, file_system: str) -> str:
    """Resolves an absolute path without scheme against a file system; unchanged if that is the local disk."""
    return path if file_system.startswith("file:") else f"{file_system.rstrip('/')}{path}"


def default_of_environment() -> str:
    """Finds `fs.defaultFS` on the JVM's command line, then in configuration files; else the local disk."""
    home = os.environ.get("SPARK_HOME", "")
    spark = os.environ.get("SPARK_CONF_DIR") or (str(Path(home, "conf")) if home else "")
    hadoop = os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR", "")
    arguments = _command_line()
    given = [Path(path) for flag, path in itertools.pairwise(arguments) if flag == "--properties-file"]
    files = [*given, *([Path(spark, "spark-defaults.conf")] if spark and not given else [])]
    for text in [*reversed(arguments), *itertools.chain.from_iterable(map(_lines_of, files))]:
        found = _SETTING.match(text.strip())
        if found is not None:
            return found[1]
    for directory in filter(None, (spark, hadoop)):
        properties = read_properties(Path(directory, "core-site.xml"))
        found_in_file = next(filter(None, map(properties.get, _KEYS)), None)
        if found_in_file:
            return found_in_file
    return _LOCAL


def _lines_of(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


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
