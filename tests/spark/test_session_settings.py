"""What a session's configuration says to `write`; and that its secrets stay where they are."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from committer.errors import ConfigurationError
from committer.paths import StorePath
from committer.spark import foreach_partition, write
from committer.spark.job_side import answered
from committer.spark.session_settings import _tell_unknown, choices_of, set_by_user, store_settings
from committer.stores.registry import options_of
from committer.sync import TaskAttempt

from .cluster import environment

MANIFEST = "mapreduce.manifest.committer."
CANARY = "canary-that-no-text-may-show"
ABFSS = "abfss://data@acct.dfs.core.windows.net/table"


def test_choices_are_read_and_what_was_given_wins() -> None:
    session = {
        f"{MANIFEST}validate.output": "true",
        f"{MANIFEST}delete.target.files": "true",
        f"{MANIFEST}io.threads": "12",
        "fs.azure.io.rate.limit": "100",
        "fs.s3a.connection.maximum": "500",
        "committer.durability": "fsync",
        "fs.s3a.committer.staging.conflict-mode": "replace",
    }
    everything = {"validate_output": True, "existing_target": "replace", "io_concurrency": 12, "azure_io_rate": 100.0}
    assert choices_of(session, []) == {**everything, "durability": "fsync"}
    given = ["existing_target", f"spark.hadoop.{MANIFEST}IO.threads", "DURABILITY", "partitionBy"]
    assert choices_of(session, given) == {"validate_output": True, "azure_io_rate": 100.0}


def test_conflicts_are_the_mode_s_where_there_is_one() -> None:
    session = {"fs.s3a.committer.staging.conflict-mode": "fail"}
    assert choices_of(session, []) == {}
    assert choices_of(session, [], mode=None) == {"conflict_mode": "fail"}
    assert choices_of(session, ["conflict_mode"], mode=None) == {}


@pytest.mark.parametrize(
    ("mode", "conflicts", "said"),
    [
        ("append", "fail", "conflict_mode=fail"),
        ("append", "replace", "the mode overwrite"),
        ("append", "append", ""),
        ("overwrite", "replace", ""),
        ("overwrite", "fail", "the mode append and the option conflict_mode=fail"),
        ("error", "replace", ""),
        (None, "fail", ""),
    ],
)
def test_a_conflict_mode_that_the_save_mode_overrules_is_told(
    caplog: pytest.LogCaptureFixture, mode: str | None, conflicts: str, said: str
) -> None:
    session = {"fs.s3a.committer.name": "partitioned", "fs.s3a.committer.staging.conflict-mode": conflicts}
    with caplog.at_level("WARNING", logger="committer.spark"):
        choices_of(session, [], mode=mode)
        told = [record.getMessage() for record in caplog.records if "staging.conflict-mode" in record.getMessage()]
        assert bool(told) == bool(said)
        assert all(said in one for one in told)
        caplog.clear()
        choices_of(session, ["conflict_mode"], mode=mode)
    assert "staging.conflict-mode" not in caplog.text


def test_what_a_session_cannot_choose_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="committer.spark"):
        choices_of(
            {
                "mapreduce.outputcommitter.factory.scheme.s3a": "org.example.Factory",
                "fs.s3a.committer.staging.tmp.path": "/shared/pending",
                "fs.s3a.connection.maximum": "9",
            },
            [],
        )
    assert [record.getMessage().split()[7] for record in caplog.records] == [
        "mapreduce.outputcommitter.factory.scheme.s3a",
        "fs.s3a.committer.staging.tmp.path",
    ]


def test_keys_of_one_place_count_there(caplog: pytest.LogCaptureFixture) -> None:
    session = {
        "fs.s3a.multipart.size": "64m",
        "fs.s3a.bucket.my.lake.multipart.size": "32m",
        "fs.s3a.bucket.other.multipart.size": "16m",
        "fs.s3a.bucket.my.lake.committer.staging.conflict-mode": "fail",
        "fs.azure.io.rate.limit": "100",
        "fs.azure.io.rate.limit.acct.dfs.core.windows.net": "50",
        "fs.azure.io.rate.limit.other.dfs.core.windows.net": "20",
    }
    with caplog.at_level("WARNING", logger="committer.spark"):
        lake = choices_of(session, [], mode=None, place=StorePath.of("s3a://my.lake/table"))
    assert lake == {"multipart_size": 32 << 20, "azure_io_rate": 100.0}
    [told] = caplog.records
    assert "fs.s3a.bucket.my.lake.committer.staging.conflict-mode" in told.getMessage()
    assert choices_of(session, [], mode=None, place=StorePath.of(ABFSS)) == {
        "multipart_size": 64 << 20,
        "azure_io_rate": 50.0,
    }


def test_a_value_that_is_none_is_refused_and_a_misspelt_key_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigurationError, match=r"io\.threads cannot be 'many'"):
        choices_of({f"{MANIFEST}io.threads": "many"}, [])
    with caplog.at_level("WARNING", logger="committer.spark"):
        assert choices_of({f"{MANIFEST}io.thread": "12"}, []) == {}
    assert "did you mean" in caplog.text


def test_options_of_the_store_that_are_no_secret() -> None:
    session = {
        "fs.s3a.endpoint": "http://h:1",
        "fs.s3a.bucket.lake.endpoint": "http://h:2",
        "fs.s3a.bucket.other.endpoint": "http://h:3",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
        "fs.s3a.bucket.lake.aws.credentials.provider": "AssumedRoleCredentialProvider",
        "fs.s3a.threads.max": "9",
        "fs.azure.account.oauth2.client.id": "x",
    }
    endpoints = {key: session[key] for key in ("fs.s3a.endpoint", "fs.s3a.bucket.lake.endpoint")}
    style = {"fs.s3a.path.style.access": "true"}
    assert store_settings(session, "s3a://lake/t", []) == ({**endpoints, **style}, "")
    assert store_settings(session, "s3a://lake/t", ["aws_endpoint"]) == (style, "")
    for switch in ("virtual_hosted_style_request", "aws_virtual_hosted_style_request", "addressing_style"):
        assert store_settings(session, "s3a://lake/t", [switch]) == (endpoints, "")
    assert store_settings(session, "/data/t", []) == ({}, "")


@pytest.mark.parametrize(
    ("path", "session", "told"),
    [
        (
            "gs://lake/t",
            {"fs.gs.encryption.key": CANARY, "fs.gs.impl": "c", "fs.gs.auth.type": "COMPUTE_ENGINE", "fs.s3a.x": "1"},
            "fs.gs.encryption.key have",
        ),
        ("gs://lake/t", {"fs.gs.auth.typ": "UNAUTHENTICATED"}, "fs.gs.auth.typ (did you mean fs.gs.auth.type?) have"),
        (
            "s3a://lake/t",
            {
                "fs.s3a.server-side-encryption.key": CANARY,
                "fs.s3a.bucket.lake.nonsense": "1",
                "fs.s3a.bucket.other.nonsense": "1",
                "fs.s3a.bucket.lake.multipart.size": "8m",
                "fs.s3a.committer.nonsense": "1",
                "fs.s3a.buffer.dir": "/fast",
            },
            "fs.s3a.server-side-encryption.key, fs.s3a.bucket.lake.nonsense have",
        ),
        (
            ABFSS,
            {
                "fs.azure.nonsense.other.dfs.core.windows.net": "1",
                "fs.azure.nonsense.acct.dfs.core.windows.net": "1",
                "fs.azure.io.rate.limit.acct.dfs.core.windows.net": "1",
            },
            "fs.azure.nonsense.acct.dfs.core.windows.net have",
        ),
        ("gs://lake/t", {"fs.gs.project.id": "p", "fs.azure.nonsense": "1"}, ""),
    ],
)
def test_a_key_of_the_store_that_has_no_effect_is_told_once(
    caplog: pytest.LogCaptureFixture, path: str, session: dict[str, str], told: str
) -> None:
    """A write that is to be encrypted, and is not, must not look as if it were."""
    _tell_unknown.cache_clear()
    with caplog.at_level("WARNING", logger="committer.spark"):
        for _ in range(2):
            store_settings(session, path, [])
    assert [told in record.getMessage() for record in caplog.records] == [True] * bool(told)
    assert CANARY not in caplog.text


@pytest.mark.parametrize(
    ("path", "key", "name"),
    [
        ("s3://lake/t", "fs.s3a.secret.key", "secret_access_key"),
        ("s3://lake/t", "fs.s3a.bucket.lake.access.key", "access_key_id"),
        ("s3://lake/t", "fs.s3a.session.token", "session_token"),
        (ABFSS, "fs.azure.account.key.acct.dfs.core.windows.net", "account_key"),
        (ABFSS, "fs.azure.sas.fixed.token.data.acct.dfs.core.windows.net", "sas_token"),
    ],
)
def test_a_secret_is_left_and_it_is_said_how_to_give_it(path: str, key: str, name: str) -> None:
    options, withheld = store_settings({key: CANARY}, path, [])
    assert options == {}
    assert f"spark.hadoop.{key}" in withheld
    assert f"storage.{name}=env:NAME" in withheld
    assert CANARY not in withheld
    assert store_settings({key: CANARY}, path, [name]) == ({}, "")


def test_an_endpoint_that_holds_a_password_is_left() -> None:
    options, withheld = store_settings({"fs.s3a.endpoint": f"http://me:{CANARY}@h:1"}, "s3://lake/t", [])
    assert (options, CANARY in withheld) == ({}, False)
    assert "storage.endpoint_url=env:NAME" in withheld


def test_a_principal_counts_with_its_secret_and_that_of_another_account_never() -> None:
    mine, other = (f"fs.azure.account.oauth2.client.id.{account}.dfs.core.windows.net" for account in ("acct", "other"))
    session = {mine: "me", other: "you", "fs.azure.account.auth.type": "OAuth"}
    assert store_settings(session, ABFSS, []) == ({}, "")
    assert store_settings(session, ABFSS, ["client_secret"]) == ({mine: "me"}, "")


@pytest.mark.parametrize("scheme", ["s3", "abfss"])
def test_every_key_of_a_store_is_a_secret_or_can_be_shown(scheme: str) -> None:
    table = options_of(scheme)
    assert table is not None
    path = {"s3": "s3://lake/t", "abfss": ABFSS}[scheme]
    options, withheld = store_settings(dict.fromkeys(table.hadoop_keys, CANARY), path, [])
    secret = {key for option in table.options if option.secret for key in option.hadoop}
    assert not secret & options.keys()
    assert all(f"spark.hadoop.{key}" in withheld for key in secret)


def test_a_client_of_connect_is_asked_nothing() -> None:
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    assert set_by_user(frame, "/data") == {}


# --- A session ----------------------------------------------------------------------------------------------------

SCRIPT = """
import json, logging, sys, warnings

warnings.simplefilter("ignore")
logging.basicConfig(level=logging.DEBUG)
logging.getLogger("py4j").setLevel(logging.INFO)
from pyspark.sql import SparkSession
import committer

settings, root, table = json.loads(sys.argv[1]), *sys.argv[2:]
builder = SparkSession.builder.master("local[1]")
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
# From here on: to make the session PySpark itself carries every setting.
logging.getLogger("py4j").setLevel(logging.DEBUG)
df = spark.range(3)
local = [
    committer.spark.write(df, f"{root}/from-session"),
    committer.spark.write(df, f"{root}/given", config={"mark_successful_jobs": True}),
    committer.spark.write(df, f"{root}/whole", config=committer.CommitterConfig()),
]
keys = {"access_key_id": "env:COMMITTER_TEST_S3_ID", "secret_access_key": "env:COMMITTER_TEST_S3_KEY"}
there = committer.spark.write(df, table, storage_options=keys)


def lines(rows, task):
    with task.open(f"part-{task.task}") as file:
        file.write(b"".join(b"." for row in rows))


by_name = {f"storage.{key}": value for key, value in keys.items()}
local += [
    committer.spark.foreach_partition(df, f"{root}/own", lines),
    committer.spark.foreach_partition(df, f"{root}/own-given", lines, config={"mark_successful_jobs": True}),
    committer.spark.foreach_partition(df, f"{root}/own-whole", lines, config=committer.CommitterConfig()),
    committer.spark.foreach_partition(df, table + "-own", lines, storage_options=keys),
]
committer.spark.foreach_batch(f"{root}/batch", query="q")(df, 0)
committer.spark.foreach_batch(f"{root}/batch-given", query="q", options={"mark_successful_jobs": True})(df, 0)
committer.spark.foreach_batch(table + "-batch", query="q", options=by_name)(df, 0)
for call in (
    lambda: committer.spark.write(df, table + "-refused"),
    lambda: committer.spark.foreach_partition(df, table + "-refused", lines),
    lambda: committer.spark.foreach_batch(table + "-refused", query="q")(df, 0),
):
    try:
        call()
    except Exception as error:
        print(json.dumps([type(error).__name__, str(error)]))
df.write.format("committer").mode("append").save(f"{root}/by-format")
print(json.dumps([report.files_committed for report in [*local, there]]))
spark.stop()
for call in (
    lambda: committer.spark.write(df, f"{root}/late"),
    lambda: committer.spark.foreach_partition(df, f"{root}/late", lines),
    lambda: committer.spark.foreach_batch(f"{root}/late", query="q")(df, 1),
):
    try:
        call()
    except committer.errors.ConfigurationError as error:
        assert "was stopped" in str(error)
    else:
        raise AssertionError
"""


@pytest.mark.parametrize("writer", ["spark", "python"])
def test_a_secret_that_a_write_does_not_need_is_carried_nowhere(
    committing: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, writer: str
) -> None:
    """py4j logs what it carries: the secrets of a session have no business in a write to a local disk."""
    java = committing.sparkContext._jsc
    keys = (
        "fs.s3a.secret.key",
        "fs.azure.account.key.acct.dfs.core.windows.net",
        "fs.gs.auth.service.account.private.key",
    )
    for key in keys:
        java.sc().conf().set(f"spark.hadoop.{key}", CANARY)
        java.hadoopConfiguration().set(key, CANARY)
    asked: list[str] = []

    def listening(operation: str, request: str, **more: Any) -> str:
        asked.append(request)
        return answered(operation, request, **more)

    try:
        with caplog.at_level(logging.DEBUG, logger="py4j"), pytest.MonkeyPatch.context() as listened:
            listened.setattr("committer.spark.protocol_session.answered", listening)
            write(committing.range(2), tmp_path / "t", writer=writer)
            foreach_partition(committing.range(2), tmp_path / "u", write_nothing)
    finally:
        for key in keys:
            java.sc().conf().remove(f"spark.hadoop.{key}")
            java.hadoopConfiguration().unset(key)
    assert "spark.hadoop.fs.s3a.secret.key" in caplog.text
    assert CANARY not in caplog.text
    assert len(asked) == (2 if writer == "spark" else 0)
    assert not any(CANARY in request for request in asked)


def write_nothing(rows: Iterator[Row], task: TaskAttempt) -> None:
    for _row in rows:
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    pytest.importorskip("boto3")
    from tests.s3.servers import seaweedfs

    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.mark.spark
@pytest.mark.java
def test_a_session_that_says_where_the_store_is_and_holds_a_secret(server: object, tmp_path: Path) -> None:
    from tests.s3.servers import BUCKET, KEY, KEY_ID, Server

    assert isinstance(server, Server)
    events, output = tmp_path / "events", tmp_path / "out"
    events.mkdir()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.hadoop.fs.s3a.endpoint": server.url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": CANARY,
        "spark.hadoop.fs.s3a.secret.key": CANARY,
    }
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    inherited = environment(tmp_path / "scratch")
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(settings), str(output), f"s3a://{BUCKET}/session"],
        capture_output=True,
        text=True,
        timeout=220,
        cwd=tmp_path,
        env={
            **{key: value for key, value in inherited.items() if not key.startswith("AWS_")},
            "COMMITTER_TEST_S3_ID": KEY_ID,
            "COMMITTER_TEST_S3_KEY": KEY,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *refused, files = (json.loads(line) for line in done.stdout.splitlines())
    assert files == [1] * 8
    marked = {path.parent.name for path in output.glob("*/_SUCCESS")}
    assert marked == {"given", "whole", "by-format", "own-given", "own-whole", "batch-given"}
    assert len(refused) == 3
    for kind, said in refused:
        assert kind == "StorePermissionError", said
        assert "storage.access_key_id=env:NAME, storage.secret_access_key=env:NAME" in said
    assert done.stderr.count("storage.secret_access_key=env:NAME") >= 1
    listed = server.client.list_objects_v2(Bucket=BUCKET, Prefix="session")["Contents"]
    assert {entry["Key"].partition("/")[0] for entry in listed} == {"session", "session-own", "session-batch"}
    bodies = [server.client.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read() for entry in listed]
    texts = [path.read_bytes() for top in (events, output) for path in top.rglob("*") if path.is_file()]
    assert len(texts) > 1
    for text in (done.stdout.encode(), done.stderr.encode(), *bodies, *texts):
        assert CANARY.encode() not in text
