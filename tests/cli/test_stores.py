"""What a command says of a store that cannot be had: which there are, and what to install."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

COMMANDS = ("jobs", "validate", "doctor", "cleanup --older-than 1d", "plan job-1", "recover job-1", "uploads list")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("gcs://b/x", "write gs://BUCKET/PATH"),
        ("s3n://b/x", "write s3a://BUCKET/PATH"),
        ("oss://b/x", "the service oss has no endpoint_url"),
        (
            "ftp://host/x",
            "stores for abfs:, abfss:, az:, file:, gs:, hdfs:, memory:, oss:, s3:, s3a:, wasb:, wasbs: paths",
        ),
    ],
)
def test_a_scheme_without_store(run: Run, command: str, uri: str, said: str) -> None:
    """One sentence and what to do, with the code of a command that cannot be honoured."""
    name, *more = command.split(" ", 1)
    words = ["uploads", "list", uri] if name == "uploads" else [name, uri, *"".join(more).split()]
    result = run(*words)
    assert result.code == 2
    assert said in result.err
    assert "pip install" not in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("uri", "storage", "said"),
    [
        ("s3://lake/t", "secret_access_key=hunter2", "must say where its value is found"),
        ("s3://lake/t", "fs.s3a.bucket.lake.secret.key=hunter2", "must say where its value is found"),
        ("s3://lake/t", "session=hunter2", "takes an object of a program"),
        ("s3://lake/t", "regoin=hunter2", "did you mean 'region'?"),
        ("abfss://data@acct.dfs.core.windows.net/t", "sas_key=hunter2", "must say where its value is found"),
        ("abfss://data@acct.dfs.core.windows.net/t", "connection_string=hunter2", "must say where its value is found"),
        ("memory://lake/t", "profile=hunter2", "must say where its value is found"),
        ("s3://lake/t", "region=env:NOT_SET_ANYWHERE", "NOT_SET_ANYWHERE, which is not set"),
    ],
)
def test_storage_options_that_are_refused(run: Run, uri: str, storage: str, said: str) -> None:
    for words in (["jobs", uri], ["explain", uri], ["inspect", f"{uri}/_SUCCESS"]):
        result = run(*words, "--storage", storage)
        assert result.code == 2
        assert said in result.err
        assert "hunter2" not in result.out + result.err


def test_what_is_no_secret_is_taken_as_it_is(run: Run) -> None:
    words = ["--storage", "endpoint_url=http://127.0.0.1:1", "--storage", "aws_region=eu-west-3"]
    result = run("explain", "s3://lake/t", *words, "--storage", "fs.s3a.path.style.access=true")
    assert result.code == 0


@pytest.mark.parametrize(
    "command", ["jobs", "validate", "cleanup --older-than 1d", "plan j", "recover j --yes", "abort j --yes"]
)
def test_a_destination_that_does_not_exist(run: Run, tmp_path: Path, command: str) -> None:
    """Neither an empty list nor success: a path was mistyped."""
    name, *more = command.split()
    for output in ("text", "json"):
        result = run(name, tmp_path / "mistyped", *more, "--output", output)
        assert result.code == 4
        assert "error: " in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("uri", "missing", "extra"),
    [
        ("s3://lake/t", ["botocore", "botocore.session"], "s3"),
        ("abfss://data@acct.dfs.core.windows.net/t", ["azure", "azure.identity"], "adls"),
        ("gs://lake/t", ["gcloud", "gcloud.aio", "gcloud.aio.auth"], "gcs"),
    ],
)
@pytest.mark.parametrize("command", ["doctor", "jobs", "validate"])
def test_a_package_that_is_missing(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str, uri: str, missing: list[str], extra: str
) -> None:
    """The extra to install is said, and no traceback shown."""
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "STORAGE_"))]:
        monkeypatch.delenv(name)
    result = run(command, uri)
    assert result.code == 2
    assert "is not installed" in result.err
    assert f"next step  pip install 'lake-committer[{extra}]'" in result.err
    assert "Traceback" not in result.out + result.err
