"""Python data source `committer`. Spark runs it in a process that gets only the options of the write."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from committer.errors import UnsupportedError
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.spark import missing_package
from committer.spark.batch_writer import CommitterWriter, IgnoringWriter, set_up
from committer.spark.carried_errors import to_caller
from committer.spark.modes import mode_of_write
from committer.spark.options import is_absolute, parse_options
from committer.spark.schema import plan_files
from committer.spark.session_settings import as_option, config_options, roots_beside, with_choices
from committer.spark.sessions import at_default, default_of_environment

if TYPE_CHECKING:
    from committer.spark.stream_writer import CommitterStreamWriter


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
        """Checks all that needs no data, then sets the job up; the option ``existing`` refines `overwrite`."""
        with to_caller(str(self.options.get("carry_errors")).lower() == "true"):
            if importlib.util.find_spec("pyarrow") is None:
                raise missing_package("pyarrow")
            options = parse_options(self._options())
            mode = mode_of_write(overwrite, options.existing)
            plan = plan_files(schema, options.partition_by, options.file_format, options.case_sensitive)
            return asyncio.run(set_up(options, mode, plan))

    def streamWriter(self, schema: StructType, overwrite: bool) -> CommitterStreamWriter:  # noqa: N802
        """Checks all that needs no data; see `committer.spark.stream_writer`."""
        if importlib.util.find_spec("pyarrow") is None:
            raise missing_package("pyarrow")
        try:
            from committer.spark.stream_writer import stream_writer
        except ImportError as error:
            raise UnsupportedError(
                f'writeStream.format("committer") needs PySpark 4.1 or later, and this is {pyspark.__version__}',
                operation="writeStream",
                next_step="use writeStream.foreachBatch(committer.spark.foreach_batch(uri)), which writes each batch"
                " exactly once, too",
            ) from error
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
    made = config_options(config)
    if not made and not file_system:
        return CommitterDataSource

    class Configured(CommitterDataSource):
        choices = made

    Configured.file_system = file_system
    return Configured
