"""Options and schemas are checked before a job is set up."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import types as T
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from committer.errors import CommitterError, ConfigurationError, InvalidPathError, UnsupportedError
from committer.options.config import CommitterConfig
from committer.spark.formats.parquet import ParquetFormat
from committer.spark.options import WriteOptions, parse_options
from committer.spark.schema import arrow_schema, plan_files

DEST = "file:///data/table"


def options(**more: str) -> WriteOptions:
    return parse_options({"path": DEST, **more})


def test_defaults() -> None:
    assert options() == WriteOptions(path=DEST)


def test_keys_come_in_any_case_and_values_as_text() -> None:
    found = parse_options(
        {
            "path": DEST,
            "FORMAT": "Parquet",
            "partitionby": "a, b",
            "Compression": "ZSTD",
            "EXISTING_TARGET": "replace",
            "validate_output": "true",
            "io_concurrency": "12",
            "io_rate": "2.5",
            "job_id": "job-1",
            "committer": "manifest",
        }
    )
    assert found == WriteOptions(
        path=DEST,
        partition_by=("a", "b"),
        file_format=ParquetFormat("zstd"),
        job_id="job-1",
        committer="manifest",
        config=CommitterConfig(existing_target="replace", validate_output=True, io_concurrency=12, io_rate=2.5),
    )


def test_a_partition_column_with_a_comma_goes_into_a_json_list() -> None:
    assert options(partitionBy='["a,b", "c"]').partition_by == ("a,b", "c")
    assert options(partitionBy=" ").partition_by == ()


@pytest.mark.parametrize(
    ("more", "problem", "next_step"),
    [
        ({"partition_by": "a"}, "'partition_by' is not known", "did you mean 'partitionBy'?"),
        ({"exsting_target": "replace"}, "not known", "did you mean 'existing_target'?"),
        ({"zzz": "1"}, "'zzz' is not known", "the options are"),
        ({"existing_target": "maybe"}, "the option existing_target cannot be 'maybe'", ""),
        ({"io_concurrency": "many"}, "the option io_concurrency cannot be 'many'", ""),
        ({"compression": "rar"}, "'rar' is not known", "snappy"),
        ({"partitionBy": "a,,b"}, "empty name", 'partitionBy="month,day"'),
        ({"partitionBy": "[1]"}, "not a JSON list of names", 'partitionBy="month,day"'),
        ({"partitionBy": str(["a", "b"])}, "not a JSON list of names", "Spark makes a text of a list"),
        ({"format": "avro"}, "'avro' cannot be written", "parquet"),
        (
            {"maxRecordsPerFile": "many"},
            "the option maxRecordsPerFile cannot be 'many'",
            "a number of rows, such as 1000000",
        ),
        ({"path": ""}, "no path", "INSERT INTO"),
    ],
)
def test_what_cannot_be_honoured_is_refused(more: dict[str, str], problem: str, next_step: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        options(**more)
    assert problem in str(raised.value)
    assert next_step in raised.value.next_step
    assert raised.value.outcome == "unchanged"


@pytest.mark.parametrize("path", ["data/table", "./t", "~/t", "C", ":x"])
def test_relative_paths_are_refused(path: str) -> None:
    with pytest.raises(InvalidPathError, match="relative"):
        options(path=path)


@pytest.mark.parametrize("path", ["/data/table", "file:/data", "abfs://c@account.dfs.core.windows.net/t"])
def test_absolute_paths_and_uris_are_taken(path: str) -> None:
    assert options(path=path).path == path


# --- Storage options -----------------------------------------------------------------------------------------------


def storage(**references: str) -> WriteOptions:
    return options(**{f"storage.{key}": value for key, value in references.items()})


@pytest.mark.parametrize("value", ["hunter2-very-secret", "env:", "file", "https://hunter2-very-secret", ""])
def test_a_literal_secret_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"storage\.account_key") as raised:
        storage(account_key=value)
    assert "hunter2" not in repr(raised.value) + str(raised.value)


def test_references_are_resolved_late_and_never_pickled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    found = storage(account_key="env:TEST_COMMITTER_KEY", token=f"file:{tmp_path / 'token'}")
    monkeypatch.setenv("TEST_COMMITTER_KEY", "from-the-environment")
    assert found.storage_options() == {"account_key": "from-the-environment", "token": "from-a-file"}
    assert b"from-the-environment" not in pickle.dumps(found)
    assert b"from-a-file" not in pickle.dumps(found)
    assert "from-" not in repr(found)


def test_what_is_no_secret_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names and rules of the store that the path names."""
    monkeypatch.setenv("TEST_COMMITTER_KEY", "hunter2")
    given = {"storage.endpoint_url": "http://h:1", "storage.fs.s3a.secret.key": "env:TEST_COMMITTER_KEY"}
    found = options(path="s3://lake/table", **given)
    assert found.storage_options() == {"endpoint_url": "http://h:1", "fs.s3a.secret.key": "hunter2"}
    assert b"hunter2" not in pickle.dumps(found)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("aws_secret_access_key", "must say where its value is found"),
        ("fs.s3a.bucket.lake.access.key", "must say where its value is found"),
        ("session", "takes an object of a program"),
        ("regoin", "did you mean 'region'?"),
        ("account_key", "the options are endpoint_url"),
    ],
)
def test_storage_options_that_the_store_would_refuse(key: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        options(path="s3://lake/table", **{f"storage.{key}": "hunter2"})
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("reference", ["env:TEST_COMMITTER_UNSET", "file:/no/such/file"])
def test_a_reference_that_leads_nowhere(reference: str) -> None:
    with pytest.raises(ConfigurationError, match=r"storage\.key refers to") as raised:
        storage(key=reference).storage_options()
    assert "every executor" in raised.value.next_step


# --- Schemas -------------------------------------------------------------------------------------------------------


def schema(**columns: T.DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_partition_columns_leave_the_files_and_the_rest_keeps_its_order() -> None:
    plan = plan_files(schema(a=IntegerType(), Day=StringType(), c=IntegerType(), d=IntegerType()), ("day", "a"))
    assert plan.partitions == (("day", 1), ("a", 0))
    assert plan.columns == (2, 3)
    assert StructType.fromJson(msgspec.json.decode(plan.schema)).names == ["c", "d"]
    assert arrow_schema(plan).names == ["c", "d"]


def test_the_exact_spelling_wins() -> None:
    both = StructType([StructField(name, IntegerType()) for name in ("A", "a", "b")])
    assert plan_files(both, ("a",), case_sensitive=True).partitions == (("a", 1),)
    unlike = StructType([StructField(name, IntegerType()) for name in ("Ab", "aB", "c")])
    with pytest.raises(ConfigurationError, match="several columns"):
        plan_files(unlike, ("ab",), case_sensitive=True)
    with pytest.raises(ConfigurationError, match="columns 'Ab' and 'aB' differ in case only"):
        plan_files(unlike, ("ab",))


@pytest.mark.parametrize(
    ("columns", "partition_by", "problem"),
    [
        (("a", "b"), ("a", "b"), "every column is a partition column"),
        (("a", "b"), ("a", "a"), "twice"),
        (("a", "b"), ("c",), "no column 'c'"),
        (("a", "a"), (), "several columns are named 'a'"),
        ((), (), "no column to write"),
    ],
)
def test_schemas_that_make_no_sense(columns: tuple[str, ...], partition_by: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        plan_files(StructType([StructField(name, IntegerType()) for name in columns]), partition_by)


@pytest.mark.parametrize(
    "kind",
    [
        T.BinaryType(),
        T.ArrayType(IntegerType()),
        T.MapType(StringType(), IntegerType()),
        schema(x=IntegerType()),
        T.NullType(),
        T.VariantType(),
        T.CalendarIntervalType(),
        T.YearMonthIntervalType(),
        T.StringType("UTF8_LCASE"),
    ],
)
def test_types_that_cannot_name_partitions(kind: T.DataType) -> None:
    with pytest.raises(UnsupportedError, match="cannot name partitions"):
        plan_files(schema(p=kind, v=IntegerType()), ("p",))


@pytest.mark.parametrize(
    "kind", [T.YearMonthIntervalType(), T.CalendarIntervalType(), T.VariantType(), T.NullType(), StructType([])]
)
def test_types_that_cannot_be_written_wherever_they_hide(kind: T.DataType) -> None:
    for nested in (kind, T.ArrayType(kind), T.MapType(StringType(), kind), schema(x=kind)):
        with pytest.raises(UnsupportedError, match=r"the column 'v.*cannot be written") as raised:
            plan_files(schema(v=nested), ())
        assert isinstance(raised.value, CommitterError)


# --- Hadoop's keys, and secrets under any name ---------------------------------------------------------------------


def test_hadoops_keys_are_taken_as_spark_folds_them() -> None:
    found = options(
        **{
            "mapreduce.manifest.committer.io.threads": "12",
            "spark.hadoop.mapreduce.manifest.committer.delete.target.files": "TRUE",
            "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
            "mapreduce.fileoutputcommitter.algorithm.version": "2",
            "mapreduce.outputcommitter.factory.scheme.abfs": "org.example.Factory",
            "committer.durability": "fsync",
            "fs.azure.io.rate.limit": "100",
        }
    )
    assert found.config == CommitterConfig(
        io_concurrency=12,
        existing_target="replace",
        mark_successful_jobs=False,
        durability="fsync",
        azure_io_rate=100.0,
    )


def test_a_choice_under_its_own_name_wins() -> None:
    found = options(**{"io_concurrency": "3", "mapreduce.manifest.committer.io.threads": "12"})
    assert found.config.io_concurrency == 3


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"mapreduce.manifest.committer.io.thread": "12"}, "did you mean mapreduce.manifest.committer.io.threads"),
        ({"mapreduce.manifest.committer.io.threads": "many"}, "io.threads cannot be 'many'"),
        ({"committer.io_concurrency": "1"}, "made with mapreduce.manifest.committer.io.threads"),
        ({"mapreduce.job.name": "x"}, "'mapreduce.job.name' is not known"),
        ({"existing": "maybe"}, "the option existing cannot be 'maybe'"),
        ({"partitionOverwriteMode": "some"}, "static"),
        ({"keep_report": "perhaps"}, "keep_report cannot be 'perhaps'"),
    ],
)
def test_keys_and_values_that_hadoop_or_spark_would_pass_over(more: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        options(**more)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    "key",
    [
        "fs.azure.account.key.acct.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.key.acct.dfs.core.windows.net",
        "fs.azure.account.oauth2.client.secret",
        "fs.azure.sas.fixed.token.acct.dfs.core.windows.net",
        "fs.azure.sas.container.acct.dfs.core.windows.net",
        "fs.s3a.access.key",
        "fs.s3a.secret.key",
        "fs.s3a.session.token",
        "fs.gs.auth.service.account.private.key",
        "accountKey",
        "account_key",
        "sas",
        "sasToken",
        "SAS_KEY",
        "aws_secret_access_key",
        "password",
        "db.passwd",
        "connection_string",
        "apiKey",
        "credential",
        "committer.token",
    ],
)
def test_a_secret_is_refused_by_its_keys_name(key: str) -> None:
    with pytest.raises(ConfigurationError, match="looks like a secret") as raised:
        options(**{key: "hunter2"})
    assert key in str(raised.value)
    assert "hunter2" not in str(raised.value) + repr(raised.value)
    assert "env:NAME" in raised.value.next_step


@pytest.mark.parametrize("key", ["sassafras", "keys", "monkey", "classname"])
def test_other_unknown_keys_are_just_unknown(key: str) -> None:
    with pytest.raises(ConfigurationError, match="is not known"):
        options(**{key: "x"})


@pytest.mark.parametrize("path", ["s3://key:hunter2@bucket/t", "abfs://c:hunter2@account/t"])
def test_a_path_holds_no_secret(path: str) -> None:
    with pytest.raises(InvalidPathError) as raised:
        options(path=path)
    assert "hunter2" not in str(raised.value)


def test_every_own_option_is_no_secret() -> None:
    assert options(existing="IGNORE", partitionOverwriteMode="Dynamic", keep_report="True", carry_errors="TRUE") == (
        WriteOptions(path=DEST, existing="ignore", overwrite_mode="dynamic", keep_report=True, carry_errors=True)
    )


def test_a_hadoop_option_that_can_have_no_effect_is_logged_where_the_driver_sees_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {"fs.s3a.committer.name": "directory", "mapreduce.outputcommitter.factory.scheme.abfs": "org.example.F"}
    with caplog.at_level("WARNING", logger="committer.spark"):
        parse_options({"path": "/d", **options})
    assert [name for name in options if any(name in record.getMessage() for record in caplog.records)] == [*options]


@pytest.mark.parametrize("key", ["fs.s3a.committer.nam", "mapreduce.outputcommitter.factory.clas"])
def test_a_misspelt_hadoop_option_is_refused(key: str) -> None:
    with pytest.raises(ConfigurationError, match="did you mean"):
        parse_options({"path": "/d", key: "magic"})
