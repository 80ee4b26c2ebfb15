"""Python data source `committer`.

Spark runs it in a process that gets only the options of the write. The process inherits the JVM's environment,
which names the configuration directories, and on Linux it can read the JVM's command line, which holds the
settings of ``--conf`` and of the session's builder.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from committer.errors import UnsupportedError
from committer.options.config import CommitterConfig
from committer.options.hadoop import read_properties
from committer.options.table import DEFAULT_FS
from committer.options.values import SPARK_HADOOP
from committer.paths import StorePath
from committer.spark import missing_package
from committer.spark.batch_writer import CommitterWriter, IgnoringWriter, set_up
from committer.spark.carried_errors import to_caller
from committer.spark.modes import mode_of_write
from committer.spark.options import is_absolute, parse_options
from committer.spark.schema import plan_files
from committer.spark.session_settings import as_option, changed, roots_beside, with_choices
from committer.spark.stream_writer import CommitterStreamWriter, stream_writer

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


class CommitterDataSource(DataSource):
    """``df.write.format("committer")``. Writes only: the result is plain files that ``spark.read`` reads.

    Attributes:
        choices: Commit options for fields that the write's options do not set, as option texts.
        file_system: URI of the default file system that `configure` found; empty if it was not asked.
    """

    choices: ClassVar[Mapping[str, str]] = {}
    file_system: ClassVar[str] = ""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "committer"

    def schema(self) -> StructType:
        """Refuses to read."""
        raise self._reads_nothing()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Refuses to read."""
        raise self._reads_nothing()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Refuses to read."""
        raise self._reads_nothing()

    def _reads_nothing(self) -> UnsupportedError:
        given = {key.lower(): value for key, value in self.options.items()}
        kind, path = given.get("format", "parquet"), given.get("path", "...")
        return UnsupportedError(
            'format("committer") only writes: what it leaves are plain files',
            operation="read",
            path=path,
            next_step=f'read them by their own format: spark.read.format("{kind}").load("{path}"); a stream with'
            f' spark.readStream.format("{kind}")',
        )

    def writer(self, schema: StructType, overwrite: bool) -> CommitterWriter | IgnoringWriter:
        """Checks all that needs no data, then sets the job up.

        Args:
            schema: All columns, with partition columns.
            overwrite: True if Spark's mode is ``overwrite``; the option ``existing`` refines it.

        Raises:
            ConfigurationError: An option, or the schema, cannot be honoured. Nothing was done.
            UnsupportedError: The same for a supported Spark feature; or a table format owns the destination.
            TargetExistsError: The destination holds data, and the mode is ``error``.
        """
        with to_caller(str(self.options.get("carry_errors")).lower() == "true"):
            if importlib.util.find_spec("pyarrow") is None:
                raise missing_package("pyarrow")
            options = parse_options(self._options())
            mode = mode_of_write(overwrite, options.existing)
            plan = plan_files(schema, options.partition_by, options.file_format, options.case_sensitive)
            return asyncio.run(set_up(options, mode, plan))

    def streamWriter(self, schema: StructType, overwrite: bool) -> CommitterStreamWriter:  # noqa: N802
        """Checks all that needs no data; see `committer.spark.stream_writer`.

        Raises:
            ConfigurationError: An option, or the schema, cannot be honoured.
            UnsupportedError: The output mode is not append.
        """
        if importlib.util.find_spec("pyarrow") is None:
            raise missing_package("pyarrow")
        return stream_writer(self._options(), schema, overwrite)

    def _options(self) -> dict[str, str]:
        given = dict(self.options)
        if given.get("all_choices", "").lower() == "true":
            return given
        path = given.get("path", "")
        if path.startswith("/"):
            path = given["path"] = at_default(path, self.file_system or default_of_environment())
        choices = dict(self.choices)
        if is_absolute(path) and "absolute_roots" in choices:
            roots = CommitterConfig.from_text({"absolute_roots": choices["absolute_roots"]}).absolute_roots
            choices["absolute_roots"] = as_option(roots_beside(roots, StorePath.of(path)))
        return with_choices(given, choices)


def source_with(config: CommitterConfig | None, file_system: str = "") -> type[CommitterDataSource]:
    """Returns a data source class with options of its own, for one session to register.

    Spark creates the data source in other processes, which get only the write's options and the registered class.
    A class defined in a function is pickled by value, so its attributes reach them.
    """
    made = {} if config is None else {field: as_option(value) for field, value in changed(config).items()}
    if not made and not file_system:
        return CommitterDataSource

    class Configured(CommitterDataSource):
        choices = made

    Configured.file_system = file_system
    return Configured
