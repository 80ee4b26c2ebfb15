"""The calls that errors advise reach the store that the job was opened on: they carry its storage options, no secrets."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import committer
import committer.sync
from committer.committers.advising import shown_options
from committer.errors import CommitterError, ConfigurationError
from committer.options.references import Found
from committer.paths import StorePath
from committer.spark.options import parse_options
from committer_testing.emulators.adls import AdlsEmulator, Fault, serve
from tests.api.test_advice import calls_in, follow
from tests.stores.adls_account import ROOT, put_files

DEST = (ROOT / "table").uri
PLACE = StorePath.of(DEST)


@pytest.fixture
async def emulator() -> AsyncIterator[AdlsEmulator]:
    async with serve() as emulator:
        put_files(emulator)
        yield emulator


@pytest.fixture
def options(emulator: AdlsEmulator, tmp_path: Path) -> dict[str, object]:
    (tmp_path / "key").write_text(emulator.settings.key)
    return {"endpoint": emulator.dfs_url, "account_key": f"file:{tmp_path / 'key'}"}


async def write(job: committer.Job) -> None:
    for number in range(3):
        async with job.task_attempt(task=number) as task, task.open(f"p={number}/file") as file:
            await file.write(b"x")


async def stopped(emulator: AdlsEmulator, options: dict[str, object]) -> CommitterError:
    """What a commit says that the service stopped after its decision."""
    job = await committer.open_job(DEST, job_id="j", storage_options=options, config={"promote_directories": False})
    await write(job)
    fault = Fault(kind="error", operation="rename", path_prefix="data/test/root/table/p=2", status=403)
    fault.code = "AuthorizationFailure"
    emulator.conduct.faults.append(fault)
    with pytest.raises(CommitterError) as caught:
        await job.commit()
    emulator.conduct.faults.clear()
    await job.close()
    return caught.value


async def test_a_stopped_commit_is_recovered_as_its_error_says(
    emulator: AdlsEmulator, options: dict[str, object]
) -> None:
    error = await stopped(emulator, options)
    assert error.outcome == "partial"
    report: Any = await follow(calls_in(error)[0])
    assert report.files_committed == 3
    assert "..." not in error.next_step


async def test_a_secret_is_left_out_and_asked_for(emulator: AdlsEmulator, options: dict[str, object]) -> None:
    secret = emulator.settings.key
    error = await stopped(emulator, {**options, "account_key": secret})
    advice = calls_in(error)[0]
    assert secret not in str(error)
    assert f"'endpoint': {emulator.dfs_url!r}, 'account_key': ..." in advice
    assert "... stands for what was given there" in error.next_step
    with pytest.raises(ConfigurationError, match="account_key") as refused:
        await follow(advice)
    assert "put in its place" in refused.value.next_step
    report: Any = await follow(advice.replace("...", repr(secret)))
    assert report.files_committed == 3


async def test_every_operation_of_a_destination_names_them(emulator: AdlsEmulator, options: dict[str, object]) -> None:
    told = f"storage_options={options!r}"
    job = await committer.open_job(DEST, job_id="j", storage_options=options)
    await job.close()
    tries = {
        "recover an undecided job": lambda: committer.recover(DEST, "j", storage_options=options),
        "recover what is not there": lambda: committer.recover(dest=DEST, job_id="other", storage_options=options),
        "attach": lambda: committer.attach_job(DEST, job_id="other", storage_options=options),
        "a task": lambda: committer.open_task(
            committer.JobSpec(destination=DEST, job_id="gone"), task=0, storage_options=options
        ),
        "cleanup": lambda: committer.cleanup(DEST, job_id="other", storage_options=options),
        "validate": lambda: committer.validate(DEST, storage_options=options),
        "uploads": lambda: committer.list_uploads(DEST, storage_options=options),
    }
    for what, call in tries.items():
        with pytest.raises(CommitterError) as caught:
            await call()  # type: ignore[no-untyped-call]
        assert told in caught.value.next_step, what
        assert caught.value.next_step.count("storage_options=") == caught.value.next_step.count("await committer."), (
            what
        )


async def test_an_attached_job_names_them_and_a_blocking_caller_reads_a_blocking_call(
    emulator: AdlsEmulator, options: dict[str, object]
) -> None:
    await stopped(emulator, options)
    async with committer.attach_job(DEST, job_id="j", storage_options=options) as job:
        with pytest.raises(CommitterError) as caught:
            await job.abort()
    assert f"storage_options={options!r}" in caught.value.next_step
    with pytest.raises(CommitterError) as blocked:
        await asyncio.to_thread(committer.sync.cleanup, DEST, job_id="j", storage_options=options)
    assert f"`committer.sync.recover({DEST!r}, 'j', storage_options={options!r})`" in blocked.value.next_step


def test_what_is_shown() -> None:
    given = {
        "endpoint": "http://127.0.0.1:1",
        "account_key": "secret",
        "sas_token": "env:SAS",
        "credential": object(),
        "account_name": "lake",
        "tenant_id": None,
        "fs.azure.account.key": "secret",
        "no such": "secret",
    }
    assert shown_options(PLACE, given) == (
        "{'endpoint': 'http://127.0.0.1:1', 'account_key': ..., 'sas_token': 'env:SAS', 'credential': ..., "
        "'account_name': 'lake', 'fs.azure.account.key': ..., 'no such': ...}"
    )
    for text in ("http://u:p@host", "https://host/?sig=1", "a`b"):
        assert shown_options(PLACE, {"endpoint": text}) == "{'endpoint': ...}"
    assert shown_options(StorePath.of("nosuch://x/y"), {"key": "secret"}) == "{'key': ...}"
    assert shown_options(PLACE, None) == shown_options(PLACE, {}) == ""
    assert shown_options(PLACE, "secret") == ""  # type: ignore[arg-type]


def test_what_spark_resolved_is_shown_as_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", "secret")
    found = parse_options({"path": DEST, "storage.account_key": "env:LAKE_KEY"}).storage_options()
    assert found == {"account_key": "secret"}
    assert shown_options(PLACE, found) == "{'account_key': 'env:LAKE_KEY'}"
    written = parse_options({"path": DEST, "storage.account_key": "env:LAKE_KEY"})
    assert written.recover_call("j") == (
        f"committer.sync.recover({DEST!r}, 'j', storage_options={{'account_key': 'env:LAKE_KEY'}})"
    )
    kept = pickle.loads(pickle.dumps(found["account_key"]))
    assert isinstance(kept, Found)
    assert (kept, kept.reference) == ("secret", "env:LAKE_KEY")
