"""Options of `df.write.format("committer")`.

Spark passes option keys in lower case and values as text. Error texts name keys and never a value that may be a
secret.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import warnings
from collections.abc import Mapping
from typing import Final

import msgspec

from committer.advice import page
from committer.errors import ConfigurationError, InvalidPathError
from committer.logs import job_logger
from committer.options.config import CommitterConfig
from committer.options.references import Found
from committer.options.resolved import resolve
from committer.options.storage import check_text
from committer.options.table import (
    FILE_OUTPUT,
    JOB_ATTEMPT,
    MANIFEST,
    NATIVE,
    OPTIONS,
    OUTPUT_COMMITTER,
    S3A,
    S3A_UUID,
    WRITE_JOB_UUID,
    ConfigurationWarning,
)
from committer.options.values import SPARK_HADOOP, shown_name
from committer.paths import StorePath
from committer.spark.formats import FORMAT_OPTIONS, FileFormat, parse_format
from committer.spark.formats.base import flag
from committer.spark.formats.parquet import SNAPPY_PARQUET
from committer.spark.modes import PartitionOverwriteMode, SaveMode, partition_overwrite_mode, save_mode
from committer.spark.refusals import bad_write
from committer.stores.registry import options_of

# Spark and the option job_id identify the job.
_SPELLED: Final = {
    option.key.lower(): option.key for option in OPTIONS if option.key not in {JOB_ATTEMPT, WRITE_JOB_UUID, S3A_UUID}
}
_HADOOP_PREFIXES: Final = (MANIFEST, FILE_OUTPUT, OUTPUT_COMMITTER, S3A, NATIVE)
_log = job_logger("committer.spark")

_NO_LETTERS: Final = re.compile(r"[^a-z0-9]+")
_SECRET: Final = re.compile(
    r"secret|passw(?:or)?d|passphrase|token|credential|signature|connectionstring|(?:access|account|private|shared|api|sas)key"
)


def is_hadoop_key(key: str) -> bool:
    """Reports whether a lower-case key is in `committer.options.table` or has one of its prefixes."""
    plain = key.removeprefix(SPARK_HADOOP)
    return plain.startswith(_HADOOP_PREFIXES) or plain in _SPELLED


def spelled_as_hadoop(key: str) -> str:
    """Returns a lower-case key in Hadoop's spelling, without Spark's prefix."""
    plain = key.removeprefix(SPARK_HADOOP)
    return _SPELLED.get(plain, plain)


def config_of_hadoop(options: Mapping[str, str]) -> CommitterConfig:
    """Builds the config from Hadoop's options, whose keys are in lower case."""
    given = {spelled_as_hadoop(key): value for key, value in options.items()}
    found = resolve(given)
    for key in found.unknown:
        said = resolve({key: given[key]}).warnings[0]
        raise bad_write(said, f"the options are at {page('options.md')}")
    for said in found.warnings:
        # Options are read in a process where the user would not see a Python warning; its log reaches the
        # driver's log.
        _log.warning("%s", said)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigurationWarning)
        return CommitterConfig.from_hadoop(given)


def refuse_secret(key: str) -> None:
    """Refuses an option whose key names a secret, in Hadoop's spelling or any other."""
    words = _NO_LETTERS.split(key.lower())
    if "sas" not in words and not _SECRET.search("".join(words)):
        return
    raise bad_write(
        f"the option {key} looks like a secret, and Spark shows options in plans and logs",
        "give storage.<key> as a reference, env:NAME for an environment variable or file:PATH for a file on"
        " every machine, for example storage.account_key=env:ACCOUNT_KEY",
    )


STORAGE: Final = "storage."
"""Prefix of storage options among those of a write."""

_OWN: Final = (
    "path",
    "format",
    "partitionBy",
    "compression",
    "maxRecordsPerFile",
    "caseSensitive",
    "committer",
    "job_id",
    "existing",
    "partitionOverwriteMode",
    "keep_report",
    "carry_errors",
    "all_choices",
)
_OWN_KEYS: Final = {key.lower(): key for key in _OWN}
_FIELDS: Final = frozenset(field.name for field in msgspec.structs.fields(CommitterConfig))
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]+:")


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a write. Holds references to secrets, never secrets, so it may be pickled into a Spark plan.

    Attributes:
        existing: What happens to existing data; None leaves it to Spark's mode.
        overwrite_mode: What an overwrite with partitions replaces; None if not given.
        keep_report: Leave the `JobReport` in ``_temporary``; `committer.spark.write` fetches and deletes it.
        carry_errors: Append a line of JSON to errors, for `committer.spark.write` and `foreach_batch`.
        all_choices: `committer.spark.write` or `foreach_batch` already merged the options of `configure`.
    """

    path: str
    partition_by: tuple[str, ...] = ()
    file_format: FileFormat = SNAPPY_PARQUET
    max_records_per_file: int = 0
    case_sensitive: bool = False
    committer: str | None = None
    job_id: str | None = None
    existing: SaveMode | None = None
    overwrite_mode: PartitionOverwriteMode | None = None
    keep_report: bool = False
    carry_errors: bool = False
    all_choices: bool = False
    config: CommitterConfig = msgspec.field(default_factory=CommitterConfig)
    storage: dict[str, str] = msgspec.field(default_factory=dict)

    def storage_options(self) -> dict[str, object]:
        """Resolves the references in this process."""
        return {key: Found.by(value, f"{STORAGE}{key}") for key, value in self.storage.items()}

    def recover_call(self, job_id: str) -> str:
        """Returns the Python call that recovers a job of this write, with unresolved storage options."""
        storage = f", storage_options={self.storage!r}" if self.storage else ""
        return f"committer.sync.recover({self.path!r}, {job_id!r}{storage})"

    async def resolve_storage(self) -> dict[str, object]:
        """Calls `storage_options` in a thread, because a reference may read a file."""
        return await asyncio.to_thread(self.storage_options)


def parse_options(options: Mapping[str, str]) -> WriteOptions:
    """Parses a write's options, as Spark passes them; refuses unknown keys, secrets and a relative path.

    ``partitionBy`` is ``"a,b"``, or a JSON list if a name holds a comma. Fields of `CommitterConfig` go by their
    names or Hadoop's keys. ``storage.<key>`` takes ``env:NAME``, ``file:PATH`` or a value that is no secret.
    """
    own: dict[str, str] = {}
    config: dict[str, str] = {}
    hadoop: dict[str, str] = {}
    storage: dict[str, str] = {}
    formatting: dict[str, str] = {}
    for key, value in options.items():
        folded = key.lower()
        if folded.startswith(STORAGE):
            storage[folded.removeprefix(STORAGE)] = value
        elif folded in _OWN_KEYS:
            own[_OWN_KEYS[folded]] = value
        elif folded in _FIELDS:
            config[folded] = value
        elif folded in FORMAT_OPTIONS:
            formatting[FORMAT_OPTIONS[folded]] = value
        else:
            refuse_secret(key)
            if not is_hadoop_key(folded):
                raise _unknown(key, [*_OWN, *_FIELDS, *FORMAT_OPTIONS.values()])
            hadoop[folded] = value
    return WriteOptions(
        path=_path(own.get("path")),
        partition_by=_columns(own.get("partitionBy", "")),
        file_format=parse_format(own.get("format", "parquet"), own.get("compression"), formatting),
        max_records_per_file=_records(own.get("maxRecordsPerFile", "0")),
        case_sensitive=flag(own, "caseSensitive", default=False),
        committer=own.get("committer"),
        job_id=own.get("job_id"),
        existing=save_mode(own["existing"], "the option existing") if "existing" in own else None,
        overwrite_mode=partition_overwrite_mode(own["partitionOverwriteMode"])
        if "partitionOverwriteMode" in own
        else None,
        keep_report=flag(own, "keep_report", default=False),
        carry_errors=flag(own, "carry_errors", default=False),
        all_choices=flag(own, "all_choices", default=False),
        config=_config(config, hadoop),
        storage=_storage(own.get("path"), storage),
    )


def is_sparks(key: str) -> bool:
    """Reports whether an option is for a writer of files, Spark's own included, not for this library alone."""
    folded = key.lower()
    if folded in ("compression", "maxrecordsperfile"):
        return True
    return not (folded in _OWN_KEYS or folded in _FIELDS or folded.startswith(STORAGE) or is_hadoop_key(folded))


def is_absolute(path: str) -> bool:
    """Reports whether a destination's text is an absolute path or a URI."""
    return _ABSOLUTE.match(path) is not None


def path_option(uri: str | os.PathLike[str] | StorePath) -> str:
    """Returns a destination as text of the option ``path``, with unescaped names."""
    given: object = uri
    if isinstance(given, StorePath):
        return str(given)
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(text, str):
        raise bad_write(
            f"the destination must be a path or a URI, not a {type(uri).__name__}",
            "give it after the DataFrame, as text for example: '/data/events', 's3://bucket/events'",
        )
    if not isinstance(uri, str) and _ABSOLUTE.match(text):
        StorePath.of(uri)
    return text


def _path(text: str | None) -> str:
    if not text:
        raise bad_write(
            "no path: the write names no destination",
            "end the write with .save(<absolute path or URI>); SQL's INSERT INTO and CREATE TABLE do not hand"
            " a table's path and options to a Python data source",
        )
    if not is_absolute(text):
        raise InvalidPathError(
            "the path is relative, and this process, the user's and the executors' may each run elsewhere",
            operation="save",
            path=text,
            next_step="give an absolute path or a URI",
        )
    StorePath.of(text)
    return text


_GIVE_NAMES: Final = (
    'give names with commas between them, partitionBy="month,day"; Spark makes a text of a list, so give one to'
    ' committer.spark.write(partition_by=[...]), or as JSON: partitionBy=\'["month", "day"]\''
)


def _columns(text: str) -> tuple[str, ...]:
    if text.lstrip().startswith("["):
        try:
            return tuple(msgspec.json.decode(text, type=list[str]))
        except msgspec.MsgspecError as error:
            raise bad_write(f"partitionBy is not a JSON list of names: {error}", _GIVE_NAMES) from error
    names = tuple(name.strip() for name in text.split(",")) if text.strip() else ()
    if "" in names:
        raise bad_write(f"partitionBy has an empty name: {text!r}", _GIVE_NAMES)
    return names


def _records(text: str) -> int:
    try:
        # As in Spark, zero or less means no limit.
        return max(0, int(text))
    except ValueError as error:
        raise bad_write(
            f"the option maxRecordsPerFile cannot be {text!r}",
            "give a number of rows, such as 1000000, or leave it out",
        ) from error


def _config(values: Mapping[str, str], hadoop: Mapping[str, str]) -> CommitterConfig:
    # One at a time, so that the error names the option.
    for key, value in values.items():
        _converted({key: value}, f"the option {key} cannot be {value!r}")
    chosen = _converted(values, "the options of the commit do not fit together")
    if not hadoop:
        return chosen
    # The library's name of an option wins over Hadoop's.
    return config_of_hadoop(hadoop).replace(**{key: getattr(chosen, key) for key in values})


def _converted(values: Mapping[str, str], problem: str) -> CommitterConfig:
    try:
        return CommitterConfig.from_text(values)
    except (msgspec.ValidationError, ConfigurationError) as error:
        raise bad_write(f"{problem}: {error}", "correct it, or leave it out") from error


def _unknown(key: str, known: list[str]) -> ConfigurationError:
    spellings = {name.lower(): name for name in known}
    close = difflib.get_close_matches(key.lower(), spellings, n=1)
    return bad_write(
        f"the option {shown_name(key)} is not known",
        f"did you mean {spellings[close[0]]!r}?" if close else f"the options are {', '.join(sorted(known))}",
    )


def _storage(path: str | None, options: Mapping[str, str]) -> dict[str, str]:
    """Checks storage options; resolves no reference."""
    if not options:
        return {}
    table = options_of(StorePath.of(_path(path)).scheme)
    for key, value in options.items():
        check_text(table, key, value, shown=f"{STORAGE}{key}", why="Spark shows options in plans and logs")
    return dict(options)
