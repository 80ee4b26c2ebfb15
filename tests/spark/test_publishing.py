"""``publish="spark"``: Spark's executors publish what a job has decided."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import committer.spark
from committer import CommitterConfig, sync
from committer.api.publishing import PublishAccount, PublishChunk
from committer.errors import CommitterError, UnsupportedError
from committer.options.references import Found
from committer.paths import StorePath
from committer.spark.publishing import SparkPool, sendable_storage

FILES = 24


def visible(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.relative_to(root).as_posix().startswith(("_", "."))
    }


def write(rows: Any, task: Any) -> None:
    for row in rows:
        with task.open(f"p={row.id % 3}/part-{row.id:03}") as file:
            file.write(f"{row.id}".encode())


EXPECTED = {f"p={number % 3}/part-{number:03}": f"{number}".encode() for number in range(FILES)}


class Given:
    """Chunks that drivers gave to Spark while a test ran, and the accounts that came back."""

    def __init__(self) -> None:
        self.chunks: list[PublishChunk] = []
        self.accounts: list[PublishAccount] = []

    def groups(self) -> set[str]:
        """The groups of Spark jobs that published."""
        return {f"committer-publish-{chunk.spec.job_id}" for chunk in self.chunks}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    seen, run = Given(), SparkPool._run

    def noted(self: SparkPool, chunk: PublishChunk) -> PublishAccount:
        seen.chunks.append(chunk)
        account = run(self, chunk)
        seen.accounts.append(account)
        return account

    monkeypatch.setattr(SparkPool, "_run", noted)
    return seen


def test_foreach_partition(spark: SparkSession, tmp_path: Path, given: Given) -> None:
    frame = spark.range(FILES).repartition(3)
    report = committer.spark.foreach_partition(frame, tmp_path / "out", write, config={"publish": "spark"})
    assert visible(tmp_path / "out") == EXPECTED
    assert report.files_committed == FILES
    assert sum(account.files for account in given.accounts) == FILES
    tracker = spark.sparkContext.statusTracker()
    [group] = given.groups()
    assert len(tracker.getJobIdsForGroup(group)) == len(given.chunks)
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_sparks_own_writers(committing: SparkSession, tmp_path: Path, mode: str, given: Given) -> None:
    root = tmp_path / "out"
    frame = committing.range(FILES).repartition(3).selectExpr("id", "id % 3 AS p")
    committer.spark.configure(committing, config={"publish": "spark"})
    for _time in range(2 if mode == "overwrite" else 1):
        frame.write.mode(mode).partitionBy("p").parquet(str(root))
    assert sorted(row.id for row in committing.read.parquet(str(root)).collect()) == list(range(FILES))
    assert given.accounts
    assert {account.problem for account in given.accounts} == {""}
    assert not (root / "_temporary").exists()
    assert sync.validate(root).ok


def test_an_option_of_a_write(committing: SparkSession, tmp_path: Path, given: Given) -> None:
    frame = committing.range(5)
    frame.write.option("committer.publish", "spark").parquet(str(tmp_path / "on-executors"))
    assert given.accounts
    before = len(given.accounts)
    frame.write.parquet(str(tmp_path / "in-the-driver"))
    frame.write.option("committer.publish", "auto").parquet(str(tmp_path / "few"))
    assert len(given.accounts) == before


def test_committer_spark_write(committing: SparkSession, tmp_path: Path, given: Given) -> None:
    report = committer.spark.write(committing.range(9), tmp_path / "out", config={"publish": "spark"})
    assert report.files_committed == sum(account.files for account in given.accounts) > 0


def test_through_the_data_source_it_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="publish='spark'") as caught:
        committer.spark.write(spark.range(3), tmp_path / "out", config={"publish": "spark"}, writer="python")
    assert "configure" in caught.value.next_step
    assert not visible(tmp_path / "out")
    committer.spark.write(spark.range(3), tmp_path / "out", config={"publish": "auto"}, writer="python")
    assert visible(tmp_path / "out")


def dies(_storage: object, _chunk: object) -> None:
    os._exit(1)


def test_workers_that_die_change_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from committer.spark import publishing

    monkeypatch.setattr(publishing, "publish_in_task", dies)
    frame = spark.range(4).repartition(1)
    committer.spark.foreach_partition(frame, tmp_path / "out", write, config={"publish": "spark"})
    assert visible(tmp_path / "out") == {name: data for name, data in EXPECTED.items() if int(data) < 4}
    assert "its driver does that" in caplog.text


def test_a_refusal_on_executors_takes_the_job_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, run = tmp_path / "out", SparkPool._run
    # A directory that one task filled alone, and that is not there yet, is renamed whole by the driver.
    (root / "p=0").mkdir(parents=True)

    def after_another_wrote(self: SparkPool, chunk: PublishChunk) -> PublishAccount:
        (root / "p=0" / "part-000").write_bytes(b"foreign")
        return run(self, chunk)

    monkeypatch.setattr(SparkPool, "_run", after_another_wrote)
    with pytest.raises(CommitterError):
        committer.spark.foreach_partition(spark.range(6).repartition(2), root, write, config={"publish": "spark"})
    assert visible(root) == {"p=0/part-000": b"foreign"}


def test_no_secret_is_sent() -> None:
    secret, named = "hunter2secret", Found.by("env:HOME", "storage.secret_access_key")
    sent = sendable_storage(
        StorePath.from_uri("s3://bucket/table"),
        {
            "endpoint_url": "http://127.0.0.1:9000",
            "secret_access_key": named,
            "region": "us-east-1",
            "session": object(),
            "fs.s3a.path.style.access": "true",
            "no_option_of_s3": "x",
        },
    )
    assert sent["secret_access_key"] == "env:HOME"
    assert sent["region"] == "us-east-1"
    assert sent.keys() == {"endpoint_url", "secret_access_key", "region", "fs.s3a.path.style.access"}
    withheld = sendable_storage(StorePath.from_uri("s3://bucket/table"), {"secret_access_key": secret})
    assert secret not in str(withheld)
    assert secret not in str(
        sendable_storage(StorePath.from_uri("s3://b/t"), {"endpoint_url": f"https://user:{secret}@host"})
    )


def test_the_choice_is_named() -> None:
    with pytest.raises(CommitterError):
        CommitterConfig(publish="executors")  # type: ignore[arg-type]
