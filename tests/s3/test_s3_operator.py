"""What an operator sees of a bucket: its uploads, and that no job can be committed there yet."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import committer
from committer.cli import main
from committer.committers.actions import UploadAction
from committer.paths import StorePath
from committer.testing.faults import SimulatedCrash
from tests.s3.bucket import options_for
from tests.s3.servers import BUCKET, KEY, KEY_ID, Server


@pytest.fixture
def environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a command line needs, from where AWS's own tools take it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("COLUMNS", "200")


def begin(server: Server, root: StorePath, name: str) -> str:
    key = f"{root.path[1:]}/{name}"
    begun: dict[str, Any] = server.client.create_multipart_upload(Bucket=BUCKET, Key=key)
    upload_id: str = begun["UploadId"]
    server.client.upload_part(Bucket=BUCKET, Key=key, UploadId=upload_id, PartNumber=1, Body=b"12345")
    return upload_id


@pytest.mark.parametrize("where", ["seaweedfs", "moto"])
async def test_uploads_of_a_directory(where: str, request: pytest.FixtureRequest, root: StorePath) -> None:
    server: Server = request.getfixturevalue(f"{where}_server")
    options = options_for(server)
    ours = begin(server, root, "dataset1/a b=1/file")
    other = begin(server, root, "dataset10/file")
    [found] = await committer.list_uploads(root / "dataset1", sizes=True, storage_options=options)
    assert (found.path, found.upload_id) == (root / "dataset1/a b=1/file", ours)
    assert (found.parts, found.size) == (1, 5)
    # moto says of each that it was begun in 2010.
    if where == "seaweedfs":
        young = await committer.abort_uploads(root, older_than=timedelta(hours=1), storage_options=options)
        assert young.aborted == []
    report = await committer.abort_uploads(root / "dataset1", force=True, storage_options=options)
    assert [upload.upload_id for upload in report.aborted] == [ours]
    assert [upload.upload_id for upload in await committer.list_uploads(root, storage_options=options)] == [other]


@pytest.mark.usefixtures("environment")
def test_the_command_line(server: Server, root: StorePath, capsys: pytest.CaptureFixture[str]) -> None:
    begin(server, root, "d/file")
    assert main(["uploads", "list", str(root / "d"), "--sizes"]) == 0
    assert "1 pending upload below" in capsys.readouterr().out
    assert main(["uploads", "expect", str(root / "d"), "0"]) == 1
    assert main(["uploads", "abort", str(root / "d"), "--all", "--yes"]) == 0
    assert main(["uploads", "expect", str(root / "d"), "0"]) == 0
    assert main(["uploads", "list", "s3://no-such-bucket/x"]) == 4


@pytest.mark.parametrize("where", ["seaweedfs", "moto"])
@pytest.mark.usefixtures("environment")
def test_a_mistyped_bucket_is_no_destination_without_jobs(
    where: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    root: StorePath,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server: Server = request.getfixturevalue(f"{where}_server")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
    commands = ["jobs", "validate", "doctor", "inspect", "cleanup --older-than 1d --yes", "uploads list"]
    commands += ["plan j", "recover j --yes", "abort j --yes", "commit j --yes"]
    for command in commands:
        name, *more = command.split()
        words = [*(["uploads", "list"] if name == "uploads" else [name]), "s3://no-such-bucket/t"]
        assert main([*words, *(more if name != "uploads" else [])]) == 4
        told = capsys.readouterr()
        assert "there is no such bucket: no-such-bucket" in told.err
        assert told.out == ""
    # Of a prefix without keys the store cannot tell whether it is empty, or no destination.
    assert main(["jobs", str(root)]) == 0
    assert "no jobs" in capsys.readouterr().out


@pytest.mark.usefixtures("environment")
def test_who_spells_the_scheme_as_no_task_did_is_told_so(
    server: Server, root: StorePath, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die() -> None:
        job = await committer.open_job(f"s3a://{root.authority}{root.path}", job_id="j", delivery="message")
        async with job.task_attempt(0) as task, task.open("x") as file:
            await file.write(b"x")
        with monkeypatch.context() as patched, pytest.raises(SimulatedCrash):
            patched.setattr(UploadAction, "publish", crash)
            await job.commit(tasks=1)
        await job.close()

    async def crash(*_arguments: object) -> None:
        raise SimulatedCrash

    asyncio.run(die())
    assert main(["recover", str(root), "j", "--yes"]) == 3
    assert "name the destination as its tasks did, with s3a:" in " ".join(capsys.readouterr().err.split())
    assert main(["recover", f"s3a://{root.authority}{root.path}", "j", "--yes"]) == 0


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("command", ["doctor", "explain"])
def test_what_works_here_is_told(root: StorePath, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, str(root)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "magic" in said
    assert "the store renames nothing, and has uploads" in said
    assert "failed" not in said
