"""CommitterConfig and the table of option keys that feeds it."""

from __future__ import annotations

import copy
import os
import pickle
import warnings
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from committer.errors import ConfigurationError
from committer.options.config import CommitterConfig
from committer.options.table import NATIVE, OPTIONS, ConfigurationWarning, job_identity, key_of

P = "mapreduce.manifest.committer."
F = "mapreduce.fileoutputcommitter."
S = "fs.s3a.committer."
OC = "mapreduce.outputcommitter."
FIELDS = [field.name for field in msgspec.structs.fields(CommitterConfig)]

# key, text, field, value
HONOURED = [
    (P + "io.threads", "64", "io_concurrency", 64),
    (P + "io.threads", " 64 ", "io_concurrency", 64),
    (P + "io.threads", "0x40", "io_concurrency", 64),
    (S + "threads", "48", "io_concurrency", 48),
    (S + "threads", "0", "io_concurrency", 1),
    (S + "threads", "-2", "io_concurrency", 2 * (os.cpu_count() or 1)),
    (S + "summary.report.directory", "s3a://b/reports", "summary_report_directory", "s3a://b/reports"),
    (S + "staging.conflict-mode", "Fail", "conflict_mode", "fail"),
    (S + "staging.unique-filenames", "true", "unique_names", True),
    (P + "delete.target.files", "true", "existing_target", "replace"),
    (P + "delete.target.files", "FALSE", "existing_target", "fail"),
    (P + "validate.output", "TRUE", "validate_output", True),
    (P + "summary.report.directory", "abfs://c@acct/reports", "summary_report_directory", "abfs://c@acct/reports"),
    (P + "diagnostics.manifest.directory", "file:/tmp/kept", "diagnostics_manifest_directory", "file:/tmp/kept"),
    (P + "cleanup.parallel.delete", "false", "cleanup_parallel_delete", False),
    (P + "cleanup.parallel.delete.base.first", "true", "cleanup_base_first", True),
    (P + "writer.queue.capacity", "7", "manifest_queue_capacity", 7),
    ("fs.s3a.multipart.size", "128M", "multipart_size", 128 << 20),
    ("fs.s3a.fast.upload.active.blocks", "8", "multipart_in_flight", 8),
    (P + "manifest.save.attempts", "2", "record_save_attempts", 2),
    (P + "io.rate", "12.5", "io_rate", 12.5),
    (P + "io.rate", "0", "io_rate", 0.0),
    ("fs.azure.io.rate.limit", "1000", "azure_io_rate", 1000.0),
    ("fs.azure.io.rate.limit", "0", "azure_io_rate", 0.0),
    (F + "marksuccessfuljobs", "False", "mark_successful_jobs", False),
    (F + "cleanup.skipped", "true", "cleanup_skipped", True),
    (F + "cleanup-failures.ignored", "true", "cleanup_failures_ignored", True),
    (F + "failures.attempts", "3", "commit_attempts", 3),
    (F + "task.cleanup.enabled", "true", "task_cleanup", True),
    ("committer.conflict_mode", "replace", "conflict_mode", "replace"),
    ("committer.superseded_scope", "destination", "superseded_scope", "destination"),
    ("committer.superseded_directories", "p=1, p=2/q=1", "superseded_directories", ("p=1", "p=2/q=1")),
    ("committer.durability", "fsync", "durability", "fsync"),
    ("committer.promote_directories", "true", "promote_directories", True),
    ("committer.unique_names", "true", "unique_names", True),
    ("committer.hadoop_driver", "true", "hadoop_driver", True),
    ("committer.pending_etags", "texts", "pending_etags", "texts"),
    ("committer.outcome_kept", "true", "outcome_kept", True),
    ("committer.busy_timeout", "2.5", "busy_timeout", 2.5),
    ("committer.driver_hidden", "user, program", "driver_hidden", ("user", "program")),
    ("committer.publish", "auto", "publish", "auto"),
    ("committer.file_list_directory", "s3a://b/lists", "file_list_directory", "s3a://b/lists"),
    ("committer.file_list_format", "parquet", "file_list_format", "parquet"),
    ("committer.io_read_weight", "0", "io_read_weight", 0.0),
    ("committer.io_write_weight", " 2 ", "io_write_weight", 2.0),
    ("committer.io_delete_weight", "0.5", "io_delete_weight", 0.5),
    ("committer.record_size_limit", "64M", "record_size_limit", 64 << 20),
    ("committer.record_size_limit", "1g", "record_size_limit", 1 << 30),
    ("committer.record_size_limit", "4096", "record_size_limit", 4096),
    ("committer.staging_directories", "/a , /b", "staging_directories", ("/a", "/b")),
    ("committer.pending_set_directory", "gs://b/records", "pending_set_directory", "gs://b/records"),
    (S + "staging.tmp.path", "/tmp/x", "pending_set_directory", "hdfs://nn:8020/tmp/x"),
    ("committer.pending_set_user", "ana", "pending_set_user", "ana"),
    ("fs.s3a.buffer.dir", "/a,file:/b,file:///c d", "staging_directories", ("/a", "/b", "/c d")),
    ("committer.absolute_roots", "/warehouse/a , file:/b", "absolute_roots", ("/warehouse/a", "file:/b")),
    ("committer.absolute_roots", ["/warehouse/a"], "absolute_roots", ("/warehouse/a",)),
]

REFUSED = [
    (P + "io.threads", "many"),
    (P + "io.threads", "1_000"),
    (P + "io.threads", ""),
    (P + "io.threads", "1.5"),
    (P + "io.threads", str(1 << 31)),
    (P + "delete.target.files", "yes"),
    (P + "cleanup.parallel.delete", "1"),
    (P + "writer.queue.capacity", "0"),
    (P + "writer.queue.capacity", "-1"),
    (P + "io.rate", "-1"),
    (P + "io.rate", "nan"),
    ("fs.azure.io.rate.limit", "fast"),
    (P + "summary.report.directory", "${fs.defaultFS}/reports"),
    ("fs.azure.io.rate.limit", "-1"),
    ("fs.s3a.buffer.dir", "${my.disks}/s3a"),
    ("committer.io_read_weight", "heavy"),
    ("committer.io_write_weight", "-1"),
    ("committer.io_delete_weight", "nan"),
    ("committer.conflict_mode", "overwrite"),
    ("committer.durability", "FSYNC"),
    ("committer.record_size_limit", "0"),
    ("committer.record_size_limit", "12q"),
    ("committer.record_size_limit", "8e999"),
]


@pytest.mark.parametrize("prefix", ["", "spark.hadoop."])
@pytest.mark.parametrize(("key", "text", "field", "value"), HONOURED)
def test_an_option_feeds_its_field(prefix: str, key: str, text: str, field: str, value: object) -> None:
    config = CommitterConfig.from_hadoop({prefix + key: text, "fs.defaultFS": "hdfs://nn:8020"})
    assert getattr(config, field) == value
    assert config == msgspec.structs.replace(CommitterConfig(), **{field: value})
    row = next(row for row in config.explain().rows if row.field == field)
    # A choice that two of Hadoop's committers have has the key of the first.
    assert (row.value, row.origin, row.key) == (value, prefix + key, key_of(field))
    assert row.key == key or key.startswith((S, "fs.s3a.buffer."))


@pytest.mark.parametrize(("key", "text"), REFUSED)
def test_a_bad_value_is_refused_by_key_and_value(key: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        CommitterConfig.from_hadoop({"spark.hadoop." + key: text})
    assert "spark.hadoop." + key in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "first", "field"),
    [
        (S + "threads", P + "io.threads", "io_concurrency"),
        (S + "summary.report.directory", P + "summary.report.directory", "summary_report_directory"),
    ],
)
def test_where_two_committers_have_a_key_the_manifest_committers_wins(key: str, first: str, field: str) -> None:
    for options in ({key: "8", first: "9"}, {first: "9", key: "8"}):
        with pytest.warns(ConfigurationWarning, match=f"{key} has no effect beside {first}"):
            config = CommitterConfig.from_hadoop(options)
        assert str(getattr(config, field)) == "9"


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        (S + "abort.pending.uploads", "true", "only the job's own uploads are aborted"),
        ("spark.hadoop." + S + "staging.abort.pending.uploads", "TRUE", "only the job's own uploads are aborted"),
        (S + "magic.enabled", "false", "`magic` is what suits S3"),
        (S + "magic.cleanup.enabled", "false", "cleanup.skipped=true"),
        ("fs.s3a.multipart.uploads.enabled", "false", "`magic` is made of them"),
        (S + "thread", "8", "did you mean fs.s3a.committer.threads?"),
    ],
)
def test_what_asks_for_something_else_than_what_happens_is_warned_of(key: str, text: str, said: str) -> None:
    with pytest.warns(ConfigurationWarning) as caught:
        assert CommitterConfig.from_hadoop({key: text}) == CommitterConfig()
    assert key in str(caught[0].message)
    assert said in str(caught[0].message)


def test_every_field_has_one_key_and_every_key_of_ours_is_the_fields_name() -> None:
    fed = [option.field for option in OPTIONS if option.field and not option.also]
    assert sorted(fed) == sorted(FIELDS)
    assert {key for key, *_ in HONOURED} == {option.key for option in OPTIONS if option.field}
    for option in OPTIONS:
        if option.key.startswith(NATIVE):
            assert option.key == NATIVE + option.field
        assert option.field or option.note, f"{option.key} does nothing and does not say why"


def test_python_values_are_as_good_as_texts() -> None:
    config = CommitterConfig.from_hadoop({P + "io.threads": 8, P + "validate.output": True, P + "io.rate": None})
    assert (config.io_concurrency, config.validate_output, config.io_rate) == (8, True, None)


def test_the_plain_key_wins_over_sparks() -> None:
    for options in (
        {P + "io.threads": "1", "spark.hadoop." + P + "io.threads": "2"},
        {"spark.hadoop." + P + "io.threads": "2", P + "io.threads": "1"},
    ):
        assert CommitterConfig.from_hadoop(options).io_concurrency == 1


def test_an_empty_boolean_is_not_given() -> None:
    assert CommitterConfig.from_hadoop({F + "marksuccessfuljobs": ""}).mark_successful_jobs


@pytest.mark.parametrize("threads", ["0", "-4"])
def test_no_threads_mean_the_default(threads: str) -> None:
    config = CommitterConfig.from_hadoop({P + "io.threads": threads})
    assert config == CommitterConfig()
    assert f"default, as {P}io.threads is not positive" in config.explain()


@pytest.mark.parametrize(
    ("key", "field"),
    [(P + "manifest.save.attempts", "record_save_attempts"), (F + "failures.attempts", "commit_attempts")],
)
def test_less_than_one_attempt_becomes_one_with_a_warning(key: str, field: str) -> None:
    with pytest.warns(ConfigurationWarning, match="one attempt at least"):
        config = CommitterConfig.from_hadoop({key: "0"})
    assert getattr(config, field) == 1


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        (P + "io.thread", P + "io.threads"),
        ("spark.hadoop." + P + "validate.outputs", P + "validate.output"),
        (F + "cleanup.failures.ignored", F + "cleanup-failures.ignored"),
        ("committer.conflict-mode", "committer.conflict_mode"),
        ("committer.io_concurrency", P + "io.threads"),
        ("committer.colour", ""),
    ],
)
def test_an_unknown_key_of_ours_warns_with_a_suggestion(key: str, hint: str) -> None:
    with pytest.warns(ConfigurationWarning) as caught:
        config = CommitterConfig.from_hadoop({key: "1"})
    assert config == CommitterConfig()
    text = str(caught[0].message)
    assert key in text
    assert hint in text
    assert caught[0].filename == __file__


HADOOPS_DEFAULTS = {
    F + "algorithm.version": "1",
    S + "name": "file",
    S + "staging.tmp.path": "tmp/staging",
    S + "staging.unique-filenames": "true",
    S + "staging.conflict-mode": "append",
    "fs.s3a.buffer.dir": "${env.LOCAL_DIRS:-${hadoop.tmp.dir}}/s3a",
    OC + "factory.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
    OC + "factory.scheme.abfs": "org.apache.hadoop.fs.azurebfs.commit.AzureManifestCommitterFactory",
    OC + "factory.scheme.gs": "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory",
}


def test_hadoops_defaults_and_keys_of_others_are_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = CommitterConfig.from_hadoop(
            {
                **HADOOPS_DEFAULTS,
                "mapreduce.job.application.attempt.id": "1",
                "spark.sql.sources.writeJobUUID": "a-b",
                S + "uuid": "u",
                S + "uuid.source": "JobID",
                S + "abort.pending.uploads": "false",
                S + "magic.enabled": "true",
                S + "magic.track.commits.in.memory.enabled": "true",
                S + "experimental.collect.iostatistics": "true",
                "fs.s3a.multipart.uploads.enabled": "true",
                "dfs.replication": "${x}",
            }
        )
    assert config == CommitterConfig()


@pytest.mark.parametrize("prefix", ["", "spark.hadoop."])
@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        (P + "store.operations.classname", "org.example.Operations", "names a Java class"),
        (OC + "factory.class", "org.example.Factory", "names a Java class"),
        (OC + "factory.scheme.abfs", "org.example.Factory", "names a Java class"),
        (OC + "named.classname", "org.example.Committer", "names a Java class"),
        (OC + "factory.clas", "org.example.Factory", "did you mean"),
        (F + "algorithm.version", "2", "shows when its job commits"),
        (S + "staging.tmp.path", "/tmp/staging", "give a URI, or an absolute path and fs.defaultFS"),
        (S + "staging.tmp.path", "elsewhere/staging", "give a URI, or an absolute path and fs.defaultFS"),
        # Of which bucket or account the job is, its choices do not know.
        ("fs.s3a.bucket.lake.committer.staging.conflict-mode", "fail", "fs.s3a.committer.staging.conflict-mode"),
        ("fs.s3a.bucket.my.lake.committer.threads", "9", "is of my.lake alone"),
        ("fs.s3a.bucket.lake.committer.name", "partitioned", "the `committer` argument chooses"),
        ("fs.s3a.bucket.lake.committer.nam", "magic", "did you mean fs.s3a.committer.name"),
        ("fs.s3a.bucket.lake.committer.magic.enabled", "false", "is of lake alone"),
        ("fs.s3a.bucket.lake.multipart.size", "32m", "fs.s3a.multipart.size"),
        ("fs.s3a.bucket.lake.buffer.dir", "/fast", "is of lake alone"),
        ("fs.azure.io.rate.limit.acct.dfs.core.windows.net", "50", "fs.azure.io.rate.limit$"),
    ],
)
def test_a_known_key_that_can_have_no_effect_is_warned_of(prefix: str, key: str, text: str, said: str) -> None:
    with pytest.warns(ConfigurationWarning, match=said) as caught:
        assert CommitterConfig.from_hadoop({prefix + key: text}) == CommitterConfig()
    assert [prefix + key in str(warning.message) for warning in caught] == [True]


def test_keys_of_one_bucket_that_change_nothing_are_left_alone() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keys = {"committer.magic.enabled": "true", "committer.name": "magic", "endpoint": "http://h", "acl": "x"}
        of_bucket = CommitterConfig.from_hadoop({f"fs.s3a.bucket.lake.{key}": text for key, text in keys.items()})
        of_account = CommitterConfig.from_hadoop({"fs.azure.account.key.acct.dfs.core.windows.net": "x"})
    assert of_bucket == of_account == CommitterConfig()


@pytest.mark.parametrize("mode", ["fail", "REPLACE"])
@pytest.mark.parametrize(("name", "scope"), [("directory", "destination"), ("partitioned", "partitions")])
def test_conflict_modes_of_the_staging_committers_hold(name: str, scope: str, mode: str) -> None:
    options = {S + "staging.conflict-mode": mode, S + "name": name, S + "staging.unique-filenames": "true"}
    with pytest.warns(ConfigurationWarning, match="the `committer` argument chooses"):
        config = CommitterConfig.from_hadoop(options)
    assert (config.conflict_mode, config.superseded_scope, config.unique_names) == (mode.lower(), scope, True)
    with pytest.warns(ConfigurationWarning):
        config = CommitterConfig.from_hadoop({**options, "committer.superseded_scope": "directories"})
    assert config.superseded_scope == "directories"


@pytest.mark.parametrize("name", ["directory", "Partitioned"])
@pytest.mark.parametrize("prefix", ["", "spark.hadoop."])
def test_names_are_unique_with_the_staging_committers_as_in_hadoop(name: str, prefix: str) -> None:
    with pytest.warns(ConfigurationWarning, match="the `committer` argument chooses"):
        config = CommitterConfig.from_hadoop({prefix + S + "name": name})
    assert config == CommitterConfig(unique_names=True)
    origin = next(row.origin for row in config.explain().rows if row.field == "unique_names")
    assert origin == f"{S}name={name.lower()}"
    with pytest.warns(ConfigurationWarning):
        config = CommitterConfig.from_hadoop({S + "name": name, S + "staging.unique-filenames": "false"})
    assert config == CommitterConfig()


@pytest.mark.parametrize("prefix", ["", "spark.hadoop."])
@pytest.mark.parametrize(
    ("text", "default", "place"),
    [
        ("hdfs://nn/tmp", None, "hdfs://nn/tmp"),
        ("hdfs://nn/tmp", "abfs://c@a.dfs.core.windows.net", "hdfs://nn/tmp"),
        ("file:/shared/tmp", None, "file:/shared/tmp"),
        ("/tmp/staging", "hdfs://nn:8020/", "hdfs://nn:8020/tmp/staging"),
        ("/tmp/staging", "file:///", "file:/tmp/staging"),
        ("some/staging", "hdfs://nn", "hdfs://nn/user/ana/some/staging"),
        ("tmp/staging", "hdfs://nn", ""),
        ("", "hdfs://nn", ""),
    ],
)
def test_a_place_of_pending_sets_is_taken_as_hadoop_does(
    prefix: str, text: str, default: str | None, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "ana/host@REALM")
    options = {prefix + S + "staging.tmp.path": text} | ({prefix + "fs.defaultFS": default} if default else {})
    config = CommitterConfig.from_hadoop(options)
    assert config == CommitterConfig(pending_set_directory=place)
    key = next(row.origin for row in config.explain().rows if row.field == "pending_set_directory")
    assert key == (prefix + S + "staging.tmp.path" if place else "default")


@pytest.mark.parametrize("name", ["directory", "partitioned"])
@pytest.mark.parametrize(("text", "default"), [("/tmp/staging", None), ("x", None), ("x", "file:///"), ("${x}", None)])
@pytest.mark.filterwarnings("ignore::committer.options.table.ConfigurationWarning")
def test_a_place_that_cannot_be_told_is_refused(name: str, text: str, default: str | None) -> None:
    options = {S + "staging.tmp.path": text, S + "name": name} | ({"fs.defaultFS": default} if default else {})
    with pytest.raises(ConfigurationError, match=r"staging\.tmp\.path") as raised:
        CommitterConfig.from_hadoop(options)
    assert raised.value.next_step


@pytest.mark.parametrize("name", ["magic", "file"])
def test_a_disk_beside_a_committer_that_uses_none_is_warned_of(name: str) -> None:
    with pytest.warns(ConfigurationWarning, match="has no use for it here"):
        config = CommitterConfig.from_hadoop({S + "name": name, "fs.s3a.buffer.dir": "/mnt/disk"})
    assert config == CommitterConfig()


@pytest.mark.parametrize("name", ["magic", "file"])
def test_conflict_modes_beside_a_committer_that_has_none_are_warned_of(name: str) -> None:
    options = {S + "staging.conflict-mode": "replace", S + "name": name, S + "staging.unique-filenames": "false"}
    with pytest.warns(ConfigurationWarning) as caught:
        assert CommitterConfig.from_hadoop(options) == CommitterConfig()
    assert [f"{S}name is {name}" in str(warning.message) for warning in caught] == [True, True]


def test_the_identity_of_a_job() -> None:
    assert job_identity({}) == (None, 0)
    assert job_identity(
        {"spark.hadoop.mapreduce.job.application.attempt.id": "3", "spark.sql.sources.writeJobUUID": " u-1 "}
    ) == ("u-1", 3)
    both = {S + "uuid": "s3a", "spark.sql.sources.writeJobUUID": "u-1", S + "require.uuid": "true"}
    assert job_identity(both) == ("s3a", 0)
    with pytest.raises(ConfigurationError, match="neither"):
        job_identity({"spark.hadoop." + S + "require.uuid": "true"})
    with pytest.raises(ConfigurationError, match="negative"):
        job_identity({"mapreduce.job.application.attempt.id": "-1"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("existing_target", "overwrite"),
        ("pending_set_directory", "hdfs://nn"),
        ("pending_set_directory", "file:///"),
        ("pending_set_directory", 7),
        ("pending_set_user", "a/b"),
        ("pending_set_user", ".."),
        ("pending_set_user", 7),
        ("conflict_mode", ""),
        ("superseded_scope", "all"),
        ("superseded_directories", "p=1"),
        ("superseded_directories", ("p=1", "")),
        ("superseded_directories", ("p=1/",)),
        ("superseded_directories", ("//p=1",)),
        ("superseded_directories", ("p=1/../..",)),
        ("superseded_directories", ("p=1/_temporary",)),
        ("superseded_directories", ("__magic_job-x",)),
        ("superseded_directories", ("_SUCCESS",)),
        ("durability", True),
        ("pending_etags", "text"),
        ("validate_output", 1),
        ("io_concurrency", 0),
        ("io_concurrency", True),
        ("io_concurrency", 2.0),
        ("io_rate", -0.1),
        ("io_rate", float("inf")),
        ("io_rate", "5"),
        ("io_read_weight", -0.1),
        ("io_write_weight", None),
        ("io_delete_weight", True),
        ("io_delete_weight", 1001),
        ("record_save_attempts", 0),
        ("commit_attempts", 0),
        ("task_cleanup", "true"),
        ("record_size_limit", 0),
        ("io_concurrency", 1 << 63),
        ("manifest_queue_capacity", 0),
        ("summary_report_directory", None),
        ("file_list_directory", None),
        ("file_list_format", "csv"),
        ("absolute_roots", "/warehouse"),
        ("absolute_roots", ("/warehouse", "")),
        ("absolute_roots", ("/warehouse", 1)),
    ],
)
def test_a_value_its_field_cannot_have_is_refused(field: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=field):
        CommitterConfig(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=field):
        CommitterConfig().replace(**{field: value})


def test_origins_survive_changes_copies_and_pickles() -> None:
    config = CommitterConfig.from_hadoop({P + "io.threads": "8", P + "validate.output": "true"})
    config = config.replace(validate_output=False, durability="fsync")
    for same in (config, copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert same == config
        origins = {row.field: row.origin for row in same.explain().rows}
        assert origins["io_concurrency"] == P + "io.threads"
        assert origins["validate_output"] == "argument"
        assert origins["durability"] == "argument"
        assert origins["io_rate"] == "default"
    assert CommitterConfig(io_rate=3).explain().rows[FIELDS.index("io_rate")].origin == "argument"
    with pytest.raises(TypeError):
        config.replace(colour="red")


def test_explain_shows_every_choice() -> None:
    text = CommitterConfig(io_rate=3).explain()
    assert isinstance(text, str)
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[1:]] == FIELDS
    assert [row.field for row in text.rows] == FIELDS
    assert all(key_of(row.field) == row.key for row in text.rows)


@pytest.mark.parametrize(
    ("scheme", "config", "default", "rate"),
    [
        ("file", CommitterConfig(), None, None),
        ("gs", CommitterConfig(), 500.0, 500.0),
        ("gs", CommitterConfig(io_rate=0), 500.0, None),
        ("gs", CommitterConfig(io_rate=3, azure_io_rate=9), 500.0, 3),
        ("abfs", CommitterConfig(io_rate=3, azure_io_rate=9), 500.0, 9),
        ("abfss", CommitterConfig(azure_io_rate=0), 500.0, None),
        ("abfs", CommitterConfig(io_rate=3), 500.0, 3),
        ("abfs", CommitterConfig(io_rate=0), None, None),
        ("abfs", CommitterConfig(), 500.0, 500.0),
        # Hadoop's default, and no other scheme's.
        ("abfs", CommitterConfig(), None, 1000.0),
        ("abfss", CommitterConfig.from_hadoop({}), None, 1000.0),
        ("abfss", CommitterConfig.from_hadoop({"spark.hadoop.fs.azure.io.rate.limit": "10000"}), None, 10_000.0),
        ("abfss", CommitterConfig.from_hadoop({"fs.azure.io.rate.limit": "0"}), None, None),
        ("gs", CommitterConfig.from_hadoop({"fs.azure.io.rate.limit": "10000"}), None, None),
        ("file", CommitterConfig(azure_io_rate=5), None, None),
    ],
)
def test_the_rate_of_a_store(scheme: str, config: CommitterConfig, default: float | None, rate: float | None) -> None:
    assert config.io_rate_for(scheme, default) == rate


CONFIGS = st.builds(
    CommitterConfig,
    existing_target=st.sampled_from(["fail", "replace"]),
    conflict_mode=st.sampled_from(["append", "fail", "replace"]),
    durability=st.sampled_from(["none", "fsync"]),
    validate_output=st.booleans(),
    io_concurrency=st.integers(1, 10_000),
    io_rate=st.none() | st.floats(0, 1e6),
    summary_report_directory=st.text(),
)


@given(CONFIGS)
def test_a_record_holds_every_field_and_nothing_else(config: CommitterConfig) -> None:
    record = msgspec.json.decode(msgspec.json.encode(config.to_record()))
    assert list(record) == FIELDS
    assert msgspec.convert(record, CommitterConfig) == config
    assert msgspec.json.decode(msgspec.json.encode(config), type=CommitterConfig) == config


def test_origins_are_no_part_of_a_config_or_its_record() -> None:
    config = CommitterConfig.from_hadoop({P + "io.threads": "8"})
    assert config == CommitterConfig(io_concurrency=8)
    assert hash(config) == hash(CommitterConfig(io_concurrency=8))
    assert msgspec.json.encode(config) == msgspec.json.encode(CommitterConfig(io_concurrency=8))
    with pytest.raises(AttributeError):
        config.io_concurrency = 9  # type: ignore[misc]


def test_a_record_of_another_version() -> None:
    older = {"io_concurrency": 8}
    assert msgspec.convert(older, CommitterConfig) == CommitterConfig(io_concurrency=8)
    newer = {**CommitterConfig(io_concurrency=8).to_record(), "teleport": True}
    assert msgspec.convert(newer, CommitterConfig) == CommitterConfig(io_concurrency=8)


def markdown_table() -> str:
    """Renders the table as Markdown, for docs/options.md."""
    lines = ["| Key | Field | Read as | Note |", "| --- | --- | --- | --- |"]
    for option in OPTIONS:
        key = f"{option.key}<scheme>" if option.key.endswith(".") else option.key
        note = option.note
        if option.when is not None:
            note = f"false: `{option.when[0]}`, true: `{option.when[1]}`"
        field = f"`{option.field}`" if option.field else "none"
        lines.append(f"| `{key}` | {field} | {option.kind if option.field else ''} | {note} |".replace("  ", " "))
    return "\n".join(lines) + "\n"


def test_the_page_of_options_is_in_step() -> None:
    page = Path(__file__).parents[2] / "docs" / "options.md"
    assert page.read_text(encoding="utf-8").endswith(markdown_table())


def test_choices_as_text() -> None:
    config = CommitterConfig.from_text(
        {"io_concurrency": "7", "validate_output": "true", "absolute_roots": "/a, file:///b,", "io_rate": "0"}
    )
    assert (config.io_concurrency, config.validate_output, config.io_rate) == (7, True, 0)
    assert config.absolute_roots == ("/a", "file:///b")
    assert CommitterConfig.from_text({"absolute_roots": ""}).absolute_roots == ()
    assert CommitterConfig.from_text({"absolute_roots": '["/a,b", "/c"]'}).absolute_roots == ("/a,b", "/c")
    assert CommitterConfig.from_text({"absolute_roots": "[/a, /c"}).absolute_roots == ("[/a", "/c")
