"""CommitterConfig: every choice of a commit, frozen, with the origin of each value."""

from __future__ import annotations

import difflib
import math
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args, get_origin

import msgspec

from committer.errors import ConfigurationError, InvalidPathError
from committer.file_names import is_file_name
from committer.options.resolved import resolve
from committer.options.table import ConfigurationWarning, key_of
from committer.options.values import shown_name, values_of_list
from committer.paths import StorePath

_HEAVIEST = 1000
_DRIVER_PARTS = ("host", "process", "user", "program")


Rule: TypeAlias = Callable[[object], str]
"""Function that returns what a value must be, or an empty text if it is that."""


def _must_be(what: str, is_valid: Callable[[object], bool]) -> Rule:
    return lambda value: "" if is_valid(value) else f"it must be {what}"


def _count(value: object) -> str:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return "it must be an integer of 1 or more"
    return f"it must be an integer of at most {sys.maxsize}" if value > sys.maxsize else ""


def _place(value: object) -> str:
    if not isinstance(value, str):
        return "it must be text: a URI, or empty"
    try:
        path = StorePath.of(value) if value else None
    except InvalidPathError as error:
        return error.message
    return "" if path is None or path.path.strip("/") else "it must be a directory, not the root of a store"


def _list_of(is_one: Callable[[object], bool], what: str) -> Rule:
    return _must_be(f"a tuple of texts: {what}", lambda texts: isinstance(texts, tuple) and all(map(is_one, texts)))


def _is_number(value: object, most: float = math.inf) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value <= most
    )


def _is_number_or_none(value: object) -> bool:
    return value is None or _is_number(value)


def _is_user(value: object) -> bool:
    return isinstance(value, str) and (not value or (is_file_name(value) and "/" not in value))


def _one_of(kind: Any, *others: object) -> Rule:
    choices = get_args(kind)
    return _must_be(f"one of {', '.join(choices)}", (*choices, *others).__contains__)


class Explained(NamedTuple):
    """Choice and its origin: ``default``, ``argument``, or the option key that gave it; `key` can give it."""

    field: str
    value: object
    origin: str
    key: str


class Explanation(str):
    """Table of all choices as text; `rows` holds them as values."""

    __slots__ = ("rows",)
    rows: tuple[Explained, ...]


def _table(rows: Sequence[Explained]) -> str:
    cells = [(row.field, "none" if row.value is None else repr(row.value), row.origin, row.key) for row in rows]
    cells.insert(0, ("choice", "value", "from", "option key"))
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


ExistingTarget: TypeAlias = Literal["fail", "replace"]
ConflictMode: TypeAlias = Literal["append", "fail", "replace"]
SupersededScope: TypeAlias = Literal["directories", "partitions", "destination"]
Durability: TypeAlias = Literal["none", "fsync"]
PendingEtags: TypeAlias = Literal["objects", "texts"]
FileListFormat: TypeAlias = Literal["jsonl", "parquet"]
Publishing: TypeAlias = Literal["driver", "spark", "auto"]

_AZURE_SCHEMES = frozenset({"abfs", "abfss"})

AZURE_IO_RATE: Final = 1000.0
"""Calls per second on `abfs` and `abfss` if neither an option nor the store gives a rate: Hadoop's default of
`fs.azure.io.rate.limit` since MAPREDUCE-7474.
"""

_ORIGINS = "_origins"

_RULES_OF_TYPES: dict[object, Rule] = {
    bool: _must_be("True or False", lambda value: isinstance(value, bool)),
    bool | None: _must_be("True, False or None", lambda value: value is None or isinstance(value, bool)),
    int: _count,
    float: _must_be(f"a number from 0 to {_HEAVIEST:,}", lambda value: _is_number(value, _HEAVIEST)),
    float | None: _must_be("a number of calls per second, 0 for no limit, or None", _is_number_or_none),
    str: _must_be("text: a path or URI, or empty", lambda value: isinstance(value, str)),
}
# Fields whose type does not tell all.
_RULES_OF_FIELDS: dict[str, Rule] = {
    "absolute_roots": _list_of(lambda text: isinstance(text, str) and bool(text), "URIs, or absolute paths"),
    "busy_timeout": _must_be("a number of seconds, 0 or more, or None", _is_number_or_none),
    "driver_hidden": _list_of(_DRIVER_PARTS.__contains__, ", ".join(_DRIVER_PARTS)),
    "pending_set_directory": _place,
    "pending_set_user": _must_be("the name of a user, or empty", _is_user),
    "staging_directories": _list_of(
        lambda text: isinstance(text, str) and text.startswith("/") and "\0" not in text,
        "absolute paths of each machine",
    ),
    "superseded_directories": _list_of(
        lambda text: isinstance(text, str) and is_file_name(text.removeprefix("/")),
        "names that may be of a job's files, relative or below absolute_roots, without a slash at the end",
    ),
    "superseded_scope": _one_of(SupersededScope, None),
}


class CommitterConfig(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Choices of a job.

    Attributes:
        existing_target: What happens if a file exists where the job publishes one: ``fail`` (refused before
            anything is published, and again by the rename) or ``replace`` (Hadoop's delete.target.files). A
            directory is replaced, too, unless it holds a job's working directory: that is refused.
        conflict_mode: What happens to a directory that the job writes to and that holds files: ``append`` keeps
            them, ``fail`` refuses the job, ``replace`` supersedes them.
        superseded_scope: With ``conflict_mode="replace"``: ``directories`` supersedes the subtree of each
            directory written; ``partitions`` the same, but only adds files to the destination's own directory;
            ``destination`` supersedes the whole destination except names that start with ``_`` or ``.``
            (without ``=``). With ``conflict_mode="fail"``: ``partitions`` adds files to the destination's own
            directory; ``destination`` refuses a destination that holds any other name, and of several jobs that
            commit at once only one succeeds. None means ``destination`` with the committer `directory`,
            ``partitions`` with `partitioned`, else ``directories``.
        superseded_directories: With ``conflict_mode="replace"``, instead of `superseded_scope`: directories
            whose subtrees are superseded, written to or not, as names below the destination or absolute paths
            below `absolute_roots`; elsewhere the job adds files. With the scope ``destination`` and only
            absolute paths, the job supersedes the whole destination and these directories.
        durability: ``fsync`` survives a power loss, on stores that need it; ``none`` leaves it to the system.
        validate_output: Check length and identity of every published file before `_SUCCESS`.
        promote_directories: Publish a directory that only one task attempt wrote, and that does not exist, by
            one rename, if that saves calls and the store can do it. None: if the result is the same as file by
            file: on local disks (Linux), for directories with the owner, mode and access lists that the
            driver's would have, of task attempts that gave their `work_path` to no program. True: on every such
            store, whatever the directories have. False: never.
        unique_names: Put the job's token into every file name.
        hadoop_driver: Task commits probe the destination directories as Java's do, so that a Java driver can
            commit.
        io_concurrency: Store calls in flight per endpoint, and workers.
        io_rate: Store calls per second per endpoint; None for the store's default, 0 for no limit.
        azure_io_rate: The same for `abfs` and `abfss` only, where it wins over `io_rate`; without both it is
            1,000.
        io_read_weight: What a call that reads or lists counts of the rate; 0 leaves such calls out of it.
        io_write_weight: The same for a call that creates, writes or renames.
        io_delete_weight: The same for a delete; a batch counts once for each name.
        mark_successful_jobs: Write `_SUCCESS`.
        cleanup_skipped: Keep the job's directory after commit or abort.
        cleanup_failures_ignored: A failed cleanup does not fail the job.
        cleanup_parallel_delete: Delete task attempt directories in parallel before their parent.
        cleanup_base_first: Try one delete of the whole job directory first.
        outcome_kept: Keep only the outcome of a committed job in its directory, so that any process can ask
            later whether this job id committed, as a stream does before it repeats a batch; `cleanup` of the
            job id with `force` removes it.
        busy_timeout: Seconds that a commit waits for other jobs in its way (`DestinationBusyError`), from its
            first try; 0 for no wait. None: 0, in streams 300.
        driver_hidden: What a job's records, `_SUCCESS` and report omit of its driver: any of ``host``, ``process``
            (id and start time), ``user`` and ``program`` (name without arguments). Without host and process no
            other process can find out that the driver is dead.
        summary_report_directory: Directory for `summary-<job id>.json`, on any store; empty for none. The name
            is Hadoop's: of jobs with one id at several destinations, the report of the last to finish stays.
        diagnostics_manifest_directory: Directory that keeps the job's records after a commit, in
            `<job id>-<digest of the destination>`; empty for none.
        file_list_directory: Directory for the complete list of committed files (path, size, partition), on any store,
            as `<job id>-<digest of the destination>.jsonl`; empty for none. A part names 100,000 files; further
            parts lie beside it (`…~00001.jsonl`). `JobReport.file_list` names it; `JobReport.files` and `validate`
            read it. A recoverer must give it again.
        file_list_format: ``jsonl``, a JSON object per line, or ``parquet``, which needs pyarrow.
        record_save_attempts: Tries to save a record.
        commit_attempts: Tries of `file-v2` to commit a job, as in Hadoop, at once after a store call failed.
            Other committers try once; `recover` continues where they stopped.
        task_cleanup: `file-v2` deletes a task attempt's directory, by then without files, when the attempt
            commits; otherwise it is deleted with the job, as by the other committers.
        record_size_limit: Longest task record that a job writes or reads, in bytes.
        manifest_queue_capacity: Records read at once if a job has more files than are kept in memory; at most 4
            MiB of them.
        multipart_size: Length in bytes of a file's parts except the last, where files are sent in parts, or the
            nearest length that the store takes.
        multipart_in_flight: Parts of one file sent at once. A file takes the memory of (2 + this) parts.
        staging_directories: Absolute paths on each machine that runs tasks: the committers `directory` and
            `partitioned` keep a task attempt's files in the one with the most room until the attempt commits.
            Empty for the system's directory for temporary files. Taken from the caller, never from a record.
        pending_set_directory: Where the committers `directory` and `partitioned` keep the records of task
            commits by listing, as Hadoop's pending sets in Hadoop's layout: a URI of any store (S3A's
            ``fs.s3a.committer.staging.tmp.path``), opened with its default credentials. Empty for the job's
            directory at the destination. Taken from the caller, never from a record: the process that commits,
            plans or aborts such a job must give it again.
        pending_set_user: User that the job's directory there is named after; empty for the process's user, as
            Hadoop finds it.
        pending_etags: How the magic committer writes etags if task commits are listed: ``objects``, for Hadoop
            3.4.2 and later, or ``texts`` for an older Java driver, which knows no checksums. Both are read.
        publish: Where Spark's commits publish: ``driver``, ``spark`` (on the executors), or ``auto``: on the
            executors from 100,000 files on, if the store allows more calls than one process can send. In other
            commits ``auto`` means the same for `publish_with`, and ``spark`` has no effect.
        absolute_roots: Directories outside the destination, in the same store, below which tasks may publish
            files, too (`TaskAttempt.open_absolute`): URIs, or absolute paths. Created if missing. A process
            that continues the job must give them again: a record never says where else a job may write.

    Raises:
        ConfigurationError: A field has an invalid value; the message names both.
    """

    existing_target: ExistingTarget = "fail"
    conflict_mode: ConflictMode = "append"
    superseded_scope: SupersededScope | None = None
    superseded_directories: tuple[str, ...] = ()
    durability: Durability = "none"
    validate_output: bool = False
    promote_directories: bool | None = None
    unique_names: bool = False
    hadoop_driver: bool = False
    io_concurrency: int = 512
    io_rate: float | None = None
    azure_io_rate: float | None = None
    io_read_weight: float = 1.0
    io_write_weight: float = 1.0
    io_delete_weight: float = 1.0
    mark_successful_jobs: bool = True
    cleanup_skipped: bool = False
    cleanup_failures_ignored: bool = False
    cleanup_parallel_delete: bool = True
    cleanup_base_first: bool = False
    outcome_kept: bool = False
    busy_timeout: float | None = None
    driver_hidden: tuple[str, ...] = ()
    summary_report_directory: str = ""
    diagnostics_manifest_directory: str = ""
    file_list_directory: str = ""
    file_list_format: FileListFormat = "jsonl"
    record_save_attempts: int = 5
    commit_attempts: int = 1
    task_cleanup: bool = False
    record_size_limit: int = 1 << 30
    manifest_queue_capacity: int = 512
    multipart_size: int = 64 << 20
    multipart_in_flight: int = 4
    staging_directories: tuple[str, ...] = ()
    pending_set_directory: str = ""
    pending_set_user: str = ""
    pending_etags: PendingEtags = "objects"
    publish: Publishing = "driver"
    absolute_roots: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, rule_of in _RULES.items():
            rule = rule_of(getattr(self, name))
            if rule:
                raise _bad(name, getattr(self, name), rule)

    @classmethod
    def from_hadoop(cls, options: Mapping[str, object]) -> CommitterConfig:
        """Reads the options of a Hadoop or Spark configuration; `committer.options.table` lists them.

        Keys may begin with ``spark.hadoop.``. An unknown key under ``mapreduce.manifest.committer.``,
        ``mapreduce.fileoutputcommitter.`` or ``committer.`` causes a `ConfigurationWarning`; other keys are
        ignored, so a whole configuration may be given.

        Raises:
            ConfigurationError: An option has an invalid value; the message names key and value.
        """
        resolved = resolve(options)
        for warning in resolved.warnings:
            warnings.warn(warning, ConfigurationWarning, stacklevel=2)
        values: dict[str, Any] = resolved.values
        try:
            config = cls(**values)
        except ConfigurationError:
            for field, value in values.items():
                _check_alone(cls, field, value, resolved.origins[field])
            raise
        return _with_origins(config, resolved.origins)

    @property
    def refuses_used_destination(self) -> bool:
        """True if the job commits only into an empty destination."""
        return self.conflict_mode == "fail" and self.superseded_scope == "destination"

    @property
    def replaces_destination(self) -> bool:
        """True if the job supersedes the whole destination, and any absolute `superseded_directories`."""
        whole = self.conflict_mode == "replace" and self.superseded_scope == "destination"
        return whole and all(name.startswith("/") for name in self.superseded_directories)

    def supersedes(self, name: str) -> bool:
        """Returns True if the job may supersede old files where it publishes a file of that name, or below it."""
        if self.conflict_mode != "replace":
            return False
        if self.superseded_directories and not self.replaces_destination:
            return f"{name}/".startswith(tuple(f"{directory}/" for directory in self.superseded_directories))
        return self.superseded_scope != "partitions" or "/" in name

    @classmethod
    def from_text(cls, values: Mapping[str, str]) -> CommitterConfig:
        """Reads choices by field, each as text from a command line or a Spark option.

        Raises:
            msgspec.ValidationError: A text is not a value of its field; `ConfigurationError` for other invalid values.
        """
        lists = {field.name for field in msgspec.structs.fields(cls) if isinstance(field.default, tuple)}
        read = {name: values_of_list(text) if name in lists else text for name, text in values.items()}
        return msgspec.convert(read, cls, strict=False)

    def replace(self, **changes: object) -> CommitterConfig:
        """Returns the choices with `changes`; other fields keep their origins, which `msgspec.structs.replace` loses.

        Raises:
            ConfigurationError: A field has an invalid value.
            TypeError: There is no such field.
        """
        values: dict[str, Any] = dict(changes)
        origins = {**self.__dict__.get(_ORIGINS, {}), **dict.fromkeys(changes, "argument")}
        return _with_origins(msgspec.structs.replace(self, **values), origins)

    def io_rate_for(self, scheme: str, default: float | None) -> float | None:
        """Returns the store calls per second for a store, None for no limit; `default` is the store's own rate."""
        on_azure = scheme in _AZURE_SCHEMES
        choices = (self.azure_io_rate if on_azure else None, self.io_rate, default, AZURE_IO_RATE if on_azure else None)
        return next((rate for rate in choices if rate is not None), None) or None

    def explain(self) -> Explanation:
        """Lists each choice with its value, its origin, and the option key that can give it."""
        origins: dict[str, str] = self.__dict__.get(_ORIGINS, {})
        rows = []
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            known = origins.get(field.name, "default" if value == field.default else "argument")
            rows.append(Explained(field.name, value, known, key_of(field.name)))
        explanation = Explanation(_table(rows))
        explanation.rows = tuple(rows)
        return explanation

    def to_record(self) -> dict[str, Any]:
        """Returns every field and its value, defaults too, because a later version may have other defaults."""
        return msgspec.structs.asdict(self)

    def __copy__(self) -> CommitterConfig:
        return self

    def __replace__(self, /, **changes: object) -> CommitterConfig:
        return self.replace(**changes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.to_record(), self.__dict__.get(_ORIGINS, {}))


def _rule(field: msgspec.structs.FieldInfo) -> Rule:
    if field.name in _RULES_OF_FIELDS:
        return _RULES_OF_FIELDS[field.name]
    return _one_of(field.type) if get_origin(field.type) is Literal else _RULES_OF_TYPES[field.type]


_RULES: Final = {field.name: _rule(field) for field in msgspec.structs.fields(CommitterConfig)}

ConfigLike: TypeAlias = CommitterConfig | Mapping[str, object]
"""Type of `config` in public functions: the choices, or a mapping of them by field."""


def config_of(config: ConfigLike | None) -> CommitterConfig | None:
    """Converts a public function's `config`; None stays None.

    Raises:
        ConfigurationError: `config` has another type, an unknown field or an invalid value.
    """
    if config is None or isinstance(config, CommitterConfig):
        return config
    if not isinstance(config, Mapping):
        raise ConfigurationError(
            f"config is a CommitterConfig, or a mapping of its fields, not a {type(config).__name__}",
            operation="configure",
            next_step="config=committer.CommitterConfig(existing_target='replace'), or config={'existing_target': "
            "'replace'}",
        )
    fields = {field.name: field for field in msgspec.structs.fields(CommitterConfig)}
    values: dict[str, Any] = {}
    for name, value in config.items():
        if name not in fields:
            raise _unknown(name, list(fields))
        takes_list = isinstance(fields[name].default, tuple)
        values[name] = tuple(value) if takes_list and isinstance(value, list) else value
    return CommitterConfig(**values)


def _unknown(name: object, fields: list[str]) -> ConfigurationError:
    close = difflib.get_close_matches(str(name), fields, n=1)
    of_hadoop = isinstance(name, str) and "." in name
    step = f"did you mean {close[0]!r}?" if close else f"the fields are {', '.join(fields)}"
    if of_hadoop:
        step = "config=committer.CommitterConfig.from_hadoop({...}) takes Hadoop's keys"
    return ConfigurationError(f"config has no field {shown_name(name)}", operation="configure", next_step=step)


def _with_origins(config: CommitterConfig, origins: Mapping[str, str]) -> CommitterConfig:
    # Not a field: records and equality depend on the values alone.
    config.__dict__[_ORIGINS] = dict(origins)
    return config


def _restore(values: dict[str, Any], origins: dict[str, str]) -> CommitterConfig:
    return _with_origins(CommitterConfig(**values), origins)


def _check_alone(kind: type[CommitterConfig], field: str, value: Any, origin: str) -> None:
    # Finds the invalid option, so that the error names the user's key.
    try:
        kind(**{field: value})
    except ConfigurationError as error:
        told = f"the option {origin}: {error.message}"
        raise ConfigurationError(told, operation="from_hadoop", next_step=error.next_step) from None


def _bad(field: str, value: object, rule: str) -> ConfigurationError:
    default = getattr(CommitterConfig(), field, None)
    return ConfigurationError(
        f"{field} cannot be {value!r}: {rule}",
        operation="configure",
        next_step=f"give another value, or leave {field} out: then it is {default!r}",
    )
