"""Table of option keys, Hadoop's and this library's.

A key is written as in Hadoop, or with Spark's prefix ``spark.hadoop.``; if a mapping holds both, the plain key
wins. A field of `CommitterConfig` without a Hadoop option has the key ``committer.`` and its name. Where S3A's
committers have an own key for an option of the manifest committer, it counts if that is not given.

`committer.options.values` reads texts as Hadoop does, but invalid texts are errors, where Hadoop often uses the
default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from committer.options.values import Kind, asks_for, bad_option, plain_keys, read_int

MANIFEST = "mapreduce.manifest.committer."
FILE_OUTPUT = "mapreduce.fileoutputcommitter."
S3A = "fs.s3a.committer."
STAGED = f"{S3A}staging."
OSS = "fs.oss.committer."
NATIVE = "committer."
OUTPUT_COMMITTER = "mapreduce.outputcommitter."
FACTORY_SCHEME = f"{OUTPUT_COMMITTER}factory.scheme."
JOB_ATTEMPT = "mapreduce.job.application.attempt.id"
WRITE_JOB_UUID = "spark.sql.sources.writeJobUUID"
S3A_NAME = f"{S3A}name"
S3A_UUID = f"{S3A}uuid"
BUFFER_DIR = "fs.s3a.buffer.dir"
STAGING_TMP = f"{STAGED}tmp.path"
DEFAULT_FS = "fs.defaultFS"


class ConfigurationWarning(UserWarning):
    """Warning of an option without effect, most likely misspelt, or of an adjusted value."""


class Option(msgspec.Struct, frozen=True):
    """Row of the table: an option key.

    Attributes:
        key: As Hadoop writes it; a final period stands for all keys that begin so.
        field: Its field of `CommitterConfig`; empty for none.
        kind: How its text is read.
        note: Difference from Hadoop; for a key without field, the reason.
        when: The field's values for false and true, if the field is not a boolean.
        also: Whether another key for the field exists, and wins.
        warns: A value that asks for something else than this library does, and the warning for it.
        harmless: Texts that cause no warning where the key has no effect, Hadoop's default among them; None for
            all texts.
        only: All valid texts of a key without field; empty for any text.
    """

    key: str
    field: str = ""
    kind: Kind = "text"
    note: str = ""
    when: tuple[str, str] | None = None
    also: bool = False
    warns: tuple[bool, str] | None = None
    harmless: tuple[str, ...] | None = None
    only: tuple[str, ...] = ()


_NO_CLASSES = (
    "names a Java class; here the committer is the `committer` argument, the store follows from the URI's scheme"
)
_ALGORITHM = (
    "the `committer` argument chooses: `file-v1` or `file-v2`; with every other a task's output shows when its job "
    "commits, never before"
)
_IDENTITY = "says which job it is, not how it commits: `job_identity` reads it"
_STAGING = f"of the staging committers: not read where `{S3A}name` is `magic` or `file`, as in Hadoop"
_PENDING_SETS = (
    f"where task records are, by listing, {_STAGING}; a path is of the file system that `fs.defaultFS` names: where "
    f"that is not given it is refused with `{S3A}name`, and else warned of; Hadoop's default means the job's directory "
    f"at the destination; `{NATIVE}pending_set_directory` wins"
)
_MANIFEST_PACKAGE = "org.apache.hadoop.mapreduce.lib.output.committer.manifest"
_ABFS_PACKAGE = "org.apache.hadoop.fs.azurebfs.commit"
_S3A_FACTORY = "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
_MANIFEST_FACTORIES = (
    f"{_MANIFEST_PACKAGE}.ManifestCommitterFactory",
    f"{_ABFS_PACKAGE}.AzureManifestCommitterFactory",
)
_MANIFEST_OPERATIONS = (
    f"{_MANIFEST_PACKAGE}.impl.ManifestStoreOperationsThroughFileSystem",
    f"{_ABFS_PACKAGE}.AbfsManifestStoreOperations",
)
_OF_JINDO = "`oss:` paths have the committer `magic`"
_OF_THE_STORE = "a storage option, which the store reads"
_OWN_UPLOADS = "true means the job's own uploads here, with a warning: those of others may be of jobs that run"
_OWN_UPLOADS_WARNING = (
    "only the job's own uploads are aborted when it ends; `committer uploads abort` aborts what others left"
)


def _own(field: str, kind: Kind = "text", note: str = "") -> Option:
    """Makes the row of a field by this library's key for it."""
    return Option(f"{NATIVE}{field}", field, kind, note)


OPTIONS: tuple[Option, ...] = (
    Option(f"{MANIFEST}io.threads", "io_concurrency", "int", "zero and less mean the default, as in Hadoop"),
    Option(f"{MANIFEST}delete.target.files", "existing_target", "boolean", when=("fail", "replace")),
    Option(
        f"{MANIFEST}validate.output", "validate_output", "boolean", "done before `_SUCCESS` is written, not after it"
    ),
    Option(f"{MANIFEST}summary.report.directory", "summary_report_directory"),
    Option(f"{MANIFEST}diagnostics.manifest.directory", "diagnostics_manifest_directory"),
    Option(f"{MANIFEST}cleanup.parallel.delete", "cleanup_parallel_delete", "boolean"),
    Option(f"{MANIFEST}cleanup.parallel.delete.base.first", "cleanup_base_first", "boolean"),
    Option(f"{MANIFEST}writer.queue.capacity", "manifest_queue_capacity", "int", "zero and less are an error"),
    Option(
        f"{MANIFEST}manifest.save.attempts",
        "record_save_attempts",
        "int",
        "honoured, while Hadoop always tries five times; less than one becomes one, with a warning",
    ),
    Option(
        f"{MANIFEST}io.rate",
        "io_rate",
        "rate",
        "Hadoop's documents name it and none of its code reads it; honoured here",
    ),
    Option(f"{MANIFEST}store.operations.classname", note=_NO_CLASSES, harmless=_MANIFEST_OPERATIONS),
    Option(f"{FILE_OUTPUT}marksuccessfuljobs", "mark_successful_jobs", "boolean"),
    Option(f"{FILE_OUTPUT}cleanup.skipped", "cleanup_skipped", "boolean"),
    Option(f"{FILE_OUTPUT}cleanup-failures.ignored", "cleanup_failures_ignored", "boolean"),
    Option(f"{FILE_OUTPUT}algorithm.version", note=_ALGORITHM, harmless=("1",), only=("1", "2")),
    Option(
        f"{FILE_OUTPUT}failures.attempts",
        "commit_attempts",
        "int",
        "of `file-v2` alone, as in Hadoop; only a store call that failed is a reason to try again; less than one "
        "becomes one, with a warning",
    ),
    Option(
        f"{FILE_OUTPUT}task.cleanup.enabled",
        "task_cleanup",
        "boolean",
        "of `file-v2` alone, as in Hadoop; no file is in that directory by then",
    ),
    Option(f"{FILE_OUTPUT}optimistic.file.commit.enabled", note="of a fork of Hadoop's", harmless=("false",)),
    Option(
        "fs.azure.io.rate.limit",
        "azure_io_rate",
        "rate",
        "1,000 when unset, 0 for no limit; limits every store call on abfs and abfss, not only renames; other stores "
        "do not see it",
    ),
    Option(
        S3A_NAME,
        note="the `committer` argument chooses, else the store: `magic` on S3; with `directory` or `partitioned` "
        "names are unique unless another key says no",
        harmless=("magic", "magicv2", "file"),
    ),
    Option(
        f"{S3A}threads",
        "io_concurrency",
        "threads",
        f"less than zero means as many times the number of cores, 0 one at a time; `{MANIFEST}io.threads` wins",
        also=True,
    ),
    Option(
        f"{S3A}summary.report.directory",
        "summary_report_directory",
        note=f"`{MANIFEST}summary.report.directory` wins",
        also=True,
    ),
    Option(f"{S3A}abort.pending.uploads", note=_OWN_UPLOADS, warns=(True, _OWN_UPLOADS_WARNING)),
    Option(f"{S3A}staging.abort.pending.uploads", note=_OWN_UPLOADS, warns=(True, _OWN_UPLOADS_WARNING)),
    Option(
        f"{S3A}magic.enabled",
        note="`magic` is there wherever the store has what it needs",
        warns=(False, "the `committer` argument chooses, and `magic` is what suits S3"),
    ),
    Option(
        f"{S3A}magic.track.commits.in.memory.enabled",
        note="delivery by message writes no record of a single file; delivery by listing, the default, does",
    ),
    Option(
        f"{S3A}magic.cleanup.enabled",
        note=f"`{FILE_OUTPUT}cleanup.skipped` says whether the job's directories stay",
        warns=(False, f"the magic directory is removed; {FILE_OUTPUT}cleanup.skipped=true leaves what a job left"),
    ),
    Option(S3A_UUID, note=_IDENTITY),
    Option(f"{S3A_UUID}.source", note="where Hadoop's id came from; nothing goes by it"),
    Option(f"{S3A}require.uuid", note=_IDENTITY),
    Option(f"{S3A}generate.uuid", note="an id is made up where none is given"),
    Option(STAGING_TMP, "pending_set_directory", note=_PENDING_SETS, harmless=("tmp/staging",), also=True),
    Option(f"{STAGED}uuid", note=f"of Hadoop before 3.3.1; `job_identity` reads `{S3A_UUID}`", harmless=()),
    Option(
        f"{STAGED}unique-filenames",
        "unique_names",
        "boolean",
        f"{_STAGING}; `{NATIVE}unique_names` wins",
        also=True,
        harmless=("true",),
    ),
    Option(
        f"{STAGED}conflict-mode",
        "conflict_mode",
        "lower",
        f"{_STAGING}; `{NATIVE}conflict_mode` wins; with `{S3A}name=directory` it is of the whole destination, "
        f"with `partitioned` of each partition",
        also=True,
        harmless=("append",),
    ),
    Option(f"{S3A}experimental.collect.iostatistics", note="statistics are always collected"),
    Option(
        f"{S3A}magic.overwrite.and.commit", note="of a fork of Hadoop's; replacing keeps old files until the outcome"
    ),
    Option(f"{S3A}magic.delete.directory.threads", note="of a fork of Hadoop's; `io_concurrency` bounds deletes, too"),
    Option(
        BUFFER_DIR,
        "staging_directories",
        "local",
        f"of the staging committers: `magic` keeps nothing on a disk; `{NATIVE}staging_directories` wins; Hadoop's "
        "default means the system's directory for temporary files",
        also=True,
        harmless=("${hadoop.tmp.dir}/s3a", "${env.LOCAL_DIRS:-${hadoop.tmp.dir}}/s3a"),
    ),
    Option("fs.s3a.create.performance", note="nothing is probed for at a destination while a task writes"),
    Option("fs.s3a.create.checksum.algorithm", note=_OF_THE_STORE),
    Option("fs.s3a.create.storage.class", note=_OF_THE_STORE),
    Option(
        "fs.s3a.multipart.uploads.enabled",
        note="`magic` is made of uploads",
        warns=(False, "files are sent as uploads all the same: `magic` is made of them"),
    ),
    Option("fs.s3a.multipart.size", "multipart_size", "size"),
    Option("fs.s3a.fast.upload.active.blocks", "multipart_in_flight", "int"),
    Option(f"{OUTPUT_COMMITTER}factory.class", note=_NO_CLASSES, harmless=(*_MANIFEST_FACTORIES, _S3A_FACTORY)),
    Option(FACTORY_SCHEME, note=_NO_CLASSES, harmless=(*_MANIFEST_FACTORIES, _S3A_FACTORY)),
    Option(f"{OUTPUT_COMMITTER}class", note=_NO_CLASSES, harmless=()),
    Option(
        f"{OUTPUT_COMMITTER}named.classname", note=_NO_CLASSES, harmless=(f"{_MANIFEST_PACKAGE}.ManifestCommitter",)
    ),
    Option(f"{OSS}magic.enabled", note=_OF_JINDO, harmless=()),
    Option(f"{OSS}threads", note=_OF_JINDO, harmless=()),
    Option(JOB_ATTEMPT, note=_IDENTITY),
    Option(WRITE_JOB_UUID, note=_IDENTITY),
    _own("conflict_mode"),
    _own("superseded_scope"),
    _own("superseded_directories", "list", "wins over `committer.superseded_scope`"),
    _own("durability"),
    _own("promote_directories", "boolean", "left out: where the result is the same as file by file"),
    _own("unique_names", "boolean"),
    _own("hadoop_driver", "boolean"),
    _own("pending_etags", note="`texts` for a Java driver of Hadoop before 3.4.2, on S3"),
    _own(
        "outcome_kept",
        "boolean",
        "a committed job leaves its outcome in `_temporary/J~S/kept`, until a forced `cleanup` of that job",
    ),
    _own(
        "busy_timeout", "seconds", "how long a commit waits for jobs that are in its way; left out: 0, in streams 300"
    ),
    _own(
        "driver_hidden",
        "list",
        "any of `host`, `process`, `user` and `program`; without host and process a dead driver is not seen to be dead",
    ),
    _own(
        "file_list_directory",
        note="`<job id>-<digest of the destination>.jsonl` there names every file that the job committed; taken from "
        "the caller only",
    ),
    _own("file_list_format", note="`jsonl` or `parquet`, which needs pyarrow"),
    _own("io_read_weight", "weight", "what a call costs of the rate, 0 to 1,000"),
    _own("io_write_weight", "weight"),
    _own("io_delete_weight", "weight", "of a batch for each name, as in Hadoop's S3A"),
    _own("record_size_limit", "size", "bytes, or with a suffix as in `64m` or `1g`"),
    _own(
        "staging_directories",
        "list",
        "of the committers `directory` and `partitioned`; taken from the caller only, never from a record",
    ),
    _own(
        "pending_set_directory",
        note="of the committers `directory` and `partitioned`: a URI; taken from the caller only, never from a record",
    ),
    _own("pending_set_user", note="whose directory there; the process's user, as Hadoop has it, where it is not given"),
    _own("publish", note="`driver`, `spark` or `auto`: where the files of a commit by Spark are published"),
    _own("absolute_roots", "list", "taken from the caller only, never from a record"),
)
BY_KEY = {option.key: option for option in OPTIONS}
BY_FIELD = {option.field: option for option in OPTIONS if option.field and not option.also}


class JobIdentity(NamedTuple):
    """Identity of the job in a Hadoop configuration.

    Attributes:
        job_id: Unique id of S3A's committers, or Spark's id of the write; None if the MapReduce job id counts.
    """

    job_id: str | None
    job_attempt: int


def job_identity(options: Mapping[str, object]) -> JobIdentity:
    """Reads the job's identity from a Hadoop or Spark configuration; refuses a bad attempt or a missing required id."""
    found = {key: (written_as, value) for key, written_as, value in plain_keys(options)}
    written_as, value = found.get(JOB_ATTEMPT, (JOB_ATTEMPT, 0))
    attempt = read_int(written_as, value)
    if attempt < 0:
        raise bad_option(written_as, value, "it must not be negative")
    ids = [str(found.get(key, ("", ""))[1]).strip() for key in (S3A_UUID, WRITE_JOB_UUID)]
    job_id = next(filter(None, ids), None)
    required_as, required = found.get(f"{S3A}require.uuid", ("", ""))
    if job_id is None and required_as and asks_for(True, required_as, required):
        raise bad_option(required_as, required, f"neither {S3A_UUID} nor {WRITE_JOB_UUID} is given")
    return JobIdentity(job_id, attempt)


def key_of(field: str) -> str:
    """Returns the key of a field of `CommitterConfig`."""
    return BY_FIELD[field].key
