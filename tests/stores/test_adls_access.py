"""Authentication to an account: which options do, what they refuse, and that no secret shows anywhere."""

from __future__ import annotations

import asyncio
import base64
import logging
import pickle
import ssl
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

import committer
from committer.errors import (
    ConfigurationError,
    InvalidPathError,
    JobStateError,
    StorePermissionError,
    StoreUnavailableError,
    TaskError,
)
from committer.paths import StorePath
from committer.stores.adls import AdlsStore
from committer.stores.http import redact
from committer.stores.registry import open_store
from committer_testing.emulators.adls import AdlsEmulator, Fault, Settings, serve
from tests.emulators.tls import certificate_in
from tests.stores.adls_account import ROOT, account_fixture, put_files, signature, store_on

KEY = base64.b64encode(b"the canary of all account keys").decode()
TOKEN = "eyJhbGciOiJub25lIn0.eyJhdWQiOiJjYW5hcnkifQ.c2lnbmVkY2FuYXJ5"


emulator = account_fixture(Settings(key=KEY))


def connection_string(emulator: AdlsEmulator, secret: str) -> str:
    return f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;{secret};DfsEndpoint={emulator.dfs_url};"


async def works(store: AdlsStore) -> None:
    await store.put(ROOT / "file", b"1")
    await store.rename_file(ROOT / "file", ROOT / "new name=1")
    assert await store.read(ROOT / "new name=1", limit=9) == b"1"
    await store.delete_file(ROOT / "new name=1")
    await store.close()


# --- Options ------------------------------------------------------------------------------------------------------


async def test_a_connection_string_with_a_key_or_a_signature(emulator: AdlsEmulator) -> None:
    for secret in (f"AccountKey={KEY}", f"SharedAccessSignature={signature(emulator)}"):
        await works(AdlsStore.open_for(ROOT, {"connection_string": connection_string(emulator, secret)}))


async def test_references(emulator: AdlsEmulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv("CANARY_CONNECTION", connection_string(emulator, f"AccountKey={KEY}"))
    for options in (
        {"endpoint": emulator.dfs_url, "account_key": f"file:{tmp_path}/key"},
        {"connection_string": "env:CANARY_CONNECTION"},
    ):
        store = AdlsStore.open_for(ROOT, options)
        pickled = pickle.dumps(store)
        assert KEY.encode() not in pickled
        await works(store)
        await works(pickle.loads(pickled))


async def test_credentials_of_azure_core(emulator: AdlsEmulator) -> None:
    core = pytest.importorskip("azure.core.credentials")
    for credential in (
        core.AzureNamedKeyCredential("devstoreaccount1", KEY),
        core.AzureSasCredential(signature(emulator)),
    ):
        await works(store_on(emulator, account_key=None, credential=credential))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"account_key": KEY, "sas_token": "sig=1"}, "account_key and sas_token exclude"),
        ({"connection_string": "AccountKey=1", "account_key": KEY}, "connection_string and account_key exclude"),
        ({"connection_string": "canary"}, "without an equals sign"),
        ({"connection_string": "AccountName=other;AccountKey=1"}, "another account"),
        ({"connection_string": "file:/not/there"}, "cannot be read: FileNotFoundError"),
        ({"account_kee": KEY}, "did you mean 'account_key'"),
        ({"account_key": 7}, "no text"),
        ({"account_key": ""}, "no text, or empty"),
        ({"credential": "canary"}, "no get_token"),
        ({"endpoint": "ftp://host", "account_key": KEY}, "no URL of an endpoint"),
        ({"endpoint": f"https://host/?sig={KEY}", "account_key": KEY}, "no URL of an endpoint"),
        ({"endpoint": "http://127.0.0.1:1/a"}, "never sent without TLS"),
    ],
)
def test_options_that_cannot_be(options: dict[str, object], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match) as caught:
        open_store(ROOT, options)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("option", ["account_key", "sas_token"])
@pytest.mark.parametrize("value", ["a canary", "env:NOT_SET_ANYWHERE", "file:/not/there"])
async def test_a_secret_that_is_none(emulator: AdlsEmulator, option: str, value: str) -> None:
    store = store_on(emulator, **{"account_key": None, option: value})
    with pytest.raises(ConfigurationError, match=option) as caught:
        await store.status(ROOT)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("uri", ["abfss://data/dir", "abfss://@account.dfs.core.windows.net/dir"])
def test_paths_without_container_or_account(uri: str) -> None:
    with pytest.raises(InvalidPathError, match="no container and account"):
        open_store(StorePath.of(uri), {"account_key": KEY})


def test_where_an_account_is() -> None:
    for scheme in ("abfs", "abfss"):
        store = open_store(StorePath.of(f"{scheme}://data@acct.dfs.core.windows.net/x"), {"account_key": KEY})
        assert (store.scheme, store.endpoint) == (scheme, "https://acct.dfs.core.windows.net")
    text = "AccountName=acct;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn"
    store = open_store(StorePath.of("abfss://data@acct.dfs.core.chinacloudapi.cn/x"), {"connection_string": text})
    assert store.endpoint == "https://acct.dfs.core.chinacloudapi.cn"


async def test_a_wrong_key(emulator: AdlsEmulator) -> None:
    store = store_on(emulator, account_key=base64.b64encode(b"wrong").decode())
    with pytest.raises(StorePermissionError, match="AuthenticationFailed") as caught:
        await store.put(ROOT / "file", b"1")
    assert "check what was given" in caught.value.next_step
    assert "Contributor" not in caught.value.next_step, "no role helps where the key is wrong"
    await store.close()
    await works(store_on(emulator, account_key=KEY))


async def test_a_right_that_is_missing_names_the_role(emulator: AdlsEmulator) -> None:
    emulator.conduct.faults.append(Fault("error", status=403, code="AuthorizationPermissionMismatch"))
    store = store_on(emulator, account_key=KEY)
    with pytest.raises(StorePermissionError) as caught:
        await store.put(ROOT / "file", b"1")
    assert "Storage Blob Data Contributor" in caught.value.next_step
    await store.close()


# --- Tokens -------------------------------------------------------------------------------------------------------


class Credential:
    """Gives a token, and counts how often it was asked."""

    def __init__(self, token: str = TOKEN, lives_s: float = 3600) -> None:
        self.token, self.lives_s, self.asked = token, lives_s, 0

    def get_token(self, *scopes: str) -> SimpleNamespace:
        assert scopes == ("https://storage.azure.com/.default",)
        self.asked += 1
        return SimpleNamespace(token=self.token, expires_on=int(time.time() + self.lives_s))


class AsyncCredential(Credential):
    async def get_token(self, *scopes: str) -> SimpleNamespace:  # type: ignore[override]
        await asyncio.sleep(0.01)
        return super().get_token(*scopes)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file."""
    return certificate_in(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def over_tls(certificate: Path, credential: Any) -> AsyncIterator[tuple[AdlsStore, AdlsEmulator]]:
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with serve(Settings(key=KEY, bearer_tokens=frozenset({TOKEN})), ssl_context=serving) as emulator:
        put_files(emulator)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session:
            yield store_on(emulator, account_key=None, credential=credential, http_session=session), emulator


@pytest.mark.parametrize("kind", [Credential, AsyncCredential])
async def test_a_token_is_got_once(certificate: Path, kind: type[Credential]) -> None:
    credential = kind()
    async with over_tls(certificate, credential) as (store, _):
        await asyncio.gather(*(store.status(ROOT) for _ in range(10)))
        await works(store)
        assert credential.asked == 1


async def test_a_token_is_got_anew_before_it_ends(certificate: Path) -> None:
    credential = Credential(lives_s=0.0)
    async with over_tls(certificate, credential) as (store, _):
        await store.status(ROOT)
        await store.status(ROOT)
        assert credential.asked == 2


async def test_who_gives_tokens_is_not_asked_by_every_request_while_that_fails(certificate: Path) -> None:
    class Failing(Credential):
        def get_token(self, *scopes: str) -> SimpleNamespace:
            if self.asked:
                self.asked += 1
                raise RuntimeError("not now")
            return super().get_token(*scopes)

    credential = Failing()
    async with over_tls(certificate, credential) as (store, _):
        await store.status(ROOT)
        store._access._fresh_until = 0.0  # type: ignore[attr-defined]
        for _request in range(5):
            await store.status(ROOT)
        assert credential.asked == 2


async def test_a_token_that_was_refused_is_not_used_again(certificate: Path) -> None:
    credential = Credential(TOKEN[:-1] + "A")
    async with over_tls(certificate, credential) as (store, _):
        with pytest.raises(StorePermissionError):
            await store.status(ROOT)
        credential.token = TOKEN
        await store.status(ROOT)


async def test_a_token_that_ends_before_its_time(certificate: Path) -> None:
    credential = Credential()
    async with over_tls(certificate, credential) as (store, emulator):
        await store.status(ROOT)
        emulator.conduct.faults.append(Fault("error", status=401, code="InvalidAuthenticationInfo", count=1))
        assert await store.make_directory(ROOT / "d", parents=False)
        assert credential.asked == 2


async def test_a_certificate_that_is_not_trusted(certificate: Path) -> None:
    async with over_tls(certificate, Credential()) as (store, emulator):
        other = store_on(emulator, account_key=None, credential=Credential())
        with pytest.raises(StoreUnavailableError, match="Certificate"):
            await other.status(ROOT)
        await other.close()
        await works(store)


async def test_a_credential_that_fails(certificate: Path) -> None:
    class Failing:
        def get_token(self, *scopes: str) -> None:
            raise RuntimeError(f"no: Authorization: Bearer {TOKEN}")

    async with over_tls(certificate, Failing()) as (store, _):
        with pytest.raises(StorePermissionError, match="Failing gave no token") as caught:
            await store.status(ROOT)
        assert TOKEN not in "".join(traceback.format_exception(caught.value))


def test_a_credential_does_not_travel() -> None:
    store = AdlsStore.open_for(ROOT, {"credential": Credential()})
    copy = pickle.loads(pickle.dumps(store))
    with pytest.raises(ConfigurationError, match="given as an object"):
        asyncio.run(copy.status(ROOT))


# --- Canaries -----------------------------------------------------------------------------------------------------


async def test_no_secret_shows(
    emulator: AdlsEmulator, caplog: pytest.LogCaptureFixture, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    sas = signature(emulator)
    secrets = [KEY, sas, sas[sas.index("sig=") + 4 :].partition("&")[0], TOKEN]
    seen: list[str] = []

    def show(thing: BaseException | AdlsStore) -> None:
        seen.append(repr(thing) + str(thing) + repr(pickle.dumps(thing, 0)))
        error: BaseException | None = thing if isinstance(thing, BaseException) else None
        while error is not None:
            seen.append("".join(traceback.format_exception(error)) + repr(error) + repr(vars(error)))
            error = error.__cause__ or error.__context__

    async def use(store: AdlsStore) -> None:
        show(store)
        for call in (
            lambda: store.put(ROOT / "file", b"1", exclusive=True),
            lambda: store.rename_file(ROOT / "file", ROOT / "new"),
            lambda: store.status(ROOT),
            lambda: store.open_writer(ROOT / "written"),
            lambda: store.delete_directory(ROOT / "d", recursive=True),
        ):
            try:
                await call()
            except committer.CommitterError as error:
                show(error)

    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 what is this\r\n\r\n")
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(garbage, "127.0.0.1", 0)
    where = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/devstoreaccount1"
    faults = [
        [],
        [Fault("reset-after")],
        [Fault("error", status=403, code="AuthenticationFailed", message=f"signature {sas} {KEY}")],
        [Fault("error-after", status=500)],
    ]
    try:
        for options in ({"account_key": KEY}, {"account_key": None, "sas_token": sas}):
            await use(garbled := store_on(emulator, **options, endpoint=where))
            await garbled.close()
            for some in faults:
                emulator.conduct.faults[:] = some
                await use(store := store_on(emulator, **options))
                await store.close()
        async with over_tls(certificate, Credential()) as (store, secure):
            for some in faults:
                secure.conduct.faults[:] = some
                await use(store)
    finally:
        server.close()
        await server.wait_closed()
    text = "\n".join([*seen, caplog.text])
    assert "the answer was lost" in text
    assert "AuthenticationFailed" in text
    assert not [secret for secret in secrets if secret in text]


@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("way", ["account_key", "sas_token", "connection_string"])
async def test_no_record_of_a_job_holds_a_secret(emulator: AdlsEmulator, way: str, delivery: str) -> None:
    """Nor does anything that goes to another process: all that was ever written, of a job that stops and is finished."""
    sas = signature(emulator)
    given = {
        "account_key": KEY,
        "sas_token": sas,
        "connection_string": f"AccountName=devstoreaccount1;AccountKey={KEY}",
    }
    options = {"endpoint": emulator.dfs_url, way: given[way]}
    reports = f"abfss://{ROOT.authority}/reports"
    config = committer.CommitterConfig(summary_report_directory=reports, diagnostics_manifest_directory=reports)
    written: list[bytes] = []
    answer = emulator._answer
    emulator._answer = lambda request: written.append(request.body) or answer(request)  # type: ignore[method-assign,func-returns-value,assignment]
    stop = Fault("error", operation="rename", path_prefix="data/test/root/a", status=403, code="AuthorizationFailure")
    emulator.conduct.faults.append(stop)
    shown: list[object] = []
    with pytest.raises(committer.CommitterError) as caught:
        async with committer.open_job(
            ROOT.uri, job_id="J", delivery=delivery, config=config, storage_options=options
        ) as job:
            shown += [job, job.spec]
            async with job.task_attempt(task=0, attempt=0) as task, task.open("a") as file:
                await file.write(b"1")
            assert task.task_commit is not None
            shown += [task, task.task_commit, task.task_commit.encode()]
    shown += [caught.value, *await committer.list_jobs(ROOT.uri, storage_options=options)]
    emulator.conduct.faults.clear()
    report = await committer.recover(ROOT.uri, "J", storage_options=options)
    shown += [report, await committer.validate(ROOT.uri, storage_options=options)]
    assert report.files_committed == 1

    text = b"\n".join(written).decode() + "".join(map(repr, shown))
    for one in shown:
        with suppress(JobStateError, TaskError):  # of Job and TaskAttempt, which have no pickle
            text += repr(pickle.dumps(one, 0))
    assert "decision" in text
    assert "summary-J" in "".join(entry.path for entry in emulator.conduct.log)
    for secret in (sas[sas.index("sig=") + 4 :].partition("&")[0], KEY):
        assert secret not in text


def test_redaction() -> None:
    text = (
        "https://a.dfs.core.windows.net/c/p?sv=1&sig=AbC%2F%3D&se=2 Authorization: Bearer eyJ.a.b "
        "SharedKey acct:Sig+/= AccountKey=Zm9v==;EndpointSuffix=x"
    )
    found = redact(text)
    for secret in ("AbC", "eyJ", "Sig+", "Zm9v"):
        assert secret not in found
    assert "sv=1" in found
    assert redact("Cannot connect to host a:443") == "Cannot connect to host a:443"
