"""How the store for gs: paths authenticates: tokens, the servers that give them, and that no secret of theirs shows."""

from __future__ import annotations

import asyncio
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

import committer
from committer.errors import (
    CommitterError,
    ConfigurationError,
    InvalidPathError,
    StorePermissionError,
    StoreUnavailableError,
)
from committer.options.references import Secret
from committer.paths import StorePath
from committer.stores.gcs import GcsStore
from committer.stores.gcs import access as gcs_access
from committer.stores.gcs.access import GivenToken
from committer.stores.registry import open_store
from committer_testing.emulators.gcs import Fault, GcsEmulator, Settings
from tests.stores.gcs_bucket import ROOT, emulator_fixture, requests, service_file, store_on, user_file

CANARY = "ya29.canary-of-a-token"


emulator = emulator_fixture(Settings(bearer_tokens=frozenset({CANARY})))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "none"))


async def works(store: GcsStore) -> None:
    """That the service takes its requests; the store is closed then."""
    try:
        await store.put(ROOT / "file", b"1")
        assert await store.read(ROOT / "file", limit=1) == b"1"
    finally:
        await store.close()


@pytest.mark.parametrize("given", ["text", "env", "file"])
async def test_a_token_that_is_given(
    emulator: GcsEmulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str
) -> None:
    monkeypatch.setenv("GCS_TOKEN", CANARY)
    (tmp_path / "token").write_text(f"{CANARY}\n")
    value = {"text": CANARY, "env": "env:GCS_TOKEN", "file": f"file:{tmp_path}/token"}[given]
    store = store_on(emulator, token=value)
    pickled = pickle.dumps(store)
    assert CANARY.encode() not in pickled
    assert CANARY not in repr(store)
    await works(store)
    if given == "text":
        with pytest.raises(ConfigurationError, match="never leaves its process"):
            await works(pickle.loads(pickled))
    else:
        await works(pickle.loads(pickled))


@pytest.mark.parametrize("make", [user_file, service_file])
async def test_tokens_of_a_credentials_file(
    emulator: GcsEmulator, tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path, emulator)
    await works(store_on(emulator, service_file=str(path)))
    assert emulator.access.given_out == 1
    # As application default credentials, which an endpoint that takes no token is not asked with.
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    assert "application default" in repr(GcsStore.open_for(ROOT, {}))


async def test_many_requests_ask_for_a_token_once_and_one_that_is_cancelled_harms_none(
    emulator: GcsEmulator, tmp_path: Path
) -> None:
    """Cancelling one waiter of gcloud-aio's Token.get() cancels all others."""
    store = store_on(emulator, service_file=str(user_file(tmp_path, emulator)))
    calls = [asyncio.create_task(store.put(ROOT / f"{number}", b"")) for number in range(20)]
    while not store._access._asked:  # type: ignore[attr-defined]
        await asyncio.sleep(0)
    calls[0].cancel()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one).__name__ for one in found] == ["CancelledError", *["FileStatus"] * 19]
    assert emulator.access.given_out == 1
    await store.close()


async def test_a_token_that_ends_before_its_time_is_got_anew(emulator: GcsEmulator, tmp_path: Path) -> None:
    store = store_on(emulator, service_file=str(user_file(tmp_path, emulator)))
    await store.put(ROOT / "file", b"1")
    emulator.access.revoke()
    await works(store)
    assert emulator.access.given_out == 2


@pytest.mark.parametrize("ended", ["before", "between"])
async def test_a_token_that_ends_in_a_batch_is_got_anew(emulator: GcsEmulator, tmp_path: Path, ended: str) -> None:
    """The service answers 200 to the batch, and 401 to calls in it."""
    store = store_on(emulator, service_file=str(user_file(tmp_path, emulator)))
    paths = [ROOT / f"file-{number}" for number in range(5)]
    for path in paths:
        await store.put(path, b"1")
    if ended == "before":
        emulator.access.revoke()
    else:
        emulator.conduct.faults.append(
            Fault("error", operation="delete", status=401, code="authError", skip=2, count=2)
        )
    emulator.conduct.log.clear()
    assert await store.delete_files(dict.fromkeys(paths)) == {}
    assert emulator.access.given_out == 2
    assert emulator.namespace.buckets["data"].objects == {}
    # What was done is not sent again.
    assert len(requests(emulator, "delete")) == (10 if ended == "before" else 7)
    # Once: what is refused with the new token, too, is told.
    emulator.conduct.faults.append(Fault("error", operation="delete", status=401, code="authError"))
    assert {type(error) for error in (await store.delete_files(dict.fromkeys(paths[:2]))).values()} == {
        StorePermissionError
    }
    assert emulator.access.given_out == 3
    await store.close()


async def test_a_token_that_is_given_is_not_got_anew(emulator: GcsEmulator) -> None:
    store = store_on(emulator, token="ya29.another-canary")
    with pytest.raises(StorePermissionError) as caught:
        await works(store)
    assert "check what was given: token, an OAuth token" in caught.value.next_step
    assert "objectUser" not in caught.value.next_step, "no role helps where the token is wrong"
    assert len(emulator.conduct.log) == 1


async def test_a_right_that_is_missing_names_the_role(emulator: GcsEmulator) -> None:
    emulator.conduct.faults.append(Fault("error", status=403, code="forbidden"))
    with pytest.raises(StorePermissionError) as caught:
        await works(store_on(emulator, token=CANARY))
    assert "storage.objectUser" in caught.value.next_step


async def test_a_path_given_as_the_token_is_told_to_be_the_service_file(emulator: GcsEmulator, tmp_path: Path) -> None:
    """As gcsfs takes one. The advice, followed."""
    path = str(user_file(tmp_path, emulator))
    with pytest.raises(ConfigurationError, match="not the path of a file") as caught:
        store_on(emulator, token=path)
    assert "give the path as service_file" in caught.value.next_step
    assert path not in str(caught.value), "what exists where a token does is shown nowhere"
    await works(store_on(emulator, service_file=path))


@pytest.mark.parametrize("token", ["google_default", "cloud"])
def test_what_gcsfs_takes_beside_a_token_is_refused(token: str) -> None:
    with pytest.raises(ConfigurationError, match="leave it out: application default credentials"):
        open_store(ROOT, {"token": token})


async def test_one_store_serves_loops_one_after_the_other(emulator: GcsEmulator, tmp_path: Path) -> None:
    store = store_on(emulator, service_file=str(user_file(tmp_path, emulator)))
    await works(store)
    await asyncio.to_thread(lambda: asyncio.run(works(store)))


async def test_the_server_of_tokens_may_fail(
    emulator: GcsEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors hold the request with its secrets: they are neither chained nor repeated."""
    from gcloud.aio.auth import Token

    path = user_file(tmp_path, emulator)

    async def failing(self: Token, *, timeout: int) -> Any:
        raise RuntimeError(f"Bearer {CANARY} r-canary")

    monkeypatch.setattr(Token, "refresh", failing)
    monkeypatch.setattr(Token.acquire_access_token.retry, "wait", lambda *_: 0)  # type: ignore[attr-defined]
    store = store_on(emulator, service_file=str(path))
    with pytest.raises(StoreUnavailableError) as caught:
        await works(store)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "canary" not in str(caught.value)


async def test_a_credentials_file_that_is_none(emulator: GcsEmulator, tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text('{"private_key": "p-canary"}')
    store = store_on(emulator, service_file=str(tmp_path / "no.json"))
    with pytest.raises(ConfigurationError, match=r"no\.json cannot be used") as caught:
        await works(store)
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


async def test_secrets_show_nowhere(
    emulator: GcsEmulator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In no log, error, record or report of a job that commits, and of one that fails."""
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    options = {"endpoint": emulator.url, "token": CANARY}
    async with committer.open_job(f"{ROOT.uri}/table", storage_options=options) as job:
        shown.append(repr(job.spec) + pickle.dumps(job.spec).decode("latin-1"))
        async with job.task_attempt(task=0, attempt=0) as task, task.open("a") as file:
            await file.write(b"1")
        shown.append(repr(await job.commit(tasks=1)))
    emulator.conduct.faults.append(Fault("reset-after"))
    with pytest.raises(CommitterError) as caught:
        await committer.list_jobs("gs://data/elsewhere", storage_options=options)
    shown += [str(caught.value), repr(caught.value), caplog.text]
    shown += [one.data.decode("latin-1") for one in emulator.namespace.buckets["data"].objects.values()]
    assert not [text for text in shown if CANARY in text]


# --- Options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "endpoint", "access"),
    [
        ({}, "https://storage.googleapis.com/data", "GotTokens(application default credentials)"),
        ({"token": "anonymous"}, "https://storage.googleapis.com/data", "Anonymous()"),
        ({"endpoint": "http://h:1/"}, "http://h:1/data", "Anonymous()"),
        ({"google_service_account": "/a"}, "https://storage.googleapis.com/data", "GotTokens(/a)"),
        ({"endpoint": "http://localhost:1", "token": "t"}, "http://localhost:1/data", "GivenToken(Secret(token))"),
        (
            {
                "spark.hadoop.fs.gs.storage.root.url": "http://h:1/",
                "fs.gs.auth.type": "UNAUTHENTICATED",
                "fs.gs.project.id": "p",
            },
            "http://h:1/data",
            "Anonymous()",
        ),
        (
            {
                "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
                "fs.gs.auth.service.account.json.keyfile": "/k",
                "fs.gs.requester.pays.mode": "CUSTOM",
                "fs.gs.requester.pays.buckets": "other",
                "fs.gs.requester.pays.project.id": "p",
            },
            "https://storage.googleapis.com/data",
            "GotTokens(/k)",
        ),
        (
            {"fs.gs.auth.type": "COMPUTE_ENGINE", "fs.gs.auth.service.account.json.keyfile": "/k"},
            "https://storage.googleapis.com/data",
            "GotTokens(application default credentials)",
        ),
    ],
)
def test_options_that_are_understood(options: dict[str, Any], endpoint: str, access: str) -> None:
    store = open_store(ROOT, options)
    assert isinstance(store, GcsStore)
    assert (store.endpoint, repr(store._access)) == (endpoint, access)
    assert store._options.user_project is None


def test_the_environment_names_an_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:9")
    store = open_store(ROOT)
    assert (store.endpoint, "Anonymous" in repr(store)) == ("http://127.0.0.1:9/data", True)
    assert b"127.0.0.1" not in pickle.dumps(store)


def test_who_pays_is_told_with_each_request() -> None:
    given = {"fs.gs.requester.pays.mode": "CUSTOM", "fs.gs.requester.pays.buckets": "a, data"}
    store = open_store(ROOT, {**given, "fs.gs.requester.pays.project.id": "p"})
    assert isinstance(store, GcsStore)
    assert store._options.user_project == "p"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"token": CANARY, "service_file": "/a"}, "exclude one another"),
        ({"service_file": "/a", "fs.gs.auth.service.account.json.keyfile": "/b"}, "exclude one another"),
        ({"endpoint": "http://10.0.0.1:1", "token": CANARY}, "without TLS"),
        ({"endpoint": "nonsense"}, "no URL of an endpoint"),
        ({"google_service_account_key": CANARY}, "give service_file"),
        ({"bucket": "other"}, "is not the path's"),
        ({"project": "p"}, "nothing here makes a bucket"),
        ({"requester_pays": "true"}, "give user_project"),
        ({"tokem": CANARY}, "did you mean 'token'?"),
        ({"fs.gs.auth.typ": "X"}, "did you mean 'fs.gs.auth.type'?"),
        ({"fs.gs.auth.type": "USER_CREDENTIALS"}, "give service_file or token"),
        ({"token": ""}, "no text, or empty"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(ROOT, options)
    assert said in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("uri", ["gs:///path", "gs://user@bucket/path"])
def test_a_path_that_names_no_bucket(uri: str) -> None:
    with pytest.raises(InvalidPathError):
        open_store(StorePath.of(uri))


def test_the_scope_is_for_objects_alone() -> None:
    assert gcs_access.SCOPE.endswith("/devstorage.read_write")


async def test_what_a_token_was_found_to_be_is_never_pickled() -> None:
    access = GivenToken(Secret(CANARY, "token"))
    await access.prepare()
    with pytest.raises(TypeError, match="never leaves its process"):
        pickle.dumps(access)
