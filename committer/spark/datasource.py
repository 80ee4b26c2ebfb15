"""The Python data source ``committer``: what Spark asks for a writer, in a process of its own on the driver's side."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping
from typing import ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from committer.config import CommitterConfig
from committer.errors import UnsupportedError
from committer.paths import StorePath
from committer.spark import missing_package
from committer.spark.batch_writer import CommitterWriter, IgnoringWriter, set_up
from committer.spark.carried_errors import to_caller
from committer.spark.default_file_system import at_default, default_of_environment
from committer.spark.modes import mode_of_write
from committer.spark.options import is_absolute, parse_options
from committer.spark.schema import plan_files
from committer.spark.session_settings import as_option, changed, roots_beside, with_choices
from committer.spark.stream_writer import CommitterStreamWriter, stream_writer


class CommitterDataSource(DataSource):
    """``df.write.format("committer")``. Writes only: the result is plain files that ``spark.read`` reads.

    Attributes:
        choices: Choices of the commit that a write's options need not make, by field, as options have them.
        file_system: URI of the default file system that `configure` found; empty if it was not asked.
    """

    choices: ClassVar[Mapping[str, str]] = {}
    file_system: ClassVar[str] = ""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "committer"

    def schema(self) -> StructType:
        """Refuses to read.

        Raises:
            UnsupportedError: Always.
        """
        raise self._reads_nothing()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Refuses to read, as `schema` does."""
        raise self._reads_nothing()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Refuses to read, as `schema` does."""
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
        """Checks everything that can be checked without data, then sets the job up.

        Args:
            schema: All columns, partition columns too.
            overwrite: Whether Spark's mode is ``overwrite``; the option ``existing`` says more.

        Raises:
            ConfigurationError: An option, or the schema, cannot be honoured. Nothing was done.
            UnsupportedError: The same, for what may come; or a table format owns the destination.
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
        """Checks everything that can be checked without data; see `committer.spark.stream_writer`.

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
    """The data source with choices of its own, for one session to register.

    Spark makes a data source in other processes, which know a session by nothing but the options of the write. The
    class that a session registered goes there, choices and all: defined in a function, it is pickled by value.
    """
    made = {} if config is None else {field: as_option(value) for field, value in changed(config).items()}
    if not made and not file_system:
        return CommitterDataSource

    class Configured(CommitterDataSource):
        choices = made

    Configured.file_system = file_system
    return Configured
