"""Commands about an account of Azure Data Lake Storage, as an operator types them: references to secrets, never secrets."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import committer
from tests.cli.conftest import Result, Run
from tests.stores.adls_process import Account, account_process

KEY = "dGhlIGNhbmFyeSBvZiBhbGwgYWNjb3VudCBrZXlz"
FILES = {f"p={task}/part-{number}.csv": b"x" * number for task in range(2) for number in range(3)}


@pytest.fixture(scope="module")
def running() -> Iterator[Account]:
    with account_process(key=KEY) as account:
        yield account


@pytest.fixture
def account(running: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    monkeypatch.setenv("ADLS_KEY", KEY)
    yield running
    running.control("DELETE", "faults")


@pytest.fixture
def reach(account: Account) -> list[str]:
    return ["--storage", f"endpoint={account.endpoint}", "--storage", "account_key=env:ADLS_KEY"]


def job_at(account: Account, directory: str, *, stopped: bool = False) -> str:
    """A job with its tasks done; or one whose commit stopped after the second file. Returns the destination."""
    uri = account.uri(directory)
    options: dict[str, object] = {"endpoint": account.endpoint, "account_key": KEY}

    async def work() -> None:
        job = await committer.open_job(uri, job_id="nightly", storage_options=options)
        for task in range(2):
            async with job.task_attempt(task) as attempt:
                for name, data in FILES.items():
                    if name.startswith(f"p={task}/"):
                        async with attempt.open(name) as file:
                            await file.write(data)
        if stopped:
            with pytest.raises(committer.CommitterError):
                await job.commit(tasks=2)
        await job.close()

    if stopped:
        fault = {
            "kind": "error",
            "operation": "rename",
            "path_prefix": f"data/{directory}/p=",
            "skip": 2,
            "status": 403,
        }
        account.control("POST", "faults", {**fault, "code": "AuthorizationFailure"})
    asyncio.run(work())
    account.control("DELETE", "faults")
    return uri


def check_no_secret(result: Result) -> Result:
    assert KEY not in result.out + result.err
    return result


def test_from_a_job_to_its_data(run: Run, account: Account, reach: list[str]) -> None:
    uri = job_at(account, "table")
    assert "6 files" in check_no_secret(run("plan", uri, "nightly", *reach)).out
    assert run("commit", uri, "nightly", "--tasks", "2", "--yes", *reach).code == 0
    assert "complete  yes" in run("validate", uri, *reach).out
    assert "no jobs" in run("jobs", uri, *reach).out
    assert account.files("table").keys() == {*FILES, "_SUCCESS"}


def test_the_command_that_is_shown_is_the_one_that_works(run: Run, account: Account, reach: list[str]) -> None:
    uri = job_at(account, "stopped", stopped=True)
    shown = check_no_secret(run("jobs", uri, *reach)).out
    command, back = (line.strip() for line in shown.splitlines() if line.strip().startswith("committer recover"))
    words = shlex.split(command)[1:]
    assert words == ["recover", uri, "nightly", *reach]
    assert shlex.split(back)[1:] == ["recover", uri, "nightly", "--rollback", *reach]
    kept = run("cleanup", uri, "--job", "nightly", "--yes", *reach)
    assert (kept.code, "recover it" in kept.err) == (3, True)
    done = check_no_secret(run(*words, "--yes"))
    assert (done.code, "renames recovered  2" in done.out) == (0, True)
    found = account.files("stopped")
    del found["_SUCCESS"]
    assert found == FILES


def test_an_account_is_examined(run: Run, account: Account, reach: list[str]) -> None:
    """Also with a right missing that no commit needs; the refusal says what it likes."""
    before = account.sizes("")
    for refused in (False, True):
        if refused:
            fault = {"kind": "error", "operation": "get-service-properties", "status": 403, "message": KEY}
            account.control("POST", "faults", {**fault, "code": "AuthorizationPermissionMismatch"})
        found = check_no_secret(run("doctor", account.uri("new/place"), *reach))
        assert (found.code, "failed" in found.out) == (0, False)
        assert ("skipped  the account does not say: 403" in found.out) is refused
    assert account.sizes("") == before
    assert "calls a second   1,000" in run("explain", account.uri("t"), *reach).out


def test_an_account_without_hierarchical_namespace(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADLS_KEY", KEY)
    with account_process("--flat", key=KEY) as account:
        reach = ["--storage", f"endpoint={account.endpoint}", "--storage", "account_key=env:ADLS_KEY"]
        found = check_no_secret(run("doctor", account.uri("t"), *reach))
    assert (found.code, found.out.count("next step: write az://CONTAINER/PATH with the option account_name")) == (1, 1)
    assert "kind of account failed" in " ".join(found.out.split())


def test_a_mistyped_container_is_no_destination_without_jobs(run: Run, account: Account, reach: list[str]) -> None:
    uri = account.uri("table").replace("data@", "date@", 1)
    commands = [["jobs"], ["validate"], ["doctor"], ["cleanup", "--older-than", "1d", "--yes"], ["inspect"]]
    commands += [[name, "nightly", "--yes"] for name in ("recover", "abort", "commit")] + [["plan", "nightly"]]
    for name, *more in commands:
        found = run(name, uri, *more, *reach)
        assert (found.code, "there is no such container: date@" in found.err, found.out) == (4, True, "")


def test_what_does_not_let_in(run: Run, account: Account, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    uri, endpoint = job_at(account, "reached"), ["--storage", f"endpoint={account.endpoint}"]
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv("OTHER_KEY", "b3RoZXI=")
    monkeypatch.setenv("ACCOUNT", f"AccountName=devstoreaccount1;AccountKey={KEY};BlobEndpoint={account.url}")
    assert run("jobs", uri, *endpoint, "--storage", f"account_key=file:{tmp_path / 'key'}").code == 0
    assert run("jobs", uri, "--storage", "connection_string=env:ACCOUNT").code == 0
    refused = check_no_secret(run("jobs", uri, *endpoint, "--storage", "account_key=env:OTHER_KEY"))
    assert (refused.code, "403 AuthenticationFailed" in refused.err) == (1, True)
    literal = check_no_secret(run("jobs", uri, *endpoint, "--storage", f"account_key={KEY}"))
    assert (literal.code, "must say where its value is found" in literal.err) == (2, True)
    # Nothing is said of who is asking, and a token does not go over the wire in the clear.
    assert "never sent without TLS" in run("jobs", uri, *endpoint).err
